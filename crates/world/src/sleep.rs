//! Sleep and wake, like a futex.

use crate::{Time, Words};

/// The reason for which [`Sleep::park`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parked {
    /// The thread was woken, or woke spuriously (natively on signals).
    Woken,
    /// The word did not hold the expected value, so the thread did not sleep.
    Changed,
    /// The deadline passed.
    TimedOut,
}

/// A thread that [parks](Sleep::park) without naming groups is a member of all.
const ALL_GROUPS: u32 = u32::MAX;

/// The capability *sleep and wake*: a thread gives up its CPU until another thread reports that a
/// word has changed.
pub trait Sleep: Words {
    /// Sleeps if `word` holds `expected`, until a wake.
    ///
    /// The check and the start of the sleep are one atomic step with respect to
    /// [`wake`](Sleep::wake). So the wake is never lost if a waker first changes the word and then
    /// wakes. The caller must read the word again, whatever the result is.
    ///
    /// `deadline` is a time of this world's [`Clock`](crate::Clock), at which the sleep ends at the
    /// latest. The model has no time. In the model, a park with a deadline always times out, after
    /// the other threads have run.
    #[track_caller]
    fn park(word: &Self::U32, expected: u32, deadline: Option<Time>) -> Parked {
        Self::park_as(word, expected, deadline, ALL_GROUPS)
    }

    /// Sleeps like [`park`](Sleep::park), as a member of these groups: each bit that is set is a
    /// group. [`wake_groups`](Sleep::wake_groups) wakes the members of some groups. So threads that
    /// wait for different events can sleep on one word. With no bit set, the call may return
    /// immediately.
    fn park_as(word: &Self::U32, expected: u32, deadline: Option<Time>, groups: u32) -> Parked;

    /// Wakes up to `count` threads that sleep on `word`, and returns the number of woken threads.
    /// If the world keeps sleepers in order, the thread that has slept longest is woken first. A
    /// `count` of zero wakes no thread.
    ///
    /// `word` may dangle at the time of the call, because only its address is used. So a wake may
    /// be the last access to a lock whose next owner frees its memory.
    fn wake(word: *const Self::U32, count: u32) -> u32 {
        Self::wake_groups(word, count, ALL_GROUPS)
    }

    /// Wakes threads like [`wake`](Sleep::wake), but only those that are members of one of these
    /// groups.
    fn wake_groups(word: *const Self::U32, count: u32, groups: u32) -> u32;
}
