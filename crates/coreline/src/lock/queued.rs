//! [`QueuedLock`]: the lock of concurrency IDs, a spin lock whose waiters queue.
//!
//! A word says whether the lock is held. Next to it is an [`Osq`]. A thread that finds the lock
//! free and the queue empty takes the word, which costs as much as a
//! [`TicketLock`](super::TicketLock). Any other thread queues, and spins on a line of its own. The
//! head of the queue competes for the word. A holder frees the word with a store; if it was the
//! head, it passes the queue's turn on after that. (The kernel's spinlock passes the turn on before
//! the section, `kernel/locking/qspinlock.c`. The next head then reads the line that the section
//! writes: 32 pools of `threadstorm`, below, create 10 to 15 % fewer threads.)
//!
//! # Overtaking
//!
//! The lock is handed to no waiter: a waiter without a CPU would stop all others until its next
//! time slice. A running thread may take a free lock before the queue (the kernel allows this in
//! virtual machines, `pv_hybrid_queued_unfair_trylock` in `qspinlock_paravirt.h`).
//!
//! ```text
//! Holder:  hands the lock to waiter 1, comes back, queues behind waiter 2
//! Waiter 1: has no CPU                   <- the lock is held, and no thread works under it
//! Waiter 2: runs, and waits for waiter 1
//! ```
//!
//! [`MOST`] threads may overtake one head. Then the lock is *closed*: new arrivals must queue, so
//! the head gets the lock next if it is running. A head that does not run cannot take it. So a
//! thread that finds a closed lock free for [`LOOKS`] looks in a row opens it for [`AWAY`] more
//! threads, and takes it. A head that spins looks at least once in that time. A head that yields
//! its CPU or sleeps briefly, as waiters do after very long, may not. Then each wake-up is one
//! chance to find the lock free.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `state` | 0: free; 1: held | the thread that takes a free lock; its holder |
//! | `passes` | how many threads may still overtake the head; 0: closed | its holder |
//! | `queue` | those that wait | see [`Osq`] |
//!
//! A waiter that does not run stops those behind it in the queue. So does a holder that was the
//! head and is preempted before it passes its turn on. Neither stops a thread that finds the lock
//! free when it comes. A thread that finds it held queues, and then waits for those before it.
//!
//! # Why this one
//!
//! A scheduler that switches tasks may not sleep, so it cannot use [`Mutex`](super::Mutex) when it
//! calls a space: its waiters sleep. This table compares the others, by `coreline run threadstorm`
//! with 32 pools of 32 roaming threads on `epyc-9654-2s`, in threads created per second. For 8
//! pools of 8 at the published pace, where hardly any thread waits, it has the time of all calls
//! for a thread:
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
//! The figures are of an earlier engine and queue, and of a lock that was handed to its waiters.
//!
//! An `Osq` alone takes a node and gives it back for each section, which costs 90 to 330 ns there.
//! Near waiters first does not pay. Waiters are of all 24 caches, and sections are shorter than the
//! time to sort, whose lines go along with the turn.
//!
//! | constant | why this value | test |
//! |---|---|---|
//! | `MOST` | 8 and 128 create as many threads | `so_many_threads_overtake_a_head` |
//! | `AWAY` | looks cost little, shared by so many | `what_one_head_left_is_not_..` |
//! | `LOOKS`, `PAUSES` | a head that spins looks meanwhile | `a_closed_lock_is_left_to_..` |
//!
//! # Law
//!
//! There is at most one holder, and the next holder sees its writes. Threads in the queue get the
//! lock in FIFO order. A head that looks at the lock at least once in any [`LOOKS`] looks of
//! another thread is overtaken by at most [`MOST`] threads, and once each by those that looked at
//! the queue or at `passes` before. Behind a head that was away, up to [`AWAY`] threads may
//! overtake the next one, too. So may, once, each thread that found the lock forsaken by an earlier
//! head and takes it when the present one has closed it, and each adds as many.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use coreline_world::{Cell, CellMut, Native, Ordering, Word, World};

use super::osq::{Came, Fifo, Osq};
use crate::node_pool::Number;

