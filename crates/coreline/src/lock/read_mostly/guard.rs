//! [`ReadMostly`] and its guards.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use coreline_world::{Cell, CellMut, CellRef, IndexBy, Lacking, Native, Time, World};

use super::super::guard::{guard, lock_impls};
use super::RawReadMostly;
use crate::percpu::PoolError;

/// A readers-writer lock around data that is often read and seldom written.
///
/// Reading costs two additions to per-CPU memory, and no locked instruction if the machine has
/// restartable sections. The time of a read does not depend on the number of CPUs that read.
/// Writing costs a heavy fence, which interrupts the CPUs that run this process, and the wait for
/// readers. On processors that reorder stores, it costs one more fence each time that the writer
/// checks for readers.
///
/// ```
/// use coreline::lock::ReadMostly;
///
/// let routes = ReadMostly::new(vec!["near"])?;
/// assert_eq!(routes.read().len(), 1);
/// routes.write()?.push("far");
/// assert_eq!(*routes.read(), ["near", "far"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`RawReadMostly`] is the lock without data and guards.
///
/// **Fairness**: writers get their turns as in a [`Mutex`](super::super::Mutex). When a writer's
/// turn comes, it waits until each present reader has left its section. It does not wait for later
/// readers. Readers that arrive meanwhile sleep until the writer is done. Then all of them are
/// woken. A reader that finds the lock closed by a faster writer sleeps again. After eight sleeps,
/// it queues with the writers.
///
/// **Oversubscription**: on 2 CPUs, with one write in a hundred turns, the longest wait is 4 to 12
/// ms with 8 threads, and 11 to 49 ms with 32 threads. The fairness ratio (fewest turns of a
/// thread / most turns of a thread) is at least 0.90 with 8 threads and 0.78 with 32
/// ([measurements](super::super#more-threads-than-cpus)).
///
/// **Priorities**: threads get the lock in the order above, whatever their priorities. The holder
/// inherits no priority from the waiters. A waiter spins for 0.1 ms at most and then sleeps, so [a
/// holder of lower priority can run](super::super#priorities) on its CPU.
///
/// **Recursion**: a thread that reads must not start a second read. If a writer begins to wait in
/// between, both wait forever.
///
/// **Size**: the lock uses 16 bytes per CPU, and 16 bytes next to the data. A waiting writer also
/// uses the shared nodes that [`Osq`](super::super::Osq) describes.
///
/// **Panics**: a panic while a guard is alive frees the lock, and the data is not poisoned.
///
/// **Signals**: in a signal handler, use [`try_read`](ReadMostly::try_read), which does not wait.
/// In a handler, `read` waits forever if the interrupted thread writes or waits to read, or if it
/// reads while a writer waits.
///
/// **Several copies of the library**, and memory that processes share: threads may wait forever.
/// See [one copy of the library](super::super#one-copy-of-the-library).
///
/// **Fork**: if other threads read or write at the time of the fork, they never leave the lock in
/// the child. A writer in the child then waits forever.
#[repr(C)]
pub struct ReadMostly<T: ?Sized, W: World = Native> {
    pub(super) raw: RawReadMostly<W>,
    /// A `Cell` is `Sync` if `T` may move between threads, but readers share it.
    not_sync: PhantomData<UnsafeCell<()>>,
    data: Cell<T, W>,
}

// SAFETY: readers give `&T` to several threads at one time, and a writer may move `T` to its own.
unsafe impl<T: ?Sized + Send + Sync, W: World> Sync for ReadMostly<T, W> {}

impl<T> ReadMostly<T> {
    /// Creates a free lock around `data`, with a slot for each CPU. Because that may fail, the type
    /// has neither `Default` nor `From`.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if there is no memory.
    pub fn new(data: T) -> Result<Self, PoolError> {
        Self::new_in(IndexBy::Cpu, data)
    }

    /// Creates a free lock, like [`new`](ReadMostly::new), with the readers' slots indexed by `by`.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](ReadMostly::new_in).
    pub fn indexed_by(by: IndexBy, data: T) -> Result<Self, PoolError> {
        Self::new_in(by, data)
    }
}

impl<T, W: World> ReadMostly<T, W> {
    /// Creates a free lock around `data`, in world `W`, with the readers' slots indexed by `by`.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if the machine does not have the index, or if there is no memory.
    pub fn new_in(by: IndexBy, data: T) -> Result<Self, PoolError> {
        Ok(ReadMostly {
            raw: RawReadMostly::new_in(by)?,
            not_sync: PhantomData,
            data: Cell::new_in(data),
        })
    }
}

