//! The engine's loop: one decision after another, until all threads have ended or none can run.
//!
//! | time | meaning |
//! |---|---|
//! | `Cpu::now` | how far this CPU has come; it may be ahead of others |
//! | `horizon` | when anything else acts next; a thread gives way once its CPU's `now` is later |
//! | `next_kernel_event` | when the kernel acts on this CPU next: tick, slice, interrupt |
//! | `settled` | the time of the loop's latest decision |

use std::any::Any;
use std::collections::BTreeMap;
use std::mem::{self, ManuallyDrop};
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corosensei::CoroutineResult;

use super::blocks::{self, Blocks};
use super::choice::{self, Chooser, Decisions, Next};
use super::kernel::fiber::{Fiber, Job};
use super::locals::Locals;
use super::memory::overlap::Overlaps;
use super::memory::pages::Pages;
use super::memory::stores::Stores;
use super::panics::{self, NOT_A_STRING, Panics};
use super::rng::{Rng, Stream};
use super::watchdog::Watch;
use super::{
    Cpu, ENGINE, Engine, EventQueue, NEVER, PS_PER_NS, STACK, State, Thread, inside, lately, races,
    stack, unoptimised,
};
use crate::hardware::arena::Arena;
use crate::hardware::coherence::Directory;
use crate::hardware::contention::Arbitration;
use crate::hardware::overlap::Overlap;
use crate::hardware::places::NoPlace;
use crate::hardware::shadow;
use crate::hardware::spec::Spec;
use crate::results::failure::{CpuState, FailureKind, Panicked, ThreadState};
use crate::results::locks::LockReport;
use crate::results::replay::Replay;
use crate::results::report::{Report, Statistics};
use crate::results::statistics::{Activity, Ledger};
use crate::results::tape::Tape;
use crate::results::trace::{Trace, Tracer};
use crate::settings::faults::Faults;
use crate::settings::kernel::Kernel;
use crate::settings::memory::MemoryChecks;
use crate::settings::schedule::Schedule;

/// All that a run depends on, besides the program.
pub(crate) struct Setup {
    pub(crate) spec: Spec,
    /// The digest that the machine's place follows from; `None` for any place.
    pub(crate) home: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) request_percent: u32,
    pub(crate) faults: Faults,
    pub(crate) schedule: Schedule,
    pub(crate) step_limit: u64,
    pub(crate) kernel: Option<Box<dyn Kernel>>,
    pub(crate) statistics: Statistics,
    /// The record of accesses, with full statistics.
    pub(crate) tape: Option<Tape>,
    /// Whether it is put down what happens when.
    pub(crate) trace: bool,
    /// Whether it looks for data races.
    pub(crate) races: bool,
    pub(crate) arbitration: Arbitration,
    pub(crate) overlap: Overlap,
    pub(crate) replay: Replay,
    pub(crate) memory: MemoryChecks,
    /// The time for which a thread may do nothing that the machine sees.
    pub(crate) patience: Duration,
    /// Whether it looks for leaks, and the memory where the program's value will be.
    pub(crate) leaks: Option<(usize, usize)>,
}

/// A run that finished.
pub(crate) struct Finished {
    pub(crate) report: Report,
    pub(crate) locks: Vec<LockReport>,
    pub(crate) trace: Option<Trace>,
    /// The decisions of a listed schedule that had alternatives.
    pub(crate) decisions: Decisions,
}

/// A run that failed: why, when, and what each thread was doing.
pub(crate) struct Failed {
    pub(crate) kind: FailureKind,
    pub(crate) at_ns: u64,
    pub(crate) threads: Vec<ThreadState>,
    pub(crate) cpus: Vec<CpuState>,
    pub(crate) locks: Vec<LockReport>,
    pub(crate) panics: Vec<Panicked>,
}

impl Failed {
    fn refused(why: &str) -> Box<Failed> {
        Failed::at_the_start(FailureKind::Refused { why: why.to_owned() })
    }

