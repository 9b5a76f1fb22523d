//! [`Condvar`]: threads free a lock and wait for a condition that the lock protects.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `calls` | how many notifications there were, modulo 2³² | notifiers |
//! | `waiters` | how many threads wait, are about to wait, or have just stopped waiting | waiters |
//!
//! A waiter notes `calls` while it holds the lock. It sleeps if `calls` is still the same after it
//! has freed the lock. So no notification after the lock was freed is lost. A notification that
//! comes exactly a multiple of 2³² notifications later, between a waiter's two reads of the count,
//! would be lost. We accept that, as the standard library does.
//!
//! # Why there is a second one
//!
//! `coreline-parking-lot` has a condition variable of its own, because `parking_lot` promises more:
//! no wait ends without a notification, the longest wait ends first, and a notification returns how
//! many threads it found. For that, the waiters are in a list, under a lock. A signal handler that
//! interrupts the holder of that lock could not notify. The list, its lock and a tail also do not
//! fit in 8 bytes. Here, the whole state is two counts.
//!
//! # Law
//!
//! A thread finds a condition false under the lock, and waits. It is woken by each notification
//! that follows the change of the condition under the lock. In the repository,
//! `tests/laws/locks/condvar.rs` checks it.

use core::ops::DerefMut;
use core::time::Duration;

use coreline_world::{ConstWorld, Integer, Native, Ordering, Parked, Time, Word, World};

use super::MutexGuard;
use super::osq::Order;

/// A condition variable of 8 bytes, for a [`Mutex`](super::Mutex), or a mutex of `lock_api`.
///
/// ```
/// use coreline::Mutex;
/// use coreline::lock::Condvar;
///
/// static READY: Mutex<bool> = Mutex::new(false);
/// static CHANGED: Condvar = Condvar::new();
///
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         *READY.lock() = true;
///         CHANGED.notify_one();
///     });
///     let mut ready = READY.lock();
///     CHANGED.wait_while(&mut ready, |ready| !*ready);
///     assert!(*ready);
/// });
/// ```
///
/// A waiter may wake without a notification, so wait in a loop, or use
/// [`wait_while`](Condvar::wait_while). Change the condition under the lock. The notification may
/// come after the lock is freed. If no thread waits, a notification costs a load and no system
/// call. Threads that wait for one condition at the same time may hold different locks.
///
/// **Panics**: no method panics.
///
/// **Signals**: notifying is safe in a signal handler. Waiting is as unsafe as locking.
///
/// **Fork**: the waiting threads do not exist in the child. The child may still count them. In that
/// case, each notification costs a system call.
#[repr(C)]
pub struct Condvar<W: World = Native> {
    calls: W::U32,
    waiters: W::U32,
}

const _: () = assert!(size_of::<Condvar<Native>>() == 8);

/// Whether a wait timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut(pub bool);

/// A guard that can free its mutex for a while, as a wait for a [`Condvar`] in world `W` does. A
/// [`MutexGuard`] of that world is such a guard. With the feature `lock_api` or `lock_api_0_4`, so
/// is that crate's `MutexGuard` of any raw mutex.
pub trait Suspend<W: World>: DerefMut {
    /// Frees the mutex, calls `f`, and takes the mutex again, even after a panic.
    fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R;
}

impl<T: ?Sized, O: Order, W: World> Suspend<W> for MutexGuard<'_, T, O, W> {
    fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        MutexGuard::unlocked(guard, f)
    }
}

#[cfg(feature = "lock_api")]
impl<M: lock_api::RawMutex, T: ?Sized, W: World> Suspend<W> for lock_api::MutexGuard<'_, M, T> {
    fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        lock_api::MutexGuard::unlocked(guard, f)
    }
}

#[cfg(feature = "lock_api_0_4")]
impl<M: lock_api_0_4::RawMutex, T: ?Sized, W: World> Suspend<W>
    for lock_api_0_4::MutexGuard<'_, M, T>
{
    fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        lock_api_0_4::MutexGuard::unlocked(guard, f)
    }
}

