//! [`BiasedRwLock`] and its guards.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use coreline_world::{Cell, CellMut, CellRef, Lacking, Native, Time, World};

use super::super::guard::{guard, lock_impls};
use super::RawBiasedRwLock;

/// A lock around data that many threads may read at the same time, or one thread may write. A
/// thread may read again while it reads.
///
/// At first, a read costs two locked instructions on a line that all readers share, like a read of
/// an [`RwLock`](super::super::RwLock). After 256 reads that followed another thread's use or met
/// another reader, with no write in between, the lock is *biased*. Readers then count themselves in
/// memory of their CPU, without a locked instruction. A lock that only one thread uses is not
/// biased, unless its reads nest. Nor is a lock that is seldom read: if reads do not overlap,
/// another thread must read within about 2 µs. A write takes the bias back, which interrupts the
/// CPUs that run this process. The lock then stays unbiased for nine times as long as that took.
///
/// Use the lock for data whose use changes, or is not known when the program is written. Use it
/// also in programs that read recursively. If the data is hardly ever written, [`ReadMostly`] has
/// the cheaper reads. If many writes wait, [`RwLock`] is fairer to them.
///
/// ```
/// use coreline::lock::BiasedRwLock;
///
/// static ROUTES: BiasedRwLock<Vec<&str>> = BiasedRwLock::new(Vec::new());
///
/// ROUTES.write().push("near");
/// for _ in 0..1000 {
///     let [one, again] = [ROUTES.read(), ROUTES.read()];
///     assert_eq!((one.len(), again.len()), (1, 1));
/// }
/// ROUTES.write().push("far");
/// assert_eq!(ROUTES.read().len(), 2);
/// ```
///
/// **Fairness**: writers get their turns as in a [`Mutex`](super::super::Mutex). A writer that has
/// its turn makes new readers wait. If earlier readers still read after 1 ms, the writer lets new
/// ones in for 9 ms, and then tries again. So a writer waits for the reads that are in progress
/// when its turn comes. It also waits for reads that do not wait for it: those that have waited for
/// 1 ms, `try_read`, and those whose deadline has passed. If reads last longer than 1 ms and always
/// overlap, writers may wait forever, as with the default lock of glibc. A reader waits for at most
/// 1 ms for waiting writers. A reader that has waited for 1 ms comes before all waiting writers,
/// and keeps the lock free for itself until it runs. If several such readers wait, one that is slow
/// to wake up may miss that turn, and asks again.
///
/// **Recursion**: a thread that reads may start more reads, at any time. If a writer waits, such a
/// read may take 1 ms. A thread that reads must not write, and a thread that writes must not read
/// or write.
///
/// **Priorities**: threads get the lock in the order above, whatever their priorities. The holder
/// inherits no priority from the waiters. A waiter spins for 0.1 ms at most and then sleeps, so [a
/// holder of lower priority can run](super::super#priorities) on its CPU.
///
/// **Size**: 48 bytes next to the data. A lock that was ever biased also uses 8 bytes per CPU, and
/// 128 bytes from the global allocator, until it is dropped. If there is no memory for these, the
/// lock stays as it was, and later reads try again. The first such lock of a process also allocates
/// the process's [pool](crate::percpu::PerCpuPool), if that does not exist yet. If there is no
/// memory for the pool, the process ends. A lock is never biased where there are no restartable
/// sections, or where the kernel cannot fence them (before Linux 5.10). A waiting writer also uses
/// the shared nodes that [`Osq`](super::super::Osq) describes.
///
/// **In an allocator**: the lock must not guard the global allocator, because it allocates.
///
/// **Panics**: with more than 2^22 reads at one time, `read` and `read_by` may panic, and `write`
/// waits. Only forgotten guards can lead to so many reads. Natively, `write` and `write_by` panic
/// if the lock is biased and the kernel refuses `membarrier` after it once allowed it.
/// [`RawBiasedRwLock`] has methods that return an error instead. A panic while a guard is alive
/// frees the lock, and the data is not poisoned.
///
/// **Signals**: in a signal handler, use [`try_read`](BiasedRwLock::try_read), which does not wait
/// and allocates nothing. A handler may read even if the interrupted thread reads. The first wait
/// of a process to write uses the global allocator, unless [`prepare`](super::super::prepare) was
/// called before.
///
/// **Several copies of the library**, and memory that processes share: threads may wait forever.
/// See [one copy of the library](super::super#one-copy-of-the-library).
///
/// **Fork**: the child may use a lock that no other thread used at the time of the fork. A lock
/// that another thread held stays held in the child. If another thread waited for the lock, took
/// it, or freed it at that time, the child must not use the lock: its word and its slots may be
/// copies of different moments.
///
/// [`ReadMostly`]: super::super::ReadMostly
/// [`RwLock`]: super::super::RwLock
#[repr(C)]
pub struct BiasedRwLock<T: ?Sized, W: World = Native> {
    raw: RawBiasedRwLock<W>,
    /// A `Cell` is `Sync` if `T` may move between threads, but readers share it.
    not_sync: PhantomData<UnsafeCell<()>>,
    data: Cell<T, W>,
}

// SAFETY: readers give `&T` to several threads at one time, and a writer may move `T` to its own.
unsafe impl<T: ?Sized + Send + Sync, W: World> Sync for BiasedRwLock<T, W> {}

