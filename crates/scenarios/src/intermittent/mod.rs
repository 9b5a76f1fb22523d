//! `intermittent`: bursts on per-CPU memory, far apart in time (Desnoyers 2024).
//!
//! Each CPU of a configuration has one thread, which is pinned to it. The threads run one at a
//! time, and sleep in between. A burst increments each byte of a 16 KiB area, and its time is
//! measured. The variants select the area. If a CPU gets an index that another CPU had before, the
//! lines of the area come from that other CPU.
//!
//! All variants have the same threads, areas and turns. They differ only in the number that selects
//! the area. If fewer threads than CPUs run at a time, concurrency IDs need fewer areas than there
//! are CPUs. `first-fit` needs the fewest areas.
//!
//! | | `timed` | `called` |
//! |---|---|---|
//! | a thread is woken by | its timer | a coordinator |
//! | after | the delay, times the threads | the delay after the burst before |
//! | order | random, and the same in each round | random for each round |
//! | not counted | all spin at once, then each makes [`PASSES`] passes | a round |
//! | counted | bursts, the first right after the passes | all bursts of the rounds |
//!
//! `timed` is the published benchmark (librseq, `tests/basic_percpu_benchmark.c`, commit 95febd5).
//! Its passes are a few milliseconds of user code, longer than a tick. So a scan for old references
//! runs at the beginning of each thread. The scenario executes two of these passes, and the thread
//! computes for the time of the others. The scenario omits the benchmark's steps after the last
//! burst.
//!
//! The areas are a private mapping of a file, like those of librseq's pool. The first write to a
//! page is a copy-on-write fault. If the fault happens in a counted burst, the burst's time
//! includes the fault.
//!
//! The scenario checks itself. After `n` passes, the bytes at each position, summed over all areas,
//! have been incremented `n` times.

pub mod areas;

use core::time::Duration;
use std::sync::Arc;

use coreline_sim::Sim;
use coreline_topology::Cid;
use coreline_world::{Native, Place, Testbed};
use rand_pcg::Pcg64;

use areas::Areas;

use super::figure::Figure;
use super::figure::Made::{Number, Over, Under};
use super::metric::FigureKind::{Gain, Nanoseconds, Ratio};
use super::param::{Domain, Param, Role};
use super::point::Setup;
use super::{RunError, Scenario, Variant, Worlds, shuffle};
use crate::crew::{Barrier, Sign, crew, nanos, pinned};

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        // The delays of Desnoyers 2024. More is taken for a typing mistake.
        Param::number("delay", "Milliseconds between bursts", [0, 10_000])
            .unit("ms")
            .usual(&["10", "200"])
            .depends(|it| if it.quick && it.natively { vec![10] } else { Vec::new() }),
        Param::new("turns", "How the threads take turns", Domain::Names(TURNS)).usual(&["timed"]),
        Param::new(
            "scan",
            "When a simulated kernel scans for old references to concurrency IDs, at most once \
             per 100 ms",
            Domain::Names(SCANS),
        )
        .role(Role::Kernel)
        .usual(&["tick"]),
        // How often each thread runs and is counted.
        Param::effort("sequences", 1000).role(Role::UsualEffort).usual(&["5"]),
    ],
    variants: &[
        Variant {
            policy: Some("first-fit"),
            ..Variant::new("cpu-id", "Memory is indexed by the CPU's number")
        },
        Variant {
            lacks: || Native::kernel_cid().is_none().then(|| no_index("kernel-cid")),
            ..Variant::new("kernel-cid", "Memory is indexed by the ID of this machine's kernel")
                .only(Worlds::Native)
        },
        Variant::simulated("first-fit", "Memory is indexed by the lowest free ID"),
        Variant::simulated("recent", "Memory is indexed by the CPU's recent ID if that is free"),
        Variant::simulated(
            "owned",
            "Memory is indexed by an ID of the thread, or of its CPU if there are many threads",
        ),
        Variant::simulated("clustered", "As recent, with IDs for each last-level cache"),
    ],
    figures: &[
        Figure::new("ns_per_burst", Nanoseconds, Number(0)),
        Figure::new("over_cpu_id", Ratio, Over(0, "cpu-id")),
        Figure::new("speedup", Gain, Under(0, "first-fit")).when(|it| it.variant == "recent"),
    ],
    // From such a delay on the published times have a residue that the distance of the areas does
    // not explain: at 200 ms they are up to 25 times those at 10 ms, for the same lines at the same
    // distance.
    limited: |_, point| point.number("delay") >= 100,
    not_testable: "all CPUs share one L3, so all areas are equally near: no evidence about \
                   locality",
    published: Some(include_str!("../../published/intermittent.toml")),
    told: Some(|it| format!("{:.2} ns per burst", it[0])),
    all_configs: true,
    runs: [5, 2],
    // Their areas fit, with room for all else.
    most_cpus: 3000,
    ..Scenario::new(
        "intermittent",
        "Bursts of increments on per-CPU memory, far apart in time (Desnoyers 2024)",
        [run::<Native>, run::<Sim>],
    )
};

const TURNS: &[(&str, &str)] = &[
    ("timed", "Each thread by its own timer, in one order, as in the published benchmark"),
    ("called", "By calls of a coordinator, in a new random order for each round"),
];

const SCANS: &[(&str, &str)] = &[
    (
        "tick",
        "When a tick hits a running thread, as in the kernel; scans are rarer than there, because \
         code takes no simulated time (only the kernel's switches do)",
    ),
    ("switch", "At a switch to any thread, as often as the kernel's own limit allows"),
];

fn no_index(variant: &str) -> RunError {
    let lack = "is not available: threads have no such index on this machine; see `coreline \
                doctor`";
    RunError::Lack(format!("{variant} {lack}"))
}