impl<W: World> Condvar<W> {
    /// Creates a condition variable in a const context, in any [`ConstWorld`].
    pub const fn const_new() -> Self
    where
        W: ConstWorld,
    {
        Condvar { calls: W::U32_ZERO, waiters: W::U32_ZERO }
    }

    /// Creates a condition variable for which no thread waits, in world `W`.
    pub fn new_in() -> Self {
        Condvar { calls: W::U32::new_in(0), waiters: W::U32::new_in(0) }
    }

    /// Frees the lock, waits for a notification, and takes the lock again.
    pub fn wait(&self, guard: &mut impl Suspend<W>) {
        self.sleep(guard, None);
    }

    /// Waits as long as `condition` returns true. `condition` is called under the lock.
    pub fn wait_while<G: Suspend<W>>(
        &self,
        guard: &mut G,
        mut condition: impl FnMut(&mut G::Target) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Waits as long as `condition` returns true, but until `deadline` at most. The condition is
    /// then checked once more, and the result says whether it was still true.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use coreline::Mutex;
    /// use coreline::lock::{Condvar, TimedOut};
    ///
    /// let (count, changed) = (Mutex::new(0), Condvar::new());
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// let late = changed.wait_while_by(&mut count.lock(), |count| *count == 0, deadline.into());
    /// assert_eq!(late, TimedOut(true));
    /// ```
    pub fn wait_while_by<G: Suspend<W>>(
        &self,
        guard: &mut G,
        mut condition: impl FnMut(&mut G::Target) -> bool,
        deadline: Time,
    ) -> TimedOut {
        let mut late = TimedOut(false);
        while condition(guard) {
            if late.0 {
                return late;
            }
            late = self.wait_by(guard, deadline);
        }
        TimedOut(false)
    }

    /// Waits, like [`wait`](Condvar::wait), but until `deadline` at most. The call always takes the
    /// lock again, even if that takes longer.
    pub fn wait_by(&self, guard: &mut impl Suspend<W>, deadline: Time) -> TimedOut {
        TimedOut(self.sleep(guard, Some(deadline)) == Parked::TimedOut)
    }

    /// Waits, like [`wait`](Condvar::wait), but for `span` at most. It then takes the lock again,
    /// which may take longer.
    pub fn wait_for(&self, guard: &mut impl Suspend<W>, span: Duration) -> TimedOut {
        self.wait_by(guard, W::now() + span)
    }

    /// Wakes one waiting thread. If the world keeps waiters in order, this is the thread that has
    /// waited longest.
    #[inline]
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all waiting threads.
    #[inline]
    pub fn notify_all(&self) {
        self.notify(u32::MAX);
    }

    #[inline]
    fn notify(&self, count: u32) {
        // Relaxed: a waiter counted itself under the lock. The caller has had the lock since, if
        // the waiter was before it, and sees the count; otherwise the waiter sees the condition.
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.call(count);
        }
    }

    #[cold]
    #[inline(never)]
    fn call(&self, count: u32) {
        // Relaxed: what is seen under the lock comes with the lock.
        self.calls.fetch_add(1, Ordering::Relaxed);
        W::wake(&raw const self.calls, count);
    }

    fn sleep<G: Suspend<W>>(&self, guard: &mut G, deadline: Option<Time>) -> Parked {
        // Relaxed: counted under the lock; see `notify`.
        self.waiters.fetch_add(1, Ordering::Relaxed);
        // Relaxed: read under the lock. A notification that follows a change under the lock comes
        // after this, and is seen by `park`.
        let calls = self.calls.load(Ordering::Relaxed);
        G::unlocked(guard, || {
            let parked = W::park(&self.calls, calls, deadline);
            // Relaxed: a count.
            self.waiters.fetch_sub(1, Ordering::Relaxed);
            parked
        })
    }
}

impl_default!(
    [W: ConstWorld] Condvar<W>, const_new,
    "Creates a condition variable for which no thread waits, also in a `static`."
);

impl_debug!([W: World] Condvar<W> { .. });
