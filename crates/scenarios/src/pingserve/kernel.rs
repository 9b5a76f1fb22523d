//! The CPUs of a kernel, whose tasks wake each other across CPUs. They model `try_to_wake_up` and
//! `sched_ttwu_pending` of Linux 6.8, as far as Nayak 2024 concerns them.
//!
//! The table shows how a task is woken, as in `ttwu_queue_cond` (from memory):
//!
//! | the task's CPU | action of the waker |
//! |---|---|
//! | is the waker's own | puts it into its run queue |
//! | is under the same last-level cache, and has tasks | puts it into that CPU's run queue |
//! | else | puts it into that CPU's wake list and, if that was empty, tells the CPU |
//!
//! So the variants differ only if a CPU is idle. A running task is not preempted, and no task moves
//! to another CPU.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use coreline::TicketLock;
use coreline_sim::{Sim, interrupts};
use coreline_topology::{CacheId, Cpu, CpuId};
use coreline_world::{Clock, Line, Ordering, Place, Time, Word, Words, Work};

use super::load::Load;
use super::{KICKS, SCANS, SLEEPS, places};
use crate::RunError;
use crate::crew::{SOON, Start, crew, nanos, pinned};
use crate::idle::{Idle, Kernel, idle, tell, visited};
use crate::point::Setup;

type U32 = <Sim as Words>::U32;
type U64 = <Sim as Words>::U64;

/// The data of a CPU, like the kernel's `struct rq`.
struct RunQueue {
    idle: Idle,
    cache: CacheId,
    /// The first task of a list that others have woken, and 1; 0: there is none.
    wake_list: Line<U32>,
    /// Tasks that are ready to run.
    tasks: Line<TicketLock<VecDeque<usize>, Sim>>,
    /// How many tasks run or are ready to run. Written by holders of the queue's lock.
    running: Line<U32>,
    /// How many interrupts it has sent. Its own.
    kicks: Line<U64>,
}

/// All CPUs, by number, and what their tasks do.
struct Cpus {
    load: Load<Sim>,
    queues: Vec<RunQueue>,
    /// For each task: the next one in its wake list, plus 1.
    links: Vec<Line<U32>>,
    start: Start<Sim>,
}

pub(super) fn serve(setup: &Setup) -> Result<Vec<f64>, RunError> {
    serve_load(setup, Load::new(setup))
}

/// Runs these tasks on the CPUs of a kernel. Returns the numbers of the scenario.
///
/// # Errors
///
/// [`RunError`] if a thread could not be started, or if a message was not handled exactly once.
pub fn serve_load(setup: &Setup, load: Load<Sim>) -> Result<Vec<f64>, RunError> {
    let places = places::<Sim>(setup)?;
    let busy: Vec<CpuId> = places.iter().map(|cpu| cpu.id).take(load.tasks()).collect();
    let cpus = Arc::new(Cpus::new(setup, &places, load));
    for task in cpus.load.first() {
        cpus.enqueue(task);
        cpus.queues[cpus.home(task)].idle.set_resched();
    }
    let begun = crew::<Sim, _, _>(
        &Arc::new(Arc::clone(&cpus)),
        pinned(&busy),
        |cpus: &Arc<Cpus>, cpu| cpus.part(cpu),
        |missing| {
            cpus.start.give(busy.len(), missing, SOON);
            if missing.is_none() {
                cpus.load.wait();
                cpus.queues.iter().for_each(|cpu| cpu.idle.end());
            }
        },
    )?;
    cpus.load.check()?;
    let begin = begun.into_iter().flatten().next().expect("all have begun");
    // Relaxed: all have ended.
    let kicks = cpus.queues.iter().map(|cpu| cpu.kicks.load(Ordering::Relaxed)).sum();
    let scans = cpus.queues.iter().map(|cpu| cpu.idle.scans()).sum();
    Ok(cpus.load.numbers(begin, [(KICKS, kicks), (SCANS, scans), (SLEEPS, 0)]))
}