    fn at_the_start(kind: FailureKind) -> Box<Failed> {
        Box::new(Failed {
            kind,
            at_ns: 0,
            threads: Vec::new(),
            cpus: Vec::new(),
            locks: Vec::new(),
            panics: Vec::new(),
        })
    }
}

/// A machine that is under way: its engine, which is this host thread's until this drops, and the
/// coroutines of its threads, by number; `None` for a thread that has ended.
///
/// When it drops, threads that have not ended are abandoned, as those of a process at an abort, and
/// not unwound: their destructors would wait for threads that never run again. They leak with their
/// stacks, from which a host thread may have borrowed something that it still uses.
struct Installed {
    engine: *mut Engine,
    fibers: Vec<Option<Fiber>>,
    /// Whether a coroutine runs now: a panic is the simulated program's.
    resuming: bool,
}

impl Installed {
    fn new(engine: Box<Engine>, looks_for_races: bool) -> Installed {
        races::begin(looks_for_races);
        choice::begin(engine.faults.weak);
        shadow::set_keeper(Some(&blocks::KEEPER));
        let engine = Box::into_raw(engine);
        ENGINE.set(engine);
        Installed { engine, fibers: Vec::new(), resuming: false }
    }

    /// Lets the simulated threads run until all are done or the machine fails.
    fn run(&mut self) {
        let mut panicked = None;
        loop {
            let outcome = {
                let _simulated = inside(|engine| engine.arena.entry()).enter();
                panic::catch_unwind(AssertUnwindSafe(|| self.switch(panicked.take())))
            };
            match outcome {
                Ok(()) => return,
                Err(payload) if self.resuming => panicked = Some(message(payload)),
                // The engine's own, or its kernel's.
                Err(payload) => panic::resume_unwind(payload),
            }
        }
    }

    /// Like [`run`](Installed::run), up to the next panic that leaves a thread. `panicked` is the
    /// message of the previous one, which ends the run.
    fn switch(&mut self, panicked: Option<String>) {
        self.resuming = false;
        if panicked.is_some() {
            return self.end(panicked);
        }
        loop {
            let next = inside(|engine| {
                engine.came_back();
                engine.look_at_locals();
                let next = engine.decide();
                if !engine.newborn.is_empty() {
                    self.fibers.extend(engine.newborn.drain(..).map(Some));
                }
                next
            });
            let Next::Resume(thread) = next else { return };
            let Some(fiber) = &mut self.fibers[thread] else {
                unreachable!("thread {thread} runs after its end")
            };
            self.resuming = true;
            let result = fiber.coroutine.resume(());
            self.resuming = false;
            if let CoroutineResult::Return(()) = result {
                self.end(None);
            }
        }
    }

    /// The running thread has ended, if by a panic with that message. Its stack goes back to the
    /// system, for the next threads.
    #[cold]
    fn end(&mut self, panicked: Option<String>) {
        let thread = inside(|engine| engine.current());
        let ended = self.fibers[thread].take();
        inside(Engine::look_at_locals);
        inside(|engine| engine.ended(ended.as_ref().map(|fiber| fiber.stack.0), panicked));
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        ENGINE.set(ptr::null_mut());
        races::end();
        choice::begin(0);
        shadow::set_keeper(None);
        // SAFETY: the pointer came from `Box::into_raw`, and is given back once, here.
        let mut engine = unsafe { Box::from_raw(self.engine) };
        self.fibers.drain(..).flatten().chain(engine.newborn.drain(..)).for_each(mem::forget);
        for cpu in &mut engine.cpus {
            mem::forget(mem::take(&mut cpu.interrupts));
        }
        for thread in &mut engine.threads {
            mem::forget(mem::take(&mut thread.locals));
        }
        mem::forget(mem::take(&mut engine.statics));
    }
}

