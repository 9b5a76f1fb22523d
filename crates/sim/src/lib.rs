//! A deterministic simulated many-core machine, which shows in a unit test whether concurrent code
//! scales.
//!
//! It is for authors of concurrent code. The simulator needs no machine with hundreds of CPUs, and
//! gives the same result every time. The program is ordinary Rust with changed imports. It runs on
//! up to 4,096 simulated CPUs and one host thread, and the simulator charges it for every cache
//! line that moves.
//!
//! ```
//! use coreline_sim::atomic::{AtomicU64, Ordering}; // was std::sync::atomic
//! use coreline_sim::{Allocator, Machine, Run, thread}; // was std::thread
//!
//! #[global_allocator]
//! static ALLOCATOR: Allocator = Allocator; // decides which objects share a cache line
//!
//! #[derive(Default)]
//! #[repr(align(64))]
//! struct Counter(AtomicU64);
//!
//! /// 64 threads add to this many counters, on two sockets of 96 cores each.
//! fn count(counters: usize) -> Result<Run<u64>, Box<dyn std::error::Error>> {
//!     let run = Machine::preset("epyc-9654-2s")?.seed(7).run(move || {
//!         let counters: Vec<Counter> = (0..counters).map(|_| Counter::default()).collect();
//!         thread::scope(|scope| {
//!             for n in 0..64 {
//!                 let counter = &counters[n % counters.len()].0;
//!                 let add = |_| _ = counter.fetch_add(1, Ordering::Relaxed);
//!                 scope.spawn(move || (0..1000).for_each(add));
//!             }
//!         });
//!         counters.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
//!     })?;
//!     Ok(run)
//! }
//!
//! let (one, each) = (count(1)?, count(64)?);
//! assert_eq!((one.value, each.value), (64_000, 64_000));
//! let ratio = one.report.time_ns as f64 / each.report.time_ns as f64;
//! println!("one counter for all takes {ratio:.0} times as long as one for each thread");
//! assert!(ratio > 10.0);
//! println!("{}", one.report); // simulated time, and where accesses were served from
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same seed gives the same result on any host. A failing run prints a replay line, which
//! reproduces the failure. [`NOT_MODELLED`] lists what the model leaves out, and every result
//! prints that list.
//!
//! The user's guide, `docs/simulating.md` in the repository, shows how to get a claim that you can
//! quote. With [`claim`], a conclusion does not depend on a single guess about the machine.
//! [`search()`] finds mistakes that occur only at an unlucky moment. Code that is generic over
//! `coreline_world::World` runs unchanged, with [`Sim`] as its world.
//!
//! | item | meaning |
//! |---|---|
//! | [`Machine`], [`Run`], [`Report`] | the machine, the run, and its cost |
//! | [`Statistics`], [`Details`], [`name()`] | details of the cost: by line, source and CPU |
//! | [`Trace`] | a record of the run, for a timeline viewer |
//! | [`transfers()`] | the number of accesses by line, while the program runs |
//! | [`Spec`], [`presets`] | machine files: tree and costs, each with its source |
//! | [`Class`], [`Transfer`], [`PingPong`] | published latencies, and the cost of transfers |
//! | [`atomic`], [`sync`], [`thread`], [`time`], [`hint`] | std's modules, simulated |
//! | [`collections`], [`task`] | hash maps whose order follows from the seed; an executor |
//! | [`cell`], [`Machine::find_races`] | plain shared data, and what orders its accesses |
//! | [`locks`] | reports on each lock of a run |
//! | [`measure`] | threads that begin together, tables over numbers of threads, and comparisons |
//! | [`test`](macro@test) | `#[coreline_sim::test]`: a test on a machine, with many seeds |
//! | [`claim`] | statements that must hold over all uncertain properties of a machine |
//! | [`Faults`], [`on_signal`], [`Kernel`] | interruptions and the kernel's reactions |
//! | [`interrupts`] | interrupts between CPUs, masking, and monitored waits |
//! | [`Schedule`], [`search()`], [`Explore`] | which thread runs next; the search for mistakes |
//! | [`Failure`], [`Replay`] | the cause of a failure, and the line that repeats the run |
//! | [`MemoryChecks`], [`MemoryMistake`] | double frees, uses after a free, leaks |
//! | [`Machine::check_determinism`], [`Divergence`] | whether two runs are the same |
//! | [`Allocator`] | the simulated program's memory; must be the global allocator |

/// Machines run in this crate's own tests, too.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

mod engine;
mod experiments;
mod hardware;
mod machine;
mod mirrors;
mod results;
mod settings;
mod words;
mod world;

