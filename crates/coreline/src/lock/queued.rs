//! [`QueuedLock`]: the lock of concurrency IDs, a spin lock whose waiters queue.
//!
//! A word says whether the lock is held; beside it stands an [`Osq`]. A thread that finds the lock
//! free and the queue empty takes the word, which costs what a [`TicketLock`](super::TicketLock)
//! does. Any other thread queues, and spins on a line of its own. The first one in the queue waits
//! for the word; from then on the word goes along with the turn, untouched, until a holder finds
//! the queue empty (the kernel's spinlock does about the same, `kernel/locking/qspinlock.c`).
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `state` | 0: free; 1: held | the thread that takes a free lock; a holder that none waits for |
//! | `queue` | those that wait, and the holder if it waited | see [`Osq`] |
//!
//! # Why this one
//!
//! A scheduler that switches tasks may not sleep, so [`Mutex`](super::Mutex) is no choice where it
//! calls a space: its waiters sleep. The others, by `coreline run threadstorm`, 32 pools of 32
//! roaming threads on `epyc-9654-2s`, in threads created per second, and, for 8 pools of 8 at the
//! published pace, where hardly any thread waits, the time of all calls for a thread:
//!
//! | lock | `recent` | `owned` | `recent`, ns | `owned`, ns |
//! |---|---|---|---|---|
//! | a ticket lock | 579,244 | 303,700 | 3364 | 2917 |
//! | an [`Osq`] in order of arrival | 1,010,175 | 458,649 | 3835 | 3893 |
//! | an [`Osq`], near waiters first | 541,413 | 270,429 | | |
//! | [`Mutex`](super::Mutex) | 423,127 | 233,962 | 3424 | 2972 |
//! | this one | 1,045,047 | 449,633 | 3470 | 2888 |
//! | this one, near waiters first | 598,381 | 270,857 | | |
//!
//! These are of an earlier engine and queue. `docs/threadstorm.md` has the figures of this one by
//! those of today.
//!
//! An `Osq` alone takes a node and gives it back for each section, which costs 90 to 330 ns there.
//! Near waiters first does not pay: they are of all 24 caches, and sections are shorter than what
//! sorting takes, whose lines go along with the turn.
//!
//! # Law
//!
//! At most one holder, whose writes the next holder sees. A waiter gets the lock after all threads
//! that queued before it, and those that looked at the queue before: each of these once.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use coreline_world::{Cell, CellMut, Native, Ordering, Word, World};

use super::osq::{Came, Fifo, Osq};
use crate::numbered::Number;

/// Data that one thread at a time may touch.
///
/// **Panics**: nothing here panics. A panic while the guard is alive frees the lock.
///
/// **Oversubscription, signals, fork**: as [`Osq`]: waiters keep their CPUs busy (natively they
/// yield when the wait gets long, and sleep between looks when it gets very long), one that is not
/// running when its turn comes keeps the others waiting, a handler must not lock, and a lock that
/// another thread held or waited for at the time of a fork stays locked in the child.
#[repr(C)]
pub(crate) struct QueuedLock<T, W: World = Native> {
    state: W::U32,
    queue: Osq<Fifo, W>,
    data: Cell<T, W>,
}

const _: () = {
    assert!(size_of::<QueuedLock<(), Native>>() == 8);
    assert!(align_of::<QueuedLock<(), Native>>() == 4);
};

const FREE: u32 = 0;
const HELD: u32 = 1;

impl<T, W: World> QueuedLock<T, W> {
    /// A free lock around `data`, in every world.
    pub(crate) fn new_in(data: T) -> Self {
        QueuedLock { state: W::U32::new_in(FREE), queue: Osq::new_in(), data: Cell::new_in(data) }
    }

    /// Takes the lock; the guard frees it.
    #[inline]
    pub(crate) fn lock(&self) -> QueuedGuard<'_, T, W> {
        let node = match self.queue.is_empty() && self.take() {
            true => None,
            false => Some(self.wait()),
        };
        // SAFETY: only the holder touches the data: this thread, from here to the guard's drop.
        let data = ManuallyDrop::new(unsafe { self.data.borrow_mut() });
        QueuedGuard { lock: self, node, data, _not_send: PhantomData }
    }

    /// Takes the lock if it is free.
    #[inline]
    fn take(&self) -> bool {
        // Acquire: pairs with the Release in `free`. Without it, the section could begin before the
        // last holder's writes are seen.
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock in FIFO order. Returns the node in which this thread has its turn.
    #[cold]
    #[inline(never)]
    fn wait(&self) -> Number {
        match self.queue.come() {
            // The thread before held the lock, and left it held.
            Came::Next(node) => node,
            Came::First(node) => {
                // Threads that come find that the queue is not empty: those that looked before are
                // all that can be faster.
                loop {
                    // Relaxed: `take` looks again.
                    self.state.wait_until(Ordering::Relaxed, |state| state == FREE);
                    if self.take() {
                        return node;
                    }
                }
            }
        }
    }

    /// Frees the lock, or leaves it held to the next thread in the queue.
    ///
    /// The caller holds the lock, and came to it in this node, if in one.
    #[inline]
    fn free(&self, node: Option<Number>) {
        if node.is_some_and(|node| self.queue.pass_if_waited(node)) {
            return;
        }
        // Release: pairs with the Acquire in `take`. Where the holder had a turn, a thread may have
        // come to an empty queue since, and waits for this.
        self.state.store(FREE, Ordering::Release);
    }
}

