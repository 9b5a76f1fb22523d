//! `threadstorm`: threads are created and end at a high rate, and each of them gets concurrency IDs
//! (changed by Linux 6.19).
//!
//! Pools create threads. A pool's creator starts its threads one after another, sleeps until all
//! run, wakes them all, and sleeps until all are about to end. Then it begins again. A thread says
//! that it runs, sleeps until it is woken, says that it ends, and ends. So it is switched in twice.
//! This is the benchmark "thread create teardown" of the series that became Linux 6.19. The model
//! does not have its mutex, and its condition variable wakes exactly the threads that it must.
//!
//! The threads do not belong to the world. A pinned worker on each CPU plays that CPU's scheduler:
//! it takes threads that were sent to it, switches them in, does what they do, and switches them
//! out. Around that it calls a [`CidSpace`] as a kernel does. The creator of a thread enters it, an
//! arrival from another CPU migrates it where it arrives, the CPU where it ends takes it out, and
//! every [`TICK`] of a busy CPU asks for a scan. Each access of the space is one of the simulated
//! machine, and the scenario measures the time of these calls. The variants differ in the space's
//! policy. `none` has no space, and `kernel-cid` is in `plain`.
//!
//! | placement | a thread may run | a new thread goes | a woken thread goes |
//! |---|---|---|---|
//! | `roaming` | anywhere | to an idle CPU, if draws find one | near its waker, or back |
//! | `pinned` | on one CPU | there | there |
//!
//! We set the time to create and end a thread (two thirds at the creator, one third where the
//! thread ends), the rest of a switch, the time of a wake-up beyond a switch ([`WAKE_UP`]), and the
//! time that a thread computes ([`BODY`]).
//!
//! The scenario checks itself: no two running threads have an ID at once, and at the end no thread
//! is left in the space.

pub mod ids;
mod place;
mod plain;
pub mod storm;

use core::time::Duration;

use coreline::cid::{CidSpace, Clustered, FirstFit, Owned, Recent};
use coreline_sim::{LineCost, Report, Sim};
use coreline_topology::CpuId;
use coreline_world::{Native, Testbed};

use ids::{NoIds, is_of_ids};
use storm::storm;

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::metric::FigureKind::{Gain, Nanoseconds, Percent, Rate, Transfers};
use super::param::{Domain, Param};
use super::point::{Point, Setup};
use super::{Only, RunError, Scenario, Variant};

/// The numbers of a run, in this order. Those after the first exist only if IDs are ours, and those
/// of lines only in the simulator. Threads created in a second.
pub const CREATIONS: usize = 0;
/// Nanoseconds that its IDs cost a created thread in all.
pub const PER_THREAD: usize = 1;
/// Of a switch-in of a thread that has run before, and of a switch-out.
pub const PER_SWITCH: usize = 2;
/// Of entering, the first switch-in and leaving.
pub const PER_LIFE: usize = 3;
/// Of an arrival from another CPU; 0 if there was none.
pub const MIGRATE: usize = 4;
/// The share of all of these in the time of CPUs that do not idle, in percent.
pub const SHARE: usize = 5;
/// How many switch-ins there were, including those that are not counted. It is no figure.
pub const SWITCHES: usize = 6;
/// Lines of the source of IDs that came from another cache, for each switch-in.
pub const TRANSFERS: usize = 7;
/// The share of the line that has the most, in percent.
pub const HOTTEST: usize = 8;

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        // Those that were published; more is taken for a typing mistake.
        Param::new(
            "size",
            "How many pools create how many threads each",
            Domain::Pair("pools", "threads", 256),
        )
        .usual(&["8x8", "32x32"])
        .quick(&["8x8"]),
        Param::new("place", "Where threads may run", Domain::Names(PLACES))
            .usual(&["roaming", "pinned"]),
        // The cost `spawn` of every machine file, and half of that, both from memory.
        Param::number(
            "rest",
            "Microseconds that creating and ending a thread takes without concurrency IDs",
            [0, 100_000],
        )
        .unit("us")
        .usual(&["30"]),
        // The cost `switch` of every machine file, which is from memory.
        Param::number("path", "Nanoseconds of a switch without the compared part", [0, 1_000_000])
            .unit("ns")
            .usual(&["1500"]),
        // So that a pool counts as many threads whatever its size.
        Param::effort("rounds", 100_000).depends(|it| {
            let (threads, least) = if it.quick { (64, 2) } else { (320, 10) };
            vec![(threads / it.values.pair("size").1).max(least)]
        }),
    ],
    variants: &[
        Variant::new("none", "No IDs are handed out"),
        Variant::new("first-fit", "IDs are handed out: the lowest free one"),
        Variant::new("recent", "The CPU's recent ID if that is free"),
        Variant::new("owned", "An ID that the thread owns, or its CPU if threads are many"),
        Variant::new("clustered", "As recent, for each last-level cache"),
        Variant::new("kernel-cid", "Threads of this machine's kernel").only(Only::Native),
    ],
    figures: &[
        Figure::new("creations", Rate, Number(CREATIONS)),
        Figure::new("ids_per_thread_ns", Nanoseconds, Number(PER_THREAD)).when(has_ids),
        Figure::new("ids_per_switch_ns", Nanoseconds, Number(PER_SWITCH)).when(has_ids),
        Figure::new("ids_per_life_ns", Nanoseconds, Number(PER_LIFE)).when(has_ids),
        Figure::new("ids_migrate_ns", Nanoseconds, Number(MIGRATE))
            .when(|it| has_ids(it) && it.is("place", "roaming")),
        Figure::new("ids_share", Percent, Number(SHARE)).when(has_ids),
        Figure::new("transfers_per_switch", Transfers, Number(TRANSFERS)).when(has_ids),
        Figure::new("hottest_line_share", Percent, Number(HOTTEST)).when(has_ids),
        // The one figure that says something of `none`.
        Figure::new("creations_over_recent", Gain, Over(CREATIONS, "recent"))
            .when(|it| it.variant != "kernel-cid"),
    ],
    // The cost of creating a thread without its IDs decides all that was published, and is
    // declared; the machine is not known.
    limited: |_, _| true,
    not_testable: "all CPUs share one L3 and are few: no evidence on lines that many sockets want",
    published: Some(include_str!("../../published/threadstorm.toml")),
    statistics: true,
    report: lines,
    ..Scenario::new(
        "threadstorm",
        "Threads created and ended at a high rate: what their concurrency IDs cost (Linux 6.19)",
        [run::<Native>, run::<Sim>],
    )
};

