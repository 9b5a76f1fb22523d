//! Accesses: what happens between a simulated instruction and its line.
//!
//! A miss is two messages. The request travels to the line's home; whoever owns the line keeps
//! hitting it until then. Then the line travels to whoever asked. The share of the whole that is
//! request flight is not known for real machines and is a parameter of the run.
//!
//! ```text
//! issue ──request──▶ arrival ──queue behind earlier requests──▶ start ──response──▶ completion
//! (may be preempted)  directory decides the source, in            the value is read
//!                     order of arrival                            or written here
//! ```
//!
//! For whoever comes behind, the line is busy from start to completion if it was asked for to be
//! written; a reader occupies its home for a shorter while, since copies overlap.
//!
//! From issue to completion the thread cannot be preempted: an instruction completes or has not
//! begun. The caller of [`access`] reads or writes the value right after it returns, at `start` in
//! the order of all accesses to the line, with its CPU's time already at completion.

use coreline_topology::NodeId;

use super::attention::held_up;
use super::{Engine, NEVER, State, inside, interrupts, suspend, until_done, with};
use crate::coherence::{Access, From};
use crate::failure::FailureKind;

/// Bytes of a line.
pub(crate) const LINE: usize = 64;

/// Lines of a page: a hardware prefetcher starts over at each.
const LINES_PER_PAGE: u64 = 64;

/// The first line number of the coroutines' stacks; the arena's lines lie below.
const FIRST_STACK_LINE: u64 = 1 << 32;

/// Charges for one access to the word at `address`, and returns when it takes effect.
///
/// Outside of a machine it does nothing: the word is then ordinary memory.
pub(crate) fn access(address: usize, access: Access) {
    let Some(line) = with(|engine| engine.line_of(address)) else {
        return;
    };
    issue();
    let Some(line) = line else { unregistered() };
    let line = inside(|engine| engine.directory.intern(line));
    if inside(|engine| engine.hit(line, access)) {
        return;
    }
    until_done(Engine::reached);
    let completion = inside(|engine| engine.arrive(line, access));
    until_done(Engine::reached);
    inside(|engine| engine.complete(line, access, completion));
}

/// Charges for one access to each line of `len` bytes at `address`, in order, overlapping their
/// misses as the machine's prefetcher does.
pub(crate) fn access_range(address: usize, len: usize, access_: Access) {
    let lines = (address % LINE + len).div_ceil(LINE);
    if lines <= 1 {
        if len > 0 {
            access(address, access_);
        }
        return;
    }
    let Some(first) = with(|engine| engine.line_of(address)) else {
        return;
    };
    issue();
    let Some(first) = first else { unregistered() };
    inside(|engine| engine.stream(first, lines as u64, access_));
}

/// Decides which node the untouched lines of a range come from. Takes no time.
pub(crate) fn place(address: usize, len: usize, node: Option<NodeId>) {
    let lines = (address % LINE + len).div_ceil(LINE) as u64;
    // Outside of a machine, and of its memory, nothing has a home.
    with(|engine| {
        if let Some(first) = engine.line_of(address) {
            engine.directory.place(first, lines, node);
        }
    });
}

/// Spins until the line of `address` is written. False outside of a machine: nothing to wait on.
pub(crate) fn await_write(address: usize) -> bool {
    let Some(Some(line)) = with(|engine| engine.line_of(address)) else {
        return false;
    };
    inside(|engine| {
        let line = engine.directory.intern(line);
        let current = engine.current();
        engine.directory.watch(line, current);
        engine.threads[current].state = State::Spinning { line };
    });
    suspend();
    interrupts::deliver();
    true
}

/// Waits until the running thread may begin to do something that others can notice: nothing earlier
/// is left to happen elsewhere, and its share of the CPU is not used up. Counts a step, so that no
/// loop of a simulated program is endless.
pub(crate) fn issue() {
    while !inside(Engine::may_go_on) {
        held_up();
    }
}

/// Stops the machine because of the running thread's last access.
fn unregistered() -> ! {
    inside(|engine| {
        let (thread, cpu) = (engine.current(), engine.cpu());
        engine.fail(FailureKind::Unregistered { thread, cpu });
    });
    loop {
        suspend();
    }
}

impl Engine {
    /// The number of the line of an address; `None` if the machine does not know the memory.
    pub(super) fn line_of(&self, address: usize) -> Option<u64> {
        if let Some(offset) = self.arena.offset(address) {
            return Some(offset / LINE as u64);
        }
        let (&limit, &(base, number)) = self.stacks.range(..=address).next_back()?;
        (address < base).then(|| {
            // Stacks have one size and whole pages, so a line is never of two stacks.
            let lines = ((base - limit) / LINE) as u64;
            FIRST_STACK_LINE + number as u64 * lines + ((address - limit) / LINE) as u64
        })
    }

