//! Overlap: independent accesses of one thread are under way at the same time (memory-level
//! parallelism).
//!
//! A thread takes the value of an access when the line serves its request, and continues
//! immediately. It does not wait until the line has arrived. Each CPU has a window that records
//! when the accesses in progress complete.
//!
//! ```text
//!            now - lag                  now                            done
//! ──────────────┼────────────────────────┼───────────────────────────────┼──────▶
//!     the latest access set out    values are taken        all before is complete
//! ```
//!
//! | the next access | sets out |
//! |---|---|
//! | any | `load_issue` after the one before, in program order |
//! | one whose address lies near a value that is under way | once that value is here |
//! | a miss that finds no free fill buffer | once one is free |
//! | one with 64 loads before it that are under way | once the first of these is here |
//! | a locked operation | at once; it executes once all before it is complete |
//! | a plain store | into the store buffer; leaves it once all before is complete |
//!
//! The window is empty, and `now` is at `done`, after what orders: a full fence, a full store
//! buffer, a pause, a call of the kernel, a look at the clock, computation, the beginning of a wait
//! and, on a machine that orders weakly, an acquire. A miss that sets out alone takes as long as
//! without overlap.
//!
//! # Invariants
//!
//! 1. Values are taken in program order, at `now`, which never goes back: a request that sets out
//!    earlier than `now` arrives no earlier than `now`. So runs stay sequentially consistent, and
//!    the order of CPUs' times stays the order of events.
//! 2. No other CPU sees an effect of a thread before all that the thread has accessed before is
//!    complete: stores wait in their buffer, a line that is fetched by a locked operation stays
//!    until that is complete, and calls of the kernel come after `done`. Changes of plain data are
//!    exempt ([`Access::Own`]): their line goes on once it is here. Threads that do not race look
//!    at plain data only after they have seen a later store or update, which did wait.
//! 3. At most `fill_buffers` lines are under way. An access to one of these lines shares its
//!    buffer.
//!
//! Two limits: an address that is computed from a loaded number (an index), or loaded from plain
//! data, does not resemble the value that it depends on, so it counts as independent. In a real
//! core, accesses after one that waits for its address may set out before that access. Here they
//! set out after it.

use std::collections::VecDeque;

use coreline_world::Ordering;

use crate::engine::memory::{LINE, Progress, Request};
use crate::engine::{Engine, races, with};
use crate::hardware::coherence::Access;
use crate::hardware::contention::{StoreNumber, Value};
use crate::hardware::spec::Spec;
use crate::results::statistics::Activity;

/// A number that no store has. It means that a read is done, and that the engine needs the value
/// that the read found.
pub(in crate::engine) const NO_STORE: StoreNumber = 0;

/// An address counts as computed from a loaded value if it lies less than this after the start of
/// the line to which the value points. It is then a field of the object to which a pointer leads,
/// even if the pointer has a tag in its low bits. Few such objects are larger.
const NEAR: usize = 512;

/// The largest number of loads in progress. The load queues of cores have 72 to 192 entries, and
/// the instructions between the loads fill the reorder buffer sooner.
const MOST_VALUES: usize = 64;

/// The accesses in progress on each CPU.
pub(in crate::engine) struct Overlaps {
    of_cpus: Vec<Window>,
    load_issue: u64,
    fill_buffers: usize,
    is_weak: bool,
}

impl Overlaps {
    pub(in crate::engine) fn new(spec: &Spec) -> Overlaps {
        let costs = spec.costs();
        Overlaps {
            of_cpus: vec![Window::default(); spec.topology().cpu_count()],
            load_issue: costs.load_issue(),
            fill_buffers: costs.fill_buffers() as usize,
            is_weak: spec.is_weakly_ordered(),
        }
    }
}

/// The accesses in progress on one CPU.
#[derive(Clone, Default)]
struct Window {
    /// How long before the CPU's current time its latest access set out.
    lag: u64,
    /// When all accesses so far are complete.
    done: u64,
    /// When the lines in flight arrive.
    lines: Vec<u64>,
    /// The values that loads in progress have found, and when these values arrive.
    values: VecDeque<(usize, u64)>,
    /// When the latest access is complete.
    latest: u64,
}