/// Runs the scenario. Gives the mean nanoseconds of the counted bursts.
fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let bursts = bursts::<W>(setup)?;
    Ok(vec![bursts.iter().sum::<u64>() as f64 / bursts.len() as f64])
}

/// Runs the scenario. Returns the nanoseconds of the counted bursts, by thread and in the order of
/// the thread's bursts.
///
/// # Errors
///
/// [`RunError`] if a thread has no index, or if an increment was lost.
pub fn bursts<W: Testbed>(setup: &Setup) -> Result<Vec<u64>, RunError> {
    let bench = Arc::new(Bench::<W>::new(setup)?);
    let is_timed = setup.is("turns", "timed");
    let part = move |bench: &Bench<W>, number| match is_timed {
        true => bench.timed(number),
        false => bench.called(number),
    };
    let bursts: Vec<Option<u64>> = crew::<W, _, _>(&bench, pinned(&setup.cpus), part, |missing| {
        if missing.is_some() {
            bench.all.give_up();
        } else if !is_timed {
            bench.coordinate(setup);
        }
        // Threads that did start must end, whatever happened.
        bench.turns[..missing.unwrap_or(setup.cpus.len())].iter().for_each(|turn| turn.set(END));
    })?
    .into_iter()
    .flatten()
    .collect();
    let bursts: Option<Vec<u64>> = bursts.into_iter().collect();
    let bursts = bursts.ok_or_else(|| no_index(setup.variant))?;
    let uncounted = if is_timed { MADE } else { 1 };
    bench.areas.check(bursts.len() + setup.cpus.len() * uncounted)?;
    Ok(bursts)
}

/// The number of passes that a thread of `timed` makes over its area before its first burst.
pub const PASSES: u32 = 20_000;

/// How many of these passes are made: the first, which fetches the area, and one that does not.
const MADE: usize = 2;

/// Whose turn it is in `called`: one [`Sign`] for each thread.
///
/// | value | name | meaning | written by |
/// |---|---|---|---|
/// | 0 | `WAIT` | the thread's burst is over, the coordinator's turn | the thread |
/// | 1 | `BURST` | the thread's turn: one burst | the coordinator |
/// | 2 | `END` | the thread ends | the coordinator, once, at `WAIT` |
///
/// The side that does not have the turn sleeps. A turn carries along what earlier bursts, of other
/// threads, did to the area that the thread gets.
const WAIT: u32 = 0;
const BURST: u32 = 1;
const END: u32 = 2;

struct Bench<W: Testbed> {
    areas: Areas<W>,
    turns: Vec<Sign<W>>,
    /// The place of each thread in the order of `timed`.
    places: Vec<u32>,
    delay: Duration,
    sequences: u64,
    /// Whether the CPU's number picks the area, and no concurrency ID.
    is_by_cpu: bool,
    /// The place where the threads of `timed` meet.
    all: Barrier<W>,
}

impl<W: Testbed> Bench<W> {
    fn new(setup: &Setup) -> Result<Self, RunError> {
        let mut places: Vec<u32> = (0..setup.cpus.len() as u32).collect();
        shuffle(&mut places, &mut Pcg64::new(u128::from(setup.seed), ORDER));
        Ok(Bench {
            // Every CPU number and every concurrency ID is below the limit.
            areas: Areas::new(W::topology().cpu_limit())?,
            turns: setup.cpus.iter().map(|_| Sign::new(WAIT)).collect(),
            places,
            delay: setup.duration("delay"),
            sequences: setup.number("sequences"),
            is_by_cpu: setup.variant == "cpu-id",
            all: Barrier::new(&setup.cpus),
        })
    }

    /// The coordinator's part in `called`.
    fn coordinate(&self, setup: &Setup) {
        let mut dice = Pcg64::new(u128::from(setup.seed), ORDER);
        let mut order: Vec<usize> = (0..self.turns.len()).collect();
        for _ in 0..=self.sequences {
            shuffle(&mut order, &mut dice);
            for &number in &order {
                self.turns[number].set(BURST);
                self.turns[number].wait(|now| now != BURST);
                W::sleep(self.delay);
            }
        }
    }

    /// A thread's part in `called`: returns the times of its bursts but the first; `None` for each
    /// without an index.
    fn called(&self, number: usize) -> Vec<Option<u64>> {
        let turn = &self.turns[number];
        let mut bursts = Vec::new();
        while turn.wait(|now| now != WAIT) == BURST {
            bursts.push(self.burst());
            turn.set(WAIT);
        }
        bursts.into_iter().skip(1).collect()
    }

    /// A thread's part in `timed`, as in `called`.
    fn timed(&self, number: usize) -> Vec<Option<u64>> {
        if !self.all.wait(number) {
            return Vec::new();
        }
        W::sleep(self.delay * self.places[number]);
        let made: Vec<_> = (0..MADE).map(|_| self.burst()).collect();
        let hot = Duration::from_nanos(made[MADE - 1].unwrap_or(0));
        W::work(hot * (PASSES - MADE as u32));
        let next = self.delay * self.places.len() as u32;
        let burst = |_| {
            let burst = self.burst();
            W::sleep(next);
            burst
        };
        (0..self.sequences).map(burst).collect()
    }

    /// One burst, and its nanoseconds.
    fn burst(&self) -> Option<u64> {
        let index = match self.is_by_cpu {
            true => W::cpu().index(),
            false => W::kernel_cid().map(Cid::index)?,
        };
        self.areas.take(index, |increment| {
            let start = W::now();
            increment();
            nanos(start, W::now())
        })
    }
}

/// The stream of the generator that draws orders; simulated machines draw from others.
const ORDER: u128 = 0x0d0e;
