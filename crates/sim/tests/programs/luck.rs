//! What a search reaches that a run by time seldom shows: what threads do after they have spun in
//! vain, spurious wake-ups, and weak exchanges that fail.

use std::sync::atomic::AtomicBool;

use coreline_sim::atomic::{AtomicUsize, Ordering::*};
use coreline_sim::hint::spin_loop;
use coreline_sim::sync::{Arc, Condvar, Mutex, RwLock};
use coreline_sim::{Explore, Failure, FailureKind, Faults, Machine, Schedule, search, thread};
use coreline_world::{Parked, Sleep, Word};

use crate::common::{U32, machine};
use crate::replays;

fn host() -> Machine {
    Machine::preset("host-2c").unwrap().step_limit(1_000_000)
}

fn under(schedule: &Schedule, runs: u64, program: fn()) -> Result<u64, Box<Failure>> {
    search((0..runs).map(|seed| host().seed(seed).schedule(schedule.clone())), program)
}

const PCT: Schedule = Schedule::Pct { depth: 3, steps: 100 };

/// Each way to search finds the failure, and its line brings it back.
fn all_find(program: fn(), is_it: fn(&Failure) -> bool) {
    for schedule in [Schedule::Random, PCT, Schedule::Pct { depth: 3, steps: 1000 }] {
        let failure = under(&schedule, 5000, program).expect_err(&schedule.to_string());
        assert!(is_it(&failure), "{failure}");
        replays(&failure, program);
    }
    let failure = Explore::new().preemptions(2).run(host, program).unwrap_err();
    assert!(is_it(&failure), "{failure}");
    replays(&failure, program);
}

fn is_deadlock(failure: &Failure) -> bool {
    failure.kind == FailureKind::Deadlock
}

/// A lock whose waiter parks after so many turns. A thread that gives it back looks for waiters and
/// frees it in two steps, so it misses a waiter that comes between.
fn parks_after<const TURNS: usize>(wait: fn()) {
    let word = Arc::new(AtomicUsize::new(1));
    let theirs = Arc::clone(&word);
    let waiter = thread::spawn(move || {
        for _ in 0..TURNS {
            if theirs.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                return;
            }
            wait();
        }
        while theirs.swap(2, Acquire) != 0 {
            thread::park();
        }
    });
    let seen = word.load(Relaxed);
    word.store(0, Release);
    if seen == 2 {
        waiter.thread().unpark();
    }
    waiter.join().unwrap();
}

#[test]
fn a_wake_up_that_is_lost_after_turns_of_spinning_is_found() {
    let programs: [fn(); 4] = [
        || parks_after::<0>(spin_loop),
        || parks_after::<3>(spin_loop),
        || parks_after::<10>(thread::yield_now),
        || parks_after::<100>(spin_loop),
    ];
    programs.into_iter().for_each(|program| all_find(program, is_deadlock));
}

/// A thread says that it sleeps only after it has looked this many times for something to do, and
/// does not look again.
fn sleeps_after<const TURNS: usize>() {
    let (work, sleeps) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let theirs = (Arc::clone(&work), Arc::clone(&sleeps));
    let worker = thread::spawn(move || {
        let (work, sleeps) = theirs;
        for _ in 0..TURNS {
            if work.load(SeqCst) == 1 {
                return;
            }
            spin_loop();
        }
        sleeps.store(1, SeqCst);
        thread::park();
    });
    work.store(1, SeqCst);
    if sleeps.load(SeqCst) == 1 {
        worker.thread().unpark();
    }
    worker.join().unwrap();
}

/// The same with one word, which the thread looks at and writes: it writes over what came.
fn overwrites_after<const TURNS: usize>() {
    let state = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&state);
    let worker = thread::spawn(move || {
        for _ in 0..TURNS {
            if theirs.load(SeqCst) == 1 {
                return;
            }
            spin_loop();
        }
        theirs.store(2, SeqCst);
        thread::park();
    });
    if state.swap(1, SeqCst) == 2 {
        worker.thread().unpark();
    }
    worker.join().unwrap();
}

/// A lock whose waiter says that it sleeps, and does not look whether the lock is free by then.
fn asks_after<const TURNS: usize>() {
    let state = Arc::new(AtomicUsize::new(1));
    let theirs = Arc::clone(&state);
    let waiter = thread::spawn(move || {
        for _ in 0..TURNS {
            if theirs.compare_exchange(0, 1, SeqCst, SeqCst).is_ok() {
                return;
            }
            spin_loop();
        }
        theirs.fetch_or(2, SeqCst);
        thread::park();
    });
    if state.swap(0, SeqCst) & 2 != 0 {
        waiter.thread().unpark();
    }
    waiter.join().unwrap();
}

/// The other thread comes between the last turn and the first access behind the loop.
#[test]
fn a_wake_up_that_is_lost_at_the_end_of_spinning_is_found() {
    let programs: [fn(); 4] =
        [sleeps_after::<3>, sleeps_after::<100>, overwrites_after::<100>, asks_after::<100>];
    for program in programs {
        for schedule in [Schedule::Random, PCT] {
            let failure = under(&schedule, 10_000, program).expect_err(&schedule.to_string());
            assert!(is_deadlock(&failure), "{failure}");
            replays(&failure, program);
        }
        let failure = Explore::new().preemptions(3).run(host, program).unwrap_err();
        assert!(is_deadlock(&failure), "{failure}");
        replays(&failure, program);
    }
}

