//! `lineops`: threads repeat an operation, which is a sequence of accesses to words of cache lines,
//! in one of two forms (`docs/validate/blind/lines.md`).
//!
//! A [`Load`] has the steps of both forms: which words an operation reads, adds to or exchanges,
//! which locks it takes, in which lines all of these lie, and for how long it computes in between.
//! So it can model an operation of a kernel or a library whose throughput depends on where words
//! lie, or on how they are changed. What an operation does to lines that do not move between CPUs
//! is a time. `rest` scales all times.
//!
//! | variant | steps |
//! |---|---|
//! | `base` | the first form |
//! | `changed` | the second form |
//!
//! Locks are the [kernel's queued spin locks](super::kernlock::queued). The scenario checks that
//! the additions to each word are all there in the end, that no two threads had a lock at the same
//! time, and that each call of other CPUs ended after all of them had run its function once.

pub mod calls;
pub mod load;

use core::time::Duration;
use std::sync::Arc;

use coreline_sim::Sim;
use coreline_topology::{CpuId, NodeId};
use coreline_world::{Integer, Line, Native, Ordering, Word};
use rand_pcg::Pcg64;

use calls::{Calls, Interrupts};
use load::{At, Copies, LOADS, Load, Step, WORDS};

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::kernlock::Turns;
use super::kernlock::queued::{Nodes, Queued};
use super::metric::FigureKind::{ContendedRatio, Gain, Rate};
use super::param::{Domain, Param, Words};
use super::point::Setup;
use super::{RunError, Scenario, Variant, draw, known};
use crate::crew::{Start, Window, about, first, least_over_most, spread};

/// Index in a run's numbers: the throughput, in operations per second.
pub const RATE: usize = 0;
/// Index in a run's numbers: the throughput of the memory node that has the lowest one.
pub const SLOWEST_NODE: usize = 1;
/// Index in a run's numbers: the smallest throughput of any thread, divided by the largest.
pub const SHARE: usize = 2;

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        Param::new("load", "The operation, in two forms", Domain::Words(&WORD)).usual(&["fget"]),
        Param::new("threads", "The number of threads", Domain::Cpus(4096))
            .depends(|it| it.threads(&[1, 8], &[1, 8, 64], &[2, 1])),
        Param::new("place", "The CPUs on which threads run", Domain::Names(PLACES))
            .usual(&["packed"]),
        Param::number("rest", "All times of the load, in percent", [1, 10_000]).usual(&["100"]),
        Param::effort("window", 1_000_000).usual(&["1000"]).quick(&["100"]),
    ],
    variants: &[
        Variant::new("base", "The first form of the operation"),
        Variant::new("changed", "The second form"),
    ],
    figures: &[
        Figure::new("ops", Rate, Number(RATE)),
        Figure::new("ops_of_slowest_node", Rate, Number(SLOWEST_NODE)),
        Figure::new("share", Gain, Number(SHARE)),
        Figure::new("ops_over_base", ContendedRatio, Over(RATE, "base"))
            .when(|it| it.variant != "base"),
    ],
    ..Scenario::new(
        "lineops",
        "Operations as accesses to words of cache lines, in two forms",
        [run::<Native>, run::<Sim>],
    )
};

const WORD: Words = Words {
    form: "LOAD",
    about: "a name such as fget, a word such as w50+ga0+da0/w50+aa0+da0, or a TOML file's path",
    names: LOADS,
    parse: |text| Load::parse(text).map(|_| ()),
    of_toml: Load::of_toml,
};

const PLACES: &[(&str, &str)] = &[
    ("packed", "In the order of CPU numbers"),
    ("spread", "A CPU of each node in turn"),
    ("siblings", "Both hardware threads of a core, then those of the next"),
];

/// How long threads run before the window, so that lines are where they usually are.
const WARM_UP: Duration = Duration::from_micros(50);

/// Streams of the generator: one for each thread.
const THREAD: u128 = 0x11e5;

/// The first value of each word. The words never reach 0.
const FIRST: u64 = 1 << 32;

/// A line with its words, and a lock that a load may take.
struct Shared<W: Interrupts> {
    words: [W::U64; WORDS],
    lock: Queued<W>,
}

/// The lines of one kind.
struct Kind<W: Interrupts> {
    copies: Copies,
    lines: Box<[Line<Shared<W>>]>,
    /// The turns of each line's lock.
    turns: Box<[Turns]>,
}

struct Field<W: Interrupts> {
    kinds: Box<[Kind<W>]>,
    steps: Vec<Step>,
    nodes: Nodes<W>,
    calls: Arc<Calls<W>>,
    /// The memory node of each thread, counted from 0.
    places: Vec<usize>,
    rest: u64,
    window: Window<W>,
}

/// A thread's operation, while it runs.
struct Running<'a, W: Interrupts> {
    field: &'a Field<W>,
    thread: usize,
    dice: &'a mut Pcg64,
    /// Which line of each kind the operation uses.
    lines: &'a mut [usize],
}

fn run<W: Interrupts>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    run_without::<W>(setup, 0)
}

