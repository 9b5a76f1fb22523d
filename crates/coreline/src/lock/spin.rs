//! How long a waiter spins before it sleeps.

use core::time::Duration;

use coreline_world::{Ordering, Time, Word, World};

/// A waiter spins for so long at most. A sleep and the wake-up take some microseconds of two CPUs,
/// and many more where a CPU that idles must be woken: so long a waiter may try to spare them.
pub(super) const MOST: Duration = Duration::from_micros(100);

/// Between two looks at the clock.
const STEP: Duration = Duration::from_micros(10);

/// A step that takes so much longer was interrupted: another thread had the CPU.
const GAP: Duration = Duration::from_micros(10);

/// How spinning ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spun {
    /// The word holds this value, which was accepted.
    Ready(u32),
    /// The time is over.
    Late,
    /// Another thread wants the CPU, and may be the one that is waited for.
    Wanted,
}

/// Spins until `ready` accepts the word's value, with Acquire, or until `end`, or until another
/// thread wants the CPU. In the model, where no time passes, one look is all.
///
/// That another thread wants the CPU shows in the time that passes: the spinning thread was not
/// running, and comes back late.
pub(super) fn spin<W: World>(
    word: &W::U32,
    mut now: Time,
    end: Time,
    ready: impl Fn(u32) -> bool,
) -> Spun {
    loop {
        let step = end.min(now + STEP);
        // Acquire: pairs with the Release of the thread that hands over; the caller names it.
        if let Some(value) = word.wait_until_by(Ordering::Acquire, step, &ready) {
            return Spun::Ready(value);
        }
        now = W::now();
        if now - step >= GAP || W::need_resched() {
            return Spun::Wanted;
        }
        if now >= end {
            return Spun::Late;
        }
        if !W::RUNS {
            return Spun::Wanted;
        }
    }
}
