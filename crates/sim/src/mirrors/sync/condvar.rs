//! The condition variable.

use core::fmt;
use core::panic::Location;
use core::time::Duration;
use std::sync::{LockResult, PoisonError};

use coreline_world::{
    ConstWords as _, Integer as _, Ordering, Parked, Sleep as _, Time, Word as _,
};

use super::MutexGuard;
use crate::Sim;
use crate::mirrors::time::Instant;
use crate::words::SimU32;

/// The result of a timed wait, which tells whether the wait timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the wait timed out.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// A condition variable like [`std::sync::Condvar`], but its accesses are charged. It is a word
/// that counts notifications. Waiters park on this word.
pub struct Condvar(SimU32);

/// A guard after a wait, and why the wait ended.
type Waited<'a, T> = LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>;

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Condvar {
        Condvar(Sim::U32_ZERO)
    }

    /// Releases the lock, parks until a notification, and takes the lock again. The thread may wake
    /// spuriously.
    ///
    /// # Errors
    ///
    /// An error that holds the guard, if a thread panicked while it held the lock.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.park(&guard, None);
        guard.again()
    }

    /// Waits as long as `condition` holds.
    ///
    /// # Errors
    ///
    /// The same errors as for [`wait`](Condvar::wait).
    #[track_caller]
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// Waits like [`wait`](Condvar::wait), but for at most `span`.
    ///
    /// # Errors
    ///
    /// The same errors as for [`wait`](Condvar::wait).
    #[track_caller]
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, span: Duration) -> Waited<'a, T> {
        let timed_out = self.park(&guard, Instant::deadline(span)) == Parked::TimedOut;
        let with = |guard| (guard, WaitTimeoutResult(timed_out));
        match guard.again() {
            Ok(guard) => Ok(with(guard)),
            Err(error) => Err(PoisonError::new(with(error.into_inner()))),
        }
    }

    /// Waits like [`wait_while`](Condvar::wait_while), but for at most `span`.
    ///
    /// # Errors
    ///
    /// The same errors as for [`wait`](Condvar::wait).
    #[track_caller]
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        span: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Waited<'a, T> {
        let start = Instant::now();
        loop {
            if !condition(&mut *guard) {
                return Ok((guard, WaitTimeoutResult(false)));
            }
            let Some(left) = span.checked_sub(start.elapsed()) else {
                return Ok((guard, WaitTimeoutResult(true)));
            };
            guard = self.wait_timeout(guard, left)?.0;
        }
    }

    /// Gives the lock back, parks, and takes the lock again.
    #[track_caller]
    fn park<T>(&self, guard: &MutexGuard<'_, T>, deadline: Option<Time>) -> Parked {
        // Relaxed: the lock orders. A notification after the lock is given back changes the count,
        // so that the park below returns immediately.
        let count = self.0.load(Ordering::Relaxed);
        guard.raw().unlock(Location::caller());
        let parked = Sim::park(&self.0, count, deadline);
        guard.raw().lock();
        parked
    }

    /// Wakes one waiter.
    #[track_caller]
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all waiters.
    #[track_caller]
    pub fn notify_all(&self) {
        self.notify(u32::MAX);
    }

    #[track_caller]
    fn notify(&self, count: u32) {
        // Relaxed: see `park`.
        self.0.fetch_add(1, Ordering::Relaxed);
        Sim::wake(&self.0, count);
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Condvar::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
