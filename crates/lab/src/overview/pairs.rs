//! What a common operation takes on this machine: by what std has, and by the library's type.
//!
//! Two threads on two CPUs do the same for a while, at the same time; a call goes from the one to
//! the other. A time is that of one thread's operation. Sides take turns, so a slow spell of the
//! machine meets all. How long threads waited for their CPUs decides which samples count, never the
//! time that was measured: those that waited least.

use std::hint::black_box;
use std::iter;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, mpsc};
use std::time::{Duration, Instant};

use coreline::mask::Versioned;
use coreline::percpu::{PerCpu, Word64};
use coreline::world::{JoinHandle, Native, Placement, SpawnError, Threads};
use coreline::{CpuId, CpuSet, Mutex, ObjectCache, PerCpuCounter, Workers};
use coreline_scenarios::RunError;
use coreline_world::native::{probe, run_queue_wait, was_interrupted};
use serde::Serialize;

use crate::disturbance;
use crate::error::Error;
use crate::progress::Whole;
use crate::run::median;
use crate::text;

/// How long the threads of a sample go on.
const SPAN: Duration = Duration::from_millis(20);

/// So many operations between two looks at the clock.
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

/// The time of an operation.
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

/// Where the threads run.
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

    /// In words.
    pub(super) fn shown(&self) -> String {
        let threads = text::counted(self.cpus.len(), "thread");
        format!("{threads} on {}", text::cpus(self.cpus()))
    }

    fn for_about(&self, span: Duration) -> u64 {
        (self.turns * span.as_nanos() as u64 / 1000).max(1)
    }
}

/// Computes for a while.
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

/// A sample: the time of an operation, and which part of the time threads waited for a CPU.
struct Sample {
    ns: f64,
    /// In nanoseconds; 0 where the kernel does not say.
    waited: u64,
    lasted: u64,
}

