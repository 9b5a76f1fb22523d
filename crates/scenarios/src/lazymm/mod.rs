//! `lazymm`: pairs of threads wake each other over pipes, and an idle CPU keeps the memory
//! descriptor (`mm`) that it has borrowed. The variants differ in how it keeps the descriptor (rows
//! a and b of `docs/validate/blind`).
//!
//! The load is `context_switch1_threads` of will-it-scale, modelled after its source (`main.c`,
//! `tests/context_switch1.c`). Task `i` is bound to the hardware threads of core `i` modulo the
//! number of cores. It creates a second thread, which inherits this binding. One thread writes a
//! byte and then reads one. The other thread reads a byte and then writes one. A round counts as
//! two iterations. All threads belong to one process. So while a core has one pair, each of its two
//! hardware threads idles while the other runs. Each round has two switches to idle and two
//! switches back. The idle task has no `mm`, so it borrows the `mm` of the previous thread
//! (`context_switch` in `kernel/sched/core.c`: `mmgrab_lazy_tlb`, and `mmdrop_lazy_tlb` in
//! `finish_task_switch`).
//!
//! | variant | to idle | back |
//! |---|---|---|
//! | `refcounted` | adds 1 to `mm_count` | takes 1 from it |
//! | `slots` | writes the CPU's own slot, with a full barrier | clears it |
//! | `shootdown` | nothing: the last user interrupts the CPUs that still borrow | nothing |
//!
//! # Lines
//!
//! Under `refcounted`, one line moves between cores. It holds `mm_count`, which has its own line
//! (`include/linux/mm_types.h`). Other lines do not move:
//!
//! * a CPU's slot, because only that CPU uses it until the process ends;
//! * `context.tlb_gen` and the CPU's bit in `mm_cpumask`, which are read when the CPU leaves lazy
//!   mode, but not written, because no memory is unmapped;
//! * the pipes, their wait queues, the tasks, the run queues of a core's CPUs, and the word that an
//!   idle CPU monitors, because only the threads of one core use them;
//! * the file table of the process, which is only read, because no file is opened.
//!
//! The model has no words for lines that do not move between cores. Instead, it has a time for a
//! pipe call, a switch and a wake-up. `rest` scales all of these times.
//!
//! # Where a woken thread goes
//!
//! A wake-up follows `select_task_rq_fair` for a synchronous wake-up within two hardware threads.
//! The thread goes to its previous CPU, if that CPU idles. Otherwise, it goes to the other CPU of
//! the core, if that CPU idles. Otherwise, it goes to the waker's CPU, if the waker is alone on it.
//! Otherwise, it goes to its previous CPU. A CPU that would idle takes a thread from its sibling's
//! queue (`sched_balance_newidle`; a thread's cache contents never prevent a move within one core).

mod pairs;

use core::time::Duration;
use std::sync::Arc;

use coreline_sim::Sim;
use coreline_topology::CpuId;
use coreline_world::{Integer, Line, Native, Ordering, Testbed, Time, Word};
use rand_pcg::Pcg64;

use pairs::{Core, Next, Task};

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::metric::FigureKind::{ContendedRatio, Nanoseconds, Rate, Transfers};
use super::param::Param;
use super::point::Setup;
use super::{RunError, Scenario, Variant, draw, known};
use crate::crew::{Start, about, clock_ns, nanos};

/// Index in a run's numbers: the throughput, in iterations per second.
pub const RATE: usize = 0;
/// Index in a run's numbers: the number of switches to idle per iteration.
pub const LAZY: usize = 1;
/// Index in a run's numbers: the time of a variant's work at a switch to idle and at the switch
/// back, in nanoseconds.
pub const OP: usize = 2;

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        // MAX_TASKS of the benchmark.
        Param::number("tasks", "The number of pairs of threads (-t of will-it-scale)", [1, 1024])
            .usual(&["1", "12", "24", "48", "96", "192", "384", "768"])
            .quick(&["1", "2"]),
        Param::number(
            "rest",
            "The times that do not depend on the variant, in percent of the usual ones",
            [1, 10_000],
        )
        .usual(&["100"]),
        Param::effort("window", 1_000_000).usual(&["1000"]).quick(&["200"]),
    ],
    variants: &[
        Variant::new("refcounted", "A reference for each CPU that idles"),
        Variant::new("slots", "A slot for each CPU, as hazard pointers have"),
        Variant::new(
            "shootdown",
            "No record; the last user searches for CPUs that still borrow the mm",
        ),
    ],
    figures: &[
        Figure::new("iterations", Rate, Number(RATE)),
        Figure::new("idle_switches", Transfers, Number(LAZY)),
        Figure::new("op_ns", Nanoseconds, Number(OP)),
        Figure::new("iterations_over_refcounted", ContendedRatio, Over(RATE, "refcounted"))
            .when(|it| it.variant != "refcounted"),
    ],
    ..Scenario::new(
        "lazymm",
        "Pairs of threads that wake each other, and the mm that idle CPUs borrow (will-it-scale)",
        [run::<Native>, run::<Sim>],
    )
};

fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let kind = match setup.variant {
        "refcounted" => Scheme::Refcounted,
        "slots" => Scheme::Slots,
        _ => Scheme::Shootdown,
    };
    known::<W>(&setup.cpus)?;
    let cores = cores::<W>(&setup.cpus);
    let tasks = setup.number("tasks") as usize;
    let pairs_on = |core: usize| (core..tasks).step_by(cores.len()).count();
    let rest = setup.number("rest");
    let span = |ns: u64| Duration::from_nanos(ns * rest / 100);
    let mut spots = Vec::new();
    for (core, cpus) in cores.iter().enumerate().filter(|(core, _)| pairs_on(*core) > 0) {
        spots.extend(cpus.iter().enumerate().map(|(place, &cpu)| Spot { core, place, cpu }));
    }
    let cpus: Vec<CpuId> = spots.iter().map(|spot| spot.cpu).collect();
    let storm = Arc::new(Pairs::<W> {
        kind,
        cores: cores
            .iter()
            .enumerate()
            .map(|(core, it)| Core::new(it.len(), pairs_on(core)))
            .collect(),
        count: Line(W::U64::new_in(1)),
        tlb_gen: Line(W::U64::new_in(1)),
        slots: spots.iter().map(|_| Line(W::U64::new_in(0))).collect(),
        watched: spots.iter().map(|_| Line(W::U32::new_in(0))).collect(),
        spots,
        start: Start::new(),
        call: span(CALL),
        switch: span(SWITCH),
        wake: span(WAKE),
        window: Duration::from_micros(setup.number("window")),
        seed: setup.seed,
    });
    let tallies = Start::crew(&storm, |it| &it.start, &cpus, Pairs::work)?;
    storm.check()?;
    Ok(storm.numbers(&tallies))
}

/// Nanoseconds of a read or write of a byte, without what follows from it: a system call, 110 by
/// the machine files, the pipe's mutex, its buffer and its wait queue. From memory.
const CALL: u64 = 400;

/// The cost `switch` of every machine file, which is from memory.
const SWITCH: u64 = 1500;

/// The cost `wake` of every machine file, 3 us, less the switch in it.
const WAKE: u64 = 1500;

/// Time before iterations are counted: the lines come from memory, and queues at them fill up.
const WARM_UP: Duration = Duration::from_micros(150);

/// Streams of the generator: one for each CPU.
const CPU: u128 = 0x1a2e;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Refcounted,
    Slots,
    Shootdown,
}

/// A CPU: its core, and which of the core's hardware threads it is.
struct Spot {
    core: usize,
    place: usize,
    cpu: CpuId,
}

/// The hardware threads of each core, in the order of cores.
fn cores<W: Testbed>(cpus: &[CpuId]) -> Vec<Vec<CpuId>> {
    let topology = W::topology();
    let mut cores: Vec<(Option<_>, Vec<CpuId>)> = Vec::new();
    for &cpu in cpus {
        let core = topology.cpu(cpu).map(|cpu| cpu.core);
        match cores.iter_mut().find(|(known, _)| core.is_some() && *known == core) {
            Some((_, cpus)) => cpus.push(cpu),
            None => cores.push((core, vec![cpu])),
        }
    }
    cores.into_iter().map(|(_, cpus)| cpus).collect()
}

struct Pairs<W: Testbed> {
    kind: Scheme,
    spots: Vec<Spot>,
    cores: Vec<Core>,
    /// `mm_count`.
    count: Line<W::U64>,
    tlb_gen: Line<W::U64>,
    /// Whether each CPU borrows.
    slots: Vec<Line<W::U64>>,
    /// For each CPU: 1 if there is a thread for it. The word that the CPU's idle task watches.
    watched: Vec<Line<W::U32>>,
    start: Start<W>,
    call: Duration,
    switch: Duration,
    wake: Duration,
    window: Duration,
    seed: u64,
}

/// The counts of a CPU.
#[derive(Default)]
struct Tally {
    /// All, and those in the window.
    iterations: [u64; 2],
    idled: u64,
    /// The nanoseconds that the variant's work takes, and how often it does this work.
    op: u64,
    ops: u64,
}

/// A CPU's part, while it runs.
struct Running<'a, W: Testbed> {
    all: &'a Pairs<W>,
    number: usize,
    core: &'a Core,
    dice: Pcg64,
    clock: u64,
    begin: Time,
    end: Time,
    tally: Tally,
}

impl<W: Testbed> Pairs<W> {
    fn work(&self, number: usize) -> Tally {
        let Some(start) = self.start.wait() else { return Tally::default() };
        let mut dice = Pcg64::new(u128::from(self.seed), CPU + number as u128);
        let begin = start + WARM_UP;
        // So that cores are not in step.
        let late = draw(&mut dice, 4 * (self.switch + self.wake).as_nanos() as usize + 1);
        let late = start + Duration::from_nanos(late as u64);
        W::work(late - W::now().min(late));
        let core = &self.cores[self.spots[number].core];
        let (clock, tally) = (clock_ns::<W>(), Tally::default());
        let end = begin + self.window;
        let mut cpu = Running { all: self, number, core, dice, clock, begin, end, tally };
        cpu.run();
        cpu.tally
    }

