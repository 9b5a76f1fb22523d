//! `threadstorm`: threads are created and end at a high rate, and each of them gets concurrency IDs
//! (changed by Linux 6.19).
//!
//! Pools create threads. A pool's creator starts its threads one after another, sleeps until all of
//! them run, wakes them all, and sleeps until all are about to end. Then it repeats. A thread
//! reports that it runs, sleeps until it is woken, reports that it is about to end, and ends. So it
//! is switched in twice. This is the benchmark "thread create teardown" of the patch series that
//! was merged into Linux 6.19 ([Gleixner
//! 2025](https://lore.kernel.org/r/20251015164952.694882104@linutronix.de)). The model does not
//! contain the benchmark's mutex, and its condition variable wakes exactly the necessary threads.
//!
//! The threads are not threads of the world. On each CPU, a pinned worker has the role of that
//! CPU's scheduler. It receives threads, switches them in, executes their steps, and switches them
//! out. At each of these points it calls a [`CidSpace`], as a kernel does. The creator of a thread
//! adds it to the space. If a thread arrives from another CPU, the new CPU migrates it. The CPU
//! where a thread ends removes it. A busy CPU requests a scan at every [`TICK`]. Each memory access
//! of the space is an access of the simulated machine, and the scenario measures the time of these
//! calls. The variants differ in the space's policy. The variant `none` has no space. The variant
//! `kernel-cid` is in the module `plain`.
//!
//! | placement | a thread may run | a new thread goes | a woken thread goes |
//! |---|---|---|---|
//! | `roaming` | anywhere | to an idle CPU, if random tries find one | near its waker, or back |
//! | `pinned` | on one CPU | there | there |
//!
//! We set four times: the time to create and end a thread, the time of the rest of a switch, the
//! time of a wake-up beyond a switch ([`WAKE_UP`]), and the time for which a thread computes
//! ([`BODY`]). The creator spends two thirds of the time to create and end a thread. The CPU where
//! the thread ends spends one third.
//!
//! The scenario checks itself. No two running threads may have the same ID, and at the end no
//! thread may be left in the space.

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
use super::param::{Around, Domain, Param};
use super::point::{Point, Setup};
use super::{RunError, Scenario, Variant, Worlds};