const PLACES: &[(&str, &str)] = &[("roaming", "Anywhere"), ("pinned", "Each on one CPU")];

fn has_ids(point: &Point) -> bool {
    point.variant != "none"
}

/// What one run depends on.
struct Load {
    cpus: Vec<CpuId>,
    pools: u32,
    /// How many threads each pool creates in a round.
    threads: u32,
    is_pinned: bool,
    /// What creating and ending a thread takes without IDs.
    rest: Duration,
    /// What a switch takes without IDs, each way.
    path: Duration,
    /// How often each pool creates its threads and is counted.
    rounds: u32,
    /// Seeds where threads go.
    seed: u64,
}

impl Load {
    fn of(setup: &Setup) -> Load {
        let (pools, threads) = setup.pair("size");
        Load {
            cpus: setup.cpus.clone(),
            pools: pools as u32,
            threads: threads as u32,
            is_pinned: setup.is("place", "pinned"),
            rest: setup.duration("rest"),
            path: setup.duration("path"),
            rounds: setup.number("rounds") as u32,
            seed: setup.seed,
        }
    }
}

/// Rounds of each pool that are not counted: lines come from memory.
pub const WARM_UP: u32 = 5;

/// The time of a wake-up beyond a switch.
pub const WAKE_UP: Duration = Duration::from_nanos(1500);

/// What a created thread computes each time that it runs.
pub const BODY: Duration = Duration::from_micros(1);

/// How often a busy CPU asks for a scan: the tick of a kernel with 250 ticks a second.
pub const TICK: Duration = Duration::from_millis(4);

fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    match setup.variant {
        "none" => storm::<W, NoIds>(setup),
        "first-fit" => storm::<W, CidSpace<FirstFit, W>>(setup),
        "recent" => storm::<W, CidSpace<Recent, W>>(setup),
        "owned" => storm::<W, CidSpace<Owned, W>>(setup),
        "clustered" => storm::<W, CidSpace<Clustered, W>>(setup),
        _ => plain::storm::<W>(setup),
    }
}

/// How often a switch-in brought a line of what hands out IDs from another cache, and the share of
/// the line of which that is most, in percent.
fn lines(report: &Report, numbers: &mut Vec<f64>) {
    let misses = |line: &LineCost| {
        let words = line.words.iter().filter(|word| is_of_ids(word));
        words.map(|word| word.cost.transfers.misses() - word.cost.transfers.memory).sum::<u64>()
    };
    let lines = report.details.iter().flat_map(|details| &details.lines).map(misses);
    let (all, hottest) = lines.fold((0, 0), |(all, most), line| (all + line, line.max(most)));
    let share = |part: u64, whole: f64| part as f64 / whole.max(1.0);
    numbers.extend([share(all, numbers[SWITCHES]), 100.0 * share(hottest, all as f64)]);
}
