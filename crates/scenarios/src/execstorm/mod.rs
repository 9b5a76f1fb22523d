//! `execstorm`: each CPU uses objects with per-CPU memory, one after another, as each exec uses an
//! `mm_struct` (Yoo 2025).
//!
//! On each CPU that takes part, a thread takes an object and begins a life (it writes
//! [`storm::Life`]). It sets its CPU's entry in the row of concurrency IDs, adds to four counters,
//! and subtracts the same amounts. Then it clears the entry, checks that everything is as before,
//! and returns the object. It then computes (`outside`), and repeats.
//!
//! | variant | an object's per-CPU memory | objects wait |
//! |---|---|---|
//! | `ungrouped` | 5 allocations and frees for each life: the kernel before 6.6 | in magazines |
//! | `global-mutex` | 2 for each life: the kernel that Yoo's patch changes | in magazines |
//! | `ctor-dtor-no-magazine` | constructed once, in one block | in one list under one lock |
//! | `ctor-dtor` | constructed once, in one block | in magazines: [`ObjectCache`] |
//!
//! The memory for a life is allocated under one mutex, as in the kernel: see [`memory`]. In
//! `global-mutex`, too, the object without its per-CPU memory comes from a cache with magazines, as
//! in the kernel. So the other variants differ only in the treatment of the per-CPU memory.
//! `ctor-dtor-no-magazine` differs from `ctor-dtor` only in where constructed objects wait.
//!
//! **The scenario predicts throughput at the level of locks, and not of exec.** By default, threads
//! do not compute between two lives. With `outside` at 105 microseconds, one CPU has 9,500 lives
//! per second, as many as execs. The model contains no other resource for which CPUs wait in an
//! exec.
//!
//! All variants omit the sums of counters over all CPUs at the end of a life. (`check_mm` computes
//! four such sums. In this scenario, each thread checks only its CPU's part.) They also omit the
//! entries that `mm_init_cid` writes for all CPUs at each life, both before and after Yoo's patch.
//!
//! The scenario checks itself. At the beginning of each life, the entry is empty. At the end of the
//! life, the entry holds the life's own value, the counters are at zero, and no other thread has
//! begun a life in the object.
//!
//! [`ObjectCache`]: coreline::object::ObjectCache

pub mod memory;
pub mod sources;
pub mod storm;

use coreline_sim::Sim;
use coreline_world::{Native, Testbed};

use sources::{Constructed, Global, Listed};
use storm::{Load, MUTEX, RATE, SHARE, storm};

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::metric::FigureKind::{Gain, Percent, Rate};
use super::param::{Around, Domain, Param};
use super::point::{Point, Setup};
use super::{RunError, Scenario, Variant, known};
use crate::crew::first;

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        Param::new("threads", "The number of CPUs that take part", Domain::Cpus(4096))
            .depends(grid),
        // 105: 9,500 execs in a second on one CPU. See docs/appendix/execstorm.md.
        Param::number(
            "outside",
            "Microseconds that a thread computes between two lives",
            [0, 10_000],
        )
        .unit("us")
        .usual(&["0", "105"])
        .quick(&["0"]),
        Param::new("zero", "Which memory an allocation zeroes", Domain::Names(ZEROES))
            .usual(&["all"]),
        Param::effort("window", 10_000_000).depends(window),
    ],
    variants: &[
        Variant::new("ungrouped", "5 allocations under one mutex for each life (before Linux 6.6)"),
        Variant::new("global-mutex", "2 allocations under one mutex for each life"),
        Variant::new("ctor-dtor-no-magazine", "Objects stay constructed, in one list"),
        Variant::new("ctor-dtor", "Objects stay constructed, in magazines of each CPU"),
    ],
    figures: &[
        Figure::new("lives", Rate, Number(RATE)),
        Figure::new("mutex_share", Percent, Number(MUTEX))
            .when(|it| has_mutex(it) && it.number("outside") > 0),
        Figure::new("share", Gain, Number(SHARE)),
        Figure::new("lives_over_global_mutex", Gain, Over(RATE, "global-mutex"))
            .when(|it| it.variant != "global-mutex"),
    ],
    // Where there is work outside, that is declared; and the next lock that an exec waits for, once
    // this one is gone, is not modelled.
    limited: |_, _| true,
    not_testable: "the run has few CPUs, which share one L3: no evidence about a mutex that many \
                   CPUs want",
    published: Some(include_str!("../../published/execstorm.toml")),
    ..Scenario::new(
        "execstorm",
        "Objects with per-CPU memory that all CPUs take and give back, as in exec (Yoo 2025)",
        [run::<Native>, run::<Sim>],
    )
};

const ZEROES: &[(&str, &str)] = &[
    ("all", "The memory of all CPUs, as in the kernel"),
    ("own", "The memory of the calling CPU alone, as if zeroing were free"),
];

fn has_mutex(point: &Point) -> bool {
    matches!(point.variant, "ungrouped" | "global-mutex")
}

/// One, those that figures were published of (24, 26), and parts of all.
fn grid(around: &Around<'_>) -> Vec<u64> {
    let cpus = around.cpus as u64;
    let mut grid = if around.quick {
        vec![1, cpus]
    } else {
        vec![1, 2, 4, 8, 24, 26, cpus / 4, cpus / 2, cpus]
    };
    grid.retain(|threads| (1..=cpus).contains(threads));
    grid.sort_unstable();
    grid.dedup();
    grid
}

/// Microseconds: lives enough for each thread, of those that wait longest. Natively the kernel
/// comes in between.
fn window(around: &Around<'_>) -> Vec<u64> {
    let threads = around.values.number("threads");
    vec![match (around.natively, around.quick) {
        (true, true) => 2_000,
        (true, false) => 20_000,
        (false, true) => 200 + 5 * threads,
        (false, false) if around.values.number("outside") == 0 => 200 + 10 * threads,
        (false, false) if threads <= 48 => 40_000,
        (false, false) => 6_000,
    }]
}

fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let threads = setup.number("threads") as usize;
    let cpus = first(&setup.cpus, threads)?;
    known::<W>(&setup.cpus)?;
    let load = Load {
        cpus,
        possible: &setup.cpus,
        outside: 1000 * setup.number("outside"),
        zeroes_all: setup.is("zero", "all"),
        window: 1000 * setup.number("window"),
        seed: setup.seed,
    };
    match setup.variant {
        "ungrouped" => storm::<W, Global<W, 5>>(&load),
        "global-mutex" => storm::<W, Global<W, 2>>(&load),
        "ctor-dtor-no-magazine" => storm::<W, Listed<W>>(&load),
        _ => storm::<W, Constructed<W>>(&load),
    }
}
