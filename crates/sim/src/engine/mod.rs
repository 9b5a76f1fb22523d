//! The engine: all state of one running machine, and the way to it.
//!
//! One host thread runs a machine. Its simulated threads are coroutines on that host thread. At any
//! moment, exactly one of them runs, or the engine's own loop ([`run`]). The CPU with the earliest
//! local time acts next, so accesses happen in the order of simulated time. Each other file defines
//! a part of the state, and methods of [`Engine`] that change it. So this file and the others name
//! each other. `hardware`, `settings` and `results` lie below, and never name the engine.
//!
//! # The rule of the pointer
//!
//! Simulated code reaches the engine through a thread-local raw pointer, and only inside [`with`]:
//! a `&mut Engine` lives for one call that never switches coroutines. (The next coroutine to run
//! would alias a `&mut` held across a switch, and the compiler would keep stale fields in
//! registers.) After each [`suspend`], everything is looked up again, because the thread may be on
//! another CPU.

mod blocks;
mod choice;
mod event_queue;
mod kernel;
mod lately;
mod locals;
mod locks;
mod memory;
mod panics;
pub(crate) mod races;
mod rng;
mod run;
mod stack;
mod states;
mod statics;
mod unoptimised;
mod watchdog;

use std::any::Any;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::mem::offset_of;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use coreline_topology::{CacheId, Cid, CpuId, NodeId, Topology};
use coreline_world::{Parked, Time};
use corosensei::Yielder;

use crate::hardware::arena::{self, Arena};
use crate::hardware::coherence::Directory;
use crate::hardware::contention::{Arbitration, StoreNumber};
use crate::hardware::spec::Spec;
use crate::results::failure::FailureKind;
use crate::results::locks::Locks;
use crate::results::replay::Replay;
use crate::results::report::{Report, Site, Transfers};
use crate::results::statistics::{Activity, Ledger, Names};
use crate::results::trace::{Trace, Tracer};
use crate::settings::faults::Faults;
use crate::settings::kernel::Kernel;
use blocks::{Blocks, Unresolved};
use choice::Chooser;
pub(crate) use choice::{Decision, Decisions, fails_weakly};
use event_queue::{EventQueue, NEVER};
use kernel::extension::Extension;
pub(crate) use kernel::extension::{
    enable_extension, end_extension, enter_kernel, request_extension,
};
pub(crate) use kernel::faults::allowed;
use kernel::fiber::Fiber;
pub(crate) use kernel::fiber::Job;
pub(crate) use kernel::futex::{park, wake};
use kernel::interrupts;
pub(crate) use kernel::interrupts::{Handler, mask, unmask};
pub(crate) use kernel::points::{drain, interrupt_point, issue, point};
pub(crate) use kernel::schedule::{exec, pause, sleep, spawn, wait_for, work, yield_now};
pub(crate) use kernel::signals::{hold_signals, holds, on_signal, release_signals};
use locals::Locals;
use memory::overlap::Overlaps;
pub(crate) use memory::overlap::found;
use memory::pages::Pages;
pub(crate) use memory::pages::copy_on_write;
pub(crate) use memory::pass::access_range;
use memory::stores::Stores;
pub(crate) use memory::stores::{before, keep_before};
pub(crate) use memory::{access, access_at, await_write, is_over, monitor, set_home};
use panics::Panics;
pub(crate) use panics::{OF_A_SCOPE, PanicNumber, caught, fail_with};
use rng::Rng;
pub(crate) use run::{Failed, Finished, Setup, run};
pub(crate) use stack::USABLE as STACK;
pub(crate) use statics::Key;
use statics::Statics;
use watchdog::Watch;

thread_local! {
    /// The engine of the machine that this host thread runs; null outside of a run.
    static ENGINE: Cell<*mut Engine> = const { Cell::new(ptr::null_mut()) };
}

