//! [`Histogram`]: how often values occur, by bucket.
//!
//! It is a [`CounterVec`] and a rule: [`Buckets`] says which counter a value belongs to. Counter 0
//! is the sum of the values, next to the first buckets. A record is two additions, without an
//! atomic instruction once their groups have slots. A snapshot adds up the slots of all CPUs.
//!
//! The law: while no thread records, the count of each bucket in a
//! [snapshot](Histogram::snapshot) is the number of values recorded there minus the drained ones,
//! and the sum is the sum of these values. In the repository, `tests/laws/memory/histogram.rs` and
//! `tests/laws/memory/drain.rs` check it in all three worlds.
//!
//! Source: Tene, [HdrHistogram][hdr] (2012): log-linear buckets, and the recorders that a reader
//! merges.
//!
//! [hdr]: https://github.com/HdrHistogram/HdrHistogram

use coreline_world::{Native, World};

use super::constructors::constructors;
use super::{Buckets, CounterVec};
use crate::percpu::PerCpuPool;
use crate::{IndexBy, Lacking};

/// The counter that is the sum of all values. The words after it are the buckets.
const SUM: usize = 0;

/// A histogram of `u64` values, such as latencies in nanoseconds or sizes in bytes. All CPUs can
/// record in it cheaply at the same time.
///
/// ```
/// use coreline::counter::{Buckets, Histogram};
///
/// let latency = Histogram::new(Buckets::log_linear(8)?)?;
/// for microseconds in 1..=1000 {
///     latency.record(microseconds * 1000);
/// }
/// let now = latency.snapshot();
/// assert_eq!((now.count(), now.sum()), (1000, 500_500_000));
/// // 990 us, and at most 0.79 % more.
/// let p99 = now.value_at_quantile(0.99).expect("values were recorded");
/// assert!((990_000..=997_900).contains(&p99));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// **Cost**: a record costs two additions to a [`PerCpuCounter`](super::PerCpuCounter), and the
/// search for the bucket. The search is some shifts, or a binary search of the bounds. A snapshot
/// reads 16 bytes per bucket. In each group of 32 buckets that has slots, it also reads 8 bytes per
/// bucket and CPU.
///
/// **Memory**: a histogram uses as much as a [`CounterVec`] that has one counter more than there
/// are buckets. A group of 32 buckets gets per-CPU memory once a second CPU records there, or after
/// 256 records. [`Buckets::log_linear`] has a table of sizes.
///
/// **Signals**: a record is async-signal-safe. A snapshot, a drain and `Debug` allocate, so a
/// handler must not call them.
///
/// **Fork, no memory**: see [`CounterVec`]. A forked child may find a record's count
/// without its value in the sum, or the other way round.
pub struct Histogram<W: World = Native> {
    buckets: Buckets,
    counters: CounterVec<W>,
}

constructors!([] Histogram<>, "an empty histogram", buckets: Buckets);

impl<W: World> Histogram<W> {
    /// Creates an empty histogram whose slots come from this pool.
    pub fn from_pool(pool: &PerCpuPool<W>, buckets: Buckets) -> Self {
        Histogram { counters: CounterVec::from_pool(pool, 1 + buckets.number()), buckets }
    }

    /// Records a value. The record is relaxed, so it publishes no other writes.
    #[inline]
    pub fn record(&self, value: u64) {
        self.record_n(value, 1);
    }

    /// Records a value `n` times, at the cost of one record. Counts and the sum wrap.
    #[inline]
    pub fn record_n(&self, value: u64, n: u64) {
        self.counters.add(1 + self.buckets.index(value), n.cast_signed());
        self.counters.add(SUM, value.wrapping_mul(n).cast_signed());
    }

    /// Returns the number of values in each bucket, and their sum.
    ///
    /// The snapshot includes all records that happened before the call. A concurrent record may or
    /// may not be included. Its value may be in the sum without being counted, or the other way
    /// round. The buckets are read one after the other. The snapshot's
    /// [count](HistogramSnapshot::count) is always the sum of its buckets.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot::of(&self.buckets, self.counters.read_exact())
    }

    /// Returns a snapshot, and subtracts it from the histogram. No record is lost. Its count is in
    /// the result of one call, or in a later snapshot. The same holds for its value. If the record
    /// is concurrent with a drain, the count and the value may be in the results of two calls. Use
    /// `drain` to report an interval.
    ///
    /// ```
    /// use coreline::counter::{Buckets, Histogram};
    ///
    /// let sizes = Histogram::new(Buckets::bounds([64, 4096])?)?;
    /// sizes.record_n(100, 3);
    /// assert_eq!((sizes.drain().count(), sizes.snapshot().count()), (3, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self) -> HistogramSnapshot {
        HistogramSnapshot::of(&self.buckets, self.counters.drain())
    }

    /// Returns whether the bucket of this value has a slot for each CPU, rather than one shared
    /// word.
    pub fn is_spread(&self, value: u64) -> bool {
        self.counters.is_spread(1 + self.buckets.index(value))
    }
}

