//! The cost of common operations on this machine: with std, and with the library's type.
//!
//! Two threads on two CPUs do the same for a while, at the same time; a call goes from the one to
//! the other. A time is that of one thread's operation. Sides take turns, so a slow spell of the
//! machine meets all. Which samples count is decided as in all that is measured: see
//! [`disturbance`].

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError, RwLock, mpsc};
use std::time::{Duration, Instant};

use coreline::mask::Versioned;
use coreline::percpu::{PerCpu, PoolError, Word64};
use coreline::world::{Clock, Native};
use coreline::{CpuId, CpuSet, Mutex, ObjectCache, PerCpuCounter, Workers};
use coreline_scenarios::RunError;
use coreline_scenarios::crew::nanos;
use coreline_world::native::{probe, run_queue_wait, was_interrupted};
use serde::Serialize;

use crate::disturbance::{self, Kept, Waits};
use crate::error::Error;
use crate::measure::sample::{Meeting, Part, take};
use crate::progress::Whole;
use crate::run::median;
use crate::text;

/// How long the threads of a sample go on.
const SPAN: Duration = Duration::from_millis(20);

/// The number of operations between two reads of the clock.
const BATCH: u64 = 64;

/// How many samples count, and how many are taken at most where some are disturbed.
const KEPT: usize = 5;
const TRIED: usize = 7;

/// How long a lock is held, and how long a thread does something else before it locks again.
const HELD: Duration = Duration::from_nanos(100);
const BETWEEN: Duration = Duration::from_nanos(400);

/// Bytes that an object has beside its counter.
const BUFFER: usize = 4096;

/// One operation, done in two ways.
#[derive(Debug, Serialize)]
pub(super) struct Pair {
    pub(super) subject: &'static str,
    /// Without the library, and with it; null where it takes more CPUs than there are.
    pub(super) sides: Option<[Timed; 2]>,
}

#[derive(Debug, Serialize)]
pub(super) struct Timed {
    pub(super) name: &'static str,
    /// The median of the samples, in nanoseconds.
    pub(super) ns: f64,
    samples: Vec<f64>,
    /// Whether other programs had the CPUs during some of the samples that count.
    pub(super) disturbed: bool,
}

impl Pair {
    pub(super) fn is_disturbed(&self) -> bool {
        self.sides.iter().flatten().any(|side| side.disturbed)
    }
}

pub(super) struct Place {
    cpus: Vec<CpuId>,
    /// How many turns of [`work`] take a microsecond.
    turns: u64,
}

impl Place {
    /// The first two CPUs that the process may use; one where there is one.
    pub(super) fn here() -> Result<Place, Error> {
        let allowed = probe().allowed.map_err(Error::NoCpus)?;
        Ok(Place { cpus: allowed.iter().take(2).collect(), turns: turns() })
    }

    pub(super) fn cpus(&self) -> CpuSet {
        self.cpus.iter().copied().collect()
    }

    pub(super) fn shown(&self) -> String {
        let threads = text::counted(self.cpus.len(), "thread");
        format!("{threads} on {}", text::cpus(self.cpus()))
    }

    fn for_about(&self, span: Duration) -> u64 {
        (self.turns * span.as_nanos() as u64 / 1000).max(1)
    }
}

