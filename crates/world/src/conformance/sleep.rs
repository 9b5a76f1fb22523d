//! Laws of sleep and wake.

use core::time::Duration;
use std::sync::Arc;

use super::{race, spawn};
use crate::{Integer, JoinHandle, Ordering, Parked, Testbed, Time, Word};

/// Checks that a thread does not sleep if the word does not hold the expected value, whatever the
/// deadline is.
pub fn a_changed_word_does_not_put_to_sleep<W: Testbed>() {
    let word = W::U32::new_in(1);
    assert_eq!(W::park(&word, 0, None), Parked::Changed);
    assert_eq!(W::park(&word, 0, Some(W::now() + Duration::from_secs(3600))), Parked::Changed);
    assert_eq!(W::wake(&word, 1), 0, "no thread sleeps");
}

/// Checks that a sleep without a wake ends at its deadline, and not before. If the deadline has
/// passed, the sleep ends immediately.
pub fn a_deadline_ends_the_sleep<W: Testbed>() {
    let word = W::U32::new_in(0);
    for deadline in [Time::from_nanos(0), W::now() + Duration::from_millis(1)] {
        let mut parked = Parked::Woken;
        // A sleep may end for no reason.
        while parked == Parked::Woken {
            parked = W::park(&word, 0, Some(deadline));
        }
        assert_eq!(parked, Parked::TimedOut);
        assert!(!W::RUNS || W::now() >= deadline, "{} is before {deadline}", W::now());
    }
}

/// Checks that no wake-up is lost if the waker stores first and then wakes. No thread may sleep
/// forever.
///
/// This interleaving must not happen: the waiter reads 0, the waker stores 1 and finds no sleeping
/// thread, and then the waiter falls asleep.
pub fn no_wakeup_is_lost<W: Testbed>() {
    race::<W, _, _, _>(
        || W::U32::new_in(0),
        |word| {
            // Acquire, partner: the waker's release; nothing is published here but the word itself.
            while word.load(Ordering::Acquire) == 0 {
                W::park(word, 0, None);
            }
        },
        |word| {
            // Release, partner: the waiter's acquire.
            word.store(1, Ordering::Release);
            W::wake(word, u32::MAX)
        },
        |_, (), woken| assert!(woken <= 1, "{woken} woken of one"),
    );
}

/// Sleeps until the word is not 0 any more.
fn sleep_while_zero<W: Testbed>(word: &W::U32) {
    // Relaxed: the word carries nothing; that it is seen after a wake is the law of `park`.
    while word.load(Ordering::Relaxed) == 0 {
        W::park(word, 0, None);
    }
}

/// Checks that a wake of one thread wakes one thread, if any thread sleeps. Two threads sleep on
/// one word. The waker wakes one of them, which then wakes the other.
pub fn a_wake_of_one_wakes_one<W: Testbed>() {
    let word = Arc::new(W::U32::new_in(0));
    let sleepers = [(); 2].map(|()| {
        let word = Arc::clone(&word);
        spawn::<W, _>(move || {
            sleep_while_zero::<W>(&word);
            W::wake(&*word, 1)
        })
    });
    word.store(1, Ordering::Relaxed);
    assert!(W::wake(&*word, 1) <= 1);
    for sleeper in sleepers {
        assert!(sleeper.join() <= 1);
    }
}

/// Checks that a wake reaches only threads that sleep on its own word. Two threads sleep on two
/// words. The waker wakes the two, one after the other.
pub fn a_wake_is_for_its_word<W: Testbed>() {
    let words = Arc::new([W::U32::new_in(0), W::U32::new_in(0)]);
    let sleepers = [0, 1].map(|which| {
        let words = Arc::clone(&words);
        spawn::<W, _>(move || sleep_while_zero::<W>(&words[which]))
    });
    // The later sleeper first: a queue for both words would have the other in front.
    for (word, sleeper) in words.iter().zip(sleepers).rev() {
        word.store(1, Ordering::Relaxed);
        assert!(W::wake(word, 1) <= 1);
        sleeper.join();
    }
}

/// Checks that a wake of a group reaches only the members of this group. Two threads sleep on one
/// word, each in its own group. The waker wakes the two, one after the other.
pub fn a_wake_is_for_its_groups<W: Testbed>() {
    let word = Arc::new(W::U32::new_in(0));
    let groups = [1, 2];
    let sleepers = groups.map(|group| {
        let word = Arc::clone(&word);
        spawn::<W, _>(move || {
            loop {
                // Relaxed: the word carries nothing.
                let value = word.load(Ordering::Relaxed);
                if value & group != 0 {
                    break;
                }
                W::park_as(&word, value, None, group);
            }
        })
    });
    // The later sleeper first: without groups, the other one would be in front.
    for (group, sleeper) in groups.into_iter().zip(sleepers).rev() {
        // Relaxed: as above.
        word.fetch_or(group, Ordering::Relaxed);
        assert!(W::wake_groups(&*word, 1, group) <= 1);
        sleeper.join();
    }
}

/// Checks that a wake returns the number of threads that it has woken.
pub fn a_wake_says_that_it_woke_a_thread<W: Testbed>() {
    let word = Arc::new(W::U32::new_in(0));
    let theirs = Arc::clone(&word);
    let sleeper = spawn::<W, _>(move || sleep_while_zero::<W>(&theirs));
    // Ends, since the sleeper comes back to its sleep until the word changes.
    while W::wake(&*word, 1) == 0 {
        assert_eq!(W::wake(&*word, 0), 0, "a wake of none wakes none");
        W::yield_now();
    }
    word.store(1, Ordering::Relaxed);
    W::wake(&*word, 1);
    sleeper.join();
}
