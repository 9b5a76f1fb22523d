//! Laws of time.

use core::time::Duration;

use super::{race, rounds};
use crate::{Ordering, Testbed, Word};

/// Checks that time never goes back, for one thread or along a message from one thread to another.
pub fn time_never_goes_back<W: Testbed>() {
    let mut last = W::now();
    for _ in 0..rounds::<W>() {
        let now = W::now();
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
    race::<W, _, _, _>(
        || W::U32::new_in(0),
        |word| {
            let sent = W::now();
            // Release, partner: the receiver's acquire, which orders the two looks at the clock.
            word.store(1, Ordering::Release);
            sent
        },
        |word| {
            // Acquire, partner: the sender's release.
            word.wait_until(Ordering::Acquire, |value| value != 0);
            W::now()
        },
        |_, sent, received| assert!(received >= sent, "received at {received}, sent at {sent}"),
    );
}

/// Checks that a sleep takes at least the requested time, if time passes.
pub fn a_sleep_lasts<W: Testbed>() {
    let span = Duration::from_millis(1);
    let start = W::now();
    W::sleep(span);
    let slept = W::now() - start;
    assert!(!W::RUNS || slept >= span, "slept {slept:?} of {span:?}");
}