/// A simulated CPU. The fields that a switch and an access read come first, in one cache line of
/// the host. With many CPUs that take turns, this line is not in the host's nearest cache.
#[repr(C, align(64))]
struct Cpu {
    /// This CPU's own time, in picoseconds: all that it did before is settled.
    now: u64,
    /// When the kernel must next handle this CPU: the earliest time of its own events.
    next_kernel_event: u64,
    /// The thread that has the CPU.
    current: Option<usize>,
    core: u32,
    node: NodeId,
    /// How many stores are in its buffer.
    buffered: u32,
    cache: CacheId,
    /// When `current` has used up its slice, if another thread wants the CPU.
    slice_end: u64,
    /// When the latest system call ended of those that began in a slice.
    call_end: u64,
    /// When the timer ticks next, while a thread runs; a CPU without one has no tick (NOHZ).
    next_tick: u64,
    /// The position of this CPU's ticks within a tick's length.
    tick_phase: u64,
    /// The threads that wait for the CPU, in the order of their turn.
    queue: VecDeque<usize>,
    /// Whether it was taken out of service.
    offline: bool,
    /// The interrupts with their times, in the order of arrival.
    interrupts: VecDeque<(u64, interrupts::Handler)>,
    /// The context that runs handlers while no thread has the CPU, once it was needed.
    idle: Option<usize>,
}

/// The activity of a simulated thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the queue of its CPU, from the given time on.
    Ready { since: u64 },
    /// On its CPU, executing.
    Running,
    /// On its CPU, in the middle of one access: no preemption until that is complete.
    Accessing,
    /// On its CPU, in the middle of one access, which waits at its line until `turn`. [`NEVER`]: it
    /// waits for the turn of others, or for a store of another CPU that is on its way.
    Waiting { turn: u64 },
    /// On its CPU, before an access, waiting until its store buffer holds no more than `most`.
    Draining { most: usize },
    /// On its CPU, spinning until this line is written, or its timer.
    Spinning { line: usize },
    /// On its CPU, computing until then without touching memory.
    Working { until: u64 },
    /// Off its CPU, until woken on this word.
    Parked { word: usize, groups: u32 },
    /// Off its CPU, until its timer.
    Sleeping,
    /// An idle CPU's context, off its CPU until there is an interrupt.
    Idle,
    /// Off its CPU, until that thread is done.
    Joining { thread: usize },
    /// Ended.
    Done,
}

impl State {
    /// Whether the thread is in the middle of something that cannot be interrupted.
    fn is_access(self) -> bool {
        matches!(self, State::Accessing | State::Waiting { .. } | State::Draining { .. })
    }

    /// Whether the thread, on its CPU, does nothing until others make it.
    fn is_passive(self) -> bool {
        matches!(self, State::Spinning { .. } | State::Working { until: NEVER })
    }
}

/// A simulated thread. As in [`Cpu`], the fields that a switch and an access read come first.
#[repr(C, align(64))]
struct Thread {
    state: State,
    /// The way out of the thread's coroutine; set when it first runs.
    yielder: *const Yielder<(), ()>,
    /// The highest address of its stack.
    stack_base: usize,
    /// The lines of its stack that it touched, from that address down: their index in the directory
    /// and one, 0 for others.
    stack_lines: Vec<u32>,
    cpu: usize,
    /// Whether it stays on its CPU.
    bound: bool,
    /// How often its restartable operation, if it had one, had to start over: when it lost its CPU,
    /// at a signal, and at a fence of such operations. An interrupt or a tick alone does not count.
    aborts: u64,
    /// The number of its latest wait. A timer that was set for an earlier one no longer counts.
    wait_number: u64,
    /// The threads that wait for this one's end.
    joiners: Vec<usize>,
    /// Why the last park ended.
    parked: Parked,
    /// The rest of the computation under way.
    work_left: u64,
    /// Whether a restartable operation is under way: faults then hit between its steps.
    section: bool,
    /// Whether the machine has visited the preemption point that the thread is at.
    visited: bool,
    /// Whether it is an idle CPU's context.
    is_idle: bool,
    /// How many holds keep interrupts off.
    masked: u32,
    /// Whether it rests in a monitored wait, which an interrupt ends also where it is masked.
    monitoring: bool,
    /// How many holds keep signals off.
    held: u32,
    /// Whether a signal came while they were kept off.
    pending: bool,
    /// What it has of slice extensions.
    extension: Extension,
    cid: Option<Cid>,
    /// The thread's `WorldLocal` objects.
    locals: Vec<(Key, Rc<dyn Any>)>,
    /// Whether the thread panicked and was not seen otherwise since.
    panicked: bool,
    /// The source location at which its latest wait began.
    site: Option<Site>,
    /// The source location of its latest access, if the machine looks at accesses.
    seen: Option<Site>,
    /// When it ended, in picoseconds.
    ended: Option<u64>,
}

