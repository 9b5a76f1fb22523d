//! Lock reports, and what of the mirrors std cannot be compared with.

use std::panic::{AssertUnwindSafe, catch_unwind};

use coreline_sim::atomic::{AtomicU32, AtomicU64, Ordering};
use coreline_sim::sync::{Arc, Mutex, RwLock};
use coreline_sim::thread::{self, Builder};
use coreline_sim::time::{Duration, Instant};
use coreline_sim::{LockReport, Machine, locks, name};
use coreline_topology::{CpuId, NodeId};
use coreline_world::Line;

use crate::common;

fn machine() -> Machine {
    common::machine("epyc-9654-2s", 1).step_limit(10_000_000)
}

/// The only lock of a run.
fn only(program: impl FnOnce() + 'static) -> LockReport {
    let run = machine().run(program).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(run.locks.len(), 1, "{:?}", run.locks);
    run.locks.into_iter().next().unwrap()
}

/// Threads on these CPUs take turns, each `rounds` times, by a word that says whose turn it is.
fn in_turns(cpus: &'static [u32], rounds: u32, work: impl Fn() + Sync) {
    let turn = AtomicU32::new(0);
    thread::scope(|scope| {
        for (mine, &cpu) in (0..).zip(cpus) {
            let (turn, work) = (&turn, &work);
            let all = cpus.len() as u32;
            let body = move || {
                for _ in 0..rounds {
                    while turn.load(Ordering::Acquire) % all != mine {
                        thread::sleep(Duration::from_micros(1));
                    }
                    work();
                    turn.fetch_add(1, Ordering::Release);
                }
            };
            Builder::new().on(CpuId::new(cpu)).spawn_scoped(scope, body).unwrap();
        }
    });
}

#[test]
fn hand_offs_are_counted_by_distance() {
    // CPUs 0 and 1 share a cache, 8 is under another, 96 on another socket.
    let report = only(|| {
        let lock = Mutex::new(());
        in_turns(&[0, 1, 8, 96], 5, || drop(lock.lock()));
    });
    assert_eq!((report.acquisitions, report.contended), (20, 0), "{report}");
    let handoffs = report.handoffs;
    assert_eq!((handoffs.same_cache, handoffs.same_node, handoffs.other_socket), (5, 5, 5 + 4));
    assert_eq!((handoffs.same_cpu, handoffs.same_socket), (0, 0));
    assert_eq!(report.by_node, [(NodeId::new(0), 15), (NodeId::new(1), 5)]);
    assert_eq!(report.node_shares(), (0.25, 0.75));
    assert!((report.jain() - 1.0).abs() < 1e-9, "{}", report.jain());
    assert!(report.site.contains("locks.rs:"), "{}", report.site);
}

#[test]
fn waits_and_holds_are_timed() {
    let report = only(|| {
        let lock = Mutex::new(());
        thread::scope(|scope| {
            let held = lock.lock().unwrap();
            scope.spawn(|| drop(lock.lock()));
            thread::sleep(Duration::from_micros(500));
            drop(held);
        });
    });
    assert_eq!((report.acquisitions, report.contended), (2, 1));
    // The other thread starts some 20 us after the lock was taken.
    assert!((400_000..520_000).contains(&report.longest_wait_ns), "{report}");
    assert_eq!(report.waited_ns, report.longest_wait_ns);
    assert!((500_000..520_000).contains(&report.longest_hold_ns), "{report}");
}