/// Data that only one thread at a time may access.
///
/// **Panics**: no method panics. A panic while the guard is alive frees the lock.
///
/// **Oversubscription**: waiters keep their CPUs busy. Natively, they yield when the wait gets
/// long, and sleep between checks when it gets very long. A waiter that does not run stops those
/// behind it in the queue, but no thread that finds the lock free. If memory for a node is refused,
/// a thread that found the lock held sleeps until there is a node.
///
/// **Signals, fork**: as [`Osq`]: a handler must not lock. A lock that another thread held at the
/// time of a fork stays locked in the child. If another thread waited for it, its place in the
/// queue stays taken, and a thread of the child that queues waits forever.
#[repr(C)]
pub(crate) struct QueuedLock<T, W: World = Native> {
    state: W::U8,
    passes: W::U8,
    queue: Osq<Fifo, W>,
    data: Cell<T, W>,
}

const _: () = {
    assert!(size_of::<QueuedLock<(), Native>>() == 8);
    assert!(align_of::<QueuedLock<(), Native>>() == 4);
};

const FREE: u8 = 0;
const HELD: u8 = 1;

/// How many threads may overtake a head that runs. With 8 and with 128, `threadstorm` creates about
/// as many threads.
const MOST: u8 = 32;

/// How many threads may overtake a head that does not run, until the next check.
const AWAY: u8 = u8::MAX;

/// A head that runs takes a closed lock before another thread has seen it free this often.
const LOOKS: u32 = 64;

/// Pauses between two of these looks. All checks together take several times as long as the pause
/// of a spinning head between two of its own checks.
const PAUSES: u32 = 4;

impl<T, W: World> QueuedLock<T, W> {
    /// The model has few threads.
    const MOST: u8 = if W::RUNS { MOST } else { 1 };

    /// A free lock around `data`, in every world.
    pub(crate) fn new_in(data: T) -> Self {
        QueuedLock {
            state: W::U8::new_in(FREE),
            passes: W::U8::new_in(Self::MOST),
            queue: Osq::new_in(),
            data: Cell::new_in(data),
        }
    }

    /// Takes the lock; the guard frees it.
    #[inline]
    pub(crate) fn lock(&self) -> QueuedGuard<'_, T, W> {
        let node = match self.queue.is_empty() && self.take() {
            true => None,
            false => self.lock_slowly(),
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

    /// Takes the lock. The node in which this thread has its turn in the queue, if it is in one.
    #[cold]
    #[inline(never)]
    fn lock_slowly(&self) -> Option<Number> {
        if self.overtake() {
            return None;
        }
        let (Came::First(node) | Came::Next(node)) = self.queue.come();
        loop {
            // Relaxed: `take` looks again.
            self.state.wait_until(Ordering::Relaxed, |state| state == FREE);
            if self.take() {
                break;
            }
        }
        // Relaxed, here and below: a holder writes it, and the lock orders holders. Other threads
        // take it for a hint.
        self.passes.store(Self::MOST, Ordering::Relaxed);
        Some(node)
    }

    /// Takes the lock before the head of the queue, if it is free and may be taken.
    fn overtake(&self) -> bool {
        let was_closed = self.is_closed();
        if !self.is_free() || was_closed && !self.is_forsaken() || !self.take() {
            return false;
        }
        // Relaxed: the holder's.
        let left = match self.passes.load(Ordering::Relaxed) {
            // There is no head. What an earlier one left is not the next one's:
            //
            //   Head:     frees the lock, is preempted before it passes its turn on
            //   Thread 1: finds the lock forsaken, opens it for many
            //   Head:     passes its turn on; the queue is empty
            //   Thread 2: queues                             <- this many may overtake it
            _ if self.queue.is_empty() => Self::MOST,
            // Only a thread that found the lock forsaken opens it:
            //
            //   Thread 1: finds that one thread may overtake, takes the lock, closes it
            //   Thread 2: has found the same     <- is one too many, and no reason to open it
            0 if was_closed => AWAY,
            left => left.saturating_sub(1),
        };
        // Relaxed: as for the load.
        self.passes.store(left, Ordering::Relaxed);
        true
    }

    /// Whether no thread may overtake the head of the queue.
    fn is_closed(&self) -> bool {
        // Relaxed: a hint.
        self.passes.load(Ordering::Relaxed) == 0
    }

    fn is_free(&self) -> bool {
        // Relaxed: `take` looks again.
        self.state.load(Ordering::Relaxed) == FREE
    }

    /// Whether a closed lock stays free, so that the head of the queue does not run. In the model,
    /// where no time passes, each head runs.
    fn is_forsaken(&self) -> bool {
        let looks = || {
            (0..PAUSES).for_each(|_| W::relax());
            self.is_free() && self.is_closed()
        };
        // Without a head it is not closed for anyone.
        W::RUNS && (self.queue.is_empty() || (0..LOOKS).all(|_| looks()))
    }

    /// Frees the lock, and passes on the turn in the queue.
    ///
    /// The caller holds the lock, and has its turn in this node, if it is in one.
    #[inline]
    fn free(&self, node: Option<Number>) {
        // Release: pairs with the Acquire in `take`.
        self.state.store(FREE, Ordering::Release);
        if let Some(node) = node {
            self.pass(node);
        }
    }

    #[cold]
    #[inline(never)]
    fn pass(&self, node: Number) {
        self.queue.pass_if_waited(node);
    }
}

/// Proof that the caller holds a [`QueuedLock`], and access to its data.
#[must_use = "the lock is freed when the guard drops: at once, if it is not bound to a name"]
pub(crate) struct QueuedGuard<'a, T, W: World> {
    lock: &'a QueuedLock<T, W>,
    /// The node in which this thread has its turn in the queue, if it is in one.
    node: Option<Number>,
    data: ManuallyDrop<CellMut<'a, T, W>>,
    /// It is not `Send`: `T` may be shared in turn only if it may be sent.
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
    use coreline_world::{JoinHandle, Placement, Testbed, Threads, Words};