/// Runs the program, and leaves this many operations out of the number that its check expects. Only
/// a test of the check uses this.
#[doc(hidden)]
pub fn run_without<W: Interrupts>(setup: &Setup, left_out: u64) -> Result<Vec<f64>, RunError> {
    known::<W>(&setup.cpus)?;
    let threads = setup.number("threads") as usize;
    let cpus = in_order::<W>(setup);
    let cpus = first(&cpus, threads)?;
    let text = setup.text("load");
    let Some(Load { lines, forms: [base, changed] }) = Load::parse(text) else {
        return Err(RunError::Lack(format!("{text} is not a load")));
    };
    let steps = if setup.variant == "base" { base } else { changed };
    let interrupts = steps.iter().any(needs_interrupts);
    if !W::HAS && interrupts {
        let lacks = format!("{text} interrupts CPUs: run it with --world, on a simulated machine");
        return Err(RunError::Lack(lacks));
    }
    let places = places::<W>(cpus);
    let kind = |&copies: &Copies| {
        let number = match copies {
            Copies::Random(number) => number,
            Copies::Nodes => places.iter().max().map_or(0, |last| last + 1),
            Copies::Threads => threads,
        };
        let line = |_| {
            let words = core::array::from_fn(|_| W::U64::new_in(FIRST));
            Line(Shared { words, lock: Queued::new() })
        };
        let turns = (0..number).map(|_| Turns::default()).collect();
        Kind { copies, lines: (0..number).map(line).collect(), turns }
    };
    let field = Arc::new(Field::<W> {
        kinds: lines.iter().map(kind).collect(),
        steps,
        nodes: Nodes::new(&vec![0; threads], false),
        calls: Arc::new(Calls::new(if interrupts { cpus } else { &[] })),
        places,
        rest: setup.number("rest"),
        window: Window::new(setup, WARM_UP),
    });
    let counts = Start::crew(&field, |it| &it.window.start, cpus, Field::work)?;
    let operations: u64 = counts.iter().map(|count| count[1]).sum();
    field.check(operations - left_out)?;
    Ok(field.numbers(&counts))
}

/// CPUs in the order in which they get threads.
fn in_order<W: Interrupts>(setup: &Setup) -> Vec<CpuId> {
    let mut cpus = setup.cpus.clone();
    match setup.text("place") {
        "spread" => spread::<W>(&mut cpus),
        "siblings" => cpus.sort_by_key(|&cpu| W::topology().cpu(cpu).map(|it| (it.core, it.id))),
        _ => {}
    }
    cpus
}

/// The memory node of each CPU, counted from 0 in the order of their numbers.
fn places<W: Interrupts>(cpus: &[CpuId]) -> Vec<usize> {
    let node = |cpu: &CpuId| W::topology().cpu(*cpu).map(|cpu| cpu.node);
    let mut all: Vec<Option<NodeId>> = cpus.iter().map(node).collect();
    all.sort_unstable();
    all.dedup();
    cpus.iter().map(|cpu| all.iter().position(|it| *it == node(cpu)).unwrap_or(0)).collect()
}

fn needs_interrupts(step: &Step) -> bool {
    match step {
        Step::Interrupt(_) | Step::Hold { is_masked: true, .. } => true,
        Step::Hold { steps, .. } => steps.iter().any(needs_interrupts),
        _ => false,
    }
}

/// Adds up what an operation adds to each word, and how often it takes the lock of each kind.
fn tally(steps: &[Step], added: &mut [[u64; WORDS]], taken: &mut [u64]) {
    for step in steps {
        match step {
            Step::Add(at, by) | Step::Exchange(at, by) => {
                let sum = &mut added[at.line][at.word];
                *sum = sum.wrapping_add(*by);
            }
            Step::Hold { line, steps, .. } => {
                taken[*line] += 1;
                tally(steps, added, taken);
            }
            Step::Work(_) | Step::Read(_) | Step::Store(_) | Step::Interrupt(_) => {}
        }
    }
}

/// The words that an operation also changes in two accesses, which other threads may come between.
fn stored(steps: &[Step]) -> Vec<At> {
    let of = |step: &Step| match step {
        Step::Store(at) => vec![*at],
        Step::Hold { steps, .. } => stored(steps),
        _ => Vec::new(),
    };
    steps.iter().flat_map(of).collect()
}

impl<W: Interrupts> Field<W> {
    /// A thread's part: its operations in the window, and all.
    fn work(&self, thread: usize) -> [u64; 2] {
        self.touch(thread);
        let mut lines = vec![0; self.kinds.len()];
        self.window.repeat(THREAD + thread as u128, |dice| {
            let mut running = Running { field: self, thread, dice, lines: &mut lines };
            running.choose();
            running.go(&self.steps);
            1
        })
    }

    /// Brings a thread's part of the lines into its caches, so that no operation fetches a line
    /// from memory.
    fn touch(&self, thread: usize) {
        for kind in &self.kinds {
            for line in kind.lines.iter().skip(thread).step_by(self.places.len()) {
                // Relaxed: it changes nothing.
                line.words[0].fetch_add(0, Ordering::Relaxed);
            }
        }
    }