impl Cpus {
    fn new(setup: &Setup, places: &[Cpu], load: Load<Sim>) -> Cpus {
        let topology = Sim::topology();
        let number = |cpu: CpuId| places.iter().position(|it| it.id == cpu);
        let queue = |cpu: &Cpu| RunQueue {
            idle: Idle::new(
                setup,
                cpu.id,
                visited(&topology, setup, cpu.id).into_iter().filter_map(number).collect(),
            ),
            cache: cpu.cache,
            wake_list: Line(U32::new_in(0)),
            tasks: Line(TicketLock::new_in(VecDeque::new())),
            running: Line(U32::new_in(0)),
            kicks: Line(U64::new_in(0)),
        };
        Cpus {
            queues: places.iter().map(queue).collect(),
            links: (0..load.tasks()).map(|_| Line(U32::new_in(0))).collect(),
            load,
            start: Start::new(),
        }
    }

    /// The CPU that a task is bound to.
    fn home(&self, task: usize) -> usize {
        task % self.queues.len()
    }

    /// The activity of a CPU, and when it began.
    fn part(self: &Arc<Self>, cpu: usize) -> Option<Time> {
        let begin = self.start.wait()?;
        Sim::work(Duration::from_nanos(nanos(Sim::now(), begin)));
        idle(self, cpu);
        Some(begin)
    }

    /// Puts a task into the run queue of its CPU; whether that had none.
    fn enqueue(&self, task: usize) -> bool {
        let cpu = &self.queues[self.home(task)];
        let _masked = interrupts::mask();
        let mut tasks = cpu.tasks.lock();
        tasks.push_back(task);
        // Relaxed, twice: written under the lock.
        let running = cpu.running.load(Ordering::Relaxed);
        cpu.running.store(running + 1, Ordering::Relaxed);
        running == 0
    }

    /// Wakes a task from a CPU, which calls it.
    fn wake(self: &Arc<Self>, from: usize, task: usize) {
        let _masked = interrupts::mask();
        let (here, home) = (&self.queues[from], self.home(task));
        let there = &self.queues[home];
        // Relaxed: a hint, as in the kernel.
        let is_near = here.cache == there.cache && there.running.load(Ordering::Relaxed) > 0;
        if home == from || is_near {
            // It may have run out of tasks meanwhile. It looks at this bit before it waits.
            if self.enqueue(task) {
                there.idle.set_resched();
            }
            return;
        }
        // Relaxed: the exchange looks again.
        let mut first = there.wake_list.load(Ordering::Relaxed);
        loop {
            // Relaxed: the exchange publishes it.
            self.links[task].store(first, Ordering::Relaxed);
            // AcqRel: pairs with the exchange in `flush`. Relaxed: tried again.
            match there.wake_list.compare_exchange(
                first,
                task as u32 + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(found) => first = found,
            }
        }
        if first == 0 && tell(self, home).expect("a CPU with an idle loop is in service") {
            // Relaxed, twice: this CPU's own.
            let kicks = here.kicks.load(Ordering::Relaxed);
            here.kicks.store(kicks + 1, Ordering::Relaxed);
        }
    }
}

impl Kernel for Cpus {
    fn idle(&self, cpu: usize) -> &Idle {
        &self.queues[cpu].idle
    }

    /// Puts the tasks of the wake list into the run queue, in the order in which they were woken.
    fn flush(&self, cpu: usize) -> bool {
        // AcqRel: pairs with the exchange in `wake`.
        let mut next = self.queues[cpu].wake_list.swap(0, Ordering::AcqRel);
        let mut woken = Vec::new();
        while next != 0 {
            let task = next as usize - 1;
            woken.push(task);
            // Relaxed: it came with the list.
            next = self.links[task].load(Ordering::Relaxed);
        }
        woken.iter().rev().for_each(|task| _ = self.enqueue(*task));
        !woken.is_empty()
    }

    fn look(&self, cpu: usize) {
        // Relaxed: a look.
        self.queues[cpu].running.load(Ordering::Relaxed);
    }

    fn next(&self, cpu: usize) -> Option<usize> {
        let own = &self.queues[cpu];
        let mut tasks = own.tasks.lock();
        let task = tasks.pop_front();
        let running = tasks.len() + usize::from(task.is_some());
        // Relaxed: written under the lock.
        own.running.store(running as u32, Ordering::Relaxed);
        task
    }

    fn run(self: &Arc<Self>, cpu: usize, task: usize) {
        self.load.run(task, |woken| self.wake(cpu, woken));
    }
}