/// The message of a panic that ended a simulated thread.
fn message(payload: Box<dyn Any + Send>) -> String {
    let payload = match payload.downcast::<String>() {
        // Copied: the original is the machine's memory.
        Ok(message) => return message.as_str().to_owned(),
        Err(payload) => payload,
    };
    match payload.downcast::<&'static str>() {
        Ok(message) => (*message).to_owned(),
        Err(payload) => {
            // Its destructor is simulated code, and the machine is dead.
            mem::forget(payload);
            NOT_A_STRING.to_owned()
        }
    }
}

/// Runs `root` as the first thread of a machine, until all its threads are done.
pub(crate) fn run(setup: Setup, root: Job) -> Result<Finished, Box<Failed>> {
    if !ENGINE.get().is_null() {
        return Err(Failed::refused("a machine cannot run inside a machine"));
    }
    if !is_allocator_global().map_err(|why| Failed::refused(&why.to_string()))? {
        return Err(Failed::at_the_start(FailureKind::NoAllocator));
    }
    let arena = Arena::new(setup.home).map_err(|why| Failed::refused(&why.to_string()))?;
    panics::watch();
    if cfg!(unoptimised) {
        unoptimised::say();
    }
    let stack = stack::new(&arena)
        .map_err(|why| Failed::refused(&format!("no stack for the first thread: {why}")))?;
    let fiber = Fiber::new(stack, root);
    let (looks, leaks) = (setup.races, setup.leaks);
    let mut machine = Installed::new(Box::new(Engine::new(setup, arena)), looks);
    inside(|engine| engine.start(fiber));
    machine.run();
    let (report, locks) = inside(|engine| (engine.report(), engine.lock_reports()));
    let trace = inside(|engine| engine.trace());
    if leaks.is_some() {
        inside(Engine::keep_what_statics_have);
    }
    // The machine's statics go in a thread of their own: their destructors may use the machine,
    // even make new ones. It is not counted in the report.
    while let Some(statics) = inside(Engine::take_statics) {
        // Without a stack they leak: their destructors have no thread to run on.
        let statics = ManuallyDrop::new(statics);
        let stack = inside(|engine| stack::new(&engine.arena))
            .map_err(|why| Failed::refused(&format!("no stack for the last thread: {why}")))?;
        let fiber = Fiber::new(stack, Job::new(move || drop(ManuallyDrop::into_inner(statics))));
        inside(|engine| engine.start(fiber));
        machine.run();
    }
    inside(Engine::fail_if_unlearnt);
    inside(Engine::fail_if_spoilt);
    if let Some(kept) = leaks {
        inside(|engine| engine.fail_if_blocks_leak(kept));
    }
    let failed = inside(Engine::failed);
    let decisions = inside(Engine::take_decisions);
    drop(machine);
    match failed {
        Some(failed) => Err(failed),
        None => Ok(Finished { report, locks, trace, decisions }),
    }
}

/// Whether what simulated code allocates is a machine's memory. Tried in an arena that no machine
/// has: a block of the program's own would move all that follow.
fn is_allocator_global() -> Result<bool, NoPlace> {
    static IS_GLOBAL: OnceLock<bool> = OnceLock::new();
    if let Some(&known) = IS_GLOBAL.get() {
        return Ok(known);
    }
    let arena = Arena::new(None)?;
    let block = {
        let _simulated = arena.entry().enter();
        std::hint::black_box(Box::new(0_u64))
    };
    let found = arena.offset((&raw const *block).addr()).is_some();
    Ok(*IS_GLOBAL.get_or_init(|| found))
}

