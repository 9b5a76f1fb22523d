//! [`HistogramSeries`]: how many values are in each bucket, and their sum.

use std::sync::Arc;

use coreline::IndexBy;
use coreline::counter::{CounterVec, PerCpuFold, Sum};
use coreline::world::{Native, Ordering, Word, World};

use super::{Activity, Late, Warmth, add, change};

pub(crate) struct HistogramSeries<W: World = Native> {
    /// The upper bounds, ascending and finite. One more bucket is for what is above.
    bounds: Arc<[f64]>,
    /// A count for each bucket, until the CPUs have their own.
    counts: Box<[W::U64]>,
    sum: W::U64,
    /// How often a value was no number, in all series of a recorder.
    nans: Arc<W::U64>,
    spread: Late<Spread<W>, W>,
    warmth: Warmth<W>,
    pub(crate) activity: Activity<W>,
}

struct Spread<W: World> {
    counts: CounterVec<W>,
    sum: PerCpuFold<Sum<f64>, W>,
}

/// What a histogram had when it was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counts {
    /// Of each bucket by itself.
    pub(crate) buckets: Vec<u64>,
    pub(crate) sum: f64,
}

impl<W: World> HistogramSeries<W> {
    pub(crate) fn new(bounds: Arc<[f64]>, nans: Arc<W::U64>) -> Self {
        HistogramSeries {
            counts: (0..=bounds.len()).map(|_| W::U64::new_in(0)).collect(),
            bounds,
            sum: W::U64::new_in(0.0_f64.to_bits()),
            nans,
            spread: Late::new(),
            warmth: Warmth::new(),
            activity: Activity::new(),
        }
    }

    pub(crate) fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// Records a value so many times. A NaN is in no bucket and not in the sum.
    #[inline]
    pub(crate) fn record(&self, value: f64, times: u64) {
        if times == 0 {
            return;
        }
        if value.is_nan() {
            add::<W>(&self.nans, times);
        } else {
            let bucket = self.bounds.partition_point(|bound| *bound < value);
            let all = if times == 1 { value } else { value * times as f64 };
            match self.spread.get() {
                Some(spread) => {
                    spread.counts.add(bucket, times.cast_signed());
                    spread.sum.record(all);
                }
                None => self.record_compact(bucket, all, times),
            }
        }
        self.activity.note();
    }

    #[inline(never)]
    fn record_compact(&self, bucket: usize, all: f64, times: u64) {
        add::<W>(&self.counts[bucket], times);
        change::<W>(&self.sum, |old| old + all);
        if self.warmth.add() {
            let counts = CounterVec::new_in(IndexBy::Cpu, self.counts.len());
            let spread = counts
                .and_then(|counts| Ok(Spread { counts, sum: PerCpuFold::new_in(IndexBy::Cpu)? }));
            // Without CPU numbers it stays compact. Of two threads, one discards what it made.
            let _ = spread.map(|spread| self.spread.set(spread));
        }
    }

    pub(crate) fn read(&self) -> Counts {
        // Relaxed, here and below: a metric carries nothing but its own value.
        let word = |word: &W::U64| word.load(Ordering::Relaxed);
        let mut buckets: Vec<_> = self.counts.iter().map(word).collect();
        let mut sum = f64::from_bits(word(&self.sum));
        if let Some(spread) = self.spread.get() {
            let theirs = spread.counts.read_exact().into_iter().map(i64::cast_unsigned);
            buckets.iter_mut().zip(theirs).for_each(|(all, more)| *all = all.wrapping_add(more));
            sum += spread.sum.read();
        }
        Counts { buckets, sum }
    }
}
