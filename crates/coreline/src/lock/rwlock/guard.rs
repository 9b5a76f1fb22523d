//! [`RwLock`] and its guards.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use coreline_world::{Cell, CellMut, CellRef, Native, Time, World};

use super::super::guard::{guard, lock_impls, mapped};
use super::super::osq::{Near, Order};
use super::{RawRwLock, Readers, SpinningReaders};

/// A lock around data that many threads may read at the same time, or one thread may write.
///
/// The lock is 8 bytes. A read costs one locked instruction at its beginning and one at its end, on
/// a cache line that all readers share. With many readers and few writers, a reader's CPU spends
/// its time on fetching that line.
///
/// ```
/// use coreline::RwLock;
///
/// static ROUTES: RwLock<Vec<&str>> = RwLock::new(Vec::new());
///
/// ROUTES.write().push("near");
/// let [one, other] = [ROUTES.read(), ROUTES.read()];
/// assert_eq!((one.len(), other.len()), (1, 1));
/// assert!(ROUTES.try_write().is_none());
/// ```
///
/// **Fairness**: a writer waits for the readers that are present when it closes the lock, but not
/// for later readers. Waiting readers and writers share one queue, whose order is `O`. A reader
/// that has spun without success sleeps outside this queue, up to eight times. Recursive reads
/// wait only for a writer that holds the lock.
///
/// **Oversubscription**: on 2 CPUs, with one write in a hundred turns, the longest wait is 20 to 24
/// ms with 8 threads, and 140 to 164 ms with 32 threads. The fairness ratio (fewest turns of a
/// thread / most turns of a thread) is at least 0.84 with 8 threads and 0.46 with 32
/// ([measurements](super::super#more-threads-than-cpus)).
///
/// **Priorities**: threads get the lock in the order above, whatever their priorities. The holder
/// inherits no priority from the waiters. A waiter spins for 0.1 ms at most and then sleeps, so [a
/// holder of lower priority can run](super::super#priorities) on its CPU.
///
/// **Recursion**: a thread that reads must not start a second read by [`read`](RwLock::read). If a
/// writer begins to wait in between, both wait forever. [`read_recursive`](RwLock::read_recursive)
/// lets a thread read again.
///
/// **Upgrades**: one reader at a time can be [upgradable](RwLock::read_upgradable), and become the
/// writer while no other thread writes. An upgradable reader must not wait for another thread that
/// is about to read, because that thread may queue behind a waiting writer.
///
/// **Size**: 8 bytes, and the shared nodes that [`Osq`](super::super::Osq) describes.
///
/// **Panics**: `read` and `read_by`, and their recursive and upgradable forms, panic with more than
/// 2^24 readers at one time. Only forgotten guards can lead to so many readers. In that case
/// `try_read` returns `None`. A panic while a
/// guard is alive frees the lock, and the data is not poisoned.
///
/// **Signals**: a handler that takes the lock waits forever if the interrupted thread holds it, or
/// waits for it ahead of the handler. `try_read` and `try_write` do not wait and allocate nothing.
/// The first wait of a process uses the global allocator, unless
/// [`prepare`](super::super::prepare) was called before.
///
/// **Several copies of the library**, and memory that processes share: threads may wait forever.
/// See [one copy of the library](super::super#one-copy-of-the-library).
///
/// **Fork**: a lock that another thread held, or waited for, at the time of the fork stays in this
/// state in the child.
#[repr(C)]
pub struct RwLock<T: ?Sized, O: Order = Near, R: Readers = SpinningReaders, W: World = Native> {
    pub(super) raw: RawRwLock<O, R, W>,
    /// A `Cell` is `Sync` if `T` may move between threads, but readers share it.
    not_sync: PhantomData<UnsafeCell<()>>,
    pub(super) data: Cell<T, W>,
}

// SAFETY: readers give `&T` to several threads at one time, and a writer may move `T` to its own.
unsafe impl<T: ?Sized + Send + Sync, O: Order, R: Readers, W: World> Sync for RwLock<T, O, R, W> {}