impl Engine {
    fn new(setup: Setup, arena: Arena) -> Engine {
        let Setup { spec, seed, request_percent, faults, schedule, step_limit, kernel, .. } = setup;
        let full = setup.statistics == Statistics::Full;
        let topology = Arc::new(spec.topology().clone());
        let mut phases = Rng::new(seed, Stream::Ticks);
        let cpus: Vec<_> = topology
            .cpus()
            .map(|cpu| Cpu {
                core: cpu.core,
                cache: cpu.cache,
                node: cpu.node,
                buffered: 0,
                now: 0,
                current: None,
                queue: Default::default(),
                slice_end: 0,
                call_end: 0,
                next_tick: NEVER,
                tick_phase: phases.below(spec.costs().tick),
                next_kernel_event: NEVER,
                offline: false,
                interrupts: Default::default(),
                idle: None,
            })
            .collect();
        let cpu_count = cpus.len();
        // Where a chooser picks the thread that runs next, an access is one step.
        let overlaps = setup.overlap == Overlap::Independent && schedule == Schedule::Time;
        let blocks = Blocks::new(setup.memory, &mut Rng::new(seed, Stream::Blocks)).map(Box::new);
        if blocks.is_some() {
            arena.keep();
        }
        Engine {
            directory: Directory::new(&topology, spec.costs(), spec.distances()),
            pages: Pages::new(&topology),
            hits_differ: spec.costs().same_core > 0 || overlaps,
            overlaps: overlaps.then(|| Box::new(Overlaps::new(&spec))),
            arbitration: setup.arbitration,
            stores: Stores::new(cpu_count),
            buffered: 0,
            events: EventQueue::new(cpu_count),
            request_percent: u64::from(request_percent),
            faults,
            preemption_points: faults.hit_accesses()
                || blocks.is_some()
                || schedule != Schedule::Time,
            chooser: Chooser::new(&schedule, seed, faults.cut_spins),
            step_limit,
            next_observation: lately::first(step_limit),
            observation: None,
            tracer: setup.trace.then(|| Box::new(Tracer::new(cpu_count))),
            is_full: full,
            jitter: Rng::new(seed, Stream::Jitter),
            dice: Rng::new(seed, Stream::Faults),
            luck: Rng::new(seed, Stream::Luck),
            written: None,
            blocks,
            mistake: None,
            hashes: Rng::new(seed, Stream::Hashes),
            arena,
            stacks: BTreeMap::new(),
            emergency: stack::prepare(),
            floor: 0,
            online_count: cpus.len(),
            queued: 0,
            ending: false,
            cpus,
            threads: Vec::new(),
            timers: Default::default(),
            running: None,
            yielder: ptr::null(),
            settled: 0,
            horizon: NEVER,
            parked: BTreeMap::new(),
            newborn: Vec::new(),
            kernel,
            ledger: full.then(|| Box::new(Ledger::new(cpu_count, setup.tape))),
            statics: Vec::new(),
            locals: Locals::new(),
            watch: Watch::begin(setup.patience),
            panics: Panics::default(),
            replay: setup.replay,
            host_unwinds: std::thread::panicking(),
            failure: None,
            report: Report::default(),
            locks: Default::default(),
            names: Default::default(),
            topology,
            spec,
        }
    }

    fn take_decisions(&mut self) -> Decisions {
        self.chooser.as_mut().map(Chooser::take_decisions).unwrap_or_default()
    }

    /// Starts a thread without a parent: the program's first, or the one that drops its statics.
    fn start(&mut self, fiber: Fiber) {
        let cpu = 0;
        self.ending = false;
        let number = self.add_thread(cpu, false);
        races::started_last(number);
        let now = self.settled;
        self.adopt(number, fiber, cpu, now);
    }

    /// Decides what happens next, up to the next thread that runs.
    fn decide(&mut self) -> Next {
        loop {
            self.count_step();
            if self.failure.is_some() {
                return Next::Stop;
            }
            let next = match self.chooser {
                None => self.decide_by_time(),
                Some(_) => self.decide_by_choice(),
            };
            if let Some(next) = next {
                return next;
            }
        }
    }

