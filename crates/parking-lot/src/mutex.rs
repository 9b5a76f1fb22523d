//! [`Mutex`] and [`FairMutex`].

use std::time::{Duration, Instant};

use coreline::lock;
use coreline::world::{Clock, Native};
use lock_api_0_4 as lock_api;

use crate::GuardMarker;

/// A mutual exclusion lock. See [`coreline::Mutex`] for fairness, priorities, signals and fork.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// The guard of a [`Mutex`]. Dropping it frees the lock.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// The guard of a part of a [`Mutex`]'s data.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;

/// A mutual exclusion lock whose waiters get it in FIFO order. Each unlock hands the lock to the
/// first waiter in the queue. [`unlock_fair`](coreline::lock::RawMutex::unlock_fair) says how long
/// a thread takes to enter the queue, and which threads may still be overtaken. These are threads
/// that queue just when the lock is freed, and threads without a node. If at least 512 waiters gave
/// up, they are also threads behind the node of such a waiter.
///
/// A hand-over to a thread that sleeps takes as long as a wake-up. One to a thread that was
/// preempted, or has a low priority, takes as long as the kernel takes to schedule it. Meanwhile no
/// thread has the lock. So under contention this lock has a lower throughput than a [`Mutex`].
pub type FairMutex<T> = lock_api::Mutex<RawFairMutex, T>;
/// The guard of a [`FairMutex`]. Dropping it frees the lock.
pub type FairMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawFairMutex, T>;
/// The guard of a part of a [`FairMutex`]'s data.
pub type MappedFairMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawFairMutex, T>;

/// Creates a free [`Mutex`], also in a `static`. `Mutex::new` does the same.
pub const fn const_mutex<T>(val: T) -> Mutex<T> {
    Mutex::const_new(<RawMutex as lock_api::RawMutex>::INIT, val)
}

/// Creates a free [`FairMutex`], also in a `static`. `FairMutex::new` does the same.
pub const fn const_fair_mutex<T>(val: T) -> FairMutex<T> {
    FairMutex::const_new(<RawFairMutex as lock_api::RawMutex>::INIT, val)
}

/// The lock of a [`Mutex`], without data.
#[derive(Debug)]
pub struct RawMutex(pub(crate) lock::RawMutex);

/// The lock of a [`FairMutex`], without data.
#[derive(Debug)]
pub struct RawFairMutex(lock::RawMutex<lock::Fifo>);

macro_rules! raw {
    ($Lock:ident, $unlock:ident) => {
        // SAFETY: the lock excludes, as the laws of `coreline` say.
        unsafe impl lock_api::RawMutex for $Lock {
            const INIT: Self = $Lock(lock::RawMutex::const_new());

            type GuardMarker = GuardMarker;

            #[inline]
            fn lock(&self) {
                self.0.lock();
            }

            #[inline]
            fn try_lock(&self) -> bool {
                self.0.try_lock()
            }

            #[inline]
            unsafe fn unlock(&self) {
                // SAFETY: the caller holds the lock, as it promises.
                unsafe { self.0.$unlock() };
            }

            #[inline]
            fn is_locked(&self) -> bool {
                self.0.is_locked()
            }
        }

        // SAFETY: the lock excludes, whichever of its two functions frees it.
        unsafe impl lock_api::RawMutexFair for $Lock {
            #[inline]
            unsafe fn unlock_fair(&self) {
                // SAFETY: the caller holds the lock, as it promises.
                unsafe { self.0.unlock_fair() };
            }

            #[inline]
            unsafe fn bump(&self) {
                // SAFETY: the caller holds the lock, as it promises.
                unsafe { self.0.bump() };
            }
        }

        // SAFETY: what says that it took the lock has taken it.
        unsafe impl lock_api::RawMutexTimed for $Lock {
            type Duration = Duration;
            type Instant = Instant;

            #[inline]
            fn try_lock_for(&self, timeout: Duration) -> bool {
                self.0.try_lock() || self.0.lock_by(Native::now() + timeout)
            }

            #[inline]
            fn try_lock_until(&self, timeout: Instant) -> bool {
                self.0.try_lock() || self.0.lock_by(timeout.into())
            }
        }
    };
}

raw!(RawMutex, unlock);
raw!(RawFairMutex, unlock_fair);
