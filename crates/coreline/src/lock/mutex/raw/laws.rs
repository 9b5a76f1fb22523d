//! A hand-over beside a thread that leaves: by the steps of both, because no caller sees them.

use std::sync::Arc;

use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{JoinHandle, Placement, Threads, Words};

use super::super::super::Fifo;
use super::*;

/// A thread hands the lock to a first waiter that leaves, takes it back, and hands it to a thread
/// that waits. The leaver finds the lock, if it does, by `finds`. The lock is the waiter's then.
fn hand_over_behind_a_leaver(finds: fn(&RawMutex<Fifo, Model>) -> bool) {
    let shared = Arc::new((RawMutex::<Fifo, Model>::new_in(), <Model as Words>::U32::new_in(0)));
    let (lock, handed) = &*shared;
    lock.lock();
    // On behalf of the leaver, whose deadline has passed, and which has withdrawn its request.
    let waited = lock.queue.wait(None, Manner::SpinsAndSleeps, None::<fn() -> Option<()>>);
    let Waited::Turn(first) = waited else { unreachable!("no other thread is there") };
    lock.unlock_slowly(!0);
    let theirs = Arc::clone(&shared);
    let leave = move || {
        let (lock, handed) = &*theirs;
        Osq::<Fifo, Model>::wake(lock.queue.pass(first));
        if finds(lock) {
            // Relaxed: written under the lock.
            assert_eq!(handed.load(Ordering::Relaxed), 0, "it was the waiter's");
            // SAFETY: this thread holds the lock.
            unsafe { lock.unlock() };
        }
    };
    let leaver = Model::spawn(Placement::Anywhere, leave).expect("a thread");
    if lock.take_unclaimed() {
        let theirs = Arc::clone(&shared);
        let wait = move || {
            theirs.0.lock();
            // SAFETY: this thread holds the lock.
            unsafe { theirs.0.unlock() };
        };
        let waiter = Model::spawn(Placement::Anywhere, wait).expect("a thread");
        while lock.queue.is_empty() {
            Model::relax();
        }
        // Relaxed: under the lock.
        handed.store(1, Ordering::Relaxed);
        // SAFETY: this thread holds the lock.
        unsafe { lock.unlock_fair() };
        waiter.join();
    }
    leaver.join();
    assert!(lock.try_lock(), "the lock is handed to no thread");
}

#[test]
fn a_thread_that_leaves_takes_no_lock_that_was_handed_to_another_in_every_interleaving() {
    let checker = || Checker::new().preemption_bound(4).plant(Plant::EXCHANGES);
    checker().check(|| hand_over_behind_a_leaver(RawMutex::take_unclaimed));
    // Planted: the leaver keeps what it finds, or does not look.
    let keeps = checker().try_check(|| hand_over_behind_a_leaver(RawMutex::take_back));
    let found = keeps.expect_err("a lock that was another thread's");
    assert!(found.message.contains("it was the waiter's"), "{found}");
    let looks_away = checker().try_check(|| hand_over_behind_a_leaver(|_| false));
    let found = looks_away.expect_err("a lock that no thread takes");
    assert!(found.message.contains("handed to no thread"), "{found}");
}
