//! What two well-known crates count, as they do it, on atomics, and on `coreline`.
//!
//! | here | is what | keeps |
//! |---|---|---|
//! | [`Tracker`] | an OpenTelemetry SDK has for one set of attributes | a histogram |
//! | [`TaskMonitor`] | a runtime's monitor has for one kind of task | 16 counters |
//!
//! Both are read by deltas: each report has what came since the last one, and nothing is lost.

use coreline::counter::{Fold, Max, PerCpuFold, Sum};
use coreline::world::{Integer, Ordering, Word, World};
use coreline::{CounterSet, IndexBy};

/// Upper bounds of the buckets, in milliseconds: those that an OpenTelemetry SDK has by default.
pub(crate) const BOUNDS: [f64; 15] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0,
    10000.0,
];
const BUCKETS: usize = BOUNDS.len() + 1;

/// The bucket of a value.
pub(crate) fn bucket(value: f64) -> usize {
    BOUNDS.partition_point(|bound| *bound < value)
}

/// What many threads tell at the same time, and one collects.
pub(crate) trait Instrument: Send + Sync + 'static {
    /// What a report has.
    type Report: PartialEq + std::fmt::Debug;

    /// With nothing told yet.
    fn new() -> Self;

    /// Tells of number `n` of the calling thread's requests, or polls.
    fn tell(&self, n: u32);

    /// What was told since the last time.
    fn collect(&self) -> Self::Report;
}

/// Times of requests: how many in each bucket, their sum, and the longest.
pub(crate) struct Tracker<W: World> {
    buckets: CounterSet<BUCKETS, W>,
    sum: PerCpuFold<Sum<f64>, W>,
    longest: PerCpuFold<Max<f64>, W>,
}

/// As [`Tracker`], on atomics.
pub(crate) struct AtomicTracker<W: World> {
    buckets: [W::U64; BUCKETS],
    sum: W::U64,
    longest: W::U64,
}

/// Milliseconds that request `n` took.
fn time_of(n: u32) -> f64 {
    f64::from(n % 64)
}

impl<W: World> Instrument for Tracker<W> {
    type Report = ([i64; BUCKETS], f64, f64);

    fn new() -> Self {
        let by = IndexBy::Cpu;
        Tracker {
            buckets: CounterSet::new_in(by).expect("CPUs have numbers"),
            sum: PerCpuFold::new_in(by).expect("CPUs have numbers"),
            longest: PerCpuFold::new_in(by).expect("CPUs have numbers"),
        }
    }

    fn tell(&self, n: u32) {
        let time = time_of(n);
        self.buckets.add(bucket(time), 1);
        self.sum.record(time);
        self.longest.record(time);
    }

    fn collect(&self) -> Self::Report {
        let sum = self.sum.drain().expect("sections can be fenced");
        (self.buckets.drain(), sum, self.longest.drain().expect("sections can be fenced"))
    }
}

/// Makes of a word, which is an `f64`, what `F` makes of it and this value.
fn fold<F: Fold<Value = f64>, W: World>(word: &W::U64, value: f64) {
    // Relaxed, here and below: a metric carries nothing but itself.
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let new = F::to_bits(F::fold(F::from_bits(old), value));
        if new == old {
            return;
        }
        match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

impl<W: World> Instrument for AtomicTracker<W> {
    type Report = ([i64; BUCKETS], f64, f64);

    fn new() -> Self {
        AtomicTracker {
            buckets: std::array::from_fn(|_| W::U64::new_in(0)),
            sum: W::U64::new_in(0.0_f64.to_bits()),
            longest: W::U64::new_in(<Max<f64>>::IDENTITY.to_bits()),
        }
    }

    fn tell(&self, n: u32) {
        let time = time_of(n);
        // Relaxed: see `fold`.
        self.buckets[bucket(time)].fetch_add(1, Ordering::Relaxed);
        fold::<Sum<f64>, W>(&self.sum, time);
        fold::<Max<f64>, W>(&self.longest, time);
    }

    fn collect(&self) -> Self::Report {
        // Relaxed: see `fold`.
        let take = |word: &W::U64, empty| word.swap(empty, Ordering::Relaxed);
        let buckets = std::array::from_fn(|at| take(&self.buckets[at], 0).cast_signed());
        let longest = take(&self.longest, <Max<f64>>::IDENTITY.to_bits());
        let sum = f64::from_bits(take(&self.sum, 0.0_f64.to_bits()));
        (buckets, sum, f64::from_bits(longest))
    }
}

/// The counters of a monitor of tasks: polls and their times by how long they took, and so on.
const COUNTERS: usize = 16;

/// Which counters poll `n` adds to, and how much: the polls, their times, and two of the others.
fn counts_of(n: u32) -> [(usize, i64); 4] {
    let kind = n as usize % 4;
    [(0, 1), (1, 100 + i64::from(n % 7)), (2 + kind, 1), (6 + kind, 40)]
}

/// Sixteen counters, side by side in each CPU's slot.
pub(crate) struct TaskMonitor<W: World>(CounterSet<COUNTERS, W>);

/// As [`TaskMonitor`], on atomics.
pub(crate) struct AtomicTaskMonitor<W: World>([W::U64; COUNTERS]);

impl<W: World> Instrument for TaskMonitor<W> {
    type Report = [i64; COUNTERS];

    fn new() -> Self {
        TaskMonitor(CounterSet::new_in(IndexBy::Cpu).expect("CPUs have numbers"))
    }

    fn tell(&self, n: u32) {
        counts_of(n).into_iter().for_each(|(counter, delta)| self.0.add(counter, delta));
    }

    fn collect(&self) -> Self::Report {
        self.0.drain()
    }
}

impl<W: World> Instrument for AtomicTaskMonitor<W> {
    type Report = [i64; COUNTERS];

    fn new() -> Self {
        AtomicTaskMonitor(std::array::from_fn(|_| W::U64::new_in(0)))
    }

    fn tell(&self, n: u32) {
        for (counter, delta) in counts_of(n) {
            // Relaxed: see `fold`.
            self.0[counter].fetch_add(delta.cast_unsigned(), Ordering::Relaxed);
        }
    }

    fn collect(&self) -> Self::Report {
        // Relaxed: see `fold`.
        std::array::from_fn(|at| self.0[at].swap(0, Ordering::Relaxed).cast_signed())
    }
}