impl<T: ?Sized, W: World> ReadMostly<T, W> {
    /// Takes the lock to read, and waits for a writer. Dropping the guard frees the lock.
    #[inline]
    pub fn read(&self) -> ReadMostlyReadGuard<'_, T, W> {
        self.raw.read();
        // SAFETY: this thread is a reader since just now, for this guard.
        unsafe { ReadMostlyReadGuard::new(self) }
    }

    /// Takes the lock to read, or returns `None` if `deadline` passes first.
    #[inline]
    pub fn read_by(&self, deadline: Time) -> Option<ReadMostlyReadGuard<'_, T, W>> {
        // SAFETY: in the branch taken this thread is a reader since just now, for this guard.
        self.raw.read_by(deadline).then(|| unsafe { ReadMostlyReadGuard::new(self) })
    }

    /// Takes the lock to read if no writer has closed it.
    #[inline]
    pub fn try_read(&self) -> Option<ReadMostlyReadGuard<'_, T, W>> {
        // SAFETY: in the branch taken this thread is a reader since just now, for this guard.
        self.raw.try_read().then(|| unsafe { ReadMostlyReadGuard::new(self) })
    }

    /// Takes the lock to write, and waits for readers and writers. Dropping the guard frees the
    /// lock.
    ///
    /// # Errors
    ///
    /// Natively, [`Lacking`] if the kernel refuses `membarrier` after it once allowed it. The lock
    /// is then not taken.
    pub fn write(&self) -> Result<ReadMostlyWriteGuard<'_, T, W>, Lacking> {
        self.raw.write()?;
        // SAFETY: this thread is the writer since just now, for this guard.
        Ok(unsafe { ReadMostlyWriteGuard::new(self) })
    }

    /// Takes the lock to write, or returns `Ok(None)` if `deadline` passes first.
    ///
    /// While the call waits for readers, it keeps later readers out, as [`write`] does. When it
    /// gives up, they are woken.
    ///
    /// # Errors
    ///
    /// The same errors as for [`write`].
    ///
    /// [`write`]: ReadMostly::write
    pub fn write_by(
        &self,
        deadline: Time,
    ) -> Result<Option<ReadMostlyWriteGuard<'_, T, W>>, Lacking> {
        let taken = self.raw.write_by(deadline)?;
        // SAFETY: in the branch taken this thread is the writer since just now, for this guard.
        Ok(taken.then(|| unsafe { ReadMostlyWriteGuard::new(self) }))
    }

    /// Takes the lock to write if no thread has it, and no other thread waits to write or tries to.
    ///
    /// If no thread seems to read, the call executes the heavy fence of a write. The call may also
    /// fail if a reader comes at the same time, or if the kernel refuses `membarrier`. A reader
    /// that comes meanwhile waits until the call returns, or until the guard drops.
    pub fn try_write(&self) -> Option<ReadMostlyWriteGuard<'_, T, W>> {
        // SAFETY: in the branch taken this thread is the writer since just now, for this guard.
        self.raw.try_write().then(|| unsafe { ReadMostlyWriteGuard::new(self) })
    }
}

lock_impls!(ReadMostly, [W: World], try_read);

/// The proof that the caller holds a [`ReadMostly`] as a reader. Dropping it ends the caller's
/// read.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct ReadMostlyReadGuard<'a, T: ?Sized, W: World = Native> {
    lock: &'a ReadMostly<T, W>,
    data: ManuallyDrop<CellRef<'a, T, W>>,
    /// It is not `Send`, like std's.
    _not_send: PhantomData<*const ()>,
}

guard!(ReadMostlyReadGuard of ReadMostly, [W: World], |lock: &ReadMostly<T, W>| {
    // SAFETY: the guard's, which drops.
    unsafe { lock.raw.unlock_read() };
});

/// The proof that the caller holds a [`ReadMostly`] as its writer. Dropping it frees the lock.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct ReadMostlyWriteGuard<'a, T: ?Sized, W: World = Native> {
    lock: &'a ReadMostly<T, W>,
    data: ManuallyDrop<CellMut<'a, T, W>>,
    /// It is not `Send`, like std's.
    _not_send: PhantomData<*const ()>,
}

guard!(mut ReadMostlyWriteGuard of ReadMostly, [W: World], |lock: &ReadMostly<T, W>| {
    // SAFETY: the guard's, which drops.
    unsafe { lock.raw.unlock_write() };
});
