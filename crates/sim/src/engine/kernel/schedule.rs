//! Threads on CPUs: running, queued and sleeping threads.
//!
//! Each CPU has one FIFO queue. A thread runs until it blocks, ends, or has used up its slice while
//! another thread wants the CPU. Threads stay on the CPU where they were started unless a fault
//! moves them, or an idle CPU takes over a queued thread (`balance`).

use core::panic::Location;
use std::cmp::Reverse;

use coreline_topology::CpuId;
use coreline_world::{Parked, Placement, SpawnError, Time};

use crate::engine::kernel::extension::{Extension, enter_kernel};
use crate::engine::kernel::fiber::{Fiber, Job};
use crate::engine::kernel::interrupts;
use crate::engine::kernel::points::issue;
use crate::engine::{
    Cpu, END_OF_TIME, Engine, NEVER, PS_PER_NS, State, Thread, inside, races, stack, suspend,
};
use crate::results::report::Site;
use crate::results::statistics::Activity;
use crate::settings::kernel::Kernel;

/// Starts a thread; returns its number.
pub(crate) fn spawn(placement: Placement, job: Job) -> Result<usize, SpawnError> {
    issue();
    enter_kernel();
    let cpu = inside(|engine| engine.choose_cpu(placement, engine.current()))?;
    let stack = inside(|engine| stack::new(&engine.arena));
    let stack = stack.map_err(|error| SpawnError::Exhausted(error.to_string()))?;
    let fiber = Fiber::new(stack, job);
    let (number, at) = inside(|engine| {
        let parent = engine.current();
        let bound = placement != Placement::Anywhere || engine.threads[parent].bound;
        let number = engine.add_thread(cpu, bound);
        let costs = *engine.spec.costs();
        engine.spend_in_call(costs.syscall);
        // A spread of up to a microsecond: threads that start in lockstep stay in it.
        let spread = engine.jitter.below(1000 * PS_PER_NS);
        let at = engine.here().now + engine.jitter.jitter(costs.spawn) + spread;
        (number, at)
    });
    races::started(number, fiber.stack);
    inside(|engine| engine.adopt(number, fiber, cpu, at));
    Ok(number)
}

/// Lets the other threads of the CPU run.
pub(crate) fn yield_now() {
    issue();
    enter_kernel();
    let gives_way = inside(|engine| {
        let costs = *engine.spec.costs();
        engine.spend_in_call(costs.syscall);
        let gives_way = engine.give_way();
        if gives_way && !engine.here().queue.is_empty() {
            engine.requeue();
        }
        gives_way
    });
    if gives_way {
        suspend();
    }
}

/// One turn of a spin loop.
pub(crate) fn pause() {
    issue();
    inside(|engine| {
        engine.spend_on(Activity::Spin, engine.spec.costs().pause);
        engine.give_way();
    });
}

/// The running thread begins another program.
pub(crate) fn exec() {
    issue();
    enter_kernel();
    inside(|engine| {
        engine.spend_in_call(engine.spec.costs().syscall);
        let (at, thread) = (engine.now(), engine.current());
        if let Some(kernel) = &mut engine.kernel {
            kernel.exec(at, thread);
        }
    });
}

/// Lets the running thread compute for `ps` picoseconds, plus or minus a tenth.
pub(crate) fn work(ps: u64) {
    issue();
    let mut left = match ps {
        ..END_OF_TIME => inside(|engine| engine.jitter.jitter(ps)),
        _ => NEVER,
    };
    while left > 0 {
        let began = inside(|engine| engine.compute_or_wait(left));
        if !began {
            return;
        }
        suspend();
        left = inside(|engine| engine.threads[engine.current()].work_left);
        // A handler may compute, too.
        interrupts::deliver();
    }
}

/// Takes the running thread off its CPU for `ps` picoseconds.
#[track_caller]
pub(crate) fn sleep(ps: u64) {
    let site = Location::caller();
    issue();
    enter_kernel();
    inside(|engine| {
        engine.waits_at(site);
        let at = engine.here().now.saturating_add(ps);
        engine.block(State::Sleeping, Some(at));
    });
    suspend();
}