const _: () = assert!(offset_of!(Cpu, buffered) < 64 && offset_of!(Thread, stack_lines) < 64);

/// All state of one running machine.
pub(crate) struct Engine {
    spec: Spec,
    topology: Arc<Topology>,
    request_percent: u64,
    faults: Faults,
    /// Whether every access is a preemption point: the machine visits it first.
    preemption_points: bool,
    /// Chooses the thread that runs next; `None` in a schedule by time.
    chooser: Option<Chooser>,
    step_limit: u64,
    /// After how many steps the machine begins or ends to observe what the threads do.
    next_observation: u64,
    /// The accesses and changes that it makes meanwhile.
    observation: Option<Box<lately::Observation>>,
    jitter: Rng,
    dice: Rng,
    /// The generator for events that interfaces permit and that seldom happen.
    luck: Rng,
    /// The word that the running thread has written last while it spun, and what that held before.
    written: Option<(usize, u64)>,
    /// The account of the program's blocks, if their use is checked.
    blocks: Option<Box<Blocks>>,
    mistake: Option<Unresolved>,
    /// The generator that seeds the program's hash maps.
    hashes: Rng,
    directory: Directory,
    /// Whether a hit may cost more than another: of what a sibling wrote, in a page whose first
    /// write is a fault, or where accesses overlap. For most runs no, so that a hit pays for one
    /// look.
    hits_differ: bool,
    pages: Pages,
    arbitration: Arbitration,
    /// The accesses in progress, if independent accesses overlap.
    overlaps: Option<Box<Overlaps>>,
    stores: Stores,
    /// How many stores went into a buffer so far.
    buffered: StoreNumber,
    arena: Arena,
    /// The unfinished threads' stacks: lowest address to highest address and the thread's number.
    stacks: BTreeMap<usize, (usize, usize)>,
    /// The stack on which a thread that has none left gives up.
    emergency: Vec<u8>,
    /// The lowest address to which the running thread's stack may grow.
    floor: usize,
    cpus: Vec<Cpu>,
    /// How many of them are in service.
    online_count: usize,
    /// How many threads are in queues.
    queued: usize,
    /// Whether the contexts of idle CPUs must end.
    ending: bool,
    threads: Vec<Thread>,
    events: EventQueue,
    /// When which thread's wait ends, and the wait's number. Ties go by thread.
    timers: BinaryHeap<Reverse<(u64, usize, u64)>>,
    /// The CPU whose thread runs now.
    running: Option<usize>,
    /// The way out of the coroutine that runs now.
    yielder: *const Yielder<(), ()>,
    /// The time of the loop's latest decision.
    settled: u64,
    /// When something other than the running CPU acts next.
    horizon: u64,
    /// The threads parked on each word, longest sleeper first.
    parked: BTreeMap<usize, VecDeque<usize>>,
    /// Threads spawned since the loop last looked.
    newborn: Vec<Fiber>,
    kernel: Option<Box<dyn Kernel>>,
    /// The data of full statistics; kept while the machine observes, too.
    ledger: Option<Box<Ledger>>,
    /// The events with their times, if a trace is made.
    tracer: Option<Box<Tracer>>,
    /// Whether full statistics were asked for.
    is_full: bool,
    statics: Statics,
    /// The thread-locals of the host that simulated threads may share.
    locals: Locals,
    watch: Watch,
    panics: Panics,
    /// Whether the host's own code was unwinding when it started the machine.
    host_unwinds: bool,
    failure: Option<FailureKind>,
    /// The line that repeats the run, for a process that ends.
    replay: Replay,
    report: Report,
    locks: Locks,
    names: Names,
}

/// Puts the engine's pointer back when it drops.
struct InUse(*mut Engine);

impl Drop for InUse {
    fn drop(&mut self) {
        ENGINE.set(self.0);
    }
}