/// Index in a run's numbers: the throughput, in created threads per second. The other numbers exist
/// only if the IDs come from a [`CidSpace`].
pub const CREATIONS: usize = 0;
/// Index in a run's numbers: the total time of all calls for a created thread's IDs, in
/// nanoseconds.
pub const PER_THREAD: usize = 1;
/// Index in a run's numbers: the time of the calls for a switch-out and for a switch-in of a thread
/// that has run before, in nanoseconds.
pub const PER_SWITCH: usize = 2;
/// Index in a run's numbers: the time of the calls for entering, the first switch-in and leaving,
/// in nanoseconds.
pub const PER_LIFE: usize = 3;
/// Index in a run's numbers: the time of the call for an arrival from another CPU, in nanoseconds.
/// It is 0 if there was no arrival.
pub const MIGRATE: usize = 4;
/// Index in a run's numbers: the share of all these calls in the non-idle time of CPUs, in percent.
pub const SHARE: usize = 5;
/// Index in a run's numbers: the number of switch-ins, including the switch-ins in rounds that are
/// not counted. The number is not shown as a figure.
pub const SWITCHES: usize = 6;
/// Index in a run's numbers: the number of lines of the source of IDs that came from another cache,
/// per switch-in. Only the simulator has this number.
pub const TRANSFERS: usize = 7;
/// Index in a run's numbers: the share of the line with the most transfers, in percent. Only the
/// simulator has this number.
pub const HOTTEST: usize = 8;

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        // Those that were published; more is taken for a typing mistake.
        Param::new(
            "size",
            "The number of pools, and the number of threads that each pool creates",
            Domain::Pair("pools", "threads", 256),
        )
        .usual(&["8x8", "32x32"])
        .quick(&["8x8"]),
        Param::new("place", "Where threads may run", Domain::Names(PLACES))
            .usual(&["roaming", "pinned"]),
        Param::number(
            "rest",
            "Microseconds to create and end a thread without concurrency IDs; the default is 30. \
             For 8x8 and 32x32, it is also 507 and 2970, at which Linux 6.17 has the published \
             rate; may be given more than once",
            [0, 100_000],
        )
        .unit("us")
        .depends(rests),
        // The cost `switch` of every machine file, which is from memory.
        Param::number(
            "path",
            "Nanoseconds of a switch without the part that the variants change",
            [0, 1_000_000],
        )
        .unit("ns")
        .usual(&["1500"]),
        // So that a pool counts as many threads whatever its size.
        Param::effort("rounds", 100_000).depends(|it| {
            let (threads, least) = if it.quick { (64, 2) } else { (320, 10) };
            vec![(threads / it.values.pair("size").1).max(least)]
        }),
    ],
    variants: &[
        Variant::new("none", "Threads get no IDs"),
        Variant::new("first-fit", "A thread gets the lowest free ID"),
        Variant::new("recent", "A thread gets the CPU's recent ID if that is free"),
        Variant::new(
            "owned",
            "A thread gets an ID of its own, or its CPU's ID if there are many threads",
        ),
        Variant::new("clustered", "As recent, with IDs for each last-level cache"),
        Variant::new("kernel-cid", "Threads of this machine's kernel").only(Worlds::Native),
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
    not_testable: "the run has few CPUs, which share one L3: no evidence about lines that many \
                   sockets want",
    published: Some(include_str!("../../published/threadstorm.toml")),
    statistics: true,
    report: lines,
    ..Scenario::new(
        "threadstorm",
        "Threads that are created and end at a high rate: the cost of their concurrency IDs \
         (Linux 6.19)",
        [run::<Native>, run::<Sim>],
    )
};

/// The cost `spawn` of every machine file, and half of that, both from memory.
const REST: u64 = 30;

/// The times to create and end a thread, by size. With these times, creators under `recent` create
/// threads at the rate that was published for v6.17. A creator does two thirds of the work. So 8
/// creators that create 23,666 threads per second take 3/2 times 338 us for each thread, and 32
/// creators that create 16,161 threads per second take 3/2 times 1980 us.
const PUBLISHED_PACE: [((u64, u64), u64); 2] = [((8, 8), 507), ((32, 32), 2970)];

fn rests(it: &Around<'_>) -> Vec<u64> {
    let size = it.values.pair("size");
    let pace = PUBLISHED_PACE.iter().filter(|(of, _)| *of == size && !it.natively);
    [REST].into_iter().chain(pace.map(|(_, rest)| *rest)).collect()
}

const PLACES: &[(&str, &str)] =
    &[("roaming", "Anywhere"), ("pinned", "Each thread stays on one CPU")];

fn has_ids(point: &Point) -> bool {
    point.variant != "none"
}

/// The inputs of one run.
struct Load {
    cpus: Vec<CpuId>,
    pools: u32,
    /// How many threads each pool creates in a round.
    threads: u32,
    is_pinned: bool,
    /// The time to create and end a thread without IDs.
    rest: Duration,
    /// The time of a switch without IDs, each way.
    path: Duration,
    /// The number of counted rounds in which each pool creates its threads.
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

/// The number of initial rounds of each pool that are not counted, because lines then come from
/// memory.
pub const WARM_UP: u32 = 5;

/// The time of a wake-up beyond a switch.
pub const WAKE_UP: Duration = Duration::from_nanos(1500);

/// The time for which a created thread computes in each of its runs.
pub const BODY: Duration = Duration::from_micros(1);

/// The interval at which a busy CPU requests a scan. It is the tick of a kernel with 250 ticks per
/// second.
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

/// How often a switch-in fetched a line of the ID allocator from another cache, and the share of
/// the line that was fetched most often, in percent.
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
