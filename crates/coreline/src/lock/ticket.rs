//! The ticket lock: two counters, as in a bakery.
//!
//! A thread that wants the lock draws the next ticket and waits until that number is served. A
//! holder that leaves serves the next number. So waiters get the lock in FIFO order. The kernel's
//! spinlock was such a lock from 2.6.25 to 4.1. The source is Mellor-Crummey and Scott,
//! ["Algorithms for scalable synchronization on shared-memory
//! multiprocessors"](https://doi.org/10.1145/103727.103729), 1991, section 2.2. All waiters spin on
//! one word. Each hand-off invalidates every waiter's copy of its line, so its cost grows with the
//! number of waiters. Queue locks avoid that. This is the smallest fair lock.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `next` | the ticket that the next arrival draws | arrivals: `lock`, or `try_lock` if free |
//! | `serving` | the ticket that holds the lock | the holder alone: `store(own + 1)` |
//!
//! `next == serving`: free. `next - serving == n > 0`, wrapping: held, with `n - 1` waiting. Both
//! count modulo 2³². There can never be 2³² threads at the lock, so equal values mean a free lock.
//! `try_lock` reads the two one after another. If it is stopped in between, and exactly a multiple
//! of 2³² tickets are drawn meanwhile, it takes a held lock. That takes minutes of contention, and
//! then has a chance of one in four thousand million. We accept this.
//!
//! # Law
//!
//! There is at most one holder, and the next holder sees its writes. In the repository,
//! `tests/laws/locks/lock.rs` checks this in all three worlds.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use coreline_world::{Cell, CellMut, ConstWorld, Integer, Native, Ordering, Word, World};

use super::guard::{guard, lock_impls};

/// A ticket lock of 8 bytes, without data.
///
/// Use it in a data structure whose protected data cannot live inside a [`TicketLock`]. Most users
/// need only a [`TicketLock`].
///
/// **Panics, signals, fork**: no method panics. Locking in a signal handler deadlocks if the
/// interrupted thread holds the lock. A lock that another thread held at the time of a fork stays
/// locked in the child.
#[repr(C)]
pub struct RawTicketLock<W: World = Native> {
    next: W::U32,
    serving: W::U32,
}

const _: () = {
    assert!(size_of::<RawTicketLock<Native>>() == 8);
    assert!(align_of::<RawTicketLock<Native>>() == 4);
};

impl<W: World> RawTicketLock<W> {
    /// Creates a free lock in a const context, in any [`ConstWorld`].
    pub const fn const_new() -> Self
    where
        W: ConstWorld,
    {
        RawTicketLock { next: W::U32_ZERO, serving: W::U32_ZERO }
    }

    /// Creates a free lock, in world `W`.
    pub fn new_in() -> Self {
        RawTicketLock { next: W::U32::new_in(0), serving: W::U32::new_in(0) }
    }

    /// Takes the lock, after all threads that arrived before.
    ///
    /// A waiter spins, so it keeps its CPU busy. Natively, it yields when the wait gets long, and
    /// sleeps between checks when the wait gets very long.
    #[inline]
    pub fn lock(&self) {
        // Relaxed: the ticket only gives the place in the queue. What the earlier holder wrote
        // comes with `serving`.
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        // Acquire: pairs with the Release store in `unlock` of the holder before. Without it, reads
        // inside the critical section could be served from before that holder's writes.
        self.serving.wait_until(Ordering::Acquire, move |serving| serving == ticket);
    }

    /// Takes the lock if it is free now. Returns whether it took the lock.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release store in `unlock`, as in `lock`. If the exchange below
        // succeeds, no thread has drawn a ticket since the lock was seen free with this value, so
        // this is the load that read the last holder's store.
        let serving = self.serving.load(Ordering::Acquire);
        // Relaxed: the ticket orders nothing, as in `lock`. It fails if the lock is held or was
        // taken meanwhile.
        self.next
            .compare_exchange(
                serving,
                serving.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Frees the lock. If a thread waits, the thread with the next ticket gets the lock.
    ///
    /// # Safety
    ///
    /// The caller holds the lock. That is, the caller or a thread that handed the lock to it has
    /// returned from [`lock`](Self::lock) or a successful [`try_lock`](Self::try_lock), and has not
    /// unlocked since.
    #[inline]
    pub unsafe fn unlock(&self) {
        // Relaxed: only the holder writes `serving`, and the caller is the holder.
        let ticket = self.serving.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `lock` and `try_lock` of the next holder. Without it,
        // the writes of this critical section could become visible after the lock is seen free.
        self.serving.store(ticket.wrapping_add(1), Ordering::Release);
    }

    /// Returns whether a thread holds the lock or waits for it. The result is a hint, and may be
    /// out of date when the call returns.
    pub fn is_locked(&self) -> bool {
        // Relaxed: nothing follows from the answer.
        let serving = self.serving.load(Ordering::Relaxed);
        // Relaxed: nothing follows from the answer.
        self.next.load(Ordering::Relaxed) != serving
    }
}

impl_default!(
    [W: ConstWorld] RawTicketLock<W>, const_new,
    "Creates a free lock, also in a `static`."
);

impl_debug!([W: World] RawTicketLock<W> as it { locked: it.is_locked() });

/// A FIFO lock around data that one thread at a time may access.
///
/// ```
/// use coreline::TicketLock;
///
/// static NAMES: TicketLock<Vec<&str>> = TicketLock::new(Vec::new());
///
/// NAMES.lock().push("osq");
/// assert_eq!(NAMES.lock().len(), 1);
/// ```
///
/// **Oversubscription**: a waiter that is not running when its turn comes keeps the other waiters
/// waiting until it runs. With 8 or 32 threads on 2 CPUs, the lock has at most a tenth of the
/// throughput of a [`Mutex`](super::Mutex). The longest wait is 3 to 8 ms with 8 threads, and 4 to
/// 9 ms with 32 threads. The fairness ratio (fewest turns of a thread / most turns of a thread) is
/// at least 0.80 with 8 threads and 0.16 with 32 ([measurements](super#more-threads-than-cpus)).
///
/// **Priorities**: turns come in the order of arrival, whatever the threads' priorities. The holder
/// inherits no priority from the waiters. Natively, a waiter that has used its CPU for about 1 ms,
/// or for 20 ms without a real-time priority, begins to [sleep between checks](super#priorities).
/// Then a holder of lower priority can run on that CPU.
///
/// **Panics**: a panic while the guard is alive frees the lock, and the data is not poisoned.
///
/// **Signals, fork**: see [`RawTicketLock`].
#[repr(C)]
pub struct TicketLock<T: ?Sized, W: World = Native> {
    raw: RawTicketLock<W>,
    data: Cell<T, W>,
}

impl<T: ?Sized, W: World> TicketLock<T, W> {
    /// Takes the lock, after all threads that arrived before. Dropping the guard frees the lock.
    #[inline]
    pub fn lock(&self) -> TicketGuard<'_, T, W> {
        self.raw.lock();
        // SAFETY: `lock` returned just now, for this guard.
        unsafe { TicketGuard::new(self) }
    }

