//! The forms of the class `counters` that record values: log-linear buckets beside hdrhistogram,
//! and bounds beside prometheus-client.
//!
//! Every candidate keeps a count for each bucket. Ours and prometheus-client also keep the sum of
//! the values. Each record is of one of eight values, from a microsecond to 100 milliseconds.
//!
//! hdrhistogram's recorders are one for each thread, found before the loop: better than in a
//! program whose threads are not its own. To read, a program waits until all of them recorded.
//!
//! Log-linear, the goal is relative to such a recorder, and not to the mutex, which any histogram
//! without a lock beats where threads meet. Both find a bucket. A recorder then adds to its own
//! memory, and updates a total, the least and the greatest value. Ours adds to a count and the sum,
//! by two restartable sections. A section costs a few instructions more than an addition. So the
//! two are within a factor on each processor. It is two, because processors differ in how fast they
//! forward a plain store to the next load.

use std::hint::black_box;
use std::sync::{Arc, Mutex};

use coreline::counter::{Buckets, Histogram};
use coreline::{IndexBy, Lacking};
use hdrhistogram::sync::{Recorder, SyncHistogram};
use prometheus_client::metrics::histogram::Histogram as Prometheus;

use super::{Candidate, Form, Goal, Most, Params, Role, Subject, candidate, rounds};

const LOCKED: &str = "std Mutex<hdrhistogram>, 2 digits";
const RECORDER: &str = "hdrhistogram Recorder, a thread's own";
const PROMETHEUS: &str = "prometheus-client Histogram, 11 bounds";

/// The goals, set in advance, with two threads: times a recorder, and times a rival that any thread
/// can use.
const RECORDER_MOST: f64 = 2.0;
const PROMETHEUS_MOST: f64 = 0.5;

/// The most threads.
const THREADS: usize = 8;

/// In nanoseconds.
const VALUES: [u64; 8] = [1_130, 2_900, 7_450, 31_000, 88_000, 640_000, 9_200_000, 104_000_000];

/// An hour: hdrhistogram needs to know.
const HIGHEST: u64 = 3_600_000_000_000;

pub(super) fn forms() -> Vec<Form> {
    let ours = ["coreline Histogram log-linear, 8 bits", "coreline Histogram, 11 bounds"];
    let by_cid = ["coreline Histogram log-linear, by cid", "coreline Histogram, bounds by cid"];
    let log_linear = vec![
        candidate(ours[0], Role::Ours, || histogram(IndexBy::Cpu, log_linear())),
        candidate(by_cid[0], Role::Ours, || histogram(IndexBy::KernelCid, log_linear())),
        candidate(LOCKED, Role::Rival, || Ok(Arc::new(Mutex::new(hdr())))),
        candidate(RECORDER, Role::Rival, || Ok(Arc::new(Recorders::new()))),
    ];
    let bounds = vec![
        candidate(ours[1], Role::Ours, || histogram(IndexBy::Cpu, bounds())),
        candidate(by_cid[1], Role::Ours, || histogram(IndexBy::KernelCid, bounds())),
        candidate(PROMETHEUS, Role::Rival, || Ok(Arc::new(prometheus()))),
    ];
    vec![
        form("histogram-log-linear", log_linear, ours[0], (RECORDER_MOST, RECORDER)),
        form("histogram-bounds", bounds, ours[1], (PROMETHEUS_MOST, PROMETHEUS)),
    ]
}

/// With the goal of a candidate: at most this many times the reference.
fn form(
    title: &'static str,
    candidates: Vec<Candidate>,
    ours: &str,
    (most, reference): (f64, &str),
) -> Form {
    let most = Most::Times(most, reference.to_owned());
    Form {
        title,
        threads: vec![1, 2, THREADS],
        window: None,
        params: Params::default(),
        candidates,
        reference: reference.to_owned(),
        goals: vec![Goal { threads: Some(2), ..Goal::everywhere(ours, most) }],
    }
}

/// 5 us to 1 s, in nanoseconds: as many as the default bounds of Prometheus' client for Go.
const BOUNDS: [u64; 11] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
];

fn bounds() -> Buckets {
    Buckets::bounds(BOUNDS).expect("they rise")
}

fn log_linear() -> Buckets {
    Buckets::log_linear(8).expect("there are such")
}

fn histogram(by: IndexBy, buckets: Buckets) -> Result<Arc<dyn Subject>, Lacking> {
    Ok(Arc::new(Histogram::indexed_by(by, buckets)?))
}

impl Subject for Histogram {
    fn run(&self, _: usize, ops: u64) {
        rounds(ops, |number| self.record(black_box(VALUES[number])));
    }

    fn total(&self) -> Option<u64> {
        Some(self.snapshot().count())
    }
}

fn hdr() -> hdrhistogram::Histogram<u64> {
    hdrhistogram::Histogram::new_with_bounds(1, HIGHEST, 2).expect("2 digits of an hour")
}

impl Subject for Mutex<hdrhistogram::Histogram<u64>> {
    fn run(&self, _: usize, ops: u64) {
        let record = |value| self.lock().expect("no thread panics").record(value);
        rounds(ops, |number| record(black_box(VALUES[number])).expect("below an hour"));
    }

    fn total(&self) -> Option<u64> {
        Some(self.lock().expect("no thread panics").len())
    }
}

struct Recorders {
    all: Mutex<SyncHistogram<u64>>,
    /// By thread: made by its first sample after a total.
    own: [Mutex<Option<Recorder<u64>>>; THREADS],
}

impl Recorders {
    fn new() -> Self {
        Recorders { all: Mutex::new(hdr().into_sync()), own: Default::default() }
    }
}

impl Subject for Recorders {
    fn run(&self, thread: usize, ops: u64) {
        let mut own = self.own[thread].lock().expect("no thread panics");
        let own = own.get_or_insert_with(|| self.all.lock().expect("no thread panics").recorder());
        rounds(ops, |number| own.record(black_box(VALUES[number])).expect("below an hour"));
    }

    fn total(&self) -> Option<u64> {
        // A recorder that is dropped hands over what it has.
        self.own.iter().for_each(|own| drop(own.lock().expect("no thread panics").take()));
        let mut all = self.all.lock().expect("no thread panics");
        all.refresh();
        Some(all.len())
    }
}

fn prometheus() -> Prometheus {
    Prometheus::new(BOUNDS.map(|bound| bound as f64))
}

impl Subject for Prometheus {
    fn run(&self, _: usize, ops: u64) {
        rounds(ops, |number| self.observe(black_box(VALUES[number] as f64)));
    }

    fn total(&self) -> Option<u64> {
        Some(self.count())
    }
}