/// Waits until thread `number` is done.
#[track_caller]
pub(crate) fn wait_for(number: usize) {
    let site = Location::caller();
    issue();
    enter_kernel();
    let blocked = inside(|engine| {
        engine.waits_at(site);
        let current = engine.current();
        // A handle of another machine may name a thread that does not exist here.
        let joined = engine.threads.get_mut(number).filter(|thread| thread.state != State::Done);
        let running = joined.map(|thread| thread.joiners.push(current)).is_some();
        if running {
            engine.block(State::Joining { thread: number }, None);
        }
        running
    });
    if blocked {
        suspend();
    }
    races::joined(number);
}

impl Thread {
    /// Since when a thread in a queue is ready.
    pub(in crate::engine) fn ready_since(&self) -> u64 {
        match self.state {
            State::Ready { since } => since,
            state => unreachable!("a queued thread is ready, not {state:?}"),
        }
    }
}

impl Engine {
    /// The CPU for a new thread.
    pub(in crate::engine) fn choose_cpu(
        &self,
        placement: Placement,
        parent: usize,
    ) -> Result<usize, SpawnError> {
        match placement {
            Placement::On(cpu) => match self.out_of_service(cpu) {
                None => Ok(cpu.index()),
                Some(why) => {
                    Err(SpawnError::Cpu { cpu, why, allowed: format!("CPUs {}", self.online()) })
                }
            },
            Placement::Anywhere => Ok(match self.threads[parent].bound {
                true => self.threads[parent].cpu,
                // The CPU with the fewest threads, as a fork balances.
                false => (0..self.cpus.len())
                    .filter(|&cpu| !self.cpus[cpu].offline)
                    .min_by_key(|&cpu| {
                        self.cpus[cpu].queue.len() + usize::from(self.cpus[cpu].current.is_some())
                    })
                    .unwrap_or(0),
            }),
        }
    }

    /// Adds a thread, and tells the kernel of it; returns its number.
    pub(in crate::engine) fn add_thread(&mut self, cpu: usize, bound: bool) -> usize {
        let number = self.push_thread(cpu, bound);
        if let Some(kernel) = &mut self.kernel {
            kernel.spawned(number, CpuId::new(cpu as u32), bound);
        }
        number
    }

    /// The kernel, if it knows the thread.
    pub(in crate::engine) fn kernel_of(&mut self, thread: usize) -> Option<&mut Box<dyn Kernel>> {
        self.kernel.as_mut().filter(|_| !self.threads[thread].is_idle)
    }

    /// Adds a thread without telling the kernel.
    pub(in crate::engine) fn push_thread(&mut self, cpu: usize, bound: bool) -> usize {
        let number = self.threads.len();
        self.threads.push(Thread {
            cpu,
            bound,
            state: State::Ready { since: NEVER },
            aborts: 0,
            wait_number: 0,
            joiners: Vec::new(),
            parked: Parked::Woken,
            work_left: 0,
            section: false,
            visited: false,
            stack_base: 0,
            stack_lines: Vec::new(),
            is_idle: false,
            masked: 0,
            monitoring: false,
            held: 0,
            pending: false,
            extension: Extension::Off,
            cid: None,
            yielder: std::ptr::null(),
            locals: Vec::new(),
            panicked: false,
            site: None,
            seen: None,
            ended: None,
        });
        number
    }

    /// Gives a new thread its coroutine and its first turn.
    pub(in crate::engine) fn adopt(&mut self, number: usize, fiber: Fiber, cpu: usize, at: u64) {
        self.register(number, fiber);
        self.enqueue(number, cpu, at);
    }

    pub(in crate::engine) fn register(&mut self, number: usize, fiber: Fiber) {
        let (limit, base) = fiber.stack;
        debug_assert_eq!(number, self.threads.len() - 1, "coroutines are adopted in order");
        self.stacks.insert(limit, (base, number));
        self.threads[number].stack_base = base;
        self.newborn.push(fiber);
    }

