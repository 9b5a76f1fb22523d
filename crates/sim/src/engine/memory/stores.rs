//! Store buffers: a plain store does not wait for its line.
//!
//! Each CPU has a buffer of `store_queue` stores, which leave it in program order (total store
//! order). A store's value is in the word from its issue on; its *cost* is that of a request of its
//! own for the line, which queues with the others, and no other CPU goes on with the value before
//! that request is served:
//!
//! | access | what happens |
//! |---|---|
//! | the same CPU, loading the word | if it stored last, takes that from the buffer, as a hit |
//! | another, at it since before the issue | has its turn; before the store's, on the old value |
//! | another, reading the word later | waits until the store is done, then fetches the line |
//! | a spinner on the line | sleeps until the store is done |
//! | an atomic read-modify-write, a fence | wait until the buffer is empty |
//! | the next thread on the CPU | waits until the buffer is empty |
//!
//! A thread that moves to another CPU goes on there without waiting for its stores in this buffer.
//!
//! Runs stay sequentially consistent: an access that finds the value before a store began before
//! that store was issued, and had not ended, so at some moment between its own beginning and end
//! the word held what it finds. The store overwrites what an update leaves there.
//!
//! A store to a line that the core owns already, with nothing before it in the buffer, is done
//! immediately.
//!
//! The head of a buffer is on its way like any miss; those behind it wait, and ask for nothing yet.
//! Where accesses overlap, a store sets out when all that its thread accessed before is complete.
//!
//! ```text
//! first in the buffer ──request──▶ arrival ──queue──▶ turn ──response──▶ done, out of the buffer
//! ```

use std::collections::VecDeque;

use crate::engine::memory::Request;
use crate::engine::memory::overlap::NO_STORE;
use crate::engine::{Engine, EventQueue, NEVER, State, with};
use crate::hardware::coherence::Access;
use crate::hardware::contention::{Actor, StoreNumber, Value};
use crate::results::statistics::Activity;

/// The position of the head of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    /// Accesses of its thread before it are not complete.
    Retiring,
    /// The head's request is in flight to the line's home, or the buffer is empty.
    Requested,
    /// There, waiting for its turn.
    Waiting,
    /// The line is on its way here.
    Served,
}

/// The stores of one CPU that are on their way.
struct Buffer {
    stores: VecDeque<Request>,
    head: Head,
}

/// All store buffers.
pub(in crate::engine) struct Stores {
    buffers: Vec<Buffer>,
    /// For each buffer, the time when its head moves on.
    events: EventQueue,
}

impl Stores {
    pub(in crate::engine) fn new(cpus: usize) -> Stores {
        let buffer = || Buffer { stores: VecDeque::new(), head: Head::Requested };
        Stores {
            buffers: std::iter::repeat_with(buffer).take(cpus).collect(),
            events: EventQueue::new(cpus),
        }
    }

    /// When a store moves on, or [`NEVER`] if no store is in flight.
    pub(in crate::engine) fn earliest(&self) -> u64 {
        self.events.earliest()
    }
}

/// The value of the word at `address` before a store that is on its way there.
pub(crate) fn before(address: usize, store: StoreNumber) -> Option<Value> {
    with(|engine| *engine.before(address, store)?).flatten()
}

/// Sets what the word at `address` holds before a store that is on its way there.
pub(crate) fn keep_before(address: usize, store: StoreNumber, value: Value) {
    with(|engine| engine.before(address, store).map(|before| *before = Some(value)));
}

impl Engine {
    fn before(&mut self, address: usize, store: StoreNumber) -> Option<&mut Option<Value>> {
        if store == NO_STORE {
            return None;
        }
        let line = self.line_of(address)?;
        let line = self.directory.intern(line);
        self.directory.contention_mut(line).before(store)
    }

    /// The store of another CPU before which this request, whose turn it is, takes effect.
    pub(in crate::engine) fn overtaken(
        &self,
        cpu: usize,
        request: &Request,
    ) -> Option<StoreNumber> {
        let &Request { line, access, word, since, .. } = request;
        let contention = self.directory.contention(line)?;
        let reads = matches!(access, Access::Load | Access::Update);
        if reads { contention.overtaken(word, cpu, since) } else { None }
    }