#[test]
fn a_lock_that_starves_a_node_shows_it() {
    /// Serves in turn; a biased one lets node 1 draw a ticket only while node 0 has none.
    #[derive(Default)]
    struct Ticket {
        biased: bool,
        near: Line<AtomicU32>,
        next: Line<AtomicU32>,
        serving: Line<AtomicU32>,
    }

    impl Ticket {
        fn lock(&self, near: bool) {
            locks::waiting(self);
            if near {
                self.near.fetch_add(1, Ordering::Relaxed);
            } else {
                while self.biased && self.near.load(Ordering::Relaxed) != 0 {
                    coreline_sim::hint::spin_loop();
                }
            }
            let ticket = self.next.fetch_add(1, Ordering::Relaxed);
            while self.serving.load(Ordering::Acquire) != ticket {
                coreline_sim::hint::spin_loop();
            }
            locks::acquired(self);
        }

        fn unlock(&self, near: bool) {
            locks::released(self);
            self.serving.fetch_add(1, Ordering::Release);
            if near {
                self.near.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    let run = |biased: bool| {
        only(move || {
            let lock = Ticket { biased, ..Ticket::default() };
            let end = Instant::now() + Duration::from_millis(1);
            thread::scope(|scope| {
                for cpu in [0, 1, 2, 3, 96, 97, 98, 99] {
                    let lock = &lock;
                    let body = move || {
                        while Instant::now() < end {
                            for _ in 0..16 {
                                lock.lock(cpu < 96);
                                lock.unlock(cpu < 96);
                            }
                        }
                    };
                    Builder::new().on(CpuId::new(cpu)).spawn_scoped(scope, body).unwrap();
                }
            });
        })
    };
    let (fair, biased) = (run(false), run(true));
    assert!(fair.node_shares().0 > 0.4, "{fair}");
    assert!(biased.node_shares().0 < 0.1, "{biased}");
    assert!(biased.jain() < 0.7 && fair.jain() > 0.9, "{} {}", fair.jain(), biased.jain());
    assert!(biased.longest_wait_ns > 20 * fair.longest_wait_ns, "{fair}\n{biased}");
}

#[test]
fn one_seed_gives_one_report_and_the_most_waited_for_lock_comes_first() {
    let run = || {
        let run = machine().run(|| {
            let locks = Arc::new((Mutex::new(0), RwLock::new(0), Mutex::new(0)));
            let threads: Vec<_> = (0..24)
                .map(|_| {
                    let locks = Arc::clone(&locks);
                    thread::spawn(move || {
                        for _ in 0..20 {
                            let hot = locks.2.lock().unwrap();
                            thread::sleep(Duration::from_nanos(200));
                            drop(hot);
                            *locks.0.lock().unwrap() += 1;
                            *locks.1.write().unwrap() += 1;
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        run.unwrap_or_else(|failure| panic!("{failure}")).locks
    };
    let reports = run();
    assert_eq!(reports, run());
    assert_eq!(reports.len(), 3);
    assert!(reports.iter().all(|report| report.acquisitions == 480));
    assert!(reports.is_sorted_by_key(|report| core::cmp::Reverse(report.waited_ns)));
    assert!(reports[0].held_ns > reports[1].held_ns, "{} {}", reports[0], reports[1]);
    let text = reports[0].to_string();
    assert!(text.contains("480 times by 24 threads") && text.contains("Jain"), "{text}");
}

#[test]
fn a_panic_poisons_what_its_own_thread_holds_and_no_more() {
    let run = machine().run(|| {
        struct Slow;
        impl Drop for Slow {
            fn drop(&mut self) {
                thread::sleep(Duration::from_micros(50));
            }
        }
        let (mine, theirs) = (Mutex::new(()), Mutex::new(()));
        thread::scope(|scope| {
            let unwinding = scope.spawn(|| {
                let _held = theirs.lock().unwrap();
                let _slow = Slow;
                panic!("slowly");
            });
            // While the other unwinds, for 50 us and at some time in these 200.
            for _ in 0..200 {
                drop(mine.lock());
                thread::sleep(Duration::from_micros(1));
            }
            unwinding.join().is_err() && !thread::panicking()
        }) && theirs.is_poisoned()
            && !mine.is_poisoned()
    });
    assert!(run.unwrap().value);
}

#[test]
fn threads_go_where_they_are_told_and_refuse_what_is_not_there() {
    let run = machine().run(|| {
        let missing = Builder::new().on(CpuId::new(384)).spawn(|| ()).map(drop);
        let deep = Builder::new().stack_size(thread::STACK + 1).spawn(|| ()).map(drop);
        let cpus = thread::available_parallelism().unwrap().get();
        (missing.unwrap_err().to_string(), deep.unwrap_err().to_string(), cpus)
    });
    let (missing, deep, cpus) = run.unwrap().value;
    assert!(missing.contains("epyc-9654-2s") && deep.contains("262144"), "{missing}; {deep}");
    assert_eq!(cpus, 384);
}

/// Transfers between the caches of a node while two CPUs use what `make` gives.
fn moved<S: Sync + 'static>(make: fn() -> S, use_it: fn(&S)) -> u64 {
    let run = machine().run(move || {
        let (shared, arrived) = (make(), Arc::new(AtomicU32::new(0)));
        thread::scope(|scope| {
            for cpu in [0, 8] {
                let (shared, arrived) = (&shared, Arc::clone(&arrived));
                let body = move || {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    while arrived.load(Ordering::Relaxed) < 2 {
                        coreline_sim::hint::spin_loop();
                    }
                    (0..500).for_each(|_| use_it(shared));
                };
                Builder::new().on(CpuId::new(cpu)).spawn_scoped(scope, body).unwrap();
            }
        });
    });
    run.unwrap_or_else(|failure| panic!("{failure}")).report.transfers.same_node
}

#[test]
fn a_counted_reference_costs_and_a_borrowed_one_does_not() {
    let shared = || Arc::new(AtomicU64::new(1));
    let counted = moved(shared, |value| drop(Arc::clone(value)));
    let borrowed = moved(shared, |value| assert_eq!(value.load(Ordering::Relaxed), 1));
    // Of a core's 1000 operations on the count some 15 in a row find it there.
    assert!(counted > 100 && borrowed < 20, "counted {counted}, borrowed {borrowed}");
}

#[test]
fn what_a_lock_protects_moves_with_it() {
    fn moved<const BYTES: usize>() -> u64 {
        let run = machine().run(|| {
            let value = Mutex::new([0_u8; BYTES]);
            in_turns(&[0, 8], 50, || value.lock().unwrap()[0] ^= 1);
        });
        run.unwrap_or_else(|failure| panic!("{failure}")).report.transfers.same_node
    }
    let (small, large) = (moved::<8>(), moved::<512>());
    // Each of 100 times, 512 bytes beside a lock lie on 8 lines more.
    assert!((600..1000).contains(&(large - small)), "8 bytes {small}, 512 bytes {large}");
}

#[test]
fn outside_of_a_machine_the_atomics_are_ordinary_ones() {
    let value = AtomicU32::new(1);
    let add = || value.fetch_add(1, Ordering::Relaxed);
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(add)));
    });
    assert_eq!(value.load(Ordering::Relaxed), 5);
    let panics = catch_unwind(AssertUnwindSafe(|| thread::spawn(|| ())));
    assert!(panics.is_err(), "a thread has no machine to run on");
}

#[test]
fn a_wait_that_never_ended_counts_and_names_its_thread() {
    let program = || {
        let lock = Arc::new(AtomicU32::new(0));
        name(&*lock, "the lock");
        let theirs = Arc::clone(&lock);
        let starved = thread::spawn(move || {
            locks::waiting(&*theirs);
            thread::sleep(Duration::from_micros(500));
        });
        let theirs = Arc::clone(&lock);
        let patient = thread::spawn(move || {
            locks::waiting(&*theirs);
            thread::sleep(Duration::from_micros(100));
            locks::gave_up(&*theirs);
            thread::sleep(Duration::from_micros(500));
        });
        locks::acquired(&*lock);
        starved.join().unwrap();
        patient.join().unwrap();
        thread::sleep(Duration::from_millis(10));
    };
    let report = only(program);
    assert!((500_000..600_000).contains(&report.longest_wait_ns), "{report}");
    assert!((600_000..700_000).contains(&report.waited_ns), "{report}");
    assert_eq!((report.acquisitions, report.contended), (1, 0));
    assert_eq!((report.names, report.holders), (vec!["the lock".to_owned()], vec![0]));
    let (thread, waited) = report.waiters[0];
    assert_eq!((report.waiters.len(), thread, waited), (1, 1, report.longest_wait_ns));
}