/// Calls `f` with the engine; `None` if this thread runs no simulated code.
///
/// `f` must not switch coroutines, and while it runs there is no machine: a function of `Sim` that
/// it still calls (a [`Kernel`]'s hook might) fails as it does outside of a machine. The memory
/// that it allocates comes from the host.
pub(crate) fn with<R>(f: impl FnOnce(&mut Engine) -> R) -> Option<R> {
    let engine = ENGINE.replace(ptr::null_mut());
    if engine.is_null() {
        return None;
    }
    let _in_use = InUse(engine);
    let _host = arena::leave();
    // SAFETY: the pointer is valid from `Installed::new` to its drop. No other reference exists:
    // the coroutines and the loop share one host thread, each holds a reference only within `with`,
    // whose `f` does not switch, and `ENGINE` is null meanwhile, so a nested call gets none.
    Some(f(unsafe { &mut *engine }))
}

/// Like [`with`], from simulated code.
///
/// # Panics
///
/// Outside of a simulated machine, with a message for the caller.
pub(crate) fn inside<R>(f: impl FnOnce(&mut Engine) -> R) -> R {
    with(f).expect("this function of the world `Sim` works only inside `Machine::run`")
}

/// Whether this thread runs simulated code.
pub(crate) fn runs() -> bool {
    !ENGINE.get().is_null()
}

/// Gives the host thread back to the loop. Returns when the calling thread may continue.
fn suspend() {
    switch_away(inside(|engine| engine.yielder));
}

/// The calling thread never continues, because the machine has failed.
fn stop() -> ! {
    loop {
        suspend();
    }
}

/// Like [`suspend`]; `yielder` is that of the coroutine that calls.
fn switch_away(yielder: *const Yielder<(), ()>) {
    // SAFETY: `yielder` is that of the coroutine that runs now, which calls this; it lives on that
    // coroutine's stack, as long as that runs.
    unsafe { (*yielder).suspend(()) };
}

impl Engine {
    /// The running thread.
    pub(crate) fn current(&self) -> usize {
        let cpu = self.running.expect("simulated code runs only on a CPU");
        self.cpus[cpu].current.expect("a CPU that runs has a thread")
    }

    fn here(&mut self) -> &mut Cpu {
        let cpu = self.running.expect("simulated code runs only on a CPU");
        &mut self.cpus[cpu]
    }

    pub(crate) fn cpu(&self) -> CpuId {
        let cpu = self.running.expect("simulated code runs only on a CPU");
        CpuId::new(cpu as u32)
    }

    pub(crate) fn now(&mut self) -> Time {
        Time::from_nanos(self.here().now / PS_PER_NS)
    }

    pub(crate) fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    /// The running thread's concurrency ID; `None` without a [`Kernel`].
    pub(crate) fn cid(&self) -> Option<Cid> {
        self.threads[self.current()].cid
    }

    pub(crate) fn has_cids(&self) -> bool {
        self.kernel.is_some()
    }

    /// How often a restartable operation of the running thread had to start over so far.
    pub(crate) fn aborts(&self) -> u64 {
        self.threads[self.current()].aborts
    }

    /// Names a part of the program's memory.
    pub(crate) fn name(&mut self, address: usize, len: usize, name: &str) {
        let first = self.relative(address);
        self.names.0.push((first, len as u64, name.to_owned()));
    }

    /// The accesses so far to the lines of the arena that `which` selects; `None` if they are not
    /// counted.
    pub(crate) fn transfers(&self, which: impl Fn(usize) -> bool) -> Option<Transfers> {
        let is_it = |line| {
            let address = self.arena.address(self.directory.name(line) * memory::LINE as u64);
            self.arena.offset(address).is_some() && which(address)
        };
        Some(self.ledger.as_deref().filter(|_| self.is_full)?.transfers(is_it))
    }

    /// All accesses so far.
    pub(crate) fn all_transfers(&self) -> Transfers {
        self.report.transfers
    }

    /// The events so far, if a trace is made.
    fn trace(&self) -> Option<Trace> {
        self.tracer.as_ref().map(|tracer| tracer.trace(self.spec.name(), &self.names))
    }