    /// Takes the lock if it is free now.
    #[inline]
    pub fn try_lock(&self) -> Option<TicketGuard<'_, T, W>> {
        // SAFETY: in the branch taken `try_lock` succeeded just now, for this guard.
        self.raw.try_lock().then(|| unsafe { TicketGuard::new(self) })
    }

    /// Returns whether a thread holds the lock or waits for it. The result is a hint, and may be
    /// out of date when the call returns.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    /// Frees the lock of a holder and of waiters that do not exist in this forked child.
    ///
    /// # Safety
    ///
    /// The caller is the only thread, and does not hold the lock. It does not use the data as the
    /// holder left it.
    pub(crate) unsafe fn take_over(&self) {
        while self.raw.is_locked() {
            // SAFETY: the caller's promise: the turns are those of threads that are gone.
            unsafe { self.raw.unlock() };
        }
    }
}

lock_impls!(const TicketLock, RawTicketLock, {}, [W: World], try_lock);

/// The proof that the caller holds a [`TicketLock`], with access to its data. Dropping it frees the
/// lock.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub struct TicketGuard<'a, T: ?Sized, W: World = Native> {
    lock: &'a TicketLock<T, W>,
    data: ManuallyDrop<CellMut<'a, T, W>>,
    /// It is not `Send`: a guard that moves to another thread would let two threads share `T` in
    /// turn, although `T` may not be moved. (`unlock` itself could be called from anywhere.)
    _not_send: PhantomData<*const ()>,
}

guard!(mut TicketGuard of TicketLock, [W: World], |lock: &TicketLock<T, W>| {
    // SAFETY: the guard holds the lock, and gives it up only here.
    unsafe { lock.raw.unlock() };
});

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_world::model::{Checker, Model};
    use coreline_world::{JoinHandle, Placement, Threads, implements};

    use super::*;

    /// A free lock that continues with this ticket.
    fn at(ticket: u32) -> TicketLock<Vec<u32>, Model> {
        let mut lock = TicketLock::<_, Model>::new_in(Vec::new());
        lock.raw.next.with_mut(|next| *next = ticket);
        lock.raw.serving.with_mut(|serving| *serving = ticket);
        lock
    }

    #[test]
    fn tickets_wrap() {
        Checker::new().check(|| {
            // Either way of taking the lock draws the last ticket once.
            for ticket in [u32::MAX, u32::MAX - 1] {
                let lock = at(ticket);
                let held = lock.try_lock().expect("no other thread is there");
                assert!(lock.is_locked() && lock.try_lock().is_none());
                drop(held);
                assert!(!lock.is_locked());
                lock.lock().push(1);
                lock.try_lock().expect("no other thread is there").push(2);
                assert_eq!(*lock.lock(), [1, 2]);
            }
        });
    }

    #[test]
    fn a_waiter_has_its_place_from_its_arrival() {
        Checker::new().check(|| {
            let lock = Arc::new(at(u32::MAX));
            let mut held = lock.lock();
            let theirs = Arc::clone(&lock);
            let waiter = Model::spawn(Placement::Anywhere, move || theirs.lock().push(2));
            // Relaxed: that the ticket is drawn while the lock is held is all that matters.
            lock.raw.next.wait_until(Ordering::Relaxed, |next| next == 1);
            held.push(1);
            drop(held);
            waiter.expect("there is room for two threads").join();
            assert_eq!(*lock.lock(), [1, 2]);
        });
    }

    /// `Send` but not `Sync`.
    type Unshared = core::cell::Cell<u32>;
    /// `Sync` but not `Send`.
    type Unmoved = TicketGuard<'static, u32>;

    #[test]
    fn a_lock_is_shared_if_its_data_can_move() {
        assert!(implements!(TicketLock<Unshared>: Send) && implements!(TicketLock<Unshared>: Sync));
        assert!(!implements!(TicketLock<Unmoved>: Send) && !implements!(TicketLock<Unmoved>: Sync));
    }

    #[test]
    fn a_guard_stays_with_its_thread_and_is_shared_as_its_data() {
        assert!(
            !implements!(TicketGuard<'_, u32>: Send) && implements!(TicketGuard<'_, u32>: Sync)
        );
        assert!(
            !implements!(TicketGuard<'_, Unshared>: Send)
                && !implements!(TicketGuard<'_, Unshared>: Sync)
        );
    }
}
