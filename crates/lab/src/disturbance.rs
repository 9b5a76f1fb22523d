//! The native samples that do not count, because other programs used their CPUs.
//!
//! A sample is disturbed if one of its threads waited on a run queue for more than 4 % of the time
//! that it ran or wanted to. Disturbed samples do not count, unless there are hardly any others:
//! then the least disturbed ones are kept, and the figure computed from them is marked. A mark is
//! honest, and an answer; no figure at all is none.
//!
//! The rule never looks at the time that was measured, so it cannot prefer fast samples. That holds
//! for the choice of the least disturbed ones, too: they are those whose threads waited least.
//! `coreline-rivals` has the same rule, with its reasons.

use core::hint;
use core::time::Duration;

use coreline_scenarios::crew::nanos;
use coreline_topology::CpuId;
use coreline_world::native::run_queue_wait;
use coreline_world::{Clock, JoinHandle, Native, Placement, SpawnError, Threads, Time};

/// A thread that waited longer than this on a run queue, in microseconds per millisecond, was
/// disturbed.
const MOST_WAITED_US_PER_MS: u64 = 40;

/// Whether a thread that waited this long during this many nanoseconds was disturbed; no, where the
/// kernel does not say how long threads wait.
pub(crate) fn is_disturbed(waited: Option<u64>, span: u64) -> bool {
    waited.is_some_and(|waited| waited > span * MOST_WAITED_US_PER_MS / 1000)
}

/// Whether the kernel says how long threads wait.
pub(crate) fn is_known() -> bool {
    run_queue_wait().is_some()
}

/// How long threads waited on run queues.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Waits {
    /// The sum over the threads, in nanoseconds; 0 where the kernel does not say.
    pub(crate) total: u64,
    /// Whether one of them was disturbed.
    pub(crate) is_disturbed: bool,
}

impl Waits {
    /// Those of a thread that waited this long during this many nanoseconds.
    pub(crate) fn of(waited: Option<u64>, span: u64) -> Waits {
        Waits { total: waited.unwrap_or(0), is_disturbed: is_disturbed(waited, span) }
    }

    /// Those of these threads and of others.
    #[must_use]
    pub(crate) fn and(self, others: Waits) -> Waits {
        Waits {
            total: self.total.saturating_add(others.total),
            is_disturbed: self.is_disturbed || others.is_disturbed,
        }
    }
}

/// The samples from which a figure is computed.
#[derive(Debug, PartialEq)]
pub(crate) struct Kept<T> {
    /// In the order in which they were taken.
    pub(crate) samples: Vec<T>,
    /// Whether disturbed ones are among them: the figure is no evidence.
    pub(crate) are_disturbed: bool,
    pub(crate) discarded: u32,
}

/// How many calm samples a figure takes at least, if this many were wanted: a third. Fewer say
/// nothing about their spread.
fn fewest(wanted: usize) -> usize {
    wanted.div_ceil(3)
}

/// Keeps the calm samples; if there are too few of them, as many as were wanted of the least
/// disturbed.
pub(crate) fn keep<T>(taken: Vec<(Waits, T)>, wanted: usize) -> Kept<T> {
    let all = taken.len();
    let calm = taken.iter().filter(|(waits, _)| !waits.is_disturbed).count();
    let count = if calm < fewest(wanted) { wanted.min(all) } else { calm };
    let mut numbered: Vec<_> = taken.into_iter().enumerate().collect();
    numbered.sort_by_key(|(_, (waits, _))| (waits.is_disturbed, waits.total));
    numbered.truncate(count);
    numbered.sort_by_key(|(number, _)| *number);
    Kept {
        samples: numbered.into_iter().map(|(_, (_, sample))| sample).collect(),
        are_disturbed: count > calm,
        discarded: (all - count) as u32,
    }
}

/// How long a check of the CPUs takes: several time slices, so that a thread that shares its CPU
/// has to let the other one run.
const LOOK: Duration = Duration::from_millis(10);