type Side = (&'static str, fn(&Place) -> Result<Sample, Error>);

/// All pairs.
const PAIRS: [(&str, [Side; 2]); 5] = [
    ("a counter", [("AtomicU64", atomic), ("PerCpuCounter", counter)]),
    ("a lock, 100 ns", [("std::sync::Mutex", std_mutex), ("coreline::Mutex", mutex)]),
    ("a value, read", [("RwLock<Arc<T>>", rwlock), ("Versioned<T>", versioned)]),
    ("4 KiB, a counter", [("malloc and free", made_anew), ("ObjectCache", object_cache)]),
    ("a call and reply", [("mpsc channels", channels), ("Workers", workers)]),
];

/// Measures all pairs.
pub(super) fn measure(place: &Place, whole: Whole) -> Result<Vec<Pair>, Error> {
    let bar = whole.progress("operations, here", KEPT);
    let usable = |(subject, sides): &(&'static str, [Side; 2])| {
        let takes_two = *subject == PAIRS[4].0;
        (*subject, (!takes_two || place.cpus.len() > 1).then_some(*sides))
    };
    let pairs: Vec<_> = PAIRS.iter().map(usable).collect();
    let mut samples: Vec<[Vec<Sample>; 2]> = pairs.iter().map(|_| Default::default()).collect();
    for round in 0..TRIED {
        for ((_, sides), samples) in pairs.iter().zip(&mut samples) {
            for ((_, side), samples) in sides.iter().flatten().zip(samples) {
                samples.push(side(place)?);
            }
            if was_interrupted() {
                return Ok(Vec::new());
            }
        }
        bar.inc(1);
        let are_enough = |of: &Vec<Sample>| of.is_empty() || calm(of) >= KEPT;
        if round + 1 >= KEPT && samples.iter().flatten().all(are_enough) {
            break;
        }
    }
    bar.finish_and_clear();
    let pair = |((subject, sides), samples): ((&'static str, Option<[Side; 2]>), _)| {
        let [before, after]: [Vec<Sample>; 2] = samples;
        let sides = sides.map(|[(one, _), (other, _)]| [timed(one, before), timed(other, after)]);
        Pair { subject, sides }
    };
    Ok(pairs.into_iter().zip(samples).map(pair).collect())
}

impl Sample {
    fn is_disturbed(&self) -> bool {
        disturbance::is_disturbed(Some(self.waited), self.lasted)
    }
}

fn calm(samples: &[Sample]) -> usize {
    samples.iter().filter(|sample| !sample.is_disturbed()).count()
}

/// Of the samples that waited least.
fn timed(name: &'static str, mut samples: Vec<Sample>) -> Timed {
    samples.sort_by_key(|sample| sample.waited);
    samples.truncate(KEPT);
    let disturbed = samples.iter().any(Sample::is_disturbed);
    let samples: Vec<f64> = samples.iter().map(|sample| sample.ns).collect();
    Timed { name, ns: median(&samples), samples, disturbed }
}

fn broken(broken: RunError) -> Error {
    Error::BrokenNatively { scenario: "the pair", broken }
}

fn spawn_error(error: SpawnError) -> Error {
    broken(RunError::Spawn(error))
}

fn lack(what: impl std::fmt::Display) -> Error {
    broken(RunError::Lack(what.to_string()))
}

/// A thread for each of the operations, on a CPU each, all at the same time.
fn together<F>(place: &Place, operations: impl Iterator<Item = F>) -> Result<Sample, Error>
where
    F: FnMut() + Send + 'static,
{
    let threads = place.cpus.len();
    let arrived = Arc::new(AtomicUsize::new(0));
    let start = |(&cpu, mut operation): (&CpuId, F)| {
        let arrived = Arc::clone(&arrived);
        let thread = move || {
            // Relaxed: a meeting, and nothing else is handed over. A thread that could not be
            // started leaves the others here; they give up.
            arrived.fetch_add(1, Ordering::Relaxed);
            let asked = Instant::now();
            while arrived.load(Ordering::Relaxed) < threads && asked.elapsed() < SPAN {
                std::thread::yield_now();
            }
            let waited = run_queue_wait();
            let (start, mut done) = (Instant::now(), 0u64);
            let lasted = loop {
                (0..BATCH).for_each(|_| operation());
                done += BATCH;
                let lasted = start.elapsed();
                if lasted >= SPAN {
                    break lasted.as_nanos() as u64;
                }
            };
            let waited = run_queue_wait().zip(waited).map_or(0, |(now, then)| now - then);
            (done, lasted, waited)
        };
        Native::spawn(Placement::On(cpu), thread)
    };
    let started: Vec<_> = place.cpus.iter().zip(operations).map(start).collect();
    // All that did start are waited for, whatever became of the others.
    let ended: Vec<_> = started.into_iter().map(|thread| thread.map(JoinHandle::join)).collect();
    let ended: Vec<(u64, u64, u64)> =
        ended.into_iter().collect::<Result<_, _>>().map_err(spawn_error)?;
    let sum = |of: fn(&(u64, u64, u64)) -> u64| ended.iter().map(of).sum::<u64>();
    let most = ended.iter().map(|it| it.2).max().unwrap_or(0);
    let (done, lasted) = (sum(|it| it.0), sum(|it| it.1));
    Ok(Sample {
        ns: lasted as f64 / done.max(1) as f64,
        waited: most,
        lasted: lasted / ended.len().max(1) as u64,
    })
}

fn atomic(place: &Place) -> Result<Sample, Error> {
    let total = Arc::new(AtomicU64::new(0));
    // Relaxed: a counter.
    let add = |total: Arc<AtomicU64>| move || _ = total.fetch_add(1, Ordering::Relaxed);
    together(place, iter::repeat_with(|| add(Arc::clone(&total))))
}

fn counter(place: &Place) -> Result<Sample, Error> {
    let total = Arc::new(PerCpuCounter::const_new());
    let add = |total: Arc<PerCpuCounter>| move || total.add(1);
    together(place, iter::repeat_with(|| add(Arc::clone(&total))))
}

fn std_mutex(place: &Place) -> Result<Sample, Error> {
    let (held, between) = (place.for_about(HELD), place.for_about(BETWEEN));
    let lock = Arc::new(std::sync::Mutex::new(0u64));
    together(
        place,
        iter::repeat_with(|| {
            let lock = Arc::clone(&lock);
            move || {
                let mut value = lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                *value += 1;
                work(held);
                drop(value);
                work(between);
            }
        }),
    )
}

fn mutex(place: &Place) -> Result<Sample, Error> {
    let (held, between) = (place.for_about(HELD), place.for_about(BETWEEN));
    let lock = Arc::new(Mutex::new(0u64));
    together(
        place,
        iter::repeat_with(|| {
            let lock = Arc::clone(&lock);
            move || {
                let mut value = lock.lock();
                *value += 1;
                work(held);
                drop(value);
                work(between);
            }
        }),
    )
}

fn rwlock(place: &Place) -> Result<Sample, Error> {
    let value = Arc::new(RwLock::new(Arc::new(1u64)));
    together(
        place,
        iter::repeat_with(|| {
            let value = Arc::clone(&value);
            move || {
                let value = value.read().unwrap_or_else(|poisoned| poisoned.into_inner());
                black_box(**value);
            }
        }),
    )
}

fn versioned(place: &Place) -> Result<Sample, Error> {
    let value = Versioned::new(1u64);
    together(
        place,
        iter::repeat_with(|| {
            let mut reader = value.reader();
            move || _ = black_box(*reader.enter().get())
        }),
    )
}

/// A counter for each CPU on a line of its own, as programs write it by hand.
#[repr(align(64))]
struct Padded(AtomicU64);

fn made_anew(place: &Place) -> Result<Sample, Error> {
    let cpus = place.cpus.len();
    together(
        place,
        iter::repeat_with(|| {
            move || {
                let buffer: Vec<u8> = Vec::with_capacity(BUFFER);
                let counters: Vec<Padded> = (0..cpus).map(|_| Padded(AtomicU64::new(0))).collect();
                // Relaxed: a counter.
                counters[0].0.fetch_add(1, Ordering::Relaxed);
                black_box((buffer, counters));
            }
        }),
    )
}

/// What an object keeps from one life to the next.
struct Session {
    buffer: Vec<u8>,
    counter: PerCpu<Word64>,
}

fn object_cache(place: &Place) -> Result<Sample, Error> {
    let make = || {
        let counter = PerCpu::new(|| Word64::new(0))?;
        Ok::<_, coreline::percpu::PoolError>(Session {
            buffer: Vec::with_capacity(BUFFER),
            counter,
        })
    };
    let cache = ObjectCache::<Session>::builder("overview").build(make);
    let cache = cache.map_err(lack)?;
    let cache = Arc::new(cache);
    // The first life of each constructs: it says whether that works at all.
    cache.get().map_err(lack)?;
    together(
        place,
        iter::repeat_with(|| {
            let cache = Arc::clone(&cache);
            move || {
                if let Ok(session) = cache.get() {
                    session.counter.field(|word| word).add(1);
                    black_box(session.buffer.as_ptr());
                }
            }
        }),
    )
}

/// Calls from the first CPU to the second one.
fn channels(place: &Place) -> Result<Sample, Error> {
    let ((ask, asked), (reply, replied)) = (mpsc::channel::<u64>(), mpsc::channel::<u64>());
    let serve = move || asked.iter().take_while(|it| reply.send(it + 1).is_ok()).count();
    let thread = Native::spawn(Placement::On(place.cpus[1]), serve).map_err(spawn_error)?;
    let caller = Place { cpus: place.cpus[..1].to_vec(), turns: place.turns };
    let call = move || {
        if ask.send(1).is_ok() {
            _ = black_box(replied.recv());
        }
    };
    let sample = together(&caller, iter::once(call));
    // The caller's end of the channel is gone with its thread.
    thread.join();
    sample
}

fn workers(place: &Place) -> Result<Sample, Error> {
    let callee = place.cpus[1];
    let workers = Workers::builder().cpus(CpuSet::from_iter([callee])).start();
    let workers = workers.map_err(lack)?;
    let caller = Place { cpus: place.cpus[..1].to_vec(), turns: place.turns };
    together(&caller, iter::once(move || _ = black_box(workers.call_on(callee, || 1u64).ok())))
}

/// A pair that nobody measured.
#[cfg(test)]
pub(super) fn made_up() -> Pair {
    let timed = |name| timed(name, vec![Sample { ns: 1.0, waited: 0, lasted: 1 }]);
    Pair { subject: "it", sides: Some([timed("one"), timed("other")]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ns: f64, waited: u64) -> Sample {
        Sample { ns, waited, lasted: SPAN.as_nanos() as u64 }
    }

    #[test]
    fn samples_that_waited_least_count_however_slow_they_are() {
        let calm = (0..KEPT).map(|it| sample(100.0 + it as f64, 0));
        let timed = timed("it", calm.chain([sample(1.0, 20_000_000)]).collect());
        assert_eq!((timed.ns, timed.disturbed, timed.samples.len()), (102.0, false, KEPT));
    }

    #[test]
    fn a_machine_that_is_never_calm_has_a_figure_and_a_mark() {
        let busy = (0..TRIED as u64).map(|it| sample(it as f64, 20_000_000 - it));
        let timed = timed("it", busy.collect());
        assert_eq!((timed.ns, timed.disturbed), (4.0, true), "the five that waited least");
    }

    #[test]
    fn every_side_counts_operations() {
        let place = Place::here().unwrap();
        let sides = PAIRS.iter().take(4).flat_map(|(_, sides)| sides);
        let two = PAIRS[4].1.iter().filter(|_| place.cpus.len() > 1);
        for (name, side) in sides.chain(two) {
            let ns = side(&place).unwrap().ns;
            assert!(ns > 0.0 && ns < SPAN.as_nanos() as f64, "{name}: {ns}");
        }
    }
}
