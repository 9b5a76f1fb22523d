//! What each policy does, step by step, as threads of a process see it.

use coreline::cid::{Clustered, FirstFit, Owned, Recent};

use super::process::{Process, machine, nodes};

mod first_fit {
    use super::*;

    #[test]
    fn a_cpu_gets_its_id_again_within_100_ms() {
        let mut process = Process::<FirstFit>::pinned(4);
        assert_eq!(process.bursts(&[3, 1, 0]), [0, 1, 2]);
        // Each pause is below 100 ms, and the scans in between find nothing old.
        for _ in 0..3 {
            process.wait(90);
            assert_eq!(process.bursts(&[0, 3, 1]), [2, 0, 1]);
        }
    }

    #[test]
    fn after_the_expiry_a_cpu_gets_the_lowest_free_id() {
        let mut process = Process::<FirstFit>::pinned(4);
        assert_eq!(process.bursts(&[0, 1, 2]), [0, 1, 2]);
        process.wait(150);
        // CPU 2 still has its reference; the scan drops the others', and then 2 is too high.
        assert_eq!(process.bursts(&[2, 1, 0]), [2, 0, 1], "first come, first fit");
    }

    #[test]
    fn a_reference_outlives_100_ms_if_nobody_scans() {
        let mut process = Process::<FirstFit>::pinned(4);
        assert_eq!(process.burst(0), 0);
        process.wait(10);
        assert_eq!(process.burst(1), 1);
        process.wait(95);
        // The scan at 105 ms finds CPU 1's reference 95 ms old; the next may run at 205 ms.
        assert_eq!(process.burst(0), 0);
        process.wait(99);
        assert_eq!(process.burst(1), 1);
    }

    #[test]
    fn a_running_threads_id_never_expires() {
        let mut process = Process::<FirstFit>::pinned(4);
        assert_eq!(process.start(2), 0);
        process.wait(300);
        assert_eq!(process.start(1), 1);
        process.scan();
        process.wait(300);
        assert_eq!(process.start(0), 2);
        process.stop(1);
        process.scan();
        process.wait(200);
        assert_eq!(process.start(3), 3);
        process.scan();
        assert_eq!(process.burst(1), 1, "the lowest that is free");
    }
}

mod recent {
    use super::*;

    #[test]
    fn a_cpu_gets_its_recent_id_however_long_ago() {
        let mut process = Process::<Recent>::pinned(4);
        assert_eq!(process.bursts(&[3, 1, 0, 2]), [0, 1, 2, 3]);
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            process.wait(1000);
            let expected = order.map(|thread| [2, 1, 3, 0][thread]);
            assert_eq!(process.bursts(&order), expected);
        }
    }

    #[test]
    fn ids_expand_up_to_the_users_before_a_free_one_is_taken_again() {
        let mut process = Process::<Recent>::pinned(4);
        for (thread, cid) in [(0, 0), (1, 1), (2, 2), (3, 3)] {
            // Everything lower is free again by now, and still a new one is taken.
            process.wait(1000);
            assert_eq!(process.burst(thread), cid);
        }
    }

    #[test]
    fn ids_expand_no_further_than_allowed_cpus() {
        // Three threads, all bound to one of two CPUs.
        let mut process = Process::<Recent>::new(4);
        [0, 0, 3].into_iter().for_each(|cpu| process.spawn(cpu, true));
        assert_eq!(process.bursts(&[0, 1, 2]), [0, 0, 1]);
        process.wait(1000);
        process.spawn(1, true);
        assert_eq!(process.bursts(&[3, 2, 0]), [2, 1, 0], "one more CPU, one more ID");
    }

    #[test]
    fn ids_expand_no_further_than_users() {
        // Two that roam, and leave recent IDs behind on CPUs that no task comes back to.
        let mut process = Process::<Recent>::new(4);
        [0, 1].into_iter().for_each(|cpu| process.spawn(cpu, false));
        assert_eq!(process.bursts(&[0, 1]), [0, 1]);
        process.wait(1000);
        process.scan();
        for cpu in [2, 3] {
            process.migrate(0, cpu);
            assert_eq!(process.burst(0), 0, "the lowest that is free");
            process.wait(1000);
            process.scan();
        }
    }

    #[test]
    fn without_recent_and_new_ids_it_is_first_fit() {
        // One user that roams has one ID: it takes its reference along.
        let mut process = Process::<Recent>::new(4);
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
        let mut process = Process::<Recent>::pinned(2);
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
        let mut process = Process::<Recent>::pinned(4);
        assert_eq!(process.bursts(&[0, 1, 2, 3]), [0, 1, 2, 3]);
        for thread in [0, 1, 2] {
            process.start(thread);
            process.exit(thread);
        }
        assert_eq!(process.taken(), 1, "their IDs went with them");
        assert_eq!(process.burst(3), 0, "one user, one ID");
    }

    #[test]
    fn exec_begins_anew() {
        let mut process = Process::<Recent>::pinned(4);
        assert_eq!(process.bursts(&[0, 1, 2]), [0, 1, 2]);
        assert_eq!(process.start(3), 3);
        for thread in [0, 1, 2] {
            process.start(thread);
            process.exit(thread);
        }
        process.exec(3);
        process.stop(3);
        assert_eq!((process.taken(), process.burst(3)), (0, 0));
    }
}

