//! `intermittent`: bursts on per-CPU memory, far apart in time (seed 000).
//!
//! One thread for each CPU of a configuration, pinned to it. The threads run one at a time, in an
//! order that is drawn anew for each *sequence*, in which every thread runs once; a coordinator
//! wakes them, and sleeps for the *delay* between a burst and the next wake-up. A burst increments
//! each byte of a 16 KiB area, and its time is taken. Which area is the question. If an index comes
//! to a CPU that did not have it before, its area's lines come from the CPU that did.
//!
//! All alternatives have the same threads, areas and coordinator, and differ in the one number that
//! picks the area. Where fewer threads than CPUs run at a time, concurrency IDs need fewer areas
//! than there are CPUs; `first-fit` needs the fewest.
//!
//! Where the seed says nothing:
//!
//! * the first sequence warms up (the areas' lines come from memory) and is not counted; the result
//!   of a run is the mean over all bursts of those that follow, [`SEQUENCES`] if nothing is said;
//! * the areas are page-aligned, as those of librseq's mempool, and one allocation each;
//! * a coordinator wakes the threads. It is a thread of the process like the others, and so has a
//!   concurrency ID itself. It is not pinned; simulated, it stays on CPU 0.
//!
//! The scenario checks itself: after `n` bursts the bytes at each position, over all areas, have
//! been incremented `n` times.

#[cfg(test)]
mod claims;

use core::hint::black_box;
use std::sync::Arc;

use coreline_sim::Sim;
use coreline_topology::Cid;
use coreline_world::{Cell, Native, Place, Testbed};
use rand_pcg::Pcg64;

use super::figure::Figure;
use super::figure::Made::{Number, Over, Under};
use super::metric::FigureKind::{Gain, Nanoseconds, Ratio};
use super::param::{Domain, Param, Role};
use super::point::Setup;
use super::{Only, Question, RunError, Scenario, Variant, shuffle};
use crate::crew::{Sign, crew, pinned};

pub(super) static SCENARIO: Scenario = Scenario {
    params: &[
        // The delays of seed 000. More is taken for a typing mistake.
        Param::number("delay", "Milliseconds between bursts", [0, 10_000])
            .unit("ms")
            .usual(&["10", "200"])
            .depends(|it| if it.quick && it.natively { vec![10] } else { Vec::new() }),
        Param::new(
            "scan",
            "What makes a simulated kernel look for old references to concurrency IDs, at most \
             every 100 ms",
            Domain::Names(SCANS),
        )
        .role(Role::Kernel)
        .usual(&["tick"]),
        // How often each thread runs and is counted. The longest delay of the seed is past any
        // expiry at once; the shortest needs more than one, with references of different ages.
        Param::effort("sequences", 1000).role(Role::UsualEffort).usual(&["6"]),
    ],
    variants: &[
        Variant {
            policy: Some("first-fit"),
            ..Variant::new("cpu-id", "Memory is indexed by the CPU's number")
        },
        Variant {
            lacks: || Native::kernel_cid().is_none().then(|| no_index("kernel-cid")),
            ..Variant::new("kernel-cid", "By the concurrency ID of this machine's kernel")
                .only(Only::Native)
        },
        Variant::simulated("first-fit", "By a concurrency ID: the lowest that is free"),
        Variant::simulated("recent", "The CPU's recent one if that is free"),
        Variant::simulated("owned", "One that the thread owns, or its CPU where threads are many"),
        Variant::simulated("clustered", "As recent, for each last-level cache"),
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
    not_testable: "all CPUs share one L3, so no area is farther than another: no evidence on \
                   locality",
    question: Question {
        config: Some("192-core/24-L3"),
        param: Some(("delay_ms", "10")),
        about: "a burst on per-CPU memory",
        metric: "ns_per_burst",
        variants: &["cpu-id", "first-fit", "recent"],
        answer: ("speedup", "recent"),
        sentence: "recent IDs are {} as fast as first-fit",
        ..Question::NONE
    },
    published: Some(include_str!("../../../published/intermittent.toml")),
    told: Some(|it| format!("{:.2} ns per burst", it[0])),
    all_configs: true,
    runs: [5, 2],
    // Their areas fit, with room for all else.
    most_cpus: 3000,
    ..Scenario::new(
        "intermittent",
        "Bursts of increments on per-CPU memory, far apart in time (seed 000)",
        [run::<Native>, run::<Sim>],
    )
};

const SCANS: &[(&str, &str)] = &[
    (
        "tick",
        "A tick that hits a running thread, as in the kernel; rather too seldom, since the \
         execution of code, the kernel's but for a switch included, takes no time here",
    ),
    ("switch", "Any thread that gets a CPU: as often as the kernel's own limit allows"),
];

fn no_index(variant: &str) -> RunError {
    let lack = "is not available: a thread has no such index here; see `coreline doctor`";
    RunError::Lack(format!("{variant} {lack}"))
}

/// Bytes of an area, all of which a burst increments.
const AREA: usize = 16 << 10;

/// Runs the scenario. The caller is the coordinator. Gives the mean nanoseconds of the counted
/// bursts.
fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let bursts = bursts::<W>(setup)?;
    Ok(vec![bursts.iter().sum::<u64>() as f64 / bursts.len() as f64])
}

