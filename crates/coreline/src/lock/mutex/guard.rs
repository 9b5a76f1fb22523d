//! [`Mutex`] and its guard.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::time::Duration;

use coreline_world::{Cell, CellMut, Native, Time, World};

use super::super::guard::{guard, lock_impls, mapped};
use super::super::osq::{Near, Order};
use super::RawMutex;

/// Data that only one thread at a time may access.
///
/// The lock is 8 bytes. If no thread waits, taking and freeing it costs one locked instruction.
/// Waiters spin for a while and then sleep. Waiters near the last holder come first, within the
/// bounds of [`Near`], which is the default of `O`.
///
/// ```
/// use coreline::Mutex;
///
/// static NAMES: Mutex<Vec<&str>> = Mutex::new(Vec::new());
///
/// NAMES.lock().push("osq");
/// assert_eq!(NAMES.lock().len(), 1);
///
/// let lock = Mutex::new(5);
/// let guard = lock.lock();
/// assert!(lock.try_lock().is_none());
/// drop(guard);
/// assert_eq!(lock.into_inner(), 5);
/// ```
///
/// **Fairness**: an arriving thread may overtake waiting threads. The first waiter requests the
/// lock after 5 us of spinning, or after 1 ms if it sleeps. The next holder then hands the lock to
/// it. The other waiters follow in their order. A sleeping waiter checks the lock up to eight times
/// within half a second. If it finds the lock free, it takes the lock before its turn.
///
/// **Oversubscription**: on 2 CPUs, the longest wait is 20 to 22 ms with 8 threads, and 68 to 76 ms
/// with 32 threads. The fairness ratio (fewest turns of a thread / most turns of a thread) is at
/// least 0.73 with 8 threads and 0.53 with 32
/// ([measurements](super::super#more-threads-than-cpus)).
///
/// **Priorities**: threads get the lock in the order above, whatever their priorities. The holder
/// inherits no priority from the waiters. A waiter spins for 0.1 ms at most and then sleeps, so [a
/// holder of lower priority can run](super::super#priorities) on its CPU.
///
/// **Size**: 8 bytes, and the shared nodes that [`Osq`](super::super::Osq) describes. Waiters check
/// the lock every 100 us, in no order, in two cases. Either all nodes are taken, or a wait with a
/// deadline would leave the 16,385th node in a queue. A sleeping waiter that takes the lock before
/// its turn also leaves its node behind, if fewer than 1,024 such nodes are in queues.
///
/// **Memory**: the thread that frees the lock reads it once more afterwards. So do not free the
/// lock's memory while another thread may still be dropping its guard. For example, a count of
/// holders in the guarded data does not tell when the memory can be freed.
///
/// **Panics**: no method panics. A panic while the guard is alive frees the lock, and the data is
/// not poisoned.
///
/// **Signals**: a handler that locks waits forever if the thread that it interrupted holds the
/// lock, or waits for it ahead of the handler. `try_lock` does not wait and allocates nothing. The
/// first wait of a process uses the global allocator, unless [`prepare`](super::super::prepare) was
/// called before.
///
/// **Several copies of the library**, and memory that processes share: threads may wait forever.
/// See [one copy of the library](super::super#one-copy-of-the-library).
///
/// **Fork**: a lock that another thread held, or waited for, at the time of the fork stays locked
/// in the child.
///
/// **Without asymmetric fences** (if the kernel refuses `membarrier`), freeing the lock costs a
/// full fence, as much as a second locked instruction.
#[repr(C)]
pub struct Mutex<T: ?Sized, O: Order = Near, W: World = Native> {
    raw: RawMutex<O, W>,
    data: Cell<T, W>,
}