    /// Settles one thing, in the order of time.
    fn decide_by_time(&mut self) -> Option<Next> {
        let next = self.events.earliest();
        let timer = self.next_timer();
        let store = self.stores.earliest();
        if next == NEVER && timer == NEVER && store == NEVER {
            return self.no_thread_left();
        }
        if store <= next && store <= timer {
            self.settled = self.settled.max(store);
            self.advance_store();
            return None;
        }
        if timer <= next {
            self.settled = self.settled.max(timer);
            self.expire();
            return None;
        }
        self.settled = self.settled.max(next);
        let cpu = self.events.winner();
        let Cpu { next_kernel_event, current, .. } = self.cpus[cpu];
        let Some(thread) = current else {
            self.begin_turn(cpu, next);
            return None;
        };
        self.running = Some(cpu);
        if next >= next_kernel_event && !self.threads[thread].state.is_access() {
            if timer == NEVER && store == NEVER && self.only_ticks_left() {
                return self.no_thread_left();
            }
            if !self.disturb(cpu, thread, next) {
                return None;
            }
        }
        self.stop_computing(cpu, thread);
        self.horizon = self.events.earliest_other(cpu).min(timer).min(store);
        self.set_out(thread);
        Some(Next::Resume(thread))
    }

    /// A CPU without a current thread acts at `now`.
    #[inline(never)]
    fn begin_turn(&mut self, cpu: usize, now: u64) {
        match self.cpus[cpu].queue.front() {
            Some(&first) if self.threads[first].ready_since() <= now => self.dispatch(cpu, now),
            _ => self.leave_idle(cpu, now),
        }
    }

    /// The kernel has something to do on the running CPU at `now`. Returns whether its thread
    /// continues immediately, because an interrupt made it stop its current operation.
    #[inline(never)]
    fn disturb(&mut self, cpu: usize, thread: usize, now: u64) -> bool {
        self.settle(cpu);
        let activity = match self.threads[thread].state {
            State::Working { .. } => Activity::Compute,
            _ => Activity::Spin,
        };
        self.spend_until(cpu, activity, now);
        if now < self.next_break(cpu, thread) {
            self.look_after(cpu, thread);
            self.running = None;
            self.rekey(cpu);
            return false;
        }
        self.break_off();
        true
    }

    /// A thread is about to go on.
    pub(super) fn set_out(&mut self, thread: usize) {
        let Thread { yielder, stack_base, .. } = self.threads[thread];
        self.yielder = yielder;
        self.floor = stack_base.saturating_sub(STACK);
    }

    /// No thread can ever run again.
    pub(super) fn no_thread_left(&mut self) -> Option<Next> {
        let waits = |thread: &Thread| !matches!(thread.state, State::Done | State::Idle);
        if self.threads.iter().any(waits) {
            self.fail(FailureKind::Deadlock);
        } else if self.retire_idle_contexts() {
            return None;
        }
        Some(Next::Stop)
    }

    /// The running thread has ended, and its stack, if any, is gone. `panic` is the message of the
    /// panic that ended it, if one did.
    fn ended(&mut self, stack: Option<usize>, panic: Option<String>) {
        if let Some(stack) = &stack {
            self.stacks.remove(stack);
        }
        let thread = self.current();
        self.settle_here();
        if let Some(message) = panic {
            self.fail_by_panic(&message);
            // Its joiners stay as they are, for the report.
            self.threads[thread].state = State::Done;
            return;
        }
        if !self.ending {
            let now = self.here().now;
            self.report.time_ns = self.report.time_ns.max(now / PS_PER_NS);
        }
        self.finish();
    }

    /// The running thread, if any, gave the host thread back.
    fn came_back(&mut self) {
        let Some(cpu) = self.running else { return };
        if self.chooser.is_some() {
            self.settled = self.settled.max(self.cpus[cpu].now);
        }
        self.running = None;
        self.rekey(cpu);
        self.pull(cpu, self.cpus[cpu].now);
    }

    /// Why the machine stopped, if it failed.
    fn failed(&mut self) -> Option<Box<Failed>> {
        self.resolve_mistake();
        self.resolve_place_of_stuck();
        let kind = self.failure.take()?;
        let (threads, cpus, locks) = (self.thread_states(), self.cpu_states(), self.lock_reports());
        let (at_ns, panics) = (self.settled / PS_PER_NS, self.panics.all());
        Some(Box::new(Failed { kind, at_ns, threads, cpus, locks, panics }))
    }
}