impl Window {
    /// An access completes at `at`.
    fn completes(&mut self, at: u64) {
        self.latest = at;
        self.done = self.done.max(at);
    }

    /// When an access to this address, which is ready at `at`, can set out: the value from which
    /// the address is computed has arrived, and not too many loads are in progress.
    fn ready_at(&mut self, address: usize, at: u64) -> u64 {
        self.values.retain(|&(_, here)| here > at);
        let is_near = |&&(value, _): &&(usize, u64)| {
            address.checked_sub(value / LINE * LINE).is_some_and(|behind| behind < NEAR)
        };
        let near = self.values.iter().filter(is_near).map(|&(_, here)| here);
        let surplus = self.values.len().checked_sub(MOST_VALUES);
        let oldest = surplus.map(|surplus| self.values[surplus].1);
        near.chain(oldest).max().unwrap_or(at)
    }

    /// When a miss that is ready at `at` has a fill buffer.
    fn take_buffer(&mut self, mut at: u64, buffers: usize) -> u64 {
        self.lines.retain(|&line| line > at);
        while self.lines.len() >= buffers
            && let Some(first) = (0..self.lines.len()).min_by_key(|&line| self.lines[line])
        {
            at = at.max(self.lines.swap_remove(first));
        }
        at
    }
}

/// Records the value that a load or an update of the running thread has found. Does nothing without
/// overlap.
pub(crate) fn found(value: Value, order: Ordering) {
    with(|engine| {
        let cpu = engine.cpu().index();
        let Some(overlaps) = &mut engine.overlaps else { return };
        let window = &mut overlaps.of_cpus[cpu];
        window.values.push_back((value.addr(), window.latest));
        engine.acquire(order);
    });
}

impl Engine {
    /// Waits until all accesses in progress on a CPU are complete. Returns whether this took time.
    #[inline]
    pub(in crate::engine) fn settle(&mut self, cpu: usize) -> bool {
        if self.overlaps.is_some() { self.settle_window(cpu) } else { false }
    }

    /// The same for the running CPU.
    #[inline]
    pub(crate) fn settle_here(&mut self) {
        if self.overlaps.is_some() {
            self.settle_window(self.cpu().index());
        }
    }

    /// The running thread acquires by this order: on a machine that orders weakly, later accesses
    /// wait for the earlier ones.
    pub(crate) fn acquire(&mut self, order: Ordering) {
        let waits = self.overlaps.as_ref().is_some_and(|overlaps| overlaps.is_weak);
        if waits && races::acquires(order) {
            self.settle_here();
        }
    }

    #[inline(never)]
    fn settle_window(&mut self, cpu: usize) -> bool {
        let Some(overlaps) = &mut self.overlaps else { return false };
        let window = &mut overlaps.of_cpus[cpu];
        let (done, takes_time) = (window.done, window.done > self.cpus[cpu].now);
        window.lag = 0;
        window.lines.clear();
        window.values.clear();
        self.spend_until(cpu, Activity::Miss, done);
        takes_time
    }

    /// Whether all accesses of a CPU are complete.
    pub(in crate::engine) fn is_settled(&self, cpu: usize) -> bool {
        let done = self.overlaps.as_ref().map_or(0, |overlaps| overlaps.of_cpus[cpu].done);
        done <= self.cpus[cpu].now
    }

    /// When all accesses of a CPU are complete, if that is later than `now`; 0 without overlap.
    pub(in crate::engine) fn retires_at(&self, cpu: usize) -> u64 {
        self.overlaps.as_ref().map_or(0, |overlaps| overlaps.of_cpus[cpu].done)
    }

