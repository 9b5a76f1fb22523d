//! Laws of waits with a deadline.

use core::time::Duration;

use super::race;
use crate::{Ordering, Testbed, Time, Word};

/// A point that no law lasts to.
pub(super) fn late<W: Testbed>() -> Time {
    W::now() + Duration::from_secs(3600)
}

/// A point within the next microsecond, another one each time: what the other side of a race does
/// comes before it, after it, or at the same time.
fn soon<W: Testbed>() -> Time {
    let now = W::now();
    now + Duration::from_nanos(now.as_nanos() * 7919 % 1024)
}

/// Checks that a value that is accepted at the first read is returned, even if the deadline has
/// passed.
pub fn a_bounded_wait_takes_what_is_there<W: Testbed>() {
    let word = W::U32::new_in(7);
    for deadline in [Time::from_nanos(0), W::now(), late::<W>()] {
        let mut looks = 0;
        let found = word.wait_until_by(Ordering::Relaxed, deadline, |value| {
            looks += 1;
            value == 7
        });
        assert_eq!((found, looks), (Some(7), 1));
    }
}

/// Checks that a wait for a value that never comes gives up. Its last read must end no earlier than
/// the deadline, and there must be at least one read.
pub fn a_bounded_wait_gives_up_at_its_deadline<W: Testbed>() {
    let word = W::U32::new_in(0);
    for deadline in [Time::from_nanos(0), W::now(), W::now() + Duration::from_millis(1)] {
        let mut last = None;
        let found = word.wait_until_by(Ordering::Relaxed, deadline, |value| {
            last = Some(W::now());
            value != 0
        });
        assert_eq!(found, None);
        let last = last.expect("the word is looked at");
        assert!(!W::RUNS || last >= deadline, "the last look was at {last}, not at {deadline}");
    }
}

/// Checks that a value that is written before the deadline is found, in every interleaving.
///
/// This interleaving must not happen: the waiter reads 0, the writer writes 1 before the deadline,
/// and then the waiter finds that the deadline has passed, and gives up.
pub fn a_bounded_wait_misses_nothing_before_its_deadline<W: Testbed>() {
    race::<W, _, _, _>(
        || W::U32::new_in(0),
        |word| {
            word.swap(1, Ordering::SeqCst);
            // SeqCst: what was written is there for all before the clock is read.
            W::fence(Ordering::SeqCst);
            W::now()
        },
        |word| {
            let deadline = soon::<W>();
            (deadline, word.wait_until_by(Ordering::Relaxed, deadline, |value| value == 1))
        },
        |_, written, (deadline, found)| {
            assert!(
                !W::RUNS || found.is_some() || written >= deadline,
                "written before {written}, and not found at {deadline}"
            );
        },
    );
}

/// Checks that a waiter that gives up and a writer can agree, with an exchange, which of the two
/// was first. No wake-up and no deadline may be lost.
pub fn a_wait_that_is_given_up_and_a_grant_agree<W: Testbed>() {
    const GRANTED: u32 = 1;
    const GIVEN_UP: u32 = 2;
    // Relaxed: the word carries nothing but itself.
    let (relaxed, settle) = (Ordering::Relaxed, |word: &W::U32, to| {
        word.compare_exchange(0, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    });
    race::<W, _, _, _>(
        || W::U32::new_in(0),
        move |word| settle(word, GRANTED),
        move |word| match word.wait_until_by(relaxed, soon::<W>(), |value| value != 0) {
            Some(value) => {
                assert_eq!(value, GRANTED);
                true
            }
            None => !settle(word, GIVEN_UP),
        },
        |word, granted, taken| {
            assert_eq!(granted, taken);
            assert_eq!(word.load(Ordering::Relaxed), if granted { GRANTED } else { GIVEN_UP });
        },
    );
}
