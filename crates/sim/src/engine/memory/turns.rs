//! Arbitration between the requests for a contended line.
//!
//! One of the requests that wait at a line is appointed to act when the line is free. The others do
//! not act. The one that is served appoints the next.

use crate::engine::memory::{LINE, Request};
use crate::engine::{Engine, NEVER, State};
use crate::hardware::coherence::Access;
use crate::hardware::contention::{Actor, Waiting};
use crate::results::trace::Miss;

impl Engine {
    /// The time, if the running thread, which waits for a line, has its turn: it stops waiting.
    pub(in crate::engine) fn claim_turn(&mut self, line: usize, cpu: usize) -> Option<u64> {
        let State::Waiting { turn } = self.threads[self.current()].state else {
            return None;
        };
        let core = self.cpus[cpu].core;
        self.take_turn(line, Actor::Thread(cpu), core, turn).then_some(turn)
    }

    /// Serves the request that has its turn. The line is on its way from the time `start`. Returns
    /// the time at which it arrives.
    pub(in crate::engine) fn serve(
        &mut self,
        cpu: usize,
        request: &Request,
        start: u64,
        waits: bool,
    ) -> u64 {
        let &Request { line, access, word, site, issued, arrived, .. } = request;
        let (core, node) = (self.cpus[cpu].core, self.cpus[cpu].node);
        let source = self.directory.source(line, core, node, access);
        self.report.transfers.count(source.from);
        let owner = self.tracer.as_ref().and_then(|_| self.directory.owner(line));
        let alone = self.directory.transfer(line, core, node, access);
        self.directory.set_writer(line, access.writes().then_some(cpu as u32));
        let costs = self.spec.costs();
        let cost = self.jitter.jitter(source.cost);
        let flight = cost * self.request_percent / 100;
        let response = cost - flight;
        let arrival = start + response;
        // A locked operation executes once all before it is complete.
        let completion = match access {
            Access::Update => arrival.max(self.retires_at(cpu)) + costs.locked,
            _ => arrival,
        };
        // Copies go out one after the other. Ownership arrives before it can go on, and the core
        // that has it sees no other's request for another flight.
        let busy = if alone { completion + flight } else { start + costs.directory };
        self.directory.occupy(line, core, completion, busy);
        if let Some(ledger) = &mut self.ledger {
            let (queue, time) = (start - arrived, completion - issued);
            let how = (source.from, access.writes());
            ledger.access(core, (line, site, word), how, queue, time);
            self.put_down(cpu, request, start);
        }
        if let Some(tracer) = &mut self.tracer {
            let address = self.directory.name(line) * LINE as u64 + (word % LINE) as u64;
            let cpu_of = |owner: u32| self.cpus.iter().position(|it| it.core == owner);
            let owner = owner.filter(|&owner| owner != core).and_then(cpu_of);
            let miss = Miss { site, address, from: source.from, owner, waits };
            tracer.missed(cpu, miss, issued, completion);
        }
        self.appoint(line);
        // A store's spinners are woken when it leaves its buffer.
        if matches!(access, Access::Own | Access::Update) {
            self.wake_watchers(line, completion);
        }
        completion
    }

    /// A request arrives at its line at `now`. Whether it already is this request's turn. Otherwise
    /// the request waits.
    pub(in crate::engine) fn arrive(
        &mut self,
        line: usize,
        actor: Actor,
        core: u32,
        now: u64,
    ) -> bool {
        let waited_for = self
            .directory
            .contention(line)
            .is_some_and(|contention| !contention.waiting.is_empty());
        if !waited_for && self.directory.free_at(line, core) <= now {
            return true;
        }
        self.directory.contention_mut(line).waiting.push_back(Waiting { actor, core });
        let turn = match waited_for {
            true => NEVER,
            false => self.directory.free_at(line, core),
        };
        self.schedule_turn(actor, turn);
        false
    }

    /// When a request that waits acts.
    fn schedule_turn(&mut self, actor: Actor, turn: u64) {
        match actor {
            Actor::Thread(cpu) => self.set_state(cpu, State::Waiting { turn }),
            Actor::Stores(cpu) => self.schedule_head(cpu, turn),
        }
    }

    /// Appoints the request that acts next at a line.
    fn appoint(&mut self, line: usize) {
        if let Some(next) = self.directory.next_waiting(line, self.arbitration) {
            let next = self.directory.contention_mut(line).waiting[next];
            let turn = self.directory.free_at(line, next.core);
            self.schedule_turn(next.actor, turn);
        }
    }

    /// The request whose turn is next at a line acts, at `now`: it is served, unless the line is
    /// busy again, or a request has come meanwhile that goes before it.
    pub(in crate::engine) fn take_turn(
        &mut self,
        line: usize,
        actor: Actor,
        core: u32,
        now: u64,
    ) -> bool {
        let Some(next) = self.directory.next_waiting(line, self.arbitration) else {
            return false;
        };
        let first = self.directory.contention_mut(line).waiting[next];
        let turn = now.max(self.directory.free_at(line, first.core));
        if first.actor != actor {
            self.schedule_turn(actor, NEVER);
            self.schedule_turn(first.actor, turn);
            return false;
        }
        debug_assert_eq!(first.core, core);
        if turn > now {
            self.schedule_turn(actor, turn);
            return false;
        }
        self.directory.contention_mut(line).waiting.remove(next);
        true
    }

    /// The line was written: threads that spin on it look again, once their copy is gone.
    #[inline]
    pub(in crate::engine) fn wake_watchers(&mut self, line: usize, at: u64) {
        if self.directory.contention(line).is_none_or(|contention| contention.watchers.is_empty()) {
            return;
        }
        for thread in std::mem::take(&mut self.directory.contention_mut(line).watchers) {
            self.look_again(thread, at);
        }
    }
}
