//! First fit: how Linux handed out concurrency IDs before 6.13, the "before" of seed 000.
//!
//! A CPU that refers to no ID gets the lowest to which no CPU refers. In favour of the policy: it
//! is compact, it costs a load and a compare at most switches, and threads that run everywhere
//! within 100 ms always find their IDs again. Its weakness is what the seed shows: after a longer
//! pause a CPU gets whatever ID is the lowest, and with it memory that another CPU used last.
//!
//! In a migration it looks at the destination's reference alone, and compares the number of users
//! with what *the thread* is allowed on: a slip, which the patch of the seed mends.

use coreline_topology::Cid;

use super::space::{Ids, Policy, Reference};

/// The policy.
#[derive(Debug)]
pub(crate) struct FirstFit;

impl Policy for FirstFit {
    const NAME: &str = "first-fit";

    fn take(ids: &mut Ids, _recent: Option<Cid>) -> Cid {
        ids.take_lowest()
    }

    fn has_one(reference: Reference, _recent: Option<Cid>) -> bool {
        reference != Reference::None
    }

    fn allowed(_process: usize, thread: usize) -> usize {
        thread
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scan;
    use super::super::laws::Process;
    use super::*;

    #[test]
    fn a_cpu_gets_its_id_again_within_100_ms() {
        let mut process = Process::<FirstFit>::pinned(4, Scan::Switch);
        assert_eq!(process.bursts(&[3, 1, 0]), [0, 1, 2]);
        // Each pause is below 100 ms, and the scans in between find nothing old.
        for _ in 0..3 {
            process.wait(90);
            assert_eq!(process.bursts(&[0, 3, 1]), [2, 0, 1]);
        }
    }

    #[test]
    fn after_the_expiry_a_cpu_gets_the_lowest_free_id() {
        let mut process = Process::<FirstFit>::pinned(4, Scan::Switch);
        assert_eq!(process.bursts(&[0, 1, 2]), [0, 1, 2]);
        process.wait(150);
        // CPU 2 still has its reference; the scan drops the others', and then 2 is too high.
        assert_eq!(process.bursts(&[2, 1, 0]), [2, 0, 1], "first come, first fit");
    }

    #[test]
    fn a_reference_outlives_100_ms_if_nobody_scans() {
        let mut process = Process::<FirstFit>::pinned(4, Scan::Switch);
        assert_eq!(process.burst(0), 0);
        process.wait(10);
        assert_eq!(process.burst(1), 1);
        process.wait(95);
        // The scan at 105 ms finds CPU 1's reference 95 ms old; the next may run at 205 ms.
        assert_eq!(process.burst(0), 0);
        process.wait(99);
        assert_eq!(process.burst(1), 1);
        // Where ticks make scans and none hits, nothing ever expires.
        let mut process = Process::<FirstFit>::pinned(4, Scan::Tick);
        assert_eq!(process.bursts(&[0, 1]), [0, 1]);
        process.wait(10_000);
        assert_eq!(process.bursts(&[1, 0]), [1, 0]);
    }

    #[test]
    fn a_thread_does_not_drop_the_reference_that_it_takes() {
        let mut process = Process::<FirstFit>::pinned(4, Scan::Switch);
        assert_eq!(process.bursts(&[0, 1]), [0, 1]);
        process.wait(500);
        assert_eq!(process.bursts(&[1, 2]), [1, 0], "CPU 0's is gone");
    }

    #[test]
    fn a_running_threads_id_never_expires() {
        let mut process = Process::<FirstFit>::pinned(4, Scan::Switch);
        assert_eq!(process.start(2), 0);
        process.wait(300);
        assert_eq!(process.start(1), 1);
        process.wait(300);
        assert_eq!(process.start(0), 2);
        process.stop(1);
        process.wait(200);
        assert_eq!(process.start(3), 3, "the scan comes after the ID");
        assert_eq!(process.burst(1), 1, "the lowest that nobody has");
    }
}