mod owned {
    use super::*;

    #[test]
    fn tasks_take_their_ids_along_and_keep_them() {
        let mut process = Process::<Owned>::new(8);
        (0..4).for_each(|cpu| process.spawn(cpu, false));
        assert_eq!(process.bursts(&[2, 0, 1, 3]), [0, 1, 2, 3]);
        for (thread, cpu, cid) in [(0, 7, 1), (2, 5, 0), (3, 0, 3)] {
            process.migrate(thread, cpu);
            process.wait(10_000);
            assert_eq!(process.burst(thread), cid);
        }
    }

    #[test]
    fn cpus_own_ids_where_tasks_are_many() {
        let mut process = Process::<Owned>::pinned(4);
        assert_eq!(process.bursts(&[0, 1, 2, 3]), [0, 1, 2, 3]);
        // One more than the bound, which is the number of CPUs: unused IDs are free.
        process.start(2);
        process.spawn(1, true);
        assert_eq!(process.taken(), 1);
        assert_eq!(process.bursts(&[4, 1]), [0, 0], "they borrow from CPU 1");
        // What the running task owned is its CPU's when it stops.
        process.stop(2);
        process.spawn(2, true);
        assert_eq!(process.burst(5), 2);
    }

    #[test]
    fn a_quarter_more_tasks_than_allowed_cpus_own_ids() {
        let mut process = Process::<Owned>::new(8);
        [0, 1, 2, 3, 0].into_iter().for_each(|cpu| process.spawn(cpu, true));
        assert_eq!(process.bursts(&[0, 1, 2, 3, 4]), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn the_mode_changes_back_below_the_threshold_only() {
        let mut process = Process::<Owned>::pinned(4);
        process.spawn(0, true);
        assert_eq!(process.bursts(&[0, 1, 2, 3, 4]), [0, 1, 2, 3, 0]);
        // The threshold is min(4 - 1, 4 / 2).
        for (thread, left) in [(4, 4), (3, 3), (2, 2)] {
            process.start(thread);
            process.exit(thread);
            process.wait(200);
            process.scan();
            assert_eq!(process.taken(), left, "what CPUs own and is below the bound stays");
        }
        process.start(1);
        process.exit(1);
        assert_eq!(process.taken(), 0, "CPUs own none any more");
        process.wait(1000);
        assert_eq!((process.burst(0), process.taken()), (0, 1));
    }

    #[test]
    fn an_id_above_a_bound_that_fell_is_free_when_its_use_ends() {
        let mut process = Process::<Owned>::pinned(4);
        process.spawn(0, true);
        // CPUs own IDs: there are more tasks than CPUs.
        assert_eq!(process.bursts(&[0, 1, 2, 3, 4]), [0, 1, 2, 3, 0]);
        process.start(3);
        for thread in [0, 1, 2, 4] {
            process.start(thread);
            process.exit(thread);
        }
        assert_eq!(process.taken(), 1, "the running task has CPU 3's ID");
        process.stop(3);
        assert_eq!(process.taken(), 0, "one task has ID 0, and keeps no other");
    }

    #[test]
    fn an_id_above_a_bound_that_fell_is_given_back() {
        let mut process = Process::<Owned>::new(8);
        (0..4).for_each(|cpu| process.spawn(cpu, false));
        assert_eq!(process.bursts(&[0, 1, 2, 3]), [0, 1, 2, 3]);
        for thread in [0, 1, 2] {
            process.start(thread);
            process.exit(thread);
        }
        assert_eq!((process.burst(3), process.taken()), (0, 1));
    }
}

mod clustered {
    use super::*;

    #[test]
    fn each_cache_has_its_range() {
        let mut process = Process::<Clustered>::on(&machine(2, 4));
        (0..8).for_each(|cpu| process.spawn(cpu, true));
        assert_eq!(process.bursts(&[7, 2, 4, 0]), [4, 0, 5, 1]);
        for order in [[0, 2, 4, 7], [4, 7, 2, 0]] {
            process.wait(1000);
            let expected = order.map(|cpu| [1, 8, 0, 8, 5, 8, 8, 4][cpu]);
            assert_eq!(process.bursts(&order), expected);
        }
    }

    #[test]
    fn a_nodes_ids_begin_at_a_page() {
        let mut process = Process::<Clustered>::on(&nodes(2, 1, 4));
        (0..8).for_each(|cpu| process.spawn(cpu, true));
        assert_eq!(process.bursts(&[6, 0, 5]), [64, 0, 65]);
        assert_eq!(process.space.layout().width(), 68);
    }

    #[test]
    fn a_thread_leaves_its_id_to_the_cache_that_it_leaves() {
        let mut process = Process::<Clustered>::on(&machine(2, 2));
        process.spawn(0, false);
        assert_eq!(process.burst(0), 0);
        // Within the cache it takes it along; to the other it does not, and drops it.
        process.migrate(0, 1);
        assert_eq!(process.burst(0), 0);
        process.migrate(0, 3);
        assert_eq!((process.taken(), process.burst(0)), (0, 2));
    }
}