    fn numbers(&self, counts: &[[u64; 2]]) -> Vec<f64> {
        let per_second = |count| self.window.per_second(count);
        let mut of_nodes = vec![0; self.places.iter().max().map_or(0, |last| last + 1)];
        self.places.iter().zip(counts).for_each(|(&node, count)| of_nodes[node] += count[0]);
        let each = || counts.iter().map(|count| count[0]);
        let slowest = of_nodes.into_iter().min().unwrap_or(0);
        let share = least_over_most(each().map(|count| count as f64));
        vec![per_second(each().sum()), per_second(slowest), share]
    }

    /// Whether all additions of this many operations are there, no turn of a lock was lost, and all
    /// calls were complete.
    fn check(&self, operations: u64) -> Result<(), RunError> {
        self.calls.check()?;
        let (mut added, mut taken) =
            (vec![[0; WORDS]; self.kinds.len()], vec![0; self.kinds.len()]);
        tally(&self.steps, &mut added, &mut taken);
        let stored = stored(&self.steps);
        for (line, kind) in self.kinds.iter().enumerate() {
            // SAFETY: all threads have been joined.
            let turns: u64 = kind.turns.iter().map(|turns| unsafe { turns.count() }).sum();
            if turns != taken[line] * operations {
                let found = format!("a lock had {turns} turns, not {}", taken[line] * operations);
                return Err(RunError::Check(found));
            }
            for word in (0..WORDS).filter(|&word| !stored.contains(&At { line, word })) {
                // Relaxed: all threads have been joined.
                let value = |line: &Line<Shared<W>>| line.words[word].load(Ordering::Relaxed);
                let sum = |sum: u64, line| sum.wrapping_add(value(line).wrapping_sub(FIRST));
                let found = kind.lines.iter().fold(0, sum);
                let expected = added[line][word].wrapping_mul(operations);
                if found != expected {
                    let found = found.cast_signed();
                    let found = format!(
                        "word {word} of a line has {found}, not {}",
                        expected.cast_signed()
                    );
                    return Err(RunError::Check(found));
                }
            }
        }
        Ok(())
    }
}

impl<W: Interrupts> Running<'_, W> {
    /// Chooses the lines of the next operation.
    fn choose(&mut self) {
        for (line, kind) in self.lines.iter_mut().zip(&self.field.kinds) {
            *line = match kind.copies {
                Copies::Random(1) => 0,
                Copies::Random(number) => draw(self.dice, number),
                Copies::Nodes => self.field.places[self.thread],
                Copies::Threads => self.thread,
            };
        }
    }

    fn word(&self, at: At) -> &W::U64 {
        &self.field.kinds[at.line].lines[self.lines[at.line]].words[at.word]
    }

    fn go(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Work(ns) => self.spend(*ns),
                // Relaxed: nothing is read because of a word.
                Step::Read(at) => _ = self.word(*at).load(Ordering::Relaxed),
                Step::Store(at) => {
                    let word = self.word(*at);
                    // Relaxed, both: the load's author wants no order, or has the line's lock.
                    let value = word.load(Ordering::Relaxed);
                    // Relaxed: the same.
                    word.store(value.wrapping_add(1), Ordering::Relaxed);
                }
                Step::Add(at, by) => {
                    // Relaxed: nothing is read because of a word.
                    self.word(*at).fetch_add(*by, Ordering::Relaxed);
                }
                Step::Exchange(at, by) => {
                    let word = self.word(*at);
                    // Relaxed, all: nothing is read because of a word.
                    let mut value = word.load(Ordering::Relaxed);
                    loop {
                        let next = value.wrapping_add(*by);
                        // Relaxed, both: nothing is read because of a word.
                        let (done, failed) = (Ordering::Relaxed, Ordering::Relaxed);
                        match word.compare_exchange(value, next, done, failed) {
                            Ok(_) => break,
                            Err(found) => value = found,
                        }
                    }
                }
                Step::Hold { line, is_masked: true, steps } => {
                    W::masked(|| self.hold(*line, steps));
                }
                Step::Hold { line, is_masked: false, steps } => self.hold(*line, steps),
                Step::Interrupt(ns) => {
                    let span = self.span(*ns);
                    self.field.calls.call_all(self.thread, span);
                }
            }
        }
    }

    fn hold(&mut self, line: usize, steps: &[Step]) {
        let field = self.field;
        let (kind, number) = (&field.kinds[line], self.lines[line]);
        kind.lines[number].lock.hold(&field.nodes, self.thread, || {
            // SAFETY: these are turns of the lock that is held.
            unsafe { kind.turns[number].during(|| self.go(steps)) }
        });
    }

    fn spend(&mut self, ns: u64) {
        let span = self.span(ns);
        if !span.is_zero() {
            W::work(span);
        }
    }

    /// Three quarters to five quarters of a time, scaled.
    fn span(&mut self, ns: u64) -> Duration {
        Duration::from_nanos(about(self.dice, ns * self.field.rest / 100))
    }
}