impl<T: ?Sized, O: Order, W: World> Mutex<T, O, W> {
    /// Takes the lock, and waits if it is held. Dropping the guard frees the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T, O, W> {
        self.raw.lock();
        // SAFETY: `lock` returned just now, for this guard.
        unsafe { MutexGuard::new(self) }
    }

    /// Takes the lock if it is free now.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, O, W>> {
        // SAFETY: in the branch taken `try_lock` succeeded just now, for this guard.
        self.raw.try_lock().then(|| unsafe { MutexGuard::new(self) })
    }

    /// Takes the lock, or returns `None` if `deadline` passes first.
    #[inline]
    pub fn lock_by(&self, deadline: Time) -> Option<MutexGuard<'_, T, O, W>> {
        // SAFETY: in the branch taken `lock_by` succeeded just now, for this guard.
        self.raw.lock_by(deadline).then(|| unsafe { MutexGuard::new(self) })
    }

    /// Takes the lock, or returns `None` if `span` passes first.
    pub fn try_lock_for(&self, span: Duration) -> Option<MutexGuard<'_, T, O, W>> {
        self.try_lock().or_else(|| self.lock_by(W::now() + span))
    }

    /// Returns whether a thread holds the lock. The result is a hint, and may be out of date when
    /// the call returns.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }
}

lock_impls!(const Mutex, RawMutex, {}, [O: Order, W: World], try_lock);

/// The proof that the caller holds a [`Mutex`], with access to its data. Dropping it frees the
/// lock.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct MutexGuard<'a, T: ?Sized, O: Order = Near, W: World = Native> {
    lock: &'a Mutex<T, O, W>,
    data: ManuallyDrop<CellMut<'a, T, W>>,
    /// It is not `Send`: a guard that moves to another thread would let two threads share `T` in
    /// turn, although `T` may not be moved.
    _not_send: PhantomData<*const ()>,
}

guard!(mut MutexGuard of Mutex, [O: Order, W: World], |lock: &Mutex<T, O, W>| {
    // SAFETY: the guard holds the lock, and gives it up only here.
    unsafe { lock.raw.unlock() };
});

impl<'a, T: ?Sized, O: Order, W: World> MutexGuard<'a, T, O, W> {
    /// Frees the lock, and hands it to the first waiter: see
    /// [`RawMutex::unlock_fair`].
    pub fn unlock_fair(guard: Self) {
        let mut guard = ManuallyDrop::new(guard);
        // SAFETY: dropped here once; the guard is used no more.
        unsafe { ManuallyDrop::drop(&mut guard.data) };
        // SAFETY: the guard holds the lock, and gives it up only here.
        unsafe { guard.lock.raw.unlock_fair() };
    }

    /// Frees the lock while `f` runs, and takes it again.
    pub(in crate::lock) fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        /// Takes the lock again, also after a panic.
        struct Relock<'g, 'a, T: ?Sized, O: Order, W: World>(&'g mut MutexGuard<'a, T, O, W>);

        impl<T: ?Sized, O: Order, W: World> Drop for Relock<'_, '_, T, O, W> {
            fn drop(&mut self) {
                self.0.lock.raw.lock();
                // SAFETY: the lock is held again, by the guard.
                self.0.data = ManuallyDrop::new(unsafe { self.0.lock.data.borrow_mut() });
            }
        }

        // SAFETY: `Relock` puts another one in its place, and nothing uses it until then.
        unsafe { ManuallyDrop::drop(&mut guard.data) };
        let relock = Relock(guard);
        // SAFETY: the guard holds the lock.
        unsafe { relock.0.lock.raw.unlock() };
        f()
    }
}

/// The proof that the caller holds a [`Mutex`], with access to a part of its data, from
/// [`MutexGuard::map`]. Dropping it frees the lock.
///
/// ```
/// use coreline::Mutex;
/// use coreline::lock::{MappedMutexGuard, MutexGuard};
///
/// static TABLE: Mutex<[u32; 8]> = Mutex::new([0; 8]);
///
/// fn cell(at: usize) -> MappedMutexGuard<'static, u32> {
///     MutexGuard::map(TABLE.lock(), |table| &mut table[at])
/// }
///
/// *cell(3) += 1;
/// assert_eq!(TABLE.lock()[3], 1);
/// ```
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct MappedMutexGuard<'a, T: ?Sized, O: Order = Near, W: World = Native> {
    lock: &'a RawMutex<O, W>,
    data: ManuallyDrop<CellMut<'a, T, W>>,
    /// It is not `Send`, like the guard of all data.
    _not_send: PhantomData<*const ()>,
}

mapped!(
    MutexGuard => MappedMutexGuard, (mut), [O: Order, W: World],
    |lock: &'a Mutex<T, O, W>| &lock.raw,
    |lock: &RawMutex<O, W>| {
        // SAFETY: the guard holds the lock, and gives it up only here.
        unsafe { lock.unlock() };
    }
);