/// Proof that the caller holds a [`QueuedLock`], and access to its data.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub(crate) struct QueuedGuard<'a, T, W: World> {
    lock: &'a QueuedLock<T, W>,
    /// Where this thread has its turn, if it waited.
    node: Option<Number>,
    data: ManuallyDrop<CellMut<'a, T, W>>,
    /// Not `Send`: `T` may be shared by turns only if it may be sent.
    _not_send: PhantomData<*const ()>,
}

impl<T, W: World> Deref for QueuedGuard<'_, T, W> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.data
    }
}

impl<T, W: World> DerefMut for QueuedGuard<'_, T, W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.data
    }
}

impl<T, W: World> Drop for QueuedGuard<'_, T, W> {
    #[inline]
    fn drop(&mut self) {
        // For its world, too, the access ends before the lock is free.
        // SAFETY: dropped here once, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.data) };
        self.lock.free(self.node);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_sim::{Faults, Machine, Schedule, Sim};
    use coreline_topology::CpuId;
    use coreline_world::model::{Checker, Model, Plant};
    use coreline_world::{JoinHandle, Placement, Testbed};

    use super::*;

    /// So many threads on two CPUs, each of which increments so often, and none of it is lost.
    fn exclusion<W: Testbed>(threads: u32, rounds: u32) {
        let lock = Arc::new(QueuedLock::<u64, W>::new_in(0));
        let count = move |lock: &QueuedLock<u64, W>| (0..rounds).for_each(|_| *lock.lock() += 1);
        let others: Vec<_> = (1..threads)
            .map(|number| {
                let theirs = Arc::clone(&lock);
                let on = Placement::On(CpuId::new(number % 2));
                W::spawn(on, move || count(&theirs)).expect("a few threads")
            })
            .collect();
        count(&lock);
        others.into_iter().for_each(JoinHandle::join);
        assert_eq!(*lock.lock(), u64::from(threads * rounds), "an increment was lost");
        // Relaxed: all threads have been joined.
        assert_eq!(lock.state.load(Ordering::Relaxed), FREE);
        assert!(lock.queue.is_empty(), "a node was left in the queue");
    }

    #[test]
    fn it_excludes_natively() {
        exclusion::<Native>(2, 20_000);
        exclusion::<Native>(4, 60);
    }

    #[test]
    fn it_excludes_in_every_interleaving() {
        let checker = |bound| Checker::new().preemption_bound(bound).max_branches(20_000);
        checker(4).check(|| exclusion::<Model>(2, 2));
        // With three preemptions of three threads, loom reaches its limit of branches.
        checker(2).check(|| exclusion::<Model>(3, 1));
    }

    #[test]
    fn it_excludes_under_schedules_that_look_for_mistakes() {
        let machines = (0..400).map(|seed| {
            let depth = 1 + seed / 2 % 4;
            let schedule =
                if seed % 2 == 0 { Schedule::Random } else { Schedule::Pct { depth, steps: 2000 } };
            let faults = Faults { preempt_access: 5 * (seed % 3), ..Faults::NONE };
            let machine = Machine::preset("host-2c").expect("a preset").seed(seed.into());
            machine.faults(faults).schedule(schedule).step_limit(1_000_000)
        });
        coreline_sim::search(machines, || exclusion::<Sim>(4, 6)).expect("it ends");
    }

    /// Whether an execution fails for want of an ordering.
    fn is_caught(plant: Plant, law: fn()) -> bool {
        let checker = Checker::new().preemption_bound(3).plant(plant);
        checker.try_check(law).is_err_and(|failure| {
            assert!(failure.message.contains("Causality violation"), "{failure}");
            true
        })
    }

    #[test]
    fn missing_orderings_are_caught() {
        let two = || exclusion::<Model>(2, 1);
        let three = || exclusion::<Model>(3, 1);
        assert!(is_caught(Plant::RELAXED_STORES, two), "the Release in `free`");
        assert!(is_caught(Plant::RELAXED_RMWS, two), "the Acquire in `take`");
        assert!(is_caught(Plant::RELAXED_LOADS, three), "the Acquire in `come`");
    }
}