    /// Puts a thread into a CPU's queue, after all threads that are ready by that time.
    pub(in crate::engine) fn enqueue(&mut self, thread: usize, cpu: usize, at: u64) {
        let cpu = self.refuge(thread, cpu);
        let from = std::mem::replace(&mut self.threads[thread].cpu, cpu);
        if from != cpu {
            self.report.migrations += 1;
            self.lose_extension(thread);
            let left = Time::from_nanos(self.clock() / PS_PER_NS);
            if let Some(kernel) = self.kernel_of(thread) {
                kernel.migrated(left, thread, CpuId::new(from as u32), CpuId::new(cpu as u32));
            }
        }
        self.threads[thread].state = State::Ready { since: at };
        let slice = self.spec.costs().slice;
        let Engine { cpus, threads, .. } = self;
        let place = &mut cpus[cpu];
        // A thread that is still on its way here, new or moved, keeps no other waiting.
        let behind = place.queue.iter().rposition(|&other| threads[other].ready_since() <= at);
        place.queue.insert(behind.map_or(0, |last| last + 1), thread);
        self.queued += 1;
        // An arrival does not prolong an extension.
        let has_slice = |running: usize| threads[running].extension != Extension::Granted;
        if place.queue.len() == 1 && place.current.is_some_and(has_slice) {
            place.slice_end = place.now.max(at) + slice;
        }
        self.update_kernel_event(cpu);
        self.rekey(cpu);
    }

    /// Corrects when a CPU acts next, after something about it changed.
    #[inline]
    pub(in crate::engine) fn rekey(&mut self, cpu: usize) {
        if self.running == Some(cpu) {
            return;
        }
        let next = self.next_act(cpu);
        self.events.set(cpu, next);
        self.lower_horizon(next);
    }

    /// The thread that has a CPU does something else from now on.
    pub(in crate::engine) fn set_state(&mut self, cpu: usize, state: State) {
        if let Some(thread) = self.cpus[cpu].current {
            self.threads[thread].state = state;
            self.rekey(cpu);
        }
    }

    /// When `cpu` acts next, [`NEVER`] if only others can make it.
    #[inline]
    fn next_act(&self, cpu: usize) -> u64 {
        let Cpu { now, current, .. } = self.cpus[cpu];
        match current.map(|thread| self.threads[thread].state) {
            Some(State::Running) => now,
            state => self.next_act_of(cpu, state),
        }
    }

    /// When a CPU acts next whose thread, if it has one, does something else than to run.
    fn next_act_of(&self, cpu: usize, state: Option<State>) -> u64 {
        let interrupt = self.next_interrupt(cpu);
        let cpu = &self.cpus[cpu];
        match state {
            Some(State::Spinning { .. }) => cpu.now.max(cpu.next_kernel_event),
            Some(State::Working { until }) => until.min(cpu.now.max(cpu.next_kernel_event)),
            Some(State::Waiting { turn }) => turn,
            Some(State::Draining { .. }) => NEVER,
            Some(_) => cpu.now,
            // The next thread on this CPU finds the buffer empty.
            None if cpu.buffered > 0 => NEVER,
            None => {
                let ready = cpu.queue.front().map(|&thread| self.threads[thread].ready_since());
                cpu.now.max(ready.unwrap_or(NEVER).min(interrupt))
            }
        }
    }

    /// Something other than the running CPU acts at this time. A schedule by choice has no such
    /// order.
    pub(in crate::engine) fn lower_horizon(&mut self, at: u64) {
        if self.chooser.is_none() {
            self.horizon = self.horizon.min(at);
        }
    }

    /// A thread that waited may run again.
    pub(in crate::engine) fn make_ready(&mut self, thread: usize) {
        self.threads[thread].wait_number += 1;
        let cpu = self.threads[thread].cpu;
        let now = self.clock();
        let idle = self.cpus[cpu].current.is_none() && self.cpus[cpu].queue.is_empty();
        let delay = if idle { self.jitter.jitter(self.spec.costs().wake) } else { 0 };
        self.enqueue(thread, cpu, now + delay);
    }

