//! Which native samples do not count, because other load had their CPUs.
//!
//! The rule never looks at the time that was measured, so it cannot prefer fast samples.
//! `coreline-rivals` has the same, with its reasons.

use core::hint;
use core::time::Duration;

use coreline_topology::CpuId;
use coreline_world::native::run_queue_wait;
use coreline_world::{Clock, JoinHandle, Native, Placement, SpawnError, Threads};

/// A thread that waited longer than this on a run queue, in microseconds per millisecond, was
/// disturbed.
const MOST_WAITED_US_PER_MS: u64 = 40;

/// Whether a thread that waited so long during so many nanoseconds was disturbed; no, where the
/// kernel does not say how long threads wait.
pub(crate) fn is_disturbed(waited: Option<u64>, span: u64) -> bool {
    waited.is_some_and(|waited| waited > span * MOST_WAITED_US_PER_MS / 1000)
}

/// Whether the kernel says how long threads wait.
pub(crate) fn is_known() -> bool {
    run_queue_wait().is_some()
}

/// How long a look at the CPUs takes: several time slices, so that a thread that shares its CPU
/// has to let the other one run.
const LOOK: Duration = Duration::from_millis(10);

/// Whether none of these CPUs has anything else to do: a thread on each computes for a while, and
/// none of them waits.
///
/// # Errors
///
/// [`SpawnError`] if a thread cannot be started, or not on its CPU.
pub(crate) fn are_calm(cpus: &[CpuId]) -> Result<bool, SpawnError> {
    let asked = Native::now();
    let look = move || {
        let start = Native::now();
        while Native::now() - start < LOOK {
            hint::spin_loop();
        }
        let span = (Native::now() - asked).as_nanos();
        // Of the thread's whole life: it began after `asked`.
        is_disturbed(run_queue_wait(), u64::try_from(span).unwrap_or(u64::MAX))
    };
    let started: Vec<_> = cpus.iter().map(|&cpu| Native::spawn(Placement::On(cpu), look)).collect();
    // All that did start are waited for, whatever became of the others.
    let looks: Vec<Result<bool, SpawnError>> =
        started.into_iter().map(|thread| thread.map(JoinHandle::join)).collect();
    looks.into_iter().try_fold(true, |calm, disturbed| Ok(calm && !disturbed?))
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
            assert!(!are_calm(&[cpu, cpu]).unwrap());
        }
        assert!(are_calm(&[CpuId::new(60_000)]).is_err());
    }
}
