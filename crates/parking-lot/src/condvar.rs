//! [`Condvar`].

use std::time::{Duration, Instant};
use std::{fmt, ptr};

use coreline::world::{Clock, Native, Time};
use lock_api_0_4 as lock_api;
use lock_api_0_4::MutexGuard;

use crate::waiters::Waiters;

/// Whether a wait ended by its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the wait ended by its deadline, and not by a notification.
    #[inline]
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// A condition variable, for a [`Mutex`](crate::Mutex) or any other mutex of `lock_api`.
///
/// A wait ends by a notification or by its deadline, and by nothing else. Threads are notified in
/// the order in which they began to wait. A wait that ends takes the mutex again before it returns,
/// even if that takes longer than the deadline. If no thread waits, a notification costs a load.
///
/// **Size**: 16 bytes. A waiter's entry in the queue lies on its own stack.
///
/// **Panics**: a wait panics if another thread waits with another mutex.
///
/// **Signals**: no function may be called in a signal handler.
///
/// **Fork**: threads that wait at the time of the fork do not exist in the child, which must not
/// notify them.
pub struct Condvar(Waiters);

impl Condvar {
    /// Creates a condition variable for which no thread waits, also in a `static`.
    #[inline]
    pub const fn new() -> Condvar {
        Condvar(Waiters::const_new())
    }

    /// Notifies the thread that has waited longest. Returns whether there was one.
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.0.notify(1) == 1
    }

    /// Notifies all threads that wait, and returns their number.
    #[inline]
    pub fn notify_all(&self) -> usize {
        self.0.notify(usize::MAX)
    }

    /// Frees the mutex, waits for a notification, and takes the mutex again.
    #[inline]
    pub fn wait<R: lock_api::RawMutex, T: ?Sized>(&self, guard: &mut MutexGuard<'_, R, T>) {
        self.wait_by(guard, None);
    }

    /// Waits like [`wait`](Condvar::wait), at most until `timeout`.
    #[inline]
    pub fn wait_until<R: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        timeout: Instant,
    ) -> WaitTimeoutResult {
        self.wait_by(guard, Some(timeout.into()))
    }

    /// Waits like [`wait`](Condvar::wait), for at most `timeout`.
    #[inline]
    pub fn wait_for<R: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_by(guard, Some(Native::now() + timeout))
    }

    /// Waits as long as `condition` returns true. `condition` is called under the mutex.
    #[inline]
    pub fn wait_while<R: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) {
        self.wait_while_by(guard, condition, None);
    }

    /// Waits like [`wait_while`](Condvar::wait_while), at most until `timeout`. The condition is
    /// not called again after that.
    #[inline]
    pub fn wait_while_until<R: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Instant,
    ) -> WaitTimeoutResult {
        self.wait_while_by(guard, condition, Some(timeout.into()))
    }

    /// Waits like [`wait_while`](Condvar::wait_while), for at most `timeout`. The condition is not
    /// called again after that.
    #[inline]
    pub fn wait_while_for<R: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_while_by(guard, condition, Some(Native::now() + timeout))
    }

    fn wait_by<R: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        deadline: Option<Time>,
    ) -> WaitTimeoutResult {
        // SAFETY: only its address is used.
        let mutex = ptr::from_ref(unsafe { MutexGuard::mutex(guard).raw() }).addr();
        let unlocked = |sleep: &dyn Fn() -> bool| MutexGuard::unlocked(guard, sleep);
        WaitTimeoutResult(!self.0.wait(mutex, deadline, unlocked))
    }

    fn wait_while_by<R: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        deadline: Option<Time>,
    ) -> WaitTimeoutResult {
        let mut late = WaitTimeoutResult(false);
        while !late.0 && condition(guard) {
            late = self.wait_by(guard, deadline);
        }
        late
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
