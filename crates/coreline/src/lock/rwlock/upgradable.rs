//! Upgradable reads: a reader that may become the writer, with no other writer in between.
//!
//! One reader at a time is upgradable, beside any number of plain readers. No writer closes the
//! lock while there is an upgradable reader, so that reader can always become the writer. It waits
//! only for plain readers.
//! If a writer is the first waiter, new plain readers wait, too. If the next upgradable reader is
//! the first waiter, they do not: its request, `CLAIMS`, keeps out only writers and other
//! upgradable readers.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use coreline_world::{CellRef, Integer, Native, Ordering, Time, Word, World};

use super::super::count::{Event, count, ended};
use super::super::guard::guard;
use super::super::osq::{Near, Order};
use super::guard::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use super::raw::{HELD, READER, RawRwLock, UPGRADABLE, WRITER, Want};
use super::{Readers, SpinningReaders};

impl<O: Order, R: Readers, W: World> RawRwLock<O, R, W> {
    /// Takes the lock to read, as the one reader that can [`upgrade`](RawRwLock::upgrade). Waits
    /// for writers and for another upgradable reader.
    ///
    /// # Panics
    ///
    /// Panics like [`read`](RawRwLock::read).
    #[inline]
    pub fn read_upgradable(&self) {
        if !self.try_read_upgradable() {
            self.wait(Want::Upgradable, None);
        }
    }

    /// Takes the lock like [`read_upgradable`](RawRwLock::read_upgradable), or gives up when
    /// `deadline` passes. Returns whether it took the lock.
    #[inline]
    pub fn read_upgradable_by(&self, deadline: Time) -> bool {
        self.try_read_upgradable() || self.wait(Want::Upgradable, Some(deadline))
    }

    /// Takes the lock as an upgradable reader if no writer and no other upgradable reader holds it,
    /// and the first waiter has not requested it. Returns whether it took the lock.
    ///
    /// Plain readers that come or go at the same moment are no reason to fail.
    #[inline]
    pub fn try_read_upgradable(&self) -> bool {
        self.close(Want::Upgradable)
    }

    /// Frees the lock for a caller that holds it as its upgradable reader.
    ///
    /// The call may write the lock once more after it is free, so the memory must stay until the
    /// call returns.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as its upgradable reader.
    #[inline]
    pub unsafe fn unlock_upgradable(&self) {
        self.change(UPGRADABLE + READER, 0);
    }

    /// Turns the upgradable reader into the writer. Waits for the other readers. No other thread
    /// writes
    /// in between.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as its upgradable reader.
    #[inline]
    pub unsafe fn upgrade(&self) {
        // SAFETY: the caller's promise.
        if !unsafe { self.try_upgrade() } {
            self.close_and_drain(None);
        }
    }

    /// Turns the upgradable reader into the writer, or gives up when `deadline` passes. Returns
    /// whether
    /// the caller is the writer. If not, it is still the upgradable reader.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as its upgradable reader.
    #[inline]
    pub unsafe fn upgrade_by(&self, deadline: Time) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.try_upgrade() || self.close_and_drain(Some(deadline)) }
    }

    /// Turns the upgradable reader into the writer if there is no other reader. Returns whether the
    /// caller is the writer. If not, it is still the upgradable reader. A thread that tries to read
    /// at the same moment counts as a reader.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as its upgradable reader.
    pub unsafe fn try_upgrade(&self) -> bool {
        // Relaxed: the exchange looks again.
        let mut state = self.state.load(Ordering::Relaxed);
        while state < 2 * READER {
            let upgraded = state - (UPGRADABLE + READER) + (WRITER + HELD);
            // Acquire: pairs with the Release in `uncount`. Without it, a reader that has left
            // could see what this writer writes.
            let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
            match self.state.compare_exchange_weak(state, upgraded, taken, failed) {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn close_and_drain(&self, deadline: Option<Time>) -> bool {
        count::<W>(Event::Wait);
        let closed = WRITER.wrapping_sub(UPGRADABLE + READER);
        // Relaxed: publishes nothing, and lets no thread in that would have to be woken.
        self.state.fetch_add(closed, Ordering::Relaxed);
        ended::<W>(self.drain(UPGRADABLE + READER, deadline))
    }

    /// Turns the upgradable reader into a plain reader.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as its upgradable reader.
    pub unsafe fn downgrade_upgradable(&self) {
        self.change(UPGRADABLE, 0);
    }

    /// Turns the writer into the upgradable reader, with no other writer in between.
    ///
    /// # Safety
    ///
    /// The caller holds the lock as a writer.
    pub unsafe fn downgrade_to_upgradable(&self) {
        self.change(HELD + WRITER, UPGRADABLE + READER);
    }
}

impl<T: ?Sized, O: Order, R: Readers, W: World> RwLock<T, O, R, W> {
    /// Takes the lock to read, as the one reader that can become the writer. Waits for writers and
    /// for another upgradable reader. Plain readers may read at the same time.
    ///
    /// ```
    /// use coreline::RwLock;
    /// use coreline::lock::RwLockUpgradableGuard;
    ///
    /// let names = RwLock::new(vec!["near"]);
    /// let found = names.read_upgradable();
    /// if !found.contains(&"far") {
    ///     // No other thread writes between the look and this write.
    ///     RwLockUpgradableGuard::upgrade(found).push("far");
    /// }
    /// assert_eq!(*names.read(), ["near", "far"]);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics like [`read`](RwLock::read).
    #[inline]
    pub fn read_upgradable(&self) -> RwLockUpgradableGuard<'_, T, O, R, W> {
        self.raw.read_upgradable();
        // SAFETY: `read_upgradable` returned just now, for this guard.
        unsafe { RwLockUpgradableGuard::new(self) }
    }

    /// Takes the lock as an upgradable reader if no writer and no other upgradable reader holds it,
    /// and the first waiter has not requested it.
    #[inline]
    pub fn try_read_upgradable(&self) -> Option<RwLockUpgradableGuard<'_, T, O, R, W>> {
        // SAFETY: in the branch taken the lock was taken just now, for this guard.
        self.raw.try_read_upgradable().then(|| unsafe { RwLockUpgradableGuard::new(self) })
    }

    /// Takes the lock as an upgradable reader, or returns `None` if `deadline` passes first.
    #[inline]
    pub fn read_upgradable_by(
        &self,
        deadline: Time,
    ) -> Option<RwLockUpgradableGuard<'_, T, O, R, W>> {
        // SAFETY: in the branch taken the lock was taken just now, for this guard.
        self.raw.read_upgradable_by(deadline).then(|| unsafe { RwLockUpgradableGuard::new(self) })
    }
}