    /// Puts a store of the running CPU, which has room for it, into its buffer.
    pub(in crate::engine) fn buffer_store(&mut self, mut store: Request) -> StoreNumber {
        let cpu = self.cpu().index();
        self.buffered += 1;
        let number = self.buffered;
        if self.observation.is_some() {
            self.observe_access(cpu, store.word, true, store.site);
        }
        store.since = number;
        // It sets out no earlier than this.
        store.issued = self.retires_at(cpu);
        self.directory.contention_mut(store.line).issue(number, cpu, store.word);
        self.stores.buffers[cpu].stores.push_back(store);
        self.cpus[cpu].buffered += 1;
        let now = self.cpus[cpu].now;
        if self.cpus[cpu].buffered == 1 {
            self.send_head(cpu, now);
        }
        self.spend_on(Activity::Hit, self.spec.costs().store_issue);
        number
    }

    /// When the head of a buffer moves on.
    pub(in crate::engine) fn schedule_head(&mut self, cpu: usize, at: u64) {
        self.stores.events.set(cpu, at);
        self.lower_horizon(at);
    }

    /// The head of a buffer, if there is one, sets out at `now`. Stores that already have their
    /// line are done.
    fn send_head(&mut self, cpu: usize, now: u64) {
        let (core, node) = (self.cpus[cpu].core, self.cpus[cpu].node);
        while let Some(&store) = self.stores.buffers[cpu].stores.front() {
            if store.issued > now {
                self.stores.buffers[cpu].head = Head::Retiring;
                self.schedule_head(cpu, store.issued);
                return;
            }
            let request = if self.directory.has(store.line, core, Access::Store, now) {
                None
            } else {
                let source = self.directory.request_to(
                    store.line,
                    (core, node),
                    Access::Store,
                    self.arbitration,
                );
                Some(source.cost * self.request_percent / 100)
            };
            let Some(flight) = request else {
                self.count_hit(cpu, &store, 0);
                self.directory.used(store.line, core, true, now);
                self.directory.set_writer(store.line, Some(cpu as u32));
                self.store_done(cpu, now);
                continue;
            };
            let buffer = &mut self.stores.buffers[cpu];
            buffer.head = Head::Requested;
            buffer.stores[0].issued = now;
            buffer.stores[0].arrived = now + flight;
            self.schedule_head(cpu, now + flight);
            return;
        }
        self.stores.events.set(cpu, NEVER);
    }

    /// The head that is due next moves on.
    pub(in crate::engine) fn advance_store(&mut self) {
        let (cpu, now) = (self.stores.events.winner(), self.stores.earliest());
        let buffer = &self.stores.buffers[cpu];
        let (store, core) = (buffer.stores[0], self.cpus[cpu].core);
        let actor = Actor::Stores(cpu);
        let turn = match buffer.head {
            Head::Retiring => {
                self.send_head(cpu, now);
                return;
            }
            Head::Requested => {
                self.stores.buffers[cpu].head = Head::Waiting;
                self.arrive(store.line, actor, core, now)
            }
            Head::Waiting => self.take_turn(store.line, actor, core, now),
            Head::Served => {
                self.store_done(cpu, now);
                self.send_head(cpu, now);
                return;
            }
        };
        if turn {
            self.stores.buffers[cpu].head = Head::Served;
            let completion = self.serve(cpu, &store, now, false);
            self.schedule_head(cpu, completion);
        }
    }

    /// The head of a buffer has its line: it leaves the buffer, and threads that waited for that go
    /// on.
    fn store_done(&mut self, cpu: usize, now: u64) {
        let buffer = &mut self.stores.buffers[cpu];
        let Some(store) = buffer.stores.pop_front() else { return };
        let left = buffer.stores.len();
        self.cpus[cpu].buffered = left as u32;
        for behind in self.directory.contention_mut(store.line).complete(store.since) {
            let reader = &mut self.cpus[behind];
            let waited = now.saturating_sub(reader.now);
            reader.now += waited;
            self.set_state(behind, State::Accessing);
            self.account(behind, Activity::Queue, waited);
        }
        self.wake_watchers(store.line, now);
        let place = &mut self.cpus[cpu];
        match place.current.map(|thread| self.threads[thread].state) {
            Some(State::Draining { most }) if left <= most => {
                let waited = now.saturating_sub(place.now);
                place.now += waited;
                self.set_state(cpu, State::Running);
                self.account(cpu, Activity::Queue, waited);
            }
            // The next thread's turn.
            None if left == 0 => {
                place.now = place.now.max(now);
                self.rekey(cpu);
            }
            _ => {}
        }
    }
}
