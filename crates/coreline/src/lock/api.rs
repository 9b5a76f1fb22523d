//! The traits of `lock_api`, by which programs that use `parking_lot` can take another lock.
//!
//! Points in time are those in which programs of the world state them: natively, std's `Instant`.

use core::time::Duration;

use coreline_world::{ConstWorld, Lacking};

use super::{Order, RawBiasedRwLock, RawMutex, RawRwLock, RawTicketLock, Readers};

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

        mutex! {
            $api, { $($of_mutex)* }, $held = $hold, $tried = $try, ($($guard)?),
            [O: Order, W: ConstWorld] RawMutex<O, W>
        }
        mutex! {
            $api, { $($of_mutex)* }, $held = $hold, $tried = $try, ($($guard)?),
            [W: ConstWorld] RawTicketLock<W>
        }

        // SAFETY: the lock excludes, whichever of its two functions frees it.
        unsafe impl<O: Order, W: ConstWorld> $api::RawMutexFair for RawMutex<O, W> {
            unsafe fn unlock_fair(&self $(, $guard: GuardNoSend)?) {
                // SAFETY: the caller holds the lock, as it promises.
                unsafe { self.unlock_fair() };
            }

            unsafe fn bump(&self $(, $guard: &mut GuardNoSend)?) {
                // SAFETY: the caller holds the lock, as it promises.
                unsafe { self.bump() };
            }
        }

        // SAFETY: what says that it took the lock has taken it.
        unsafe impl<O: Order, W: ConstWorld> $api::RawMutexTimed for RawMutex<O, W> {
            type Duration = Duration;
            type Instant = W::Instant;

            fn try_lock_for(&self, timeout: Duration) -> $tried {
                $try(self.try_lock() || self.lock_by(W::now() + timeout))
            }

            fn try_lock_until(&self, timeout: W::Instant) -> $tried {
                $try(self.lock_by(timeout.into()))
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

/// The trait of a mutex, as [`traits`] has it.
macro_rules! mutex {
    (
        $api:ident, { $($of_mutex:tt)* }, $held:ty = $hold:expr, $tried:ty = $try:expr,
        ($($guard:ident)?), [$($generic:tt)*] $lock:ty
    ) => {
        // SAFETY: the lock excludes, as its laws say.
        unsafe impl<$($generic)*> $api::RawMutex for $lock {
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
    };
}

/// The traits of a readers-writer lock, as [`traits`] has them. `$granted` converts the result of a
/// write into a plain result.
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
            type Instant = W::Instant;

            fn try_lock_shared_for(&self, timeout: Duration) -> $tried {
                $try(self.try_read() || self.read_by(W::now() + timeout))
            }

            fn try_lock_shared_until(&self, timeout: W::Instant) -> $tried {
                $try(self.read_by(timeout.into()))
            }

            fn try_lock_exclusive_for(&self, timeout: Duration) -> $tried {
                $try(self.try_write() || $granted(self.write_by(W::now() + timeout)))
            }

            fn try_lock_exclusive_until(&self, timeout: W::Instant) -> $tried {
                $try($granted(self.write_by(timeout.into())))
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
    use lock_api::RawRwLockUpgradeDowngrade as UpgradeDowngrade;
    use lock_api::{RawRwLockUpgrade, RawRwLockUpgradeTimed};

    fn tried(taken: bool) -> Option<GuardNoSend> {
        taken.then(GuardNoSend::new)
    }

    fn either(upgraded: bool) -> Result<GuardNoSend, GuardNoSend> {
        let guard = GuardNoSend::new();
        if upgraded { Ok(guard) } else { Err(guard) }
    }

    // SAFETY: one reader is upgradable at a time, and no writer comes before it upgrades.
    unsafe impl<O: Order, R: Readers, W: ConstWorld> RawRwLockUpgrade for RawRwLock<O, R, W> {
        type UpgradableGuard = GuardNoSend;

        #[inline]
        fn lock_upgradable(&self) -> GuardNoSend {
            self.read_upgradable();
            GuardNoSend::new()
        }

        #[inline]
        fn try_lock_upgradable(&self) -> Option<GuardNoSend> {
            tried(self.try_read_upgradable())
        }

        #[inline]
        unsafe fn unlock_upgradable(&self, _guard: GuardNoSend) {
            // SAFETY: the caller is the upgradable reader, as it promises.
            unsafe { self.unlock_upgradable() };
        }

        #[inline]
        unsafe fn upgrade(&self, guard: GuardNoSend) -> GuardNoSend {
            // SAFETY: the caller is the upgradable reader, as it promises.
            unsafe { self.upgrade() };
            guard
        }

        unsafe fn try_upgrade(&self, _guard: GuardNoSend) -> Result<GuardNoSend, GuardNoSend> {
            // SAFETY: the caller is the upgradable reader, as it promises.
            either(unsafe { self.try_upgrade() })
        }
    }

    // SAFETY: no writer comes in between.
    unsafe impl<O: Order, R: Readers, W: ConstWorld> UpgradeDowngrade for RawRwLock<O, R, W> {
        unsafe fn downgrade_upgradable(&self, guard: GuardNoSend) -> GuardNoSend {
            // SAFETY: the caller is the upgradable reader, as it promises.
            unsafe { self.downgrade_upgradable() };
            guard
        }

        unsafe fn downgrade_to_upgradable(&self, guard: GuardNoSend) -> GuardNoSend {
            // SAFETY: the caller is the writer, as it promises.
            unsafe { self.downgrade_to_upgradable() };
            guard
        }
    }

    // SAFETY: what says that it took the lock has taken it.
    unsafe impl<O: Order, R: Readers, W: ConstWorld> RawRwLockUpgradeTimed for RawRwLock<O, R, W> {
        fn try_lock_upgradable_for(&self, timeout: Duration) -> Option<GuardNoSend> {
            tried(self.read_upgradable_by(W::now() + timeout))
        }

        fn try_lock_upgradable_until(&self, timeout: W::Instant) -> Option<GuardNoSend> {
            tried(self.read_upgradable_by(timeout.into()))
        }

        unsafe fn try_upgrade_for(
            &self,
            _guard: GuardNoSend,
            timeout: Duration,
        ) -> Result<GuardNoSend, GuardNoSend> {
            // SAFETY: the caller is the upgradable reader, as it promises.
            either(unsafe { self.upgrade_by(W::now() + timeout) })
        }

        unsafe fn try_upgrade_until(
            &self,
            _guard: GuardNoSend,
            timeout: W::Instant,
        ) -> Result<GuardNoSend, GuardNoSend> {
            // SAFETY: the caller is the upgradable reader, as it promises.
            either(unsafe { self.upgrade_by(timeout.into()) })
        }
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

    use lock_api_0_4::RawRwLockRecursiveTimed as RecursiveTimed;
    use lock_api_0_4::RawRwLockUpgradeDowngrade as UpgradeDowngrade;
    use lock_api_0_4::{RawRwLockRecursive, RawRwLockUpgrade, RawRwLockUpgradeTimed};

    // SAFETY: one reader is upgradable at a time, and no writer comes before it upgrades.
    unsafe impl<O: Order, R: Readers, W: ConstWorld> RawRwLockUpgrade for RawRwLock<O, R, W> {
        #[inline]
        fn lock_upgradable(&self) {
            self.read_upgradable();
        }

        #[inline]
        fn try_lock_upgradable(&self) -> bool {
            self.try_read_upgradable()
        }

        #[inline]
        unsafe fn unlock_upgradable(&self) {
            // SAFETY: the caller is the upgradable reader, as it promises.
            unsafe { self.unlock_upgradable() };
        }

        #[inline]
        unsafe fn upgrade(&self) {
            // SAFETY: the caller is the upgradable reader, as it promises.
            unsafe { self.upgrade() };
        }

        unsafe fn try_upgrade(&self) -> bool {
            // SAFETY: the caller is the upgradable reader, as it promises.
            unsafe { self.try_upgrade() }
        }
    }

    // SAFETY: no writer comes in between.
    unsafe impl<O: Order, R: Readers, W: ConstWorld> UpgradeDowngrade for RawRwLock<O, R, W> {
        unsafe fn downgrade_upgradable(&self) {
            // SAFETY: the caller is the upgradable reader, as it promises.
            unsafe { self.downgrade_upgradable() };
        }

        unsafe fn downgrade_to_upgradable(&self) {
            // SAFETY: the caller is the writer, as it promises.
            unsafe { self.downgrade_to_upgradable() };
        }
    }

    // SAFETY: what says that it took the lock has taken it.
    unsafe impl<O: Order, R: Readers, W: ConstWorld> RawRwLockUpgradeTimed for RawRwLock<O, R, W> {
        fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
            self.read_upgradable_by(W::now() + timeout)
        }

        fn try_lock_upgradable_until(&self, timeout: W::Instant) -> bool {
            self.read_upgradable_by(timeout.into())
        }

        unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
            // SAFETY: the caller is the upgradable reader, as it promises.
            unsafe { self.upgrade_by(W::now() + timeout) }
        }

        unsafe fn try_upgrade_until(&self, timeout: W::Instant) -> bool {
            // SAFETY: the caller is the upgradable reader, as it promises.
            unsafe { self.upgrade_by(timeout.into()) }
        }
    }

    // The later version of the crate does not have the traits of recursive reads.

    // SAFETY: a thread that reads can read again so, as the laws of the lock say.
    unsafe impl<O: Order, R: Readers, W: ConstWorld> RawRwLockRecursive for RawRwLock<O, R, W> {
        #[inline]
        fn lock_shared_recursive(&self) {
            self.read_recursive();
        }

        #[inline]
        fn try_lock_shared_recursive(&self) -> bool {
            self.try_read_recursive()
        }
    }

    // SAFETY: what says that it took the lock has taken it.
    unsafe impl<O: Order, R: Readers, W: ConstWorld> RecursiveTimed for RawRwLock<O, R, W> {
        fn try_lock_shared_recursive_for(&self, timeout: Duration) -> bool {
            self.read_recursive_by(W::now() + timeout)
        }

        fn try_lock_shared_recursive_until(&self, timeout: W::Instant) -> bool {
            self.read_recursive_by(timeout.into())
        }
    }

    // SAFETY: a thread that reads can read again, as the laws of the lock say.
    unsafe impl<W: ConstWorld> RawRwLockRecursive for RawBiasedRwLock<W> {
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