    /// Whether all references were given back but the process's own.
    fn check(&self) -> Result<(), RunError> {
        // Relaxed: all threads have been joined.
        let (count, borrowed) = (self.count.load(Ordering::Relaxed), self.slots.iter());
        let borrowed = borrowed.filter(|slot| slot.load(Ordering::Relaxed) != 0).count();
        if (count, borrowed) != (1, 0) {
            let found = format!("{count} references and {borrowed} slots are left, not 1 and 0");
            return Err(RunError::Check(found));
        }
        Ok(())
    }

    fn numbers(&self, tallies: &[Tally]) -> Vec<f64> {
        let sum = |part: fn(&Tally) -> u64| tallies.iter().map(part).sum::<u64>() as f64;
        let (all, counted) = (sum(|it| it.iterations[0]), sum(|it| it.iterations[1]));
        let idled = sum(|it| it.idled);
        vec![
            counted / self.window.as_secs_f64(),
            idled / all.max(1.0),
            2.0 * sum(|it| it.op) / sum(|it| it.ops).max(1.0),
        ]
    }
}

impl<W: Testbed> Running<'_, W> {
    fn run(&mut self) {
        let mut idles = true;
        self.borrow();
        while W::now() < self.end {
            match self.core.next(self.place()) {
                Next::Task(task) => {
                    // `__schedule` and the switch; `finish_task_switch` is the rest.
                    self.spend(self.all.switch / 2);
                    if idles {
                        self.give_back();
                    }
                    idles = false;
                    self.spend(self.all.switch / 2);
                    self.program(task);
                }
                Next::Idle => {
                    if !idles {
                        self.spend(self.all.switch / 2);
                        self.borrow();
                        self.tally.idled += 1;
                        self.spend(self.all.switch / 2);
                    }
                    idles = true;
                    self.idle();
                }
            }
        }
        if idles {
            self.give_back();
        }
    }

    /// A thread, until it waits for its partner or the run ends.
    fn program(&mut self, mut task: Task) {
        loop {
            if task.has_read && task.is_first {
                self.tally.iterations[0] += 2;
                let now = W::now();
                let counts = self.begin < now && now <= self.end;
                self.tally.iterations[1] += if counts { 2 } else { 0 };
            }
            self.spend(self.all.call);
            if let Some(place) = self.core.write(&task, self.place()) {
                let number = self.number - self.place() + place;
                // Release: pairs with the Acquire in `idle`.
                self.all.watched[number].store(1, Ordering::Release);
            }
            if W::now() >= self.end {
                return;
            }
            self.spend(self.all.call);
            task.has_read = true;
            if !self.core.read(&task, self.place()) {
                return;
            }
        }
    }

    /// Until there is a thread for this CPU.
    fn idle(&mut self) {
        let watched = &self.all.watched[self.number];
        // Relaxed: a thread that came while this CPU switched to idle is found in the queue.
        let is_there = watched.load(Ordering::Relaxed) != 0;
        if !is_there {
            // Acquire: pairs with the Release in `program`.
            let came = watched.wait_until_by(Ordering::Acquire, self.end, |it| it != 0);
            if came.is_some() {
                self.spend(self.all.wake);
            }
        }
        // Relaxed: the queue's own lock orders what is in it.
        watched.store(0, Ordering::Relaxed);
    }

    fn borrow(&mut self) {
        self.timed(|all, number| match all.kind {
            // Relaxed: the process is alive, its thread ran until now.
            Scheme::Refcounted => _ = all.count.fetch_add(1, Ordering::Relaxed),
            // SeqCst: the full barrier between the slot and what is then done with the mm.
            Scheme::Slots => _ = all.slots[number].swap(1, Ordering::SeqCst),
            Scheme::Shootdown => {}
        });
    }

    fn give_back(&mut self) {
        // Relaxed: compared with what the CPU has seen; all fences are the switch's.
        let _ = self.all.tlb_gen.load(Ordering::Relaxed);
        self.timed(|all, number| match all.kind {
            // AcqRel: the last drop frees the mm, and must see what others did.
            Scheme::Refcounted => _ = all.count.fetch_sub(1, Ordering::AcqRel),
            // Release: what was done with the mm comes before.
            Scheme::Slots => all.slots[number].store(0, Ordering::Release),
            Scheme::Shootdown => {}
        });
    }

    fn timed(&mut self, op: impl FnOnce(&Pairs<W>, usize)) {
        let start = W::now();
        op(self.all, self.number);
        self.tally.op += nanos(start, W::now()).saturating_sub(self.clock);
        self.tally.ops += 1;
    }

    /// Spends three quarters to five quarters of a span.
    fn spend(&mut self, span: Duration) {
        W::work(Duration::from_nanos(about(&mut self.dice, span.as_nanos() as u64)));
    }

    fn place(&self) -> usize {
        self.all.spots[self.number].place
    }
}
