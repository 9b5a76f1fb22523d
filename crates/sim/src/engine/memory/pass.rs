//! A sequential pass over memory: misses overlap, as a hardware prefetcher makes them.
//!
//! Each line is fetched by a request of its own, with its flight, its turn at the line and its
//! response, so others act meanwhile and contend. The machine file declares how many are under way
//! at one time: the next sets out when the oldest is complete. A pass starts over at each page,
//! as a prefetcher does, and its first line is fetched alone.

use core::panic::Location;
use std::collections::VecDeque;

use crate::engine::memory::pages::LINES_PER_PAGE;
use crate::engine::memory::{
    LINE, Progress, Request, Stage, access_at, unregistered, until_through,
};
use crate::engine::{Engine, State, stop, with};
use crate::hardware::coherence::Access;
use crate::hardware::contention::Actor;
use crate::results::statistics::Activity;

/// Charges for one access to each line of `len` bytes at `address`, in order, overlapping their
/// misses as the machine's prefetcher does.
#[track_caller]
pub(crate) fn access_range(address: usize, len: usize, access: Access) {
    let site = Location::caller();
    let lines = (address % LINE + len).div_ceil(LINE);
    if lines <= 1 {
        if len > 0 {
            access_at(address, access, site);
        }
        return;
    }
    let first = with(|engine| {
        engine.settle_here();
        (engine.line_of(address), engine.may_access_all(address, len, site))
    });
    let Some((first, may_access)) = first else { return };
    let Some(first) = first else { unregistered(address, site) };
    if !may_access {
        stop();
    }
    let mut pass = Pass {
        request: Request { word: address, access, site, line: 0, since: 0, issued: 0, arrived: 0 },
        next: first,
        end: first + lines as u64,
        first: true,
        stage: Stage::Issue,
        clock: 0,
        window: VecDeque::new(),
        done: 0,
    };
    until_through(|engine| engine.pass_over(&mut pass));
}

/// A sequential pass over lines. At most as many misses are under way at one time as the machine
/// overlaps; each leaves when there is room for it and no earlier than the one before.
struct Pass {
    /// The access to the line that is next.
    request: Request,
    /// The numbers of that line, and of the first line after the pass.
    next: u64,
    end: u64,
    first: bool,
    stage: Stage,
    /// When the latest miss set out, or could have.
    clock: u64,
    /// When the misses under way complete, in their order.
    window: VecDeque<u64>,
    /// When all misses so far are complete.
    done: u64,
}

impl Pass {
    /// On to the next line.
    fn step(&mut self) {
        self.first = false;
        self.next += 1;
        self.request.word = (self.request.word / LINE + 1) * LINE;
        self.stage = Stage::Issue;
    }
}

impl Engine {
    /// Serves a line of a pass, if it needs no request. A pass has an overlap of its own.
    fn serve_in_pass(&mut self, cpu: usize, request: &Request) -> bool {
        let overlaps = self.overlaps.take();
        let served = self.serve_if_hit(cpu, request);
        self.overlaps = overlaps;
        served
    }

    /// Takes a pass as far as it gets without others.
    fn pass_over(&mut self, pass: &mut Pass) -> Progress {
        let costs = *self.spec.costs();
        let access = pass.request.access;
        let overlap = if access.writes() { costs.stream_stores } else { costs.stream_loads };
        let cpu = self.cpu().index();
        let core = self.cpus[cpu].core;
        while pass.next < pass.end {
            match pass.stage {
                Stage::Issue | Stage::Send => {
                    if let Err(hold) = self.may_go_on() {
                        return Progress::HeldUp(hold);
                    }
                    let request = &mut pass.request;
                    request.line = self.directory.intern(pass.next);
                    let now = self.cpus[cpu].now;
                    if self.serve_in_pass(cpu, request) {
                        pass.clock = pass.clock.max(now) + costs.private_hit;
                        pass.step();
                        continue;
                    }
                    let reached = self.reach_page(cpu, request);
                    if reached > 0 {
                        // All before it is complete, and the next miss sets out after it.
                        self.spend_until(cpu, Activity::Miss, pass.done);
                        self.spend_on(Activity::Miss, reached);
                        pass.window.clear();
                        pass.clock = self.cpus[cpu].now;
                        continue;
                    }
                    let node = self.cpus[cpu].node;
                    let source = self.directory.request_to(
                        request.line,
                        (core, node),
                        access,
                        self.arbitration,
                    );
                    let flight = source.cost * self.request_percent / 100;
                    let room = match pass.window.len() as u64 >= overlap {
                        true => pass.window.pop_front().unwrap_or(0),
                        false => 0,
                    };
                    let alone = pass.first || pass.next.is_multiple_of(LINES_PER_PAGE);
                    let ready = if alone { pass.done.max(now) } else { room };
                    pass.clock = pass.clock.max(ready);
                    let request = &mut pass.request;
                    request.issued = pass.clock;
                    request.arrived = now.max(pass.clock + flight);
                    let flight = request.arrived - now;
                    pass.stage = Stage::Requested;
                    self.set_state(cpu, State::Accessing);
                    self.spend_on(Activity::Miss, flight);
                }
                Stage::Requested | Stage::Waiting => {
                    let start = if pass.stage == Stage::Waiting {
                        match self.claim_turn(pass.request.line, cpu) {
                            Some(turn) => turn,
                            None => return Progress::Away(self.yielder),
                        }
                    } else {
                        let now = self.cpus[cpu].now;
                        if now > self.horizon {
                            return Progress::Away(self.yielder);
                        }
                        pass.stage = Stage::Waiting;
                        if !self.arrive(pass.request.line, Actor::Thread(cpu), core, now) {
                            return Progress::Away(self.yielder);
                        }
                        now
                    };
                    self.account(cpu, Activity::Queue, start - pass.request.arrived);
                    let completion = self.serve(cpu, &pass.request, start, false);
                    self.cpus[cpu].now = start;
                    pass.done = pass.done.max(completion);
                    pass.window.push_back(completion);
                    if pass.first || pass.next.is_multiple_of(LINES_PER_PAGE) {
                        self.spend_until(cpu, Activity::Miss, pass.done);
                        pass.clock = pass.done;
                        pass.window.clear();
                    }
                    self.set_state(cpu, State::Running);
                    pass.step();
                }
            }
        }
        self.spend_until(cpu, Activity::Miss, pass.done);
        Progress::Done
    }
}