impl_debug!([W: World] Histogram<W> as it (it.snapshot()));

/// The error for two histograms with different [`Buckets`], whose counts cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the histograms have different buckets: merge only histograms with equal buckets")]
pub struct DifferentBuckets;

/// The content of a [`Histogram`] at one time.
///
/// ```
/// use coreline::counter::{Buckets, Histogram};
///
/// let sizes = Histogram::new(Buckets::bounds([64, 4096])?)?;
/// [10, 64, 65, 5000].map(|bytes| sizes.record(bytes));
/// let now = sizes.snapshot();
/// assert_eq!(now.buckets().collect::<Vec<_>>(), [(64, 2), (4096, 1), (u64::MAX, 1)]);
/// assert_eq!((now.min(), now.value_at_quantile(0.5)), (Some(0), Some(64)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    buckets: Buckets,
    counts: Box<[u64]>,
    count: u64,
    sum: u64,
}

impl HistogramSnapshot {
    fn of(buckets: &Buckets, counters: Vec<i64>) -> Self {
        let sum = counters[SUM].cast_unsigned();
        let counts: Box<[u64]> = counters[SUM + 1..].iter().map(|it| it.cast_unsigned()).collect();
        let count = counts.iter().copied().fold(0, u64::wrapping_add);
        HistogramSnapshot { buckets: buckets.clone(), counts, count, sum }
    }

    /// Returns the wrapping number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the exact wrapping sum of the values. A sum of nanoseconds wraps after 584 years.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the greatest value and the count of each bucket, in order. The greatest value of the
    /// last bucket is `u64::MAX`. For Prometheus, whose counts are cumulative, add the counts of
    /// all earlier buckets.
    pub fn buckets(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        let bucket = |(index, count): (usize, &u64)| (self.buckets.range(index).1, *count);
        self.counts.iter().enumerate().map(bucket)
    }

    /// Returns the value at a quantile from 0.0 to 1.0. The median is at 0.5. The result is the
    /// greatest value of the bucket in which the exact value lies, or `None` if there are no
    /// values. A quantile below 0.0 or a NaN counts as 0.0, and a quantile above 1.0 counts as 1.0.
    ///
    /// The result is never lower than the exact value. It exceeds the exact value by less than the
    /// width of the bucket. With [log-linear](Buckets::log_linear) buckets of b bits, the excess is
    /// less than one part in 2^(b - 1). With more than 2^53 values, the rank is rounded to a
    /// floating-point number.
    pub fn value_at_quantile(&self, quantile: f64) -> Option<u64> {
        // Of 0.07 and 100 values the rank is 7, although 0.07 is represented by a greater number.
        // The conversion saturates; of a NaN it is 0.
        let rank = match quantile >= 1.0 {
            true => self.count,
            false => (quantile.next_down() * self.count as f64).ceil() as u64,
        };
        let rank = rank.min(self.count).max(1);
        let mut left = rank;
        let reaches = |count: &u64| {
            let ends = *count >= left;
            left = left.saturating_sub(*count);
            ends
        };
        let index = self.counts.iter().position(reaches)?;
        Some(self.buckets.range(index).1)
    }

    /// Returns a lower bound of all values, or `None` if there are no values. The bound is the
    /// lowest value of the first bucket that is not empty.
    pub fn min(&self) -> Option<u64> {
        let first = self.counts.iter().position(|count| *count > 0)?;
        Some(self.buckets.range(first).0)
    }

    /// Returns an upper bound of all values, or `None` if there are no values. The bound is the
    /// greatest value of the last bucket that is not empty.
    pub fn max(&self) -> Option<u64> {
        let last = self.counts.iter().rposition(|count| *count > 0)?;
        Some(self.buckets.range(last).1)
    }

    /// Adds the counts and the sum of another snapshot to this one, wrapping.
    ///
    /// # Errors
    ///
    /// [`DifferentBuckets`] if the other snapshot has different buckets. Then nothing is added.
    pub fn merge(&mut self, other: &HistogramSnapshot) -> Result<(), DifferentBuckets> {
        if self.buckets != other.buckets {
            return Err(DifferentBuckets);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.wrapping_add(*theirs);
        }
        self.count = self.count.wrapping_add(other.count);
        self.sum = self.sum.wrapping_add(other.sum);
        Ok(())
    }
}

impl_debug!([] HistogramSnapshot as it {
    count: it.count, sum: it.sum, min: it.min(), median: it.value_at_quantile(0.5), max: it.max(),
    ..
});
