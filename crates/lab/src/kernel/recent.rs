//! Recent: the cache-local policy of seed 000, in Linux from 6.13 to 6.18.
//!
//! A CPU that refers to no ID gets, the first that is to be had:
//!
//! 1. the ID that it last referred to, if it is free: with it memory that is in this CPU's caches;
//! 2. an ID that was never handed out, as long as fewer are than there are threads and than there
//!    are CPUs that the threads are allowed on: so every CPU gets one of its own where there are
//!    enough, instead of one that another CPU will want back;
//! 3. the lowest that is free.
//!
//! "Never handed out" is a number, the highest so far. If it is above the number of threads or of
//! allowed CPUs, because threads have ended, it is first lowered to that, and a recent ID that is
//! not below it is not taken. This the seed does not have: there a process that once had many
//! threads keeps high IDs for ever, and the law that IDs shrink back does not hold. The kernel's
//! source of 6.18 has it (since 6.14: from memory). While no thread ends it changes nothing.
//!
//! In a migration a CPU *has one* also if it has a recent ID only.

use coreline_topology::Cid;

use super::space::{Ids, Policy, Reference};

/// The policy.
#[derive(Debug)]
pub(crate) struct Recent;

impl Policy for Recent {
    const NAME: &str = "recent";

    fn take(ids: &mut Ids, recent: Option<Cid>) -> Cid {
        let bound = ids.allowed.min(ids.users);
        ids.highest = ids.highest.min(bound);
        let below = |cid: &Cid| cid.index() < ids.highest;
        if let Some(cid) = recent.filter(below).and_then(|cid| ids.take(cid)) {
            return cid;
        }
        while ids.highest < bound {
            let next = Cid::new(ids.highest as u32);
            ids.highest += 1;
            if let Some(cid) = ids.take(next) {
                return cid;
            }
        }
        ids.take_lowest()
    }

    fn has_one(reference: Reference, recent: Option<Cid>) -> bool {
        reference != Reference::None || recent.is_some()
    }

    fn allowed(process: usize, _thread: usize) -> usize {
        process
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scan;
    use super::super::laws::Process;
    use super::*;

    #[test]
    fn a_cpu_gets_its_recent_id_however_long_ago() {
        let mut process = Process::<Recent>::pinned(4, Scan::Switch);
        assert_eq!(process.bursts(&[3, 1, 0, 2]), [0, 1, 2, 3]);
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            process.wait(1000);
            let expected = order.map(|thread| [2, 1, 3, 0][thread]);
            assert_eq!(process.bursts(&order), expected);
        }
    }

    #[test]
    fn ids_expand_up_to_the_users_before_a_free_one_is_taken_again() {
        let mut process = Process::<Recent>::pinned(4, Scan::Switch);
        for (thread, cid) in [(0, 0), (1, 1), (2, 2), (3, 3)] {
            // Everything lower is free again by now, and still a new one is taken.
            process.wait(1000);
            assert_eq!(process.burst(thread), cid);
        }
    }

    #[test]
    fn ids_expand_no_further_than_allowed_cpus() {
        // Three threads, all bound to one of two CPUs.
        let mut process = Process::<Recent>::new(4, Scan::Switch);
        [0, 0, 3].into_iter().for_each(|cpu| process.spawn(cpu, true));
        assert_eq!(process.bursts(&[0, 1, 2]), [0, 0, 1]);
        process.wait(1000);
        process.spawn(1, true);
        assert_eq!(process.bursts(&[3, 2, 0]), [2, 1, 0], "one more CPU, one more ID");
    }

    #[test]
    fn without_recent_and_new_ids_it_is_first_fit() {
        // One user that roams has one ID: it takes its reference along.
        let mut process = Process::<Recent>::new(4, Scan::Tick);
        process.spawn(0, false);
        for cpu in [1, 3, 2, 0] {
            assert_eq!(process.burst(0), 0);
            process.migrate(0, cpu);
        }
        // A second one, bound, expands; after its end the next thread, on another CPU, gets its ID.
        process.spawn(1, true);
        assert_eq!((process.start(0), process.start(1)), (0, 1));
        process.exit(1);
        process.spawn(2, true);
        assert_eq!(process.start(2), 1);
    }

    #[test]
    fn a_recent_id_that_another_has_is_not_taken() {
        let mut process = Process::<Recent>::pinned(2, Scan::Switch);
        process.spawn(1, true);
        assert_eq!(process.bursts(&[1, 0]), [0, 1]);
        // The first thread's end frees its ID, and CPU 1 still remembers it.
        process.start(1);
        process.exit(1);
        process.wait(1);
        assert_eq!(process.start(0), 1);
        assert_eq!(process.start(2), 0, "its recent one is free");
    }

    #[test]
    fn after_threads_have_ended_a_recent_id_may_be_too_high() {
        let mut process = Process::<Recent>::pinned(4, Scan::Switch);
        assert_eq!(process.bursts(&[0, 1, 2, 3]), [0, 1, 2, 3]);
        for thread in [0, 1, 2] {
            process.start(thread);
            process.exit(thread);
        }
        process.wait(300);
        process.burst(3);
        assert_eq!(process.burst(3), 0, "one user, one ID");
    }
}