/// By thread and in the order of the thread's bursts.
fn bursts<W: Testbed>(setup: &Setup) -> Result<Vec<u64>, RunError> {
    let bench = Arc::new(Bench::<W>::new(setup));
    let bursts: Vec<Option<u64>> =
        crew::<W, _, _>(&bench, pinned(&setup.cpus), Bench::work, |missing| {
            if missing.is_none() {
                bench.coordinate(setup);
            }
            // Threads that did start must end, whatever happened.
            bench.turns[..missing.unwrap_or(setup.cpus.len())]
                .iter()
                .for_each(|turn| turn.set(END));
        })?
        .into_iter()
        .flatten()
        .collect();
    let total = bursts.len();
    let bursts: Option<Vec<u64>> = bursts.into_iter().collect();
    let bursts = bursts.ok_or_else(|| no_index(setup.variant))?;
    bench.check((total + setup.cpus.len()) as u64)?;
    Ok(bursts)
}

/// One area. Alone on its pages.
#[repr(C, align(4096))]
struct Area<W: Testbed>(Cell<[u8; AREA], W>);

/// Whose turn it is: one [`Sign`] for each thread.
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
    areas: Vec<Box<Area<W>>>,
    turns: Vec<Sign<W>>,
    /// Whether the CPU's number picks the area, and no concurrency ID.
    is_by_cpu: bool,
}

impl<W: Testbed> Bench<W> {
    fn new(setup: &Setup) -> Self {
        // Every CPU number and every concurrency ID is below the limit.
        let areas = (0..W::topology().cpu_limit())
            .map(|_| Box::new(Area(Cell::new_in([0; AREA]))))
            .collect();
        let turns = setup.cpus.iter().map(|_| Sign::new(WAIT)).collect();
        Bench { areas, turns, is_by_cpu: setup.variant == "cpu-id" }
    }

    /// The coordinator's part.
    fn coordinate(&self, setup: &Setup) {
        let mut dice = Pcg64::new(u128::from(setup.seed), ORDER);
        let delay = setup.duration("delay");
        let mut order: Vec<usize> = (0..self.turns.len()).collect();
        for _ in 0..=setup.number("sequences") {
            shuffle(&mut order, &mut dice);
            for &number in &order {
                self.turns[number].set(BURST);
                self.turns[number].wait(|now| now != BURST);
                W::sleep(delay);
            }
        }
    }

    /// A thread's part: returns the times of its bursts but the first; `None` for each without an
    /// index.
    fn work(&self, number: usize) -> Vec<Option<u64>> {
        let turn = &self.turns[number];
        let mut bursts = Vec::new();
        while turn.wait(|now| now != WAIT) == BURST {
            bursts.push(self.burst());
            turn.set(WAIT);
        }
        bursts.into_iter().skip(1).collect()
    }

    /// One burst, and its nanoseconds.
    fn burst(&self) -> Option<u64> {
        let start = W::now();
        let index = match self.is_by_cpu {
            true => W::cpu().index(),
            false => W::kernel_cid().map(Cid::index)?,
        };
        self.areas.get(index)?.0.with_mut(|bytes| {
            // SAFETY: the pointer is valid while this runs. Turns are given one at a time, so no
            // other thread touches any area, whatever the index.
            let bytes = unsafe { &mut *bytes };
            bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            // The optimiser must take the bytes as read.
            black_box(bytes);
        });
        u64::try_from((W::now() - start).as_nanos()).ok()
    }

    /// Whether every byte position was incremented as often as there were bursts. After all threads
    /// ended.
    fn check(&self, bursts: u64) -> Result<(), RunError> {
        let mut sums = vec![0u8; AREA];
        for area in &self.areas {
            area.0.with(|bytes| {
                // SAFETY: the pointer is valid while this runs, and all writers have been joined.
                let bytes = unsafe { &*bytes };
                sums.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum = sum.wrapping_add(*byte));
            });
        }
        let expected = bursts as u8;
        let Some(position) = sums.iter().position(|&sum| sum != expected) else { return Ok(()) };
        let found = sums[position];
        Err(RunError::Check(format!(
            "byte {position} of the areas has {found} increments (mod 256) after {bursts} bursts"
        )))
    }
}

/// The stream of the generator that draws orders; simulated machines draw from others.
const ORDER: u128 = 0x0d0e;

#[cfg(test)]
mod tests {
    use coreline_sim::Machine;

    use super::*;

    fn setup(variant: &str, cpus: u32) -> Setup {
        Setup::new(&format!("intermittent config=x delay=1 variant={variant}"), 0..cpus)
    }

    fn simulated<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
        Machine::preset("host-2c").unwrap().run(run).unwrap().value
    }

    #[test]
    fn every_thread_bursts_once_in_each_counted_sequence() {
        let bursts = simulated(|| bursts::<Sim>(&setup("cpu-id", 2)).unwrap());
        assert_eq!(bursts.len(), 2 * 6);
        assert!(bursts.iter().all(|&ns| ns > 0), "{bursts:?}");
    }

    #[test]
    fn a_missing_index_is_a_lack_and_every_thread_ends() {
        // No kernel is installed, so there are no concurrency IDs.
        let error = simulated(|| run::<Sim>(&setup("kernel-cid", 1)).unwrap_err());
        assert!(matches!(&error, RunError::Lack(what) if what.contains("kernel-cid")), "{error}");
    }

    #[test]
    fn the_check_finds_a_lost_increment() {
        let error = simulated(|| {
            let bench = Bench::<Sim>::new(&setup("cpu-id", 1));
            bench.burst();
            bench.burst();
            bench.check(2).unwrap();
            // SAFETY: one thread, and the pointer is valid while this runs.
            bench.areas[1].0.with_mut(|bytes| unsafe { (*bytes)[77] = 255 });
            bench.check(2).unwrap_err().to_string()
        });
        assert!(error.contains("byte 77") && error.contains("has 1 increments"), "{error}");
    }
}