impl<T: ?Sized, W: World> BiasedRwLock<T, W> {
    /// Takes the lock to read. Waits for a writer that has the lock, and at most 1 ms for waiting
    /// writers. Dropping the guard frees the lock.
    #[inline]
    pub fn read(&self) -> BiasedRwLockReadGuard<'_, T, W> {
        self.raw.read();
        // SAFETY: `read` returned just now, for this guard.
        unsafe { BiasedRwLockReadGuard::new(self) }
    }

    /// Takes the lock to read if no writer has it, even if one waits.
    #[inline]
    pub fn try_read(&self) -> Option<BiasedRwLockReadGuard<'_, T, W>> {
        // SAFETY: in the branch taken `try_read` succeeded just now, for this guard.
        self.raw.try_read().then(|| unsafe { BiasedRwLockReadGuard::new(self) })
    }

    /// Takes the lock to read, or returns `None` if `deadline` passes first.
    #[inline]
    pub fn read_by(&self, deadline: Time) -> Option<BiasedRwLockReadGuard<'_, T, W>> {
        // SAFETY: in the branch taken `read_by` succeeded just now, for this guard.
        self.raw.read_by(deadline).then(|| unsafe { BiasedRwLockReadGuard::new(self) })
    }

    /// Takes the lock to write, and waits for readers and writers. Dropping the guard frees the
    /// lock.
    #[inline]
    pub fn write(&self) -> BiasedRwLockWriteGuard<'_, T, W> {
        self.raw.write().unwrap_or_else(|lacking| refused(&lacking));
        // SAFETY: `write` succeeded just now, for this guard.
        unsafe { BiasedRwLockWriteGuard::new(self) }
    }

    /// Takes the lock to write if it is free now, and no other thread waits to write.
    #[inline]
    pub fn try_write(&self) -> Option<BiasedRwLockWriteGuard<'_, T, W>> {
        // SAFETY: in the branch taken `try_write` succeeded just now, for this guard.
        self.raw.try_write().then(|| unsafe { BiasedRwLockWriteGuard::new(self) })
    }

    /// Takes the lock to write, or returns `None` if `deadline` passes first.
    #[inline]
    pub fn write_by(&self, deadline: Time) -> Option<BiasedRwLockWriteGuard<'_, T, W>> {
        let taken = self.raw.write_by(deadline).unwrap_or_else(|lacking| refused(&lacking));
        // SAFETY: in the branch taken `write_by` succeeded just now, for this guard.
        taken.then(|| unsafe { BiasedRwLockWriteGuard::new(self) })
    }

    /// Returns whether any thread holds the lock. The result is a hint, and may be out of date when
    /// the call returns.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    /// Returns whether readers count themselves on each CPU. The result is a hint, and may be out
    /// of date when the call returns.
    pub fn is_biased(&self) -> bool {
        self.raw.is_biased()
    }
}

#[cold]
#[inline(never)]
fn refused(lacking: &Lacking) -> ! {
    panic!("{lacking}");
}

lock_impls!(const BiasedRwLock, RawBiasedRwLock, {not_sync: PhantomData}, [W: World], try_read);

/// The proof that the caller holds a [`BiasedRwLock`] as a reader. Dropping it ends the caller's
/// read.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct BiasedRwLockReadGuard<'a, T: ?Sized, W: World = Native> {
    lock: &'a BiasedRwLock<T, W>,
    data: ManuallyDrop<CellRef<'a, T, W>>,
    /// It is not `Send`, like std's.
    _not_send: PhantomData<*const ()>,
}

guard!(BiasedRwLockReadGuard of BiasedRwLock, [W: World], |lock: &BiasedRwLock<T, W>| {
    // SAFETY: the guard is a reader, and ends to be one only here.
    unsafe { lock.raw.unlock_read() };
});

/// The proof that the caller holds a [`BiasedRwLock`] as its writer. Dropping it frees the lock.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct BiasedRwLockWriteGuard<'a, T: ?Sized, W: World = Native> {
    lock: &'a BiasedRwLock<T, W>,
    data: ManuallyDrop<CellMut<'a, T, W>>,
    /// It is not `Send`, like std's.
    _not_send: PhantomData<*const ()>,
}

guard!(mut BiasedRwLockWriteGuard of BiasedRwLock, [W: World], |lock: &BiasedRwLock<T, W>| {
    // SAFETY: the guard is the writer, and frees the lock only here.
    unsafe { lock.raw.unlock_write() };
});

impl<'a, T: ?Sized, W: World> BiasedRwLockWriteGuard<'a, T, W> {
    /// Turns the writer into a reader. No other writer has the lock in between.
    pub fn downgrade(guard: Self) -> BiasedRwLockReadGuard<'a, T, W> {
        let mut guard = ManuallyDrop::new(guard);
        // SAFETY: once, here; the guard is not used again.
        unsafe { ManuallyDrop::drop(&mut guard.data) };
        let lock = guard.lock;
        // SAFETY: the guard was the writer, and its access to the data is over.
        unsafe { lock.raw.downgrade() };
        // SAFETY: a reader since just now, for this guard.
        unsafe { BiasedRwLockReadGuard::new(lock) }
    }
}
