//! Sleep and wake, like the futex.

use crate::{Time, Words};

/// Why [`Sleep::park`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parked {
    /// The thread was woken, or woke spuriously (natively on signals).
    Woken,
    /// The word did not hold the expected value, so the thread did not sleep.
    Changed,
    /// The deadline passed.
    TimedOut,
}

/// The capability *sleep and wake*: a thread gives up its CPU until another thread says that a word
/// has changed.
pub trait Sleep: Words {
    /// Sleeps if `word` holds `expected`.
    ///
    /// The check and the start of the sleep are one step with respect to [`wake`](Sleep::wake): a
    /// waker that changes the word first and then wakes is never missed. Whatever it returns, the
    /// caller must read the word again.
    ///
    /// With `deadline`, a point of this world's [`Clock`](crate::Clock), the sleep ends then at the
    /// latest. In the model, which has no time, a park with a deadline always times out, after
    /// letting the others run.
    fn park(word: &Self::U32, expected: u32, deadline: Option<Time>) -> Parked;

    /// Wakes up to `count` threads that sleep on `word`, the longest sleeper first if the world has
    /// an order; returns how many. A `count` of zero wakes none.
    ///
    /// `word` may dangle by the time of the call: only its address is used. (So a wake may be the
    /// last access to a lock whose next owner frees its memory.)
    fn wake(word: *const Self::U32, count: u32) -> u32;
}