    /// The report of the run so far.
    fn report(&self) -> Report {
        let place = |line| {
            let number = self.directory.name(line);
            (number * memory::LINE as u64, memory::stack_of(number))
        };
        let known = (&self.names, &self.locks);
        let details = |ledger: &Ledger| ledger.details(self.report.time_ns, place, known);
        let full = self.ledger.as_deref().filter(|_| self.is_full);
        Report { details: full.map(details), ..self.report.clone() }
    }

    /// The seed of the program's next hash map.
    pub(crate) fn hash_seed(&mut self) -> u64 {
        self.hashes.below(u64::MAX)
    }

    /// Counts a restart of a restartable operation.
    pub(crate) fn count_restart(&mut self) {
        self.report.restarts += 1;
    }

    /// Makes every restartable operation that is under way start over, but the running thread's
    /// own.
    pub(crate) fn abort_other_sections(&mut self) {
        let current = self.current();
        for (number, thread) in self.threads.iter_mut().enumerate() {
            if number != current {
                thread.aborts += 1;
            }
        }
        self.lose_other_extensions();
    }

    /// Lets `ps` picoseconds in the kernel pass on the running CPU, after all accesses.
    pub(crate) fn spend(&mut self, ps: u64) {
        self.settle_here();
        self.spend_on(Activity::Kernel, ps);
    }

    /// Lets `ps` picoseconds pass on the running CPU in which its thread computes.
    pub(crate) fn spend_computing(&mut self, ps: u64) {
        self.settle_here();
        self.spend_on(Activity::Compute, ps);
    }

    /// Lets `ps` picoseconds pass on the running CPU.
    #[inline]
    fn spend_on(&mut self, activity: Activity, ps: u64) {
        let cpu = self.running.expect("simulated code runs only on a CPU");
        self.cpus[cpu].now += ps;
        self.account(cpu, activity, ps);
    }

    /// Lets the time up to `at` pass on a CPU.
    fn spend_until(&mut self, cpu: usize, activity: Activity, at: u64) {
        let passed = at.saturating_sub(self.cpus[cpu].now);
        self.cpus[cpu].now += passed;
        self.account(cpu, activity, passed);
    }

    /// Notes what time that passed on a CPU was spent on.
    #[inline]
    fn account(&mut self, cpu: usize, activity: Activity, ps: u64) {
        if let Some(ledger) = &mut self.ledger {
            ledger.cpus[cpu][activity as usize] += ps;
        }
    }

    /// Charges for a read of the thread's CPU or concurrency ID, which the kernel writes to its
    /// memory. Not free: a loop that waits for a change must not stop the time.
    pub(crate) fn spend_on_place(&mut self) {
        self.spend_on(Activity::Hit, self.spec.costs().private_hit);
    }

    /// A restartable operation of the running thread begins or ends.
    pub(crate) fn set_section(&mut self, section: bool) {
        let current = self.current();
        self.threads[current].section = section;
    }

    /// Stops the machine. The first reason counts, and if a thread is stuck in a destructor because
    /// it panicked, the panic is the reason.
    #[cold]
    fn fail(&mut self, kind: FailureKind) {
        if self.failure.is_some() {
            return;
        }
        let is_panic = matches!(kind, FailureKind::Panic { .. });
        let cause = if is_panic { None } else { self.stuck_panic() };
        self.failure = Some(cause.unwrap_or(kind));
    }

    /// Counts one step; stops the machine if there were too many.
    #[inline]
    fn count_step(&mut self) {
        self.report.steps += 1;
        if self.report.steps > self.next_observation {
            self.begin_or_end_observation();
        }
    }

    /// The machine-relative address of a word, for reports.
    fn relative(&self, address: usize) -> u64 {
        self.line_of(address)
            .map_or(0, |line| line * memory::LINE as u64 + (address % memory::LINE) as u64)
    }
}

/// The engine's unit of time is the picosecond: 2^64 of them are 213 days.
const PS_PER_NS: u64 = 1000;

/// A point of the machine's clock in the engine's unit; saturates.
fn picoseconds(at: Time) -> u64 {
    at.as_nanos().saturating_mul(PS_PER_NS)
}

/// A timer beyond this, after 106 days, is never due: what is computed from a present time never
/// overflows.
const END_OF_TIME: u64 = NEVER / 2;