    /// The running thread loses its CPU.
    pub(in crate::engine) fn vacate(&mut self) -> usize {
        let current = self.current();
        self.threads[current].aborts += 1;
        let switch = self.jitter.jitter(self.spec.costs().switch);
        let cpu = self.threads[current].cpu;
        debug_assert!(
            self.is_settled(cpu),
            "a thread leaves its CPU when its accesses are complete"
        );
        let at = self.now();
        if let Some(kernel) = self.kernel_of(current) {
            kernel.switch_out(at, CpuId::new(cpu as u32), current);
        }
        let place = &mut self.cpus[cpu];
        if let Some(tracer) = &mut self.tracer {
            tracer.ends(cpu, place.now);
        }
        // A handler that blocks takes the context along: the next interrupt needs another.
        place.idle = place.idle.filter(|&idle| idle != current);
        place.current = None;
        place.next_kernel_event = NEVER;
        let next = place.queue.front().map(|&next| self.threads[next].ready_since());
        let lost = if next.is_some() { switch } else { 0 };
        place.now += lost;
        // Idle, even if a thread is on its way here.
        if next.is_none_or(|at| at > place.now) {
            place.next_tick = NEVER;
        }
        self.account(cpu, Activity::Kernel, lost);
        current
    }

    /// Moves the running thread to the end of its CPU's queue.
    pub(in crate::engine) fn requeue(&mut self) {
        let &mut Cpu { now, next_tick, .. } = self.here();
        let cpu = self.threads[self.current()].cpu;
        let thread = self.vacate();
        // Not idle, whichever thread is first in the queue.
        self.cpus[cpu].next_tick = next_tick;
        self.enqueue(thread, cpu, now);
    }

    /// Moves the running thread to the end of its CPU's queue, although it did not yield.
    pub(in crate::engine) fn preempt(&mut self) {
        self.lose_extension(self.current());
        self.give_turn();
    }

    /// The same, and the thread keeps a request for an extension.
    pub(in crate::engine) fn give_turn(&mut self) {
        self.settle_here();
        self.report.preemptions += 1;
        self.break_off();
        self.requeue();
    }

    /// The running thread stops waiting or computing, and looks again for work.
    pub(in crate::engine) fn break_off(&mut self) {
        let current = self.current();
        match self.threads[current].state {
            State::Spinning { line } => self.directory.unwatch(line, current),
            State::Working { until } => {
                self.threads[current].work_left = until.saturating_sub(self.here().now);
            }
            _ => {}
        }
        self.threads[current].state = State::Running;
        // The timer of a wait that was broken off no longer counts.
        self.threads[current].wait_number += 1;
    }

    /// The running thread computes. False if it is done immediately, because no other can notice;
    /// otherwise the caller suspends it.
    fn compute_or_wait(&mut self, left: u64) -> bool {
        let now = self.here().now;
        let until = Some(now.saturating_add(left)).filter(|&at| at <= END_OF_TIME);
        let noticed =
            until.is_none_or(|at| at > self.horizon || at >= self.here().next_kernel_event);
        let until = until.unwrap_or(NEVER);
        if noticed {
            let current = self.current();
            self.threads[current].state = State::Working { until };
        } else {
            let cpu = self.cpu().index();
            self.spend_until(cpu, Activity::Compute, until);
        }
        noticed
    }

    /// The thread of a CPU has computed for as long as it was to.
    #[inline]
    pub(in crate::engine) fn stop_computing(&mut self, cpu: usize, thread: usize) {
        if let State::Working { until } = self.threads[thread].state {
            self.threads[thread].work_left = 0;
            self.threads[thread].state = State::Running;
            self.spend_until(cpu, Activity::Compute, until);
        }
    }

    /// The running thread goes to another CPU.
    pub(in crate::engine) fn migrate(&mut self) {
        self.settle_here();
        let now = self.here().now;
        let thread = self.vacate();
        let cpu = self.other_cpu(self.threads[thread].cpu);
        let delay = self.spec.costs().wake;
        self.enqueue(thread, cpu, now + delay);
    }

    /// The running thread waits, at most until `deadline`.
    pub(in crate::engine) fn block(&mut self, state: State, deadline: Option<u64>) {
        self.settle_here();
        self.stops_spinning();
        let (cpu, current) = (self.cpu().index(), self.current());
        let &mut Cpu { now, next_kernel_event, next_tick, .. } = self.here();
        // A tick that is due interrupts the system call, in which interrupts are on. (Under a mask,
        // `next_kernel_event` is never due, so no tick is.)
        if now >= next_tick.max(next_kernel_event) {
            self.tick(cpu, current);
        }
        let thread = self.vacate();
        self.threads[thread].state = state;
        self.set_timer(thread, deadline);
    }

