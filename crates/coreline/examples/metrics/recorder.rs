//! A recorder for the `metrics` facade: what a program or a library of it says by `counter!`,
//! `gauge!` and `histogram!` is kept per CPU.
//!
//! | of the facade | here |
//! |---|---|
//! | a counter | a [`Total`], and the highest of what was set |
//! | a gauge | one word that all CPUs share: it is set, so it cannot be summed |
//! | a histogram | a [`CounterSet`] of buckets, sum, least and greatest |

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coreline::counter::{Max, Min, PerCpuFold, Sum, Total};
use coreline::{CounterSet, Mutex};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

use crate::instruments::{BOUNDS, bucket};

/// See the module.
#[derive(Default)]
pub(crate) struct PerCpuRecorder {
    counters: Mutex<HashMap<Key, Arc<PerCpuTotal>>>,
    gauges: Mutex<HashMap<Key, Arc<Word>>>,
    histograms: Mutex<HashMap<Key, Arc<PerCpuHistogram>>>,
}

/// What was recorded since the last report; gauges as they are.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) counters: HashMap<String, u64>,
    pub(crate) gauges: HashMap<String, f64>,
    pub(crate) histograms: HashMap<String, Distribution>,
}

/// What came to a histogram.
#[derive(Debug, PartialEq)]
pub(crate) struct Distribution {
    pub(crate) buckets: [i64; BOUNDS.len() + 1],
    pub(crate) sum: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

#[derive(Default)]
struct PerCpuTotal {
    added: Total,
    set: PerCpuFold<Max<u64>>,
}

#[derive(Default)]
struct Word(AtomicU64);

#[derive(Default)]
struct PerCpuHistogram {
    buckets: CounterSet<{ BOUNDS.len() + 1 }>,
    sum: PerCpuFold<Sum<f64>>,
    least: PerCpuFold<Min<f64>>,
    greatest: PerCpuFold<Max<f64>>,
}

impl CounterFn for PerCpuTotal {
    fn increment(&self, value: u64) {
        self.added.add(value);
    }

    fn absolute(&self, value: u64) {
        self.set.record(value);
    }
}

impl Word {
    fn change(&self, change: impl Fn(f64) -> f64) {
        let change = |bits| Some(change(f64::from_bits(bits)).to_bits());
        // Relaxed: a gauge carries nothing but itself. It always changes.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }
}

impl GaugeFn for Word {
    fn increment(&self, value: f64) {
        self.change(|old| old + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|old| old - value);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for PerCpuHistogram {
    fn record(&self, value: f64) {
        self.buckets.add(bucket(value), 1);
        self.sum.record(value);
        self.least.record(value);
        self.greatest.record(value);
    }
}

impl PerCpuRecorder {
    /// What was recorded since the last report. Each record is in one report.
    pub(crate) fn report(&self) -> Report {
        let counters = self.counters.lock();
        let gauges = self.gauges.lock();
        let histograms = self.histograms.lock();
        Report {
            counters: named(&counters, |it| it.added.drain().max(it.set.read())),
            gauges: named(&gauges, |it| f64::from_bits(it.0.load(Ordering::Relaxed))),
            histograms: named(&histograms, |it| Distribution {
                buckets: it.buckets.drain(),
                sum: it.sum.drain().expect("sections can be fenced"),
                least: it.least.drain().expect("sections can be fenced"),
                greatest: it.greatest.drain().expect("sections can be fenced"),
            }),
        }
    }
}

fn named<M, V>(metrics: &HashMap<Key, Arc<M>>, value: impl Fn(&M) -> V) -> HashMap<String, V> {
    metrics.iter().map(|(key, metric)| (key.to_string(), value(metric))).collect()
}

fn registered<M: Default>(metrics: &Mutex<HashMap<Key, Arc<M>>>, key: &Key) -> Arc<M> {
    Arc::clone(metrics.lock().entry(key.clone()).or_default())
}

impl Recorder for PerCpuRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(registered(&self.counters, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(registered(&self.gauges, key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(registered(&self.histograms, key))
    }
}