    /// Serves an access that begins, on a machine where accesses overlap, if it needs no request.
    /// `None` if it needs one.
    #[inline(never)]
    pub(in crate::engine) fn begin_overlapped(
        &mut self,
        cpu: usize,
        request: &Request,
    ) -> Option<Progress> {
        let &Request { line, access, word, .. } = request;
        let core = self.cpus[cpu].core;
        let is_update = access == Access::Update;
        loop {
            let now = self.cpus[cpu].now;
            let overlaps = self.overlaps.as_mut()?;
            let (window, load_issue) = (&mut overlaps.of_cpus[cpu], overlaps.load_issue);
            let set_out = now - window.lag;
            let ready = window.ready_at(word, set_out);
            if ready > set_out {
                window.lag = now.saturating_sub(ready);
                self.spend_until(cpu, Activity::Miss, ready);
                if let Err(hold) = self.may_go_on() {
                    return Some(Progress::HeldUp(hold));
                }
                continue;
            }
            let arrives = self.directory.arrives(line, core, access, now);
            let has = self.directory.has(line, core, access, now);
            if access == Access::Load && self.forwards(cpu, request) {
                let hit = self.spec.costs().private_hit;
                return Some(self.overlap_hit(cpu, request, load_issue, now + hit));
            }
            if (!has && arrives.is_none())
                || self.foreign_store(cpu, request).is_some()
                || (access.writes() && self.is_unwritten(line))
            {
                return None;
            }
            match access {
                Access::Load | Access::Own => {
                    let read = self.directory.read_hit(line, cpu as u32, access.writes());
                    let at = arrives.unwrap_or(now + read);
                    if access.writes() {
                        self.directory.set_writer(line, Some(cpu as u32));
                    }
                    return Some(self.overlap_hit(cpu, request, load_issue, at));
                }
                Access::Store | Access::Update if self.cpus[cpu].buffered > 0 => return None,
                // It goes into the buffer, and leaves that once all before it is complete.
                Access::Store if arrives.is_some() || !self.is_settled(cpu) => return None,
                Access::Store | Access::Update => {}
            }
            if is_update && self.settle(cpu) {
                if let Err(hold) = self.may_go_on() {
                    return Some(Progress::HeldUp(hold));
                }
                continue;
            }
            if arrives.is_some() {
                // A hardware thread beside this one has fetched it.
                return None;
            }
            let read = match is_update {
                true => self.directory.read_hit(line, cpu as u32, true),
                false => self.spec.costs().private_hit,
            };
            self.directory.set_writer(line, Some(cpu as u32));
            self.serve_hit(cpu, request, read);
            if !is_update {
                return Some(Progress::Done);
            }
            let now = self.cpus[cpu].now;
            self.window(cpu)?.completes(now);
            return Some(Progress::Beside(NO_STORE));
        }
    }

    /// An access that needs no request is complete at `at`; the next one can set out sooner.
    fn overlap_hit(&mut self, cpu: usize, request: &Request, issue: u64, at: u64) -> Progress {
        let &Request { line, access, .. } = request;
        self.count_hit(cpu, request, at - self.cpus[cpu].now);
        self.cpus[cpu].now += issue;
        self.account(cpu, Activity::Hit, issue);
        let core = self.cpus[cpu].core;
        let is_contended = self.directory.contention(line).is_some();
        if is_contended || access.writes() {
            self.directory.used(line, core, access.writes(), at);
        }
        if is_contended && access.writes() {
            self.wake_watchers(line, at);
        }
        if let Some(window) = self.window(cpu) {
            window.completes(at);
        }
        Progress::Beside(NO_STORE)
    }

    fn window(&mut self, cpu: usize) -> Option<&mut Window> {
        Some(&mut self.overlaps.as_mut()?.of_cpus[cpu])
    }

    /// When a request that is in flight for this long sets out, and when it arrives.
    pub(in crate::engine) fn sets_out(&mut self, cpu: usize, flight: u64) -> (u64, u64) {
        let now = self.cpus[cpu].now;
        let Some(overlaps) = &mut self.overlaps else { return (now, now + flight) };
        let window = &mut overlaps.of_cpus[cpu];
        let ready = now - window.lag + overlaps.load_issue;
        let issued = window.take_buffer(ready, overlaps.fill_buffers);
        (issued, now.max(issued + flight))
    }

    /// A request of a CPU's thread that set out at `issued` is served at `start`: the line is here
    /// at `completion`, and the thread goes on. False without overlap: then it waits for the line.
    pub(in crate::engine) fn goes_on(
        &mut self,
        cpu: usize,
        issued: u64,
        start: u64,
        completion: u64,
    ) -> bool {
        let now = self.cpus[cpu].now.max(start);
        let Some(window) = self.window(cpu) else { return false };
        window.lag = now - issued.min(now);
        window.lines.push(completion);
        window.completes(completion);
        self.cpus[cpu].now = now;
        true
    }
}