    /// Ends a wait that a thread begins now, at `deadline` at the latest.
    pub(in crate::engine) fn set_timer(&mut self, thread: usize, deadline: Option<u64>) {
        let Some(at) = deadline.filter(|&at| at <= END_OF_TIME) else { return };
        // A wait that ended otherwise leaves its timer behind, and a thread that spins may begin a
        // wait for each write of a line. Of each thread one timer counts.
        if self.timers.len() > 2 * self.threads.len() + 64 {
            let threads = &self.threads;
            self.timers.retain(|&Reverse((_, thread, wait))| threads[thread].wait_number == wait);
        }
        self.timers.push(Reverse((at, thread, self.threads[thread].wait_number)));
        self.lower_horizon(at);
    }

    /// When the next timer is due. Drops those that have outlived their wait.
    #[inline]
    pub(in crate::engine) fn next_timer(&mut self) -> u64 {
        if self.timers.is_empty() { NEVER } else { self.next_valid_timer() }
    }

    #[inline(never)]
    fn next_valid_timer(&mut self) -> u64 {
        while let Some(&Reverse((at, thread, wait))) = self.timers.peek() {
            if self.threads[thread].wait_number == wait {
                return at;
            }
            self.timers.pop();
        }
        NEVER
    }

    /// The next timer is due.
    #[inline(never)]
    pub(in crate::engine) fn expire(&mut self) {
        let Some(Reverse((at, thread, _))) = self.timers.pop() else { return };
        match self.threads[thread].state {
            State::Spinning { line } => {
                self.directory.unwatch(line, thread);
                return self.look_again(thread, at);
            }
            State::Parked { word, .. } => {
                if let Some(waiters) = self.parked.get_mut(&word) {
                    waiters.retain(|&other| other != thread);
                }
                self.threads[thread].parked = Parked::TimedOut;
            }
            _ => {}
        }
        self.make_ready(thread);
    }

    /// A thread that has spun looks again at `at`; the timer of its wait no longer counts.
    pub(in crate::engine) fn look_again(&mut self, thread: usize, at: u64) {
        let cpu = self.threads[thread].cpu;
        self.threads[thread].state = State::Running;
        self.threads[thread].wait_number += 1;
        self.spend_until(cpu, Activity::Spin, at);
        self.rekey(cpu);
    }

    /// The first thread of a CPU's queue gets the CPU.
    #[inline(never)]
    pub(in crate::engine) fn dispatch(&mut self, cpu: usize, at: u64) {
        let Some(thread) = self.cpus[cpu].queue.pop_front() else {
            return;
        };
        self.queued -= 1;
        let slice = self.spec.costs().slice;
        let place = &mut self.cpus[cpu];
        let idle = std::mem::replace(&mut place.now, at);
        place.current = Some(thread);
        place.slice_end = at + slice;
        self.flush_after_idleness(cpu, idle, at);
        self.threads[thread].state = State::Running;
        if let Some(tracer) = &mut self.tracer {
            tracer.begins(cpu, thread, at);
        }
        let at = Time::from_nanos(at / PS_PER_NS);
        let place = CpuId::new(cpu as u32);
        let cid = self.kernel_of(thread).map(|kernel| kernel.switch_in(at, place, thread));
        self.threads[thread].cid = cid;
        self.start_ticks(cpu, idle);
        self.update_kernel_event(cpu);
        self.rekey(cpu);
    }

    /// The running thread has ended.
    pub(in crate::engine) fn finish(&mut self) {
        let now = self.here().now;
        let thread = self.vacate();
        self.threads[thread].state = State::Done;
        self.threads[thread].ended = Some(now);
        self.threads[thread].stack_lines = Vec::new();
        if let Some(kernel) = self.kernel_of(thread) {
            kernel.exited(thread);
        }
        for joiner in std::mem::take(&mut self.threads[thread].joiners) {
            self.make_ready(joiner);
        }
    }

    /// The running thread begins a wait on this word.
    pub(in crate::engine) fn waits_at(&mut self, site: Site) {
        let current = self.current();
        self.threads[current].site = Some(site);
    }

    /// The time of the latest decision, or of the running CPU.
    fn clock(&self) -> u64 {
        self.running.map_or(self.settled, |cpu| self.cpus[cpu].now)
    }
}
