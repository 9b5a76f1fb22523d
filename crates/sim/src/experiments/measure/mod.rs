//! Measurements of scaling: threads that start together, a table over numbers of threads, and the
//! comparison of two tables.
//!
//! [`parallel`] runs in a machine. Its times exclude the creation of threads, their first accesses,
//! and the skew between their starts. [`scaling`] runs a program with several numbers of threads
//! over a band. [`compare`] compares two programs at each number of threads.
//!
//! ```
//! use coreline_sim::claim::Band;
//! use coreline_sim::measure::{Parallel, compare, parallel, scaling};
//! use coreline_sim::sync::Mutex; // was std::sync
//! use coreline_sim::{Allocator, Spec};
//! use std::collections::VecDeque;
//!
//! #[global_allocator]
//! static ALLOCATOR: Allocator = Allocator;
//!
//! fn locked(threads: usize) -> Parallel {
//!     let queue = Mutex::new(VecDeque::new());
//!     parallel(threads, 20, |n| {
//!         queue.lock().unwrap().push_back(n);
//!         queue.lock().unwrap().pop_front();
//!     })
//! }
//!
//! #[derive(Default)]
//! #[repr(align(64))] // else neighbours share a line
//! struct Apart(Mutex<VecDeque<usize>>);
//!
//! fn apart(threads: usize) -> Parallel {
//!     let queues: Vec<Apart> = (0..threads).map(|_| Apart::default()).collect();
//!     parallel(threads, 20, |n| {
//!         queues[n].0.lock().unwrap().push_back(n);
//!         queues[n].0.lock().unwrap().pop_front();
//!     })
//! }
//!
//! let band = Band::quick(&Spec::preset("epyc-9654-2s")?, 1);
//! let threads = [1, 8, 24, 96];
//! let locked = scaling(&band, "one queue", &threads, locked)?;
//! let apart = scaling(&band, "a queue each", &threads, apart)?;
//! println!("{locked}\n{apart}\n{}", compare(&apart, &locked));
//! assert_eq!(locked.scales_to(), 1);
//! assert_eq!(apart.scales_to(), 96, "{apart}");
//! apart.rate(96).unwrap().at_least(10.0, locked.rate(96).unwrap())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod comparison;
mod record;
mod scaling;

use core::time::Duration;
use std::panic::resume_unwind;

use coreline_topology::CpuId;
use coreline_world::{Clock as _, Line};

use crate::Sim;
use crate::engine::inside;
use crate::mirrors::atomic::{AtomicU64, Ordering};
use crate::mirrors::hint::work;
use crate::mirrors::thread::{self, Builder, ScopedJoinHandle};
use crate::results::report::Transfers;

pub use comparison::{Comparison, Faster, Side, compare};
pub use scaling::{Row, Scaling, Spread, scaling, short};

/// The result of threads that started together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parallel {
    /// The number of operations of each thread.
    pub rounds: u64,
    /// The time from the common start to the end of the last thread, in simulated nanoseconds.
    pub span_ns: u64,
    /// The time of each thread in simulated nanoseconds, ordered by thread number.
    pub each_ns: Vec<u64>,
    /// The time between the starts of the first and the last thread, in simulated nanoseconds. It
    /// is small, unless several threads share a CPU.
    pub apart_ns: u64,
    /// The accesses of the span by source, for the whole machine. They include the few accesses
    /// that a thread makes after its own last operation.
    pub transfers: Transfers,
}

impl Parallel {
    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.each_ns.len()
    }

    /// Returns the throughput of all threads, in operations per simulated second.
    pub fn per_second(&self) -> f64 {
        let operations = self.rounds as f64 * self.threads() as f64;
        operations * 1e9 / self.span_ns as f64
    }

    /// Returns the fastest thread's time, divided by the slowest thread's time. A value of 1 is
    /// fair.
    pub fn share(&self) -> f64 {
        let [least, most] = [self.each_ns.iter().min(), self.each_ns.iter().max()];
        least.zip(most).map_or(f64::NAN, |(least, most)| *least as f64 / (*most).max(1) as f64)
    }
}

/// How often a thread that waits for the others looks whether they are there.
const LOOK: Duration = Duration::from_micros(20);

/// How long before the common start a thread is awake.
const AWAKE: Duration = Duration::from_micros(5);

/// How exactly threads begin together, about: as long as a look at the clock takes.
const EXACT: Duration = Duration::from_nanos(30);