/// The proof that the caller holds an [`RwLock`] as its upgradable reader. Dropping it ends the
/// caller's read.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct RwLockUpgradableGuard<
    'a,
    T: ?Sized,
    O: Order = Near,
    R: Readers = SpinningReaders,
    W: World = Native,
> {
    lock: &'a RwLock<T, O, R, W>,
    data: ManuallyDrop<CellRef<'a, T, W>>,
    /// It is not `Send`, like std's guards.
    _not_send: PhantomData<*const ()>,
}

guard!(
    RwLockUpgradableGuard of RwLock, [O: Order, R: Readers, W: World],
    |lock: &RwLock<T, O, R, W>| {
        // SAFETY: the guard is the upgradable reader, and ends to be it only here.
        unsafe { lock.raw.unlock_upgradable() };
    }
);

impl<'a, T: ?Sized, O: Order, R: Readers, W: World> RwLockUpgradableGuard<'a, T, O, R, W> {
    /// Ends the access to the data. What the guard holds of the lock is the caller's.
    fn dissolve(guard: Self) -> &'a RwLock<T, O, R, W> {
        let mut guard = ManuallyDrop::new(guard);
        // SAFETY: dropped here once; the guard is used no more.
        unsafe { ManuallyDrop::drop(&mut guard.data) };
        guard.lock
    }

    /// Turns the caller into the writer. Waits for the other readers. No other thread writes in
    /// between.
    #[inline]
    pub fn upgrade(guard: Self) -> RwLockWriteGuard<'a, T, O, R, W> {
        let lock = Self::dissolve(guard);
        // SAFETY: the guard was the upgradable reader, and did not free the lock.
        unsafe { lock.raw.upgrade() };
        // SAFETY: this thread is the writer now, for this guard.
        unsafe { RwLockWriteGuard::new(lock) }
    }

    /// Turns the caller into the writer if there is no other reader.
    ///
    /// # Errors
    ///
    /// Returns the guard itself if there is another reader.
    #[inline]
    pub fn try_upgrade(guard: Self) -> Result<RwLockWriteGuard<'a, T, O, R, W>, Self> {
        // SAFETY: the guard is the upgradable reader.
        Self::upgraded(guard, |raw| unsafe { raw.try_upgrade() })
    }

    /// Turns the caller into the writer, and waits at most until `deadline` for the other readers.
    ///
    /// # Errors
    ///
    /// Returns the guard itself if `deadline` passes first.
    #[inline]
    pub fn upgrade_by(
        guard: Self,
        deadline: Time,
    ) -> Result<RwLockWriteGuard<'a, T, O, R, W>, Self> {
        // SAFETY: the guard is the upgradable reader.
        Self::upgraded(guard, |raw| unsafe { raw.upgrade_by(deadline) })
    }

    fn upgraded(
        guard: Self,
        upgrade: impl FnOnce(&RawRwLock<O, R, W>) -> bool,
    ) -> Result<RwLockWriteGuard<'a, T, O, R, W>, Self> {
        let lock = Self::dissolve(guard);
        if upgrade(&lock.raw) {
            // SAFETY: this thread is the writer now, for this guard.
            Ok(unsafe { RwLockWriteGuard::new(lock) })
        } else {
            // SAFETY: this thread still is the upgradable reader, for this guard.
            Err(unsafe { RwLockUpgradableGuard::new(lock) })
        }
    }

    /// Turns the caller into a plain reader.
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T, O, R, W> {
        let lock = Self::dissolve(guard);
        // SAFETY: the guard was the upgradable reader, and did not free the lock.
        unsafe { lock.raw.downgrade_upgradable() };
        // SAFETY: this thread is a reader now, for this guard.
        unsafe { RwLockReadGuard::new(lock) }
    }
}

impl<'a, T: ?Sized, O: Order, R: Readers, W: World> RwLockWriteGuard<'a, T, O, R, W> {
    /// Turns the writer into the upgradable reader, with no other writer in between.
    pub fn downgrade_to_upgradable(guard: Self) -> RwLockUpgradableGuard<'a, T, O, R, W> {
        let lock = Self::dissolve(guard);
        // SAFETY: the guard was the writer, and did not free the lock.
        unsafe { lock.raw.downgrade_to_upgradable() };
        // SAFETY: this thread is the upgradable reader now, for this guard.
        unsafe { RwLockUpgradableGuard::new(lock) }
    }
}