impl<T: ?Sized, O: Order, R: Readers, W: World> RwLock<T, O, R, W> {
    /// Takes the lock to read, and waits for writers. Dropping the guard frees the lock.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T, O, R, W> {
        self.raw.read();
        // SAFETY: `read` returned just now, for this guard.
        unsafe { RwLockReadGuard::new(self) }
    }

    /// Takes the lock to read if no writer holds it and the first waiter has not requested it.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T, O, R, W>> {
        // SAFETY: in the branch taken `try_read` succeeded just now, for this guard.
        self.raw.try_read().then(|| unsafe { RwLockReadGuard::new(self) })
    }

    /// Takes the lock to read, or returns `None` if `deadline` passes first.
    #[inline]
    pub fn read_by(&self, deadline: Time) -> Option<RwLockReadGuard<'_, T, O, R, W>> {
        // SAFETY: in the branch taken `read_by` succeeded just now, for this guard.
        self.raw.read_by(deadline).then(|| unsafe { RwLockReadGuard::new(self) })
    }

    /// Takes the lock to read, even if the caller already reads and a writer waits. Such reads
    /// overtake waiting writers, so a stream of them can starve writers.
    #[inline]
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T, O, R, W> {
        self.raw.read_recursive();
        // SAFETY: `read_recursive` returned just now, for this guard.
        unsafe { RwLockReadGuard::new(self) }
    }

    /// Takes the lock like [`read_recursive`](RwLock::read_recursive) if no writer holds it.
    #[inline]
    pub fn try_read_recursive(&self) -> Option<RwLockReadGuard<'_, T, O, R, W>> {
        // SAFETY: in the branch taken the lock was taken just now, for this guard.
        self.raw.try_read_recursive().then(|| unsafe { RwLockReadGuard::new(self) })
    }

    /// Takes the lock like [`read_recursive`](RwLock::read_recursive), or returns `None` if
    /// `deadline` passes first. A caller that already reads never waits.
    #[inline]
    pub fn read_recursive_by(&self, deadline: Time) -> Option<RwLockReadGuard<'_, T, O, R, W>> {
        // SAFETY: in the branch taken the lock was taken just now, for this guard.
        self.raw.read_recursive_by(deadline).then(|| unsafe { RwLockReadGuard::new(self) })
    }

    /// Takes the lock to write, and waits for readers and writers. Dropping the guard frees the
    /// lock.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T, O, R, W> {
        self.raw.write();
        // SAFETY: `write` returned just now, for this guard.
        unsafe { RwLockWriteGuard::new(self) }
    }

    /// Takes the lock to write if it is free now.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T, O, R, W>> {
        // SAFETY: in the branch taken `try_write` succeeded just now, for this guard.
        self.raw.try_write().then(|| unsafe { RwLockWriteGuard::new(self) })
    }

    /// Takes the lock to write, or returns `None` if `deadline` passes first.
    #[inline]
    pub fn write_by(&self, deadline: Time) -> Option<RwLockWriteGuard<'_, T, O, R, W>> {
        // SAFETY: in the branch taken `write_by` succeeded just now, for this guard.
        self.raw.write_by(deadline).then(|| unsafe { RwLockWriteGuard::new(self) })
    }

    /// Returns whether any thread holds the lock. The result is a hint, and may be out of date when
    /// the call returns.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }
}

lock_impls!(
    const RwLock, RawRwLock, {not_sync: PhantomData}, [O: Order, R: Readers, W: World], try_read
);

/// The proof that the caller holds an [`RwLock`] as a reader. Dropping it ends the caller's read.
///
/// Like std's, the guard of a long-lived value is also one of a shorter-lived value:
///
/// ```
/// use coreline::lock::RwLockReadGuard;
///
/// fn shorten<'a>(guard: RwLockReadGuard<'a, &'static str>) -> RwLockReadGuard<'a, &'a str> {
///     guard
/// }
/// ```
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct RwLockReadGuard<
    'a,
    T: ?Sized,
    O: Order = Near,
    R: Readers = SpinningReaders,
    W: World = Native,
> {
    lock: &'a RawRwLock<O, R, W>,
    data: ManuallyDrop<CellRef<'a, T, W>>,
    /// It is not `Send`, like std's.
    _not_send: PhantomData<*const ()>,
}

guard!(RwLockReadGuard, [O: Order, R: Readers, W: World], |lock: &RawRwLock<O, R, W>| {
    // SAFETY: the guard is a reader, and ends to be one only here.
    unsafe { lock.unlock_read() };
});