    use super::*;

    /// So many threads on two CPUs each increment this often, and no increment is lost.
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

    /// A head that does not run: it has its turn in the queue, and never looks at the lock.
    fn forsake<R: Send + 'static>(then: fn(&QueuedLock<(), Sim>) -> R) -> R {
        let program = move || {
            let lock = QueuedLock::<(), Sim>::new_in(());
            let Came::First(head) = lock.queue.come() else { unreachable!("no other thread") };
            let value = then(&lock);
            assert!(!lock.queue.pass_if_waited(head), "a node was left in the queue");
            value
        };
        let machine = Machine::preset("host-2c").expect("a preset");
        machine.step_limit(1_000_000).run(program).expect("it ends").value
    }

    #[test]
    fn so_many_threads_overtake_a_head() {
        let overtakes = forsake(|lock| {
            let overtakes = || {
                let takes = !lock.is_closed() && lock.overtake();
                takes.then(|| lock.free(None))
            };
            core::iter::from_fn(overtakes).count()
        });
        assert_eq!(overtakes, usize::from(MOST));
    }

    /// If threads looked at a closed lock without limit, the first one after those that may
    /// overtake the head would wait forever.
    #[test]
    fn a_head_that_does_not_run_stops_no_thread() {
        forsake(|lock| {
            (0..2 * u32::from(AWAY)).for_each(|_| drop(lock.lock()));
            assert!(!lock.queue.is_empty(), "the head has not looked");
        });
    }

    #[test]
    fn what_one_head_left_is_not_the_next_ones() {
        let program = || {
            let lock = QueuedLock::<(), Sim>::new_in(());
            let Came::First(head) = lock.queue.come() else { unreachable!("no other thread") };
            (0..=MOST).for_each(|_| drop(lock.lock()));
            // Relaxed, here and below: there is one thread.
            assert_eq!(lock.passes.load(Ordering::Relaxed), AWAY, "the head has not looked");
            assert!(!lock.queue.pass_if_waited(head), "no other thread waits");
            assert!(lock.overtake());
            lock.free(None);
            lock.passes.load(Ordering::Relaxed)
        };
        let machine = Machine::preset("host-2c").expect("a preset");
        assert_eq!(machine.run(program).expect("it ends").value, MOST);
    }

    /// If a thread takes turns of the lock while a head runs, it takes as many in a row.
    #[test]
    fn a_closed_lock_is_left_to_a_head_that_runs() {
        let program = || {
            let lock = Arc::new(QueuedLock::<u32, Sim>::new_in(0));
            let mut held = lock.lock();
            let theirs = Arc::clone(&lock);
            let head = move || *theirs.lock();
            let head = Sim::spawn(Placement::On(CpuId::new(1)), head).expect("one thread");
            // Relaxed: a hint.
            while lock.queue.is_empty() {
                Sim::relax();
            }
            *held += 1;
            drop(held);
            (0..1_000).for_each(|_| *lock.lock() += 1);
            head.join()
        };
        for seed in 0..20 {
            let machine = Machine::preset("host-2c").expect("a preset").seed(seed);
            let overtakes = machine.run(program).expect("it ends").value;
            assert!(overtakes <= u32::from(MOST) + 2, "{overtakes} threads overtook the head");
        }
    }

    /// Whether an execution fails because an ordering is missing.
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
        assert!(is_caught(Plant::RELAXED_LOADS, three), "the Acquires in the queue");
    }
}