pub use experiments::claim;
pub use experiments::determinism::Divergence;
pub use experiments::explore::{Explore, Explored, search};
pub use experiments::measure;
#[doc(hidden)]
pub use experiments::testing;
pub use hardware::arena::Allocator;
pub use hardware::class::Class;
pub use hardware::contention::{Arbitration, ParseArbitrationError};
pub use hardware::costs::{Cost, Costs};
pub use hardware::distances::NodeDistance;
pub use hardware::overlap::{Overlap, ParseOverlapError};
pub use hardware::spec::{Spec, SpecError, presets};
pub use machine::calibration::{PingPong, Transfer};
pub use machine::{Machine, Run};
pub use mirrors::statics::Static;
pub use mirrors::{atomic, cell, collections, hint, sync, task, thread, time};
pub use results::failure::{
    CpuState, Doing, Failure, FailureKind, Foreign, Lately, Panicked, PlainAccess, ThreadState,
};
pub use results::false_sharing::WordGroup;
pub use results::locks::{Handoffs, LockReport};
pub use results::memory::{MemoryBlock, MemoryMistake, MemoryUse, Misuse};
pub use results::replay::{ParseReplayError, Replay};
pub use results::report::{
    AccessCost, CpuTime, Details, LineCost, NOT_MODELLED, Report, SiteCost, SourceSite, Statistics,
    Transfers, WordCost, not_modelled,
};
pub use results::tape::TracedAccess;
pub use results::trace::Trace;
pub use settings::faults::{Faults, ParseFaultsError};
pub use settings::kernel::Kernel;
pub use settings::memory::{MemoryChecks, ParseMemoryChecksError};
pub use settings::schedule::{Choices, ParseScheduleError, Schedule};
pub use words::{SimPtr, SimTrack, SimU8, SimU32, SimU64, SimUsize};
pub use world::probes::{name, transfers};
pub use world::restartable::SimSection;
pub use world::signals::{SimHeld, on_signal};
pub use world::{SimJoinHandle, exec, interrupts, locks};

/// Turns a function into a test that runs on a simulated machine.
///
/// ```
/// use coreline_sim::atomic::{AtomicU64, Ordering};
/// use coreline_sim::thread;
///
/// #[global_allocator]
/// static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator; // one for all
///
/// #[coreline_sim::test(machine = "epyc-9654-2s", seeds = 16, schedule = "random")]
/// fn no_addition_is_lost() {
///     let sum = AtomicU64::new(0);
///     thread::scope(|scope| {
///         for _ in 0..8 {
///             scope.spawn(|| sum.fetch_add(1, Ordering::Relaxed));
///         }
///     });
///     assert_eq!(sum.into_inner(), 8);
/// }
/// ```
///
/// | setting | meaning | if left out |
/// |---|---|---|
/// | `machine = "host-2c"` | a [preset](presets), or a file's path from the package on | required |
/// | `seeds = 16` | the number of seeds | 1 |
/// | `seed = 7` | the first seed | 0 |
/// | `band = "quick"` | this [band](claim::Band) of each seed; or `"whole"` | its first point |
/// | `schedule = "pct:3:1000"` | a [`Schedule`], as in a replay line | by time |
/// | `faults = "preempt:8"` | [`Faults`], as in a replay line | those of the schedule |
/// | `memory = "traced"` | [`MemoryChecks`], as in a replay line | those of the schedule |
/// | `leaks = true` | whether it looks for [leaks](Machine::find_leaks) | it does not |
/// | `steps = 100000` | the [step limit](Machine::step_limit) | [default](Machine::STEP_LIMIT) |
/// | `races = true` | whether it looks for [data races](Machine::find_races) | it does not |
/// | `determinism = false` | whether the first run is repeated and compared | it is |
///
/// The attribute does not set the [`Allocator`], because a program has only one global allocator,
/// and several tests with the attribute would set several. A machine without this allocator does
/// not start, and its error shows the [two lines](FailureKind::NoAllocator) that are missing.
///
/// The function has no arguments. It returns nothing, or a `Result<(), E>` whose error fails the
/// test. Other attributes, such as `#[should_panic]`, mean what they do in other tests. The first
/// run that fails ends the test, with its [`Failure`] and the command that repeats only this run.
/// The command sets the environment variable `CORELINE_REPLAY` to the replay line.
///
/// A test with `n` runs makes `n + 1` runs, because the first is repeated, and must make the same
/// accesses at the same times. (The first million are compared one by one, and all others by the
/// reports of the runs.) Otherwise no replay line would repeat a run. The failure names the first
/// access at which the two differ, with its thread and its source location, as
/// [`check_determinism`](Machine::check_determinism) does. Usual reasons are std's hash maps and
/// other hashers with random keys, and statics that an earlier run changed.
pub use coreline_sim_macros::test;

/// The simulated machine's world. It is used only as a type parameter, and has no useful values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sim;

/// The example of README.md, unchanged.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
