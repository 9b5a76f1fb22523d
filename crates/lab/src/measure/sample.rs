//! One sample of a quantity: its threads, and how long they waited for a CPU.
//!
//! Every thread that takes part is judged by its own waits: the threads that a sample has on its
//! CPUs, and the threads that a part starts (see [`Meeting::has_started`]).

use std::hint;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use coreline_scenarios::crew::{Sign, crew, nanos, pinned};
use coreline_topology::CpuId;
use coreline_world::native::run_queue_wait;
use coreline_world::{Clock, Native, SpawnError};

use crate::disturbance::{self, Waits};

/// The figure of a sample, and how long its threads waited. No figure: there was nothing to time.
pub(crate) type Sample = Option<(Waits, f64)>;

/// The meeting point of the threads of a sample, so that they begin together.
pub(crate) struct Meeting {
    threads: u32,
    /// How often a thread came, over all meetings.
    came: AtomicU32,
    /// The threads that parts started.
    started: Mutex<Waits>,
}

/// The word on which the threads of a sample sleep, as several may share a CPU.
///
/// | value | name | meaning |
/// |---|---|---|
/// | 0 | `WAIT` | not all threads have been started |
/// | 1 | `BEGIN` | all have |
/// | 2 | `GIVE_UP` | one could not be started: the others end |
type Start = Sign<Native>;

const WAIT: u32 = 0;
const BEGIN: u32 = 1;
const GIVE_UP: u32 = 2;

impl Meeting {
    /// Waits, without sleeping, until all threads have come as often as this one.
    pub(crate) fn all(&self, times: u32) {
        // Release and Acquire: what a thread did before it came is seen by all that go on.
        self.came.fetch_add(1, Ordering::Release);
        while self.came.load(Ordering::Acquire) < times * self.threads {
            hint::spin_loop();
        }
    }

    /// Takes account of a thread that a part started: how long it waited in its whole life.
    pub(crate) fn has_started(&self, waits: Waits) {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        *started = started.and(waits);
    }
}

/// Nanoseconds that something takes.
pub(super) fn time(work: impl FnOnce()) -> f64 {
    let start = Native::now();
    work();
    (Native::now() - start).as_nanos() as f64
}

/// The work of each thread of a sample: it gets its number, and gives its figure if it has one.
pub(crate) type Part = dyn Fn(usize, &Meeting) -> Option<f64> + Send + Sync;

/// Has a thread on each of these CPUs do its part; the sample is the mean of their figures.
///
/// Threads that share a CPU wait for each other, so their waits say nothing about other programs.
/// Other threads look at their CPUs then, before and after.
///
/// # Errors
///
/// [`SpawnError`] if a thread cannot be started on its CPU.
pub(crate) fn take(cpus: &[CpuId], part: &Arc<Part>) -> Result<Sample, SpawnError> {
    let threads = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
    let meeting = Meeting { threads, came: AtomicU32::new(0), started: Mutex::default() };
    let shared = Arc::new((Arc::clone(part), meeting, Start::new(WAIT)));
    let work = |shared: &(Arc<Part>, Meeting, Start), number: usize| {
        let (part, meeting, start) = shared;
        if start.wait(|now| now != WAIT) == GIVE_UP {
            return (None, Waits::default());
        }
        let (before, begun) = (run_queue_wait(), Native::now());
        let figure = part(number, meeting);
        let waited =
            run_queue_wait().zip(before).map(|(after, before)| after.saturating_sub(before));
        (figure, Waits::of(waited, nanos(begun, Native::now())))
    };
    let is_alone = |number: usize| !cpus[..number].contains(&cpus[number]);
    let are_shared = !(0..cpus.len()).all(is_alone);
    let each: Vec<CpuId> = (0..cpus.len()).filter(|at| is_alone(*at)).map(|at| cpus[at]).collect();
    let look = || if are_shared { disturbance::look(&each) } else { Ok(Waits::default()) };
    let before = look()?;
    let mut lanes = crew::<Native, _, _>(&shared, pinned(cpus), work, |missing| {
        shared.2.set(if missing.is_some() { GIVE_UP } else { BEGIN });
    })?;
    if are_shared {
        lanes.iter_mut().for_each(|(_, waits)| *waits = Waits::default());
    }
    let started = *shared.1.started.lock().unwrap_or_else(PoisonError::into_inner);
    lanes.extend([before, started, look()?].map(|waits| (None, waits)));
    Ok(of(&lanes))
}

/// The sample of these threads: each has a figure or none, and each is judged.
fn of(lanes: &[(Option<f64>, Waits)]) -> Sample {
    let figures: Vec<f64> = lanes.iter().filter_map(|(figure, _)| *figure).collect();
    let waits = lanes.iter().fold(Waits::default(), |all, (_, waits)| all.and(*waits));
    let mean = figures.iter().sum::<f64>() / figures.len() as f64;
    (!figures.is_empty()).then_some((waits, mean))
}

#[cfg(test)]
mod tests {
    use coreline_world::native::probe;

    use super::*;

    #[test]
    fn a_sample_is_the_mean_of_what_its_threads_say() {
        let cpu = probe().allowed.unwrap().first().unwrap();
        let part: Arc<Part> = Arc::new(|number, _| (number < 2).then_some(number as f64));
        let (_, ns) = take(&[cpu, cpu, cpu], &part).unwrap().unwrap();
        assert_eq!(ns, 0.5);
    }

    #[test]
    fn a_sample_is_disturbed_if_any_of_its_threads_waited() {
        let [calm, waited] = [1000, 50_000].map(|waited| Waits::of(Some(waited), 1_000_000));
        let is_disturbed = |lanes: &[_]| of(lanes).unwrap().0.is_disturbed;
        assert!(!is_disturbed(&[(Some(20.0), calm), (None, calm)]));
        assert!(is_disturbed(&[(Some(20.0), waited), (None, calm)]));
        assert!(is_disturbed(&[(Some(20.0), calm), (None, waited)]), "the one that is not timed");
        assert_eq!(of(&[(None, waited)]), None);
    }

    #[test]
    fn a_thread_that_a_part_starts_is_judged() {
        let cpu = probe().allowed.unwrap().first().unwrap();
        let waited = Waits { total: 104_000_000, is_disturbed: true };
        let part: Arc<Part> = Arc::new(move |_, meeting| {
            meeting.has_started(waited);
            Some(1.0)
        });
        let (waits, _) = take(&[cpu], &part).unwrap().unwrap();
        assert!(waits.is_disturbed && waits.total >= waited.total, "{waits:?}");
    }

    #[test]
    fn a_sample_without_a_figure_is_none() {
        let cpu = probe().allowed.unwrap().first().unwrap();
        let part: Arc<Part> = Arc::new(|_, _| None);
        assert_eq!(take(&[cpu], &part).unwrap(), None);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error_and_no_thread_waits_for_it() {
        let cpu = probe().allowed.unwrap().first().unwrap();
        let part: Arc<Part> = Arc::new(|_, _| panic!("a part ran"));
        let error = take(&[cpu, CpuId::new(60_000)], &part).unwrap_err();
        assert!(matches!(error, SpawnError::Cpu { .. }), "{error}");
    }
}