/// Computes for the time of a look, and says how long the calling thread has waited since it was
/// asked for, which was before it started.
pub(crate) fn waits_of_new_thread(asked: Time) -> Waits {
    let start = Native::now();
    while Native::now() - start < LOOK {
        hint::spin_loop();
    }
    // Of the thread's whole life: it began after `asked`.
    Waits::of(run_queue_wait(), nanos(asked, Native::now()))
}

/// Looks at whether these CPUs have anything else to do: a thread on each computes for a while,
/// and says how long it waited.
///
/// # Errors
///
/// [`SpawnError`] if a thread cannot be started, or not on its CPU.
pub(crate) fn look(cpus: &[CpuId]) -> Result<Waits, SpawnError> {
    let asked = Native::now();
    let look = move || waits_of_new_thread(asked);
    let started: Vec<_> = cpus.iter().map(|&cpu| Native::spawn(Placement::On(cpu), look)).collect();
    // All that did start are waited for, whatever became of the others.
    let looks: Vec<Result<Waits, SpawnError>> =
        started.into_iter().map(|thread| thread.map(JoinHandle::join)).collect();
    looks.into_iter().try_fold(Waits::default(), |all, waits| Ok(all.and(waits?)))
}

#[cfg(test)]
mod tests {
    use coreline_world::native::probe;

    use super::*;

    #[test]
    fn a_wait_of_40_us_per_ms_is_the_most() {
        assert!(!is_disturbed(Some(40_000), 1_000_000));
        assert!(is_disturbed(Some(40_001), 1_000_000));
        assert!(!is_disturbed(Some(40_001), 2_000_000), "the bound grows with the span");
        assert!(!is_disturbed(None, 1_000_000), "nothing to judge by");
    }

    #[test]
    fn a_cpu_with_two_threads_that_compute_is_not_calm() {
        let cpu = probe().allowed.unwrap().iter().next().unwrap();
        // Each of two looks at one CPU is other load to the other.
        if is_known() {
            assert!(look(&[cpu, cpu]).unwrap().is_disturbed);
        }
        assert!(look(&[CpuId::new(60_000)]).is_err());
    }

    #[test]
    fn one_thread_that_waited_is_enough() {
        let [calm, waited] = [1000, 50_000].map(|waited| Waits::of(Some(waited), 1_000_000));
        assert!(!calm.is_disturbed && calm.and(calm) == Waits { total: 2000, is_disturbed: false });
        assert_eq!(calm.and(waited), Waits { total: 51_000, is_disturbed: true });
        assert_eq!(waited.and(calm), calm.and(waited));
        assert_eq!(Waits::of(None, 1_000_000), Waits::default());
    }

    /// Samples are numbers. Those that waited for long are disturbed.
    fn kept(waited: &[u64], wanted: usize) -> Kept<usize> {
        let taken = waited.iter().enumerate();
        keep(taken.map(|(at, &ns)| (Waits::of(Some(ns), 1_000_000), at)).collect(), wanted)
    }

    #[test]
    fn calm_samples_are_kept_alone_if_they_are_enough() {
        let long = 90_000;
        assert_eq!(
            kept(&[0, long, 0, 9, long], 7),
            Kept { samples: vec![0, 2, 3], are_disturbed: false, discarded: 2 }
        );
        assert_eq!(kept(&[], 7), Kept { samples: vec![], are_disturbed: false, discarded: 0 });
    }

    #[test]
    fn of_too_few_calm_samples_the_least_disturbed_are_added() {
        assert_eq!(
            kept(&[70_000, 90_000, 0, 60_000, 80_000, 9], 4),
            Kept { samples: vec![2, 5], are_disturbed: false, discarded: 4 },
            "two of four are enough"
        );
        assert_eq!(
            kept(&[70_000, 90_000, 0, 60_000, 80_000], 4),
            Kept { samples: vec![0, 2, 3, 4], are_disturbed: true, discarded: 1 }
        );
        assert_eq!(
            kept(&[90_000, 80_000], 4),
            Kept { samples: vec![0, 1], are_disturbed: true, discarded: 0 },
            "there are no more"
        );
    }
}
