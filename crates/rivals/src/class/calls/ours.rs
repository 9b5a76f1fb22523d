//! Calls to coreline's workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use coreline::call::{Builder, WorkerStats};
use coreline::{Lacking, Workers};
use coreline_topology::{CpuId, CpuSet};
use coreline_world::native::run_queue_wait;
use coreline_world::{Native, Why};

use super::{Account, Caller, Subject, WARM_UP, ask, function, lacking};

/// The time for which a worker without calls polls, in the form in which it polls. It is much
/// longer than the time between two calls, and the worker leaves the CPU soon after a sample.
const POLLING: Duration = Builder::<Native>::POLLING;

/// One worker, a thread of its own. Thread 0 of a sample calls; thread 1 has nothing to do.
pub(super) struct Called<const GAP_US: u64> {
    workers: Workers,
    cpu: CpuId,
    /// Right answers.
    right: AtomicU64,
    /// Calls that do not count as operations.
    others: AtomicU64,
}

impl<const GAP_US: u64> Called<GAP_US> {
    pub(super) fn new(cpu: CpuId) -> Result<Self, Lacking> {
        let polling = if GAP_US == 0 { POLLING } else { Duration::ZERO };
        let workers = Workers::builder().cpus(CpuSet::from_iter([cpu])).polling(polling).start();
        let workers = workers
            .map_err(|why| lacking(Why::from(why.to_string()), "run the other candidates"))?;
        Ok(Called { workers, cpu, right: AtomicU64::new(0), others: AtomicU64::new(0) })
    }

    /// The counts of the worker.
    fn stats(&self) -> WorkerStats {
        self.workers.stats().fold(WorkerStats::default(), |sum, (_, stats)| sum + stats)
    }

    /// The time for which the worker has waited for its CPU, as far as the kernel says.
    fn waited(&self) -> u64 {
        self.workers.call_on(self.cpu, run_queue_wait).ok().flatten().unwrap_or(0)
    }
}

impl<const GAP_US: u64> Subject for Called<GAP_US> {
    fn run(&self, thread: usize, ops: u64) {
        self.account(thread, ops);
    }

    fn account(&self, thread: usize, ops: u64) -> Account {
        if thread != 0 {
            return Account::default();
        }
        let before = self.waited();
        let (right, lasted) = ask::<GAP_US>(&mut &*self, ops);
        let waited = self.waited().saturating_sub(before);
        // Relaxed: read when the thread has reported through a channel.
        self.right.fetch_add(right, Ordering::Relaxed);
        self.others.fetch_add(WARM_UP + 2, Ordering::Relaxed);
        if GAP_US == 0 {
            // The CPU is the next candidate's.
            thread::sleep(2 * POLLING);
        }
        Account { counted: Some(lasted), waited }
    }

    /// As the other candidates: what both sides counted.
    fn total(&self) -> Option<u64> {
        let count = |it: &AtomicU64| it.load(Ordering::Relaxed);
        Some(count(&self.right) + self.stats().calls.wrapping_sub(count(&self.others)))
    }
}

impl<const GAP_US: u64> Caller for &Called<GAP_US> {
    #[inline(always)]
    fn call(&mut self, question: u64) -> u64 {
        let answer = self.workers.call_on(self.cpu, move || function(question));
        answer.expect("the worker takes calls as long as it is there")
    }
}

#[cfg(test)]
mod tests {
    use super::super::second_cpu;
    use super::*;

    /// Whether the forms are what they are called, as far as a busy machine lets them be. There, a
    /// worker learns to sleep: beside the other tests, one had 8,912 sleeps in 10,034 calls.
    #[test]
    fn a_worker_polls_in_one_form_and_sleeps_in_the_others() {
        let Ok(cpu) = second_cpu() else { return };
        let polled = Called::<0>::new(cpu).unwrap();
        polled.run(0, 10_000);
        let stats = polled.stats();
        assert!(stats.spared > 0, "it never polls: {stats:?}");
        let parked = Called::<500>::new(cpu).unwrap();
        parked.run(0, 100);
        let stats = parked.stats();
        // A worker that loses its CPU within its window counts as polling until it has it again.
        assert!(stats.sleeps > 50 && stats.sleeps > stats.spared, "{stats:?}");
    }
}