/// Runs `op` `rounds` times on each of `threads` threads, which start at the same time. `op` gets
/// the number of its thread, counted from 0. Call `parallel` in a machine.
///
/// Thread `n` runs on CPU `n`. If there are more threads than CPUs, the assignment wraps around to
/// the first CPU. Before the start each thread does one more operation, which is not timed, because
/// first accesses miss and allocate memory. The caller's other code, such as setup and drops, is
/// not timed either.
///
/// ```
/// use coreline_sim::atomic::{AtomicU64, Ordering};
/// use coreline_sim::{Machine, measure};
///
/// #[global_allocator]
/// static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
///
/// let run = Machine::preset("epyc-9654-2s")?.run(|| {
///     let hits = AtomicU64::new(0);
///     measure::parallel(192, 10, |_| _ = hits.fetch_add(1, Ordering::Relaxed))
/// })?;
/// println!("{:.0} million additions a second", run.value.per_second() / 1e6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// Panics outside of a machine, if `threads` or `rounds` is 0, or if `op` panics, after all threads
/// are done.
#[track_caller]
pub fn parallel(threads: usize, rounds: u64, op: impl Fn(usize) + Sync) -> Parallel {
    assert!(threads > 0 && rounds > 0, "{threads} threads and {rounds} rounds: nothing to measure");
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let line = StartLine::default();
    let part = |number| {
        let arrival = Arrival(&line);
        op(number);
        drop(arrival);
        line.pass();
        let begin = Moment::now();
        (0..rounds).for_each(|_| op(number));
        [begin, Moment::now()]
    };
    let lanes: Vec<[Moment; 2]> = thread::scope(|scope| {
        let start = |number| {
            let builder = Builder::new().on(CpuId::new((number % cpus) as u32));
            builder.spawn_scoped(scope, move || part(number)).expect("the CPU is the machine's")
        };
        let crew: Vec<_> = (0..threads).map(start).collect();
        line.open(threads);
        let join =
            |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|it| resume_unwind(it));
        crew.into_iter().map(join).collect()
    });
    let begins = || lanes.iter().map(|[begin, _]| *begin);
    let by_time = |moment: &Moment| moment.at_ns;
    let first = begins().min_by_key(by_time).unwrap_or_default();
    let end = lanes.iter().map(|[_, end]| *end).max_by_key(by_time).unwrap_or_default();
    let last_ns = begins().map(|begin| begin.at_ns).max().unwrap_or_default();
    Parallel {
        rounds,
        span_ns: end.at_ns - first.at_ns,
        each_ns: lanes.iter().map(|[begin, end]| end.at_ns - begin.at_ns).collect(),
        apart_ns: last_ns - first.at_ns,
        transfers: end.transfers.since(&first.transfers),
    }
}

/// A point of a run: the time, and the accesses so far.
#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    at_ns: u64,
    transfers: Transfers,
}

impl Moment {
    fn now() -> Moment {
        Moment { at_ns: now_ns(), transfers: inside(|engine| engine.all_transfers()) }
    }
}

fn now_ns() -> u64 {
    Sim::now().as_nanos()
}

/// The place where threads sleep until all have arrived. A thread that spun would keep those that
/// share its CPU from arriving.
#[derive(Default)]
struct StartLine {
    arrived: Line<AtomicU64>,
    /// When all begin, in simulated nanoseconds; 0: not known yet.
    start: Line<AtomicU64>,
}

/// A thread that comes to the start line. It counts as there also if it panics on its way: the
/// others must not wait for it.
struct Arrival<'a>(&'a StartLine);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.arrived.fetch_add(1, Ordering::Relaxed);
    }
}

impl StartLine {
    /// Waits for the common start.
    fn pass(&self) {
        let start = loop {
            match self.start.load(Ordering::Relaxed) {
                0 => thread::sleep(LOOK),
                start => break Duration::from_nanos(start),
            }
        };
        let left = || start.saturating_sub(Duration::from_nanos(now_ns()));
        thread::sleep(left().saturating_sub(AWAKE));
        // Spans of work differ by a share of their length, so the last is a short one; then there
        // are looks at the clock.
        while left() > 4 * EXACT {
            work(left() * 3 / 4);
        }
        while !left().is_zero() {}
    }

    /// Sets the start, once all wait.
    fn open(&self, threads: usize) {
        // Relaxed, as all here: lines up times and hands nothing over.
        while self.arrived.load(Ordering::Relaxed) < threads as u64 {
            thread::sleep(LOOK);
        }
        // All have looked by then: they read one line, one after the other.
        let until = 3 * LOOK + Duration::from_nanos(threads as u64 * 500) + AWAKE;
        let start = now_ns() + until.as_nanos() as u64;
        self.start.store(start, Ordering::Relaxed);
    }
}