fn work(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// How many turns of [`work`] take a microsecond: by the fastest of several spells, as others may
/// have the CPU in between.
fn turns() -> u64 {
    const TURNS: u64 = 50_000;
    let spell = |_| {
        let start = Instant::now();
        work(TURNS);
        start.elapsed().as_nanos().max(1) as u64
    };
    let fastest = (0..10).map(spell).min().unwrap_or(1);
    (TURNS * 1000 / fastest).max(1)
}

/// How long threads waited for their CPUs, and the nanoseconds of an operation.
type Sample = (Waits, f64);

/// A way to do an operation: its name, and a sample of it.
type Side = (&'static str, fn(&Place) -> Result<Sample, Error>);

/// All pairs. The last one takes two CPUs.
const PAIRS: [(&str, [Side; 2]); 5] = [
    ("a counter", [("AtomicU64", atomic), ("PerCpuCounter", counter)]),
    ("a lock, 100 ns", [("std::sync::Mutex", std_mutex), ("coreline::Mutex", mutex)]),
    ("a value, read", [("RwLock<Arc<T>>", rwlock), ("Versioned<T>", versioned)]),
    ("a 4 KiB buffer", [("malloc and free", allocate), ("ObjectCache", object_cache)]),
    ("a call and reply", [("mpsc channels", channels), ("Workers", workers)]),
];

pub(super) fn measure(place: &Place, whole: Whole) -> Result<Vec<Pair>, Error> {
    let bar = whole.progress("operations, here", KEPT);
    let usable = if place.cpus.len() > 1 { PAIRS.len() } else { PAIRS.len() - 1 };
    let mut samples: Vec<[Vec<Sample>; 2]> = PAIRS.iter().map(|_| Default::default()).collect();
    for round in 0..TRIED {
        for ((_, sides), samples) in PAIRS[..usable].iter().zip(&mut samples) {
            for ((_, side), samples) in sides.iter().zip(samples) {
                samples.push(side(place)?);
            }
            if was_interrupted() {
                return Ok(Vec::new());
            }
        }
        bar.inc(1);
        let are_enough = |of: &Vec<Sample>| {
            of.is_empty() || of.iter().filter(|(waits, _)| !waits.is_disturbed).count() >= KEPT
        };
        if round + 1 >= KEPT && samples.iter().flatten().all(are_enough) {
            break;
        }
    }
    bar.finish();
    let mut pairs = Vec::new();
    for (number, ((subject, sides), samples)) in PAIRS.into_iter().zip(samples).enumerate() {
        let ([(one, _), (other, _)], [before, after]) = (sides, samples);
        let sides = (number < usable).then(|| [timed(one, before), timed(other, after)]);
        pairs.push(Pair { subject, sides });
    }
    Ok(pairs)
}

fn timed(name: &'static str, taken: Vec<Sample>) -> Timed {
    let Kept { samples, are_disturbed, .. } = disturbance::keep(taken, KEPT);
    Timed { name, ns: median(&samples), samples, disturbed: are_disturbed }
}

fn lack(what: impl std::fmt::Display) -> Error {
    Error::BrokenNatively { scenario: "the pair", broken: RunError::Lack(what.to_string()) }
}

/// A sample of these CPUs, with one thread on each.
fn sample(cpus: &[CpuId], part: Arc<Part>) -> Result<Sample, Error> {
    let taken = take(cpus, &part).map_err(Error::Measure)?;
    taken.ok_or_else(|| lack("no thread completed an operation"))
}

/// Does something again and again; nanoseconds of each.
fn repeat(mut operation: impl FnMut()) -> f64 {
    let (start, mut done) = (Instant::now(), 0u64);
    loop {
        (0..BATCH).for_each(|_| operation());
        done += BATCH;
        let lasted = start.elapsed();
        if lasted >= SPAN {
            return lasted.as_nanos() as f64 / done as f64;
        }
    }
}

/// All threads begin together, and do this again and again.
fn together(place: &Place, operation: impl Fn() + Send + Sync + 'static) -> Result<Sample, Error> {
    let part = move |_, meeting: &Meeting| {
        meeting.all(1);
        Some(repeat(&operation))
    };
    sample(&place.cpus, Arc::new(part))
}

fn atomic(place: &Place) -> Result<Sample, Error> {
    let total = AtomicU64::new(0);
    // Relaxed: a counter.
    together(place, move || _ = total.fetch_add(1, Ordering::Relaxed))
}

fn counter(place: &Place) -> Result<Sample, Error> {
    let total = PerCpuCounter::const_new();
    together(place, move || total.add(1))
}

fn std_mutex(place: &Place) -> Result<Sample, Error> {
    let (held, between) = (place.for_about(HELD), place.for_about(BETWEEN));
    let lock = StdMutex::new(0u64);
    together(place, move || {
        let mut value = lock.lock().unwrap_or_else(PoisonError::into_inner);
        *value += 1;
        work(held);
        drop(value);
        work(between);
    })
}

fn mutex(place: &Place) -> Result<Sample, Error> {
    let (held, between) = (place.for_about(HELD), place.for_about(BETWEEN));
    let lock = Mutex::new(0u64);
    together(place, move || {
        let mut value = lock.lock();
        *value += 1;
        work(held);
        drop(value);
        work(between);
    })
}

fn rwlock(place: &Place) -> Result<Sample, Error> {
    let value = RwLock::new(Arc::new(1u64));
    together(place, move || {
        let value = value.read().unwrap_or_else(PoisonError::into_inner);
        black_box(**value);
    })
}

fn versioned(place: &Place) -> Result<Sample, Error> {
    let value = Versioned::new(1u64);
    let part = move |_, meeting: &Meeting| {
        let reader = value.reader();
        meeting.all(1);
        Some(repeat(|| _ = black_box(*reader.enter().get())))
    };
    sample(&place.cpus, Arc::new(part))
}

/// A counter for each CPU on a line of its own, as programs write it by hand.
#[repr(align(64))]
struct Padded(AtomicU64);

fn allocate(place: &Place) -> Result<Sample, Error> {
    let cpus = place.cpus.len();
    together(place, move || {
        let buffer: Vec<u8> = Vec::with_capacity(BUFFER);
        let counters: Vec<Padded> = (0..cpus).map(|_| Padded(AtomicU64::new(0))).collect();
        // Relaxed: a counter.
        counters[0].0.fetch_add(1, Ordering::Relaxed);
        black_box((buffer, counters));
    })
}

/// The data that an object keeps from one life to the next.
struct Session {
    buffer: Vec<u8>,
    counter: PerCpu<Word64>,
}

fn object_cache(place: &Place) -> Result<Sample, Error> {
    let make = || {
        let counter = PerCpu::new(|| Word64::new(0))?;
        Ok::<_, PoolError>(Session { buffer: Vec::with_capacity(BUFFER), counter })
    };
    let cache = ObjectCache::<Session>::builder("overview").build(make).map_err(lack)?;
    // The first life constructs: it says whether that works at all.
    cache.get().map_err(lack)?;
    together(place, move || {
        if let Ok(session) = cache.get() {
            session.counter.field(|word| word).add(1);
            black_box(session.buffer.as_ptr());
        }
    })
}

/// Calls from the first CPU to the second one, whose thread sleeps between them.
fn channels(place: &Place) -> Result<Sample, Error> {
    let ((ask, asked), (reply, replied)) = (mpsc::channel::<u64>(), mpsc::channel::<u64>());
    let ends = StdMutex::new((Some((ask, replied)), Some((asked, reply))));
    let part = move |number, meeting: &Meeting| {
        let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
        let (caller, callee) = match number {
            0 => (ends.0.take(), None),
            _ => (None, ends.1.take()),
        };
        drop(ends);
        meeting.all(1);
        if let Some((asked, reply)) = callee {
            // Until the caller's end is gone.
            asked.iter().take_while(|it| reply.send(it + 1).is_ok()).for_each(drop);
        }
        caller.map(|(ask, replied)| {
            repeat(|| {
                if ask.send(1).is_ok() {
                    _ = black_box(replied.recv());
                }
            })
        })
    };
    sample(&place.cpus, Arc::new(part))
}

/// The same by a worker, which polls for a while before it sleeps.
fn workers(place: &Place) -> Result<Sample, Error> {
    let callee = place.cpus[1];
    let workers = Workers::builder().cpus(CpuSet::from_iter([callee])).start().map_err(lack)?;
    let part = move |_, meeting: &Meeting| {
        let waited = || workers.call_on(callee, run_queue_wait).ok().flatten();
        let (before, begun) = (waited(), Native::now());
        let ns = repeat(|| _ = black_box(workers.call_on(callee, || 1u64).ok()));
        // The worker takes part, too.
        let waited = waited().zip(before).map(|(after, before)| after.saturating_sub(before));
        meeting.has_started(Waits::of(waited, nanos(begun, Native::now())));
        Some(ns)
    };
    sample(&place.cpus[..1], Arc::new(part))
}

/// A pair for tests, of times that are made up.
#[cfg(test)]
pub(super) fn made_up() -> Pair {
    let timed = |name| timed(name, vec![(Waits::default(), 1.0)]);
    Pair { subject: "it", sides: Some([timed("one"), timed("other")]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_never_calm_has_a_figure_and_a_mark() {
        let waits = |total| Waits { total, is_disturbed: true };
        let busy = (0..TRIED as u64).map(|it| (waits(1000 - it), it as f64));
        let timed = timed("it", busy.collect());
        assert_eq!((timed.ns, timed.disturbed), (4.0, true), "the five that waited least");
    }

    #[test]
    fn every_side_counts_operations() {
        let place = Place::here().unwrap();
        let usable = if place.cpus.len() > 1 { 5 } else { 4 };
        for (name, side) in PAIRS[..usable].iter().flat_map(|(_, sides)| sides) {
            let (_, ns) = side(&place).unwrap();
            assert!(ns > 0.0 && ns < SPAN.as_nanos() as f64, "{name}: {ns}");
        }
    }
}