    /// Serves an access from the core's own cache; or sends the request of a miss.
    fn hit(&mut self, line: usize, access: Access) -> bool {
        let (core, node) = (self.here().core, self.here().node);
        let source = self.directory.source(line, core, node, access);
        let costs = *self.spec.costs();
        let cost = source.cost(&costs);
        let on_its_way = self.here().now < self.directory.arrival(line, core);
        if source != From::Private || on_its_way {
            let current = self.current();
            self.threads[current].state = State::Accessing;
            self.spend(cost * self.request_percent / 100);
            return false;
        }
        source.count(&mut self.report.transfers);
        self.directory.transfer(line, core, node, access);
        let locked = if access == Access::Update { costs.locked } else { 0 };
        self.spend(cost + locked);
        if access.writes() {
            self.wake_watchers(line);
        }
        true
    }

    /// Whether the running CPU's time is the earliest, so that its access is next.
    fn reached(&mut self) -> Option<()> {
        (self.here().now <= self.horizon).then_some(())
    }

    /// The request arrives at the directory: queues behind earlier ones, in this order. Returns
    /// when the line will be here; the CPU's time is then when it is this request's turn.
    fn arrive(&mut self, line: usize, access: Access) -> u64 {
        let (core, node) = (self.here().core, self.here().node);
        let source = self.directory.source(line, core, node, access);
        source.count(&mut self.report.transfers);
        self.directory.transfer(line, core, node, access);
        let costs = *self.spec.costs();
        let cost = self.jitter.jitter(source.cost(&costs));
        let response = cost - cost * self.request_percent / 100;
        let free = self.directory.busy_until(line).max(self.directory.arrival(line, core));
        let start = self.here().now.max(free);
        let locked = if access == Access::Update { costs.locked } else { 0 };
        let completion = start + response + locked;
        // Copies go out one after the other; ownership has to arrive before it can go on.
        let busy = if access.writes() { completion } else { start + costs.directory };
        self.directory.set_busy_until(line, busy);
        self.directory.set_arrival(line, core, completion);
        self.here().now = start;
        completion
    }

    /// The line is here.
    fn complete(&mut self, line: usize, access: Access, completion: u64) {
        self.here().now = completion;
        let current = self.current();
        self.threads[current].state = State::Running;
        if access.writes() {
            self.wake_watchers(line);
        }
    }

    /// A sequential pass over lines.
    fn stream(&mut self, first: u64, lines: u64, access: Access) {
        let (core, node) = (self.here().core, self.here().node);
        let costs = *self.spec.costs();
        let overlap = if access.writes() { costs.stream_stores } else { costs.stream_loads };
        for name in first..first + lines {
            let line = self.directory.intern(name);
            let source = self.directory.source(line, core, node, access);
            source.count(&mut self.report.transfers);
            self.directory.transfer(line, core, node, access);
            let cost = source.cost(&costs);
            if source == From::Private {
                self.spend(cost);
            } else {
                let cost = self.jitter.jitter(cost);
                let alone = name == first || name.is_multiple_of(LINES_PER_PAGE);
                let start = self.here().now.max(self.directory.busy_until(line));
                self.here().now = start + if alone { cost } else { cost / overlap };
                let now = self.here().now;
                self.directory.set_busy_until(line, now);
            }
            if access.writes() {
                self.wake_watchers(line);
            }
        }
    }

    /// The line was written: whoever spins on it looks again, once its copy is gone.
    fn wake_watchers(&mut self, line: usize) {
        if !self.directory.is_watched(line) {
            return;
        }
        let now = self.here().now;
        for thread in self.directory.take_watchers(line) {
            let cpu = self.threads[thread].cpu;
            self.threads[thread].state = State::Running;
            self.cpus[cpu].now = self.cpus[cpu].now.max(now);
            self.rekey(cpu);
        }
    }

    /// When `cpu` acts next, [`NEVER`] if only others can make it.
    pub(super) fn next_act(&self, cpu: usize) -> u64 {
        let interrupt = self.next_interrupt(cpu);
        let cpu = &self.cpus[cpu];
        match cpu.current.map(|thread| self.threads[thread].state) {
            Some(State::Spinning { .. }) => cpu.now.max(cpu.attention),
            Some(State::Working { until }) => until.min(cpu.now.max(cpu.attention)),
            Some(_) => cpu.now,
            None => {
                let ready = cpu.queue.front().map(|&thread| self.threads[thread].ready_since());
                cpu.now.max(ready.unwrap_or(NEVER).min(interrupt))
            }
        }
    }
}
