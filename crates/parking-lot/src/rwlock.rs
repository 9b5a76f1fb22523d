//! [`RwLock`].

use std::time::{Duration, Instant};

use coreline::lock;
use coreline::world::{Clock, Native};
use lock_api_0_4 as lock_api;

use crate::GuardMarker;

/// A readers-writer lock. See [`coreline::RwLock`] for fairness, priorities, signals and fork.
///
/// If very many threads read at one time and few write, [`coreline::lock::BiasedRwLock`] scales
/// better. It takes 48 bytes.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// The guard of a reader. Dropping it ends the read.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// The guard of a writer. Dropping it frees the lock.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;
/// The guard of the upgradable reader. Dropping it ends the read.
pub type RwLockUpgradableReadGuard<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, RawRwLock, T>;
/// A reader's guard of a part of the data.
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, RawRwLock, T>;
/// A writer's guard of a part of the data.
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, RawRwLock, T>;

/// Creates a free [`RwLock`], also in a `static`. `RwLock::new` does the same.
pub const fn const_rwlock<T>(val: T) -> RwLock<T> {
    RwLock::const_new(<RawRwLock as lock_api::RawRwLock>::INIT, val)
}

/// The lock of a [`RwLock`], without data.
#[derive(Debug)]
pub struct RawRwLock(lock::RawRwLock);

// SAFETY: a writer is alone, as the laws of `coreline` say.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: Self = RawRwLock(lock::RawRwLock::new());

    type GuardMarker = GuardMarker;

    #[inline]
    fn lock_shared(&self) {
        self.0.read();
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.0.try_read()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller is a reader, as it promises.
        unsafe { self.0.unlock_read() };
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.0.write();
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.0.try_write()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller is the writer, as it promises.
        unsafe { self.0.unlock_write() };
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.is_written()
    }
}

// SAFETY: the lock is free of the caller, and no wait is longer than behind a plain unlock: after
// 20 us, the first waiter comes next in any case.
unsafe impl lock_api::RawRwLockFair for RawRwLock {
    unsafe fn unlock_shared_fair(&self) {
        // SAFETY: the caller is a reader, as it promises.
        unsafe { self.0.unlock_read() };
    }

    unsafe fn unlock_exclusive_fair(&self) {
        // SAFETY: the caller is the writer, as it promises.
        unsafe { self.0.unlock_write() };
    }
}

// SAFETY: the writer becomes a reader, and no other writer comes in between.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        // SAFETY: the caller is the writer, as it promises.
        unsafe { self.0.downgrade() };
    }
}

// SAFETY: what says that it took the lock has taken it.
unsafe impl lock_api::RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.0.try_read() || self.0.read_by(Native::now() + timeout)
    }

    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        self.0.try_read() || self.0.read_by(timeout.into())
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.0.try_write() || self.0.write_by(Native::now() + timeout)
    }

    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        self.0.try_write() || self.0.write_by(timeout.into())
    }
}

// SAFETY: a thread that reads can read again so, as the laws of the lock say.
unsafe impl lock_api::RawRwLockRecursive for RawRwLock {
    #[inline]
    fn lock_shared_recursive(&self) {
        self.0.read_recursive();
    }

    #[inline]
    fn try_lock_shared_recursive(&self) -> bool {
        self.0.try_read_recursive()
    }
}

// SAFETY: what says that it took the lock has taken it.
unsafe impl lock_api::RawRwLockRecursiveTimed for RawRwLock {
    fn try_lock_shared_recursive_for(&self, timeout: Duration) -> bool {
        self.0.try_read_recursive() || self.0.read_recursive_by(Native::now() + timeout)
    }

    fn try_lock_shared_recursive_until(&self, timeout: Instant) -> bool {
        self.0.try_read_recursive() || self.0.read_recursive_by(timeout.into())
    }
}

// SAFETY: one reader is upgradable at a time, and no writer comes before it upgrades.
unsafe impl lock_api::RawRwLockUpgrade for RawRwLock {
    #[inline]
    fn lock_upgradable(&self) {
        self.0.read_upgradable();
    }

    #[inline]
    fn try_lock_upgradable(&self) -> bool {
        self.0.try_read_upgradable()
    }

    #[inline]
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: the caller is the upgradable reader, as it promises.
        unsafe { self.0.unlock_upgradable() };
    }

    #[inline]
    unsafe fn upgrade(&self) {
        // SAFETY: the caller is the upgradable reader, as it promises.
        unsafe { self.0.upgrade() };
    }

    #[inline]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the caller is the upgradable reader, as it promises.
        unsafe { self.0.try_upgrade() }
    }
}

// SAFETY: as for the other fair unlocks.
unsafe impl lock_api::RawRwLockUpgradeFair for RawRwLock {
    unsafe fn unlock_upgradable_fair(&self) {
        // SAFETY: the caller is the upgradable reader, as it promises.
        unsafe { self.0.unlock_upgradable() };
    }
}

// SAFETY: no writer comes in between.
unsafe impl lock_api::RawRwLockUpgradeDowngrade for RawRwLock {
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: the caller is the upgradable reader, as it promises.
        unsafe { self.0.downgrade_upgradable() };
    }

    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: the caller is the writer, as it promises.
        unsafe { self.0.downgrade_to_upgradable() };
    }
}

// SAFETY: what says that it took the lock has taken it.
unsafe impl lock_api::RawRwLockUpgradeTimed for RawRwLock {
    fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
        self.0.try_read_upgradable() || self.0.read_upgradable_by(Native::now() + timeout)
    }

    fn try_lock_upgradable_until(&self, timeout: Instant) -> bool {
        self.0.try_read_upgradable() || self.0.read_upgradable_by(timeout.into())
    }

    unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
        // SAFETY: the caller is the upgradable reader, as it promises.
        unsafe { self.0.upgrade_by(Native::now() + timeout) }
    }

    unsafe fn try_upgrade_until(&self, timeout: Instant) -> bool {
        // SAFETY: the caller is the upgradable reader, as it promises.
        unsafe { self.0.upgrade_by(timeout.into()) }
    }
}
