//! One sample of a quantity: threads on CPUs of their own, and whether other load disturbed them.

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use coreline_scenarios::crew::{Sign, crew, nanos, pinned};
use coreline_topology::CpuId;
use coreline_world::native::run_queue_wait;
use coreline_world::{Clock, Native, SpawnError};

use crate::disturbance::is_disturbed;

/// What a sample came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sample {
    Ns(f64),
    /// A thread waited for its CPU while it was timed, or there was nothing to time.
    None,
}

/// Where the threads of a sample meet, so that they begin together.
pub(super) struct Meeting {
    threads: u32,
    /// How often a thread came, over all meetings.
    came: AtomicU32,
}

/// What the threads of a sample sleep for, as several may share a CPU.
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
    pub(super) fn all(&self, times: u32) {
        // Release and Acquire: what a thread did before it came is seen by all that go on.
        self.came.fetch_add(1, Ordering::Release);
        while self.came.load(Ordering::Acquire) < times * self.threads {
            hint::spin_loop();
        }
    }
}

/// Nanoseconds that something takes.
pub(super) fn time(work: impl FnOnce()) -> f64 {
    let start = Native::now();
    work();
    (Native::now() - start).as_nanos() as f64
}

/// What each thread of a sample does: it is told its number, and gives its figure if it has one.
pub(super) type Part = dyn Fn(usize, &Meeting) -> Option<f64> + Send + Sync;

/// Has a thread on each of these CPUs do its part; the sample is the mean of their figures.
///
/// Threads that share a CPU wait for it, whatever else runs there: then nothing is known of other
/// load, and no sample counts as disturbed.
///
/// # Errors
///
/// [`SpawnError`] if a thread cannot be started on its CPU.
pub(super) fn take(cpus: &[CpuId], part: &Arc<Part>) -> Result<Sample, SpawnError> {
    let threads = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
    let meeting = Meeting { threads, came: AtomicU32::new(0) };
    let shared = Arc::new((Arc::clone(part), meeting, Start::new(WAIT)));
    let work = |shared: &(Arc<Part>, Meeting, Start), number: usize| {
        let (part, meeting, start) = shared;
        if start.wait(|now| now != WAIT) == GIVE_UP {
            return (None, false);
        }
        let (before, begun) = (run_queue_wait(), Native::now());
        let figure = part(number, meeting);
        let waited =
            run_queue_wait().zip(before).map(|(after, before)| after.saturating_sub(before));
        (figure, is_disturbed(waited, nanos(begun, Native::now())))
    };
    let results = crew::<Native, _, _>(&shared, pinned(cpus), work, |missing| {
        shared.2.set(if missing.is_some() { GIVE_UP } else { BEGIN });
    })?;
    let shared = cpus.iter().enumerate().any(|(number, cpu)| cpus[..number].contains(cpu));
    if !shared && results.iter().any(|(_, disturbed)| *disturbed) {
        return Ok(Sample::None);
    }
    let figures: Vec<f64> = results.into_iter().filter_map(|(figure, _)| figure).collect();
    if figures.is_empty() {
        return Ok(Sample::None);
    }
    Ok(Sample::Ns(figures.iter().sum::<f64>() / figures.len() as f64))
}

#[cfg(test)]
mod tests {
    use coreline_world::native::probe;

    use super::*;

    #[test]
    fn a_sample_is_the_mean_of_what_its_threads_say() {
        let cpu = probe().allowed.unwrap().first().unwrap();
        let part: Arc<Part> = Arc::new(|number, _| (number < 2).then_some(number as f64));
        // Three threads on one CPU are never disturbed.
        assert_eq!(take(&[cpu, cpu, cpu], &part).unwrap(), Sample::Ns(0.5));
    }

    #[test]
    fn a_sample_without_a_figure_is_none() {
        let cpu = probe().allowed.unwrap().first().unwrap();
        let part: Arc<Part> = Arc::new(|_, _| None);
        assert_eq!(take(&[cpu], &part).unwrap(), Sample::None);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error_and_no_thread_waits_for_it() {
        let cpu = probe().allowed.unwrap().first().unwrap();
        let part: Arc<Part> = Arc::new(|_, _| panic!("a part ran"));
        let error = take(&[cpu, CpuId::new(60_000)], &part).unwrap_err();
        assert!(matches!(error, SpawnError::Cpu { .. }), "{error}");
    }
}