#[test]
fn a_recursive_read_with_a_writer_between_is_found() {
    let program = || {
        let lock = Arc::new(RwLock::new(0));
        let theirs = Arc::clone(&lock);
        let writer = thread::spawn(move || *theirs.write().unwrap() += 1);
        let first = lock.read().unwrap();
        let second = lock.read().unwrap();
        drop((first, second));
        writer.join().unwrap();
    };
    all_find(program, is_deadlock);
}

#[test]
fn a_loop_without_an_end_of_its_own_leaves_the_exploration_incomplete() {
    let explored = |program: fn()| Explore::new().preemptions(1).run(host, program).unwrap();
    let endless = || {
        let flag = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&flag);
        let setter = thread::spawn(move || theirs.store(1, Release));
        while flag.load(Acquire) == 0 {
            spin_loop();
        }
        setter.join().unwrap();
    };
    assert!(!explored(endless).complete);
    let bounded = || {
        let flag = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&flag);
        let setter = thread::spawn(move || theirs.store(1, Release));
        for _ in 0..100 {
            if flag.load(Acquire) == 1 {
                break;
            }
            spin_loop();
        }
        setter.join().unwrap();
    };
    assert!(explored(bounded).complete);
}

#[test]
fn a_thread_that_goes_on_alone_still_lets_others_run_in_the_end() {
    let program = || {
        let flag = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&flag);
        let setter = thread::spawn(move || theirs.store(1, Release));
        // Turns that it may make alone, and then a loop that has none.
        (0..10).for_each(|_| spin_loop());
        while flag.load(Acquire) == 0 {}
        setter.join().unwrap();
    };
    for schedule in [Schedule::Random, PCT] {
        assert_eq!(under(&schedule, 100, program), Ok(100));
    }
    Explore::new().preemptions(1).run(host, program).unwrap();
}

#[test]
fn a_thread_that_does_not_expect_a_spurious_wake_up_is_found() {
    fn is_early(failure: &Failure) -> bool {
        failure.to_string().contains("nothing was ready")
    }

    let parks = || {
        let ready = Arc::new(AtomicUsize::new(0));
        let (theirs, main) = (Arc::clone(&ready), thread::current());
        let setter = thread::spawn(move || {
            theirs.store(1, Release);
            main.unpark();
        });
        thread::park();
        assert_eq!(ready.load(Acquire), 1, "nothing was ready");
        setter.join().unwrap();
    };
    let waits = || {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = Arc::clone(&pair);
        let setter = thread::spawn(move || {
            *theirs.0.lock().unwrap() = true;
            theirs.1.notify_one();
        });
        let mut is_ready = pair.0.lock().unwrap();
        if !*is_ready {
            is_ready = pair.1.wait(is_ready).unwrap();
        }
        assert!(*is_ready, "nothing was ready");
        drop(is_ready);
        setter.join().unwrap();
    };
    let sleeps = || {
        let ready = Arc::new(U32::new_in(0));
        let theirs = Arc::clone(&ready);
        let setter = thread::spawn(move || {
            theirs.store(1, Release);
            coreline_sim::Sim::wake(&*theirs, 1);
        });
        if coreline_sim::Sim::park(&ready, 0, None) == Parked::Woken {
            assert_eq!(ready.load(Acquire), 1, "nothing was ready");
        }
        setter.join().unwrap();
    };
    for program in [parks as fn(), waits, sleeps] {
        all_find(program, is_early);
        // Never by time, and never if the faults are set to none.
        search((0..200).map(|seed| host().seed(seed)), program).unwrap();
        let none = |seed| host().seed(seed).schedule(Schedule::Random).faults(Faults::NONE);
        search((0..200).map(none), program).unwrap();
    }
}

#[test]
fn a_weak_exchange_that_is_taken_for_a_strong_one_is_found() {
    let program = || {
        let taken = AtomicBool::new(false);
        let word = AtomicUsize::new(0);
        // No other thread wants it, so it "cannot" fail.
        taken.store(word.compare_exchange_weak(0, 1, AcqRel, Relaxed).is_ok(), Relaxed);
        assert!(taken.load(Relaxed), "it failed alone");
    };
    all_find(program, |failure| failure.to_string().contains("it failed alone"));
    search((0..200).map(|seed| host().seed(seed)), program).unwrap();
}

#[test]
fn the_line_of_a_search_has_its_faults_and_an_older_line_has_none() {
    let line = |machine: Machine| machine.replay_line().to_string();
    assert!(line(machine("host-2c", 1)).contains(" faults=none "));
    let searching = line(machine("host-2c", 1).schedule(Schedule::Random));
    assert!(searching.contains(" faults=search schedule=random memory=on "), "{searching}");
    let old = "coreline-sim/1 machine=host-2c seed=1 request=30 faults=none schedule=random \
               program=old";
    assert_eq!(line(Machine::replay(&old.parse().unwrap()).unwrap()), old);
}