impl<'a, T: ?Sized, O: Order, R: Readers, W: World> RwLockReadGuard<'a, T, O, R, W> {
    /// # Safety
    ///
    /// The caller holds `lock.raw` as a reader and gives that to the guard.
    #[inline]
    pub(super) unsafe fn new(lock: &'a RwLock<T, O, R, W>) -> Self {
        // SAFETY: no thread writes the data while there is a reader, and from here to the guard's
        // drop the guard is one.
        let data = ManuallyDrop::new(unsafe { lock.data.borrow() });
        RwLockReadGuard { lock: &lock.raw, data, _not_send: PhantomData }
    }
}

/// The proof that the caller holds an [`RwLock`] as its writer. Dropping it frees the lock.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct RwLockWriteGuard<
    'a,
    T: ?Sized,
    O: Order = Near,
    R: Readers = SpinningReaders,
    W: World = Native,
> {
    lock: &'a RwLock<T, O, R, W>,
    data: ManuallyDrop<CellMut<'a, T, W>>,
    /// It is not `Send`, like std's.
    _not_send: PhantomData<*const ()>,
}

guard!(
    mut RwLockWriteGuard of RwLock, [O: Order, R: Readers, W: World],
    |lock: &RwLock<T, O, R, W>| {
        // SAFETY: the guard is the writer, and frees the lock only here.
        unsafe { lock.raw.unlock_write() };
    }
);

impl<'a, T: ?Sized, O: Order, R: Readers, W: World> RwLockWriteGuard<'a, T, O, R, W> {
    /// Converts the write guard into a read guard, with no other writer in between.
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T, O, R, W> {
        let lock = Self::dissolve(guard);
        // SAFETY: the guard was the writer, and did not free the lock.
        unsafe { lock.raw.downgrade() };
        // SAFETY: this thread is a reader now, for this guard.
        unsafe { RwLockReadGuard::new(lock) }
    }

    /// Ends the access to the data. What the guard holds of the lock is the caller's.
    pub(super) fn dissolve(guard: Self) -> &'a RwLock<T, O, R, W> {
        let mut guard = ManuallyDrop::new(guard);
        // SAFETY: dropped here once; the guard is used no more.
        unsafe { ManuallyDrop::drop(&mut guard.data) };
        guard.lock
    }
}

/// The proof that the caller holds an [`RwLock`] as a reader, with access to a part of its data,
/// from [`RwLockReadGuard::map`]. Dropping it ends the caller's read.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct MappedRwLockReadGuard<
    'a,
    T: ?Sized,
    O: Order = Near,
    R: Readers = SpinningReaders,
    W: World = Native,
> {
    lock: &'a RawRwLock<O, R, W>,
    data: ManuallyDrop<CellRef<'a, T, W>>,
    /// It is not `Send`, like the guard of all data.
    _not_send: PhantomData<*const ()>,
}

mapped!(
    RwLockReadGuard => MappedRwLockReadGuard, (), [O: Order, R: Readers, W: World],
    |raw| raw,
    |lock: &RawRwLock<O, R, W>| {
        // SAFETY: the guard is a reader, and ends to be one only here.
        unsafe { lock.unlock_read() };
    }
);

/// The proof that the caller holds an [`RwLock`] as its writer, with access to a part of its data,
/// from [`RwLockWriteGuard::map`]. Dropping it frees the lock.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct MappedRwLockWriteGuard<
    'a,
    T: ?Sized,
    O: Order = Near,
    R: Readers = SpinningReaders,
    W: World = Native,
> {
    lock: &'a RawRwLock<O, R, W>,
    data: ManuallyDrop<CellMut<'a, T, W>>,
    /// It is not `Send`, like the guard of all data.
    _not_send: PhantomData<*const ()>,
}

mapped!(
    RwLockWriteGuard => MappedRwLockWriteGuard, (mut), [O: Order, R: Readers, W: World],
    |lock: &'a RwLock<T, O, R, W>| &lock.raw,
    |lock: &RawRwLock<O, R, W>| {
        // SAFETY: the guard is the writer, and frees the lock only here.
        unsafe { lock.unlock_write() };
    }
);
