//! The traits of `lock_api`, by which programs that use `parking_lot` can take another lock.
//!
//! Points in time are those of the world, [`Time`]: an algorithm knows no other clock.

use core::time::Duration;

use coreline_world::{ConstWorld, Lacking, Time};

use super::{Order, RawBiasedRwLock, RawMutex, RawRwLock, Readers};

/// The traits of one version. They differ in what a lock returns: a `$held`, which `$hold` makes,
/// or for a trial a `$tried`, which `$try` makes from the success of the trial. The end of a
/// section gets the `$guard` back.
macro_rules! traits {
    (
        $api:ident, mutex { $($of_mutex:tt)* }, rwlock { $($of_rwlock:tt)* },
        held $held:ty = $hold:expr, tried $tried:ty = $try:expr, guard ($($guard:ident)?)
    ) => {
        use $api::GuardNoSend;

        use super::*;

        // SAFETY: the lock excludes, as its laws say.
        unsafe impl<O: Order, W: ConstWorld> $api::RawMutex for RawMutex<O, W> {
            const INIT: Self = Self::const_new();

            $($of_mutex)*

            #[inline]
            fn lock(&self) -> $held {
                self.lock();
                $hold
            }

            #[inline]
            fn try_lock(&self) -> $tried {
                $try(self.try_lock())
            }

            #[inline]
            unsafe fn unlock(&self $(, $guard: GuardNoSend)?) {
                // SAFETY: the caller holds the lock, as it promises.
                unsafe { self.unlock() };
            }

            fn is_locked(&self) -> bool {
                self.is_locked()
            }
        }

        // SAFETY: what says that it took the lock has taken it.
        unsafe impl<O: Order, W: ConstWorld> $api::RawMutexTimed for RawMutex<O, W> {
            type Duration = Duration;
            type Instant = Time;

            fn try_lock_for(&self, timeout: Duration) -> $tried {
                $try(self.try_lock() || self.lock_by(W::now() + timeout))
            }

            fn try_lock_until(&self, timeout: Time) -> $tried {
                $try(self.lock_by(timeout))
            }
        }

        rwlock! {
            $api, { $($of_rwlock)* }, $held = $hold, $tried = $try, ($($guard)?),
            [O: Order, R: Readers, W: ConstWorld] RawRwLock<O, R, W>, core::convert::identity
        }
        rwlock! {
            $api, { $($of_rwlock)* }, $held = $hold, $tried = $try, ($($guard)?),
            [W: ConstWorld] RawBiasedRwLock<W>, granted
        }
    };
}

/// The traits of a readers-writer lock, as [`traits`] has them. `$granted` makes a plain result of
/// what a write returns.
macro_rules! rwlock {
    (
        $api:ident, { $($of_rwlock:tt)* }, $held:ty = $hold:expr, $tried:ty = $try:expr,
        ($($guard:ident)?), [$($generic:tt)*] $lock:ty, $granted:expr
    ) => {
        // SAFETY: a writer is alone, as the laws of the lock say.
        unsafe impl<$($generic)*> $api::RawRwLock for $lock {
            const INIT: Self = Self::const_new();

            $($of_rwlock)*

            #[inline]
            fn lock_shared(&self) -> $held {
                self.read();
                $hold
            }

            #[inline]
            fn try_lock_shared(&self) -> $tried {
                $try(self.try_read())
            }

            #[inline]
            unsafe fn unlock_shared(&self $(, $guard: GuardNoSend)?) {
                // SAFETY: the caller is a reader, as it promises.
                unsafe { self.unlock_read() };
            }

            #[inline]
            fn lock_exclusive(&self) -> $held {
                $granted(self.write());
                $hold
            }

            #[inline]
            fn try_lock_exclusive(&self) -> $tried {
                $try(self.try_write())
            }

            #[inline]
            unsafe fn unlock_exclusive(&self $(, $guard: GuardNoSend)?) {
                // SAFETY: the caller is the writer, as it promises.
                unsafe { self.unlock_write() };
            }

            fn is_locked(&self) -> bool {
                self.is_locked()
            }

            fn is_locked_exclusive(&self) -> bool {
                self.is_written()
            }
        }

        // SAFETY: the writer becomes a reader, and no other writer comes in between.
        unsafe impl<$($generic)*> $api::RawRwLockDowngrade for $lock {
            unsafe fn downgrade(&self $(, $guard: GuardNoSend)?) -> $held {
                // SAFETY: the caller is the writer, as it promises.
                unsafe { self.downgrade() };
                $hold
            }
        }

        // SAFETY: what says that it took the lock has taken it.
        unsafe impl<$($generic)*> $api::RawRwLockTimed for $lock {
            type Duration = Duration;
            type Instant = Time;

            fn try_lock_shared_for(&self, timeout: Duration) -> $tried {
                $try(self.try_read() || self.read_by(W::now() + timeout))
            }

            fn try_lock_shared_until(&self, timeout: Time) -> $tried {
                $try(self.read_by(timeout))
            }

            fn try_lock_exclusive_for(&self, timeout: Duration) -> $tried {
                $try(self.try_write() || $granted(self.write_by(W::now() + timeout)))
            }

            fn try_lock_exclusive_until(&self, timeout: Time) -> $tried {
                $try($granted(self.write_by(timeout)))
            }
        }
    };
}

/// A write that could not take the bias back is a panic, as for the lock with data.
fn granted<T>(written: Result<T, Lacking>) -> T {
    written.unwrap_or_else(|lacking| panic!("{lacking}"))
}

#[cfg(feature = "lock_api")]
mod latest {
    fn tried(taken: bool) -> Option<GuardNoSend> {
        taken.then(GuardNoSend::new)
    }

    traits! {
        lock_api,
        mutex { type Guard = GuardNoSend; },
        rwlock { type SharedGuard = GuardNoSend; type ExclusiveGuard = GuardNoSend; },
        held GuardNoSend = GuardNoSend::new(), tried Option<GuardNoSend> = tried, guard (_guard)
    }
}

#[cfg(feature = "lock_api_0_4")]
mod v0_4 {
    traits! {
        lock_api_0_4,
        mutex { type GuardMarker = GuardNoSend; },
        rwlock { type GuardMarker = GuardNoSend; },
        held () = (), tried bool = core::convert::identity, guard ()
    }

    // SAFETY: a thread that reads can read again, as the laws of the lock say. (The later version
    // of the crate does not have this trait.)
    unsafe impl<W: ConstWorld> lock_api_0_4::RawRwLockRecursive for RawBiasedRwLock<W> {
        #[inline]
        fn lock_shared_recursive(&self) {
            self.read();
        }

        #[inline]
        fn try_lock_shared_recursive(&self) -> bool {
            self.try_read()
        }
    }
}
