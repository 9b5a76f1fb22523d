//! The queue of a lock whose waiters first spin and then sleep.
//!
//! Such a lock is one word next to an [`Osq`]. The thread that has its turn in the queue is the
//! *first waiter*. Only the first waiter waits for the lock's word. Once it has the lock, the next
//! waiter becomes the first.
//!
//! | constant | why this value | test in `tests.rs` here |
//! |---|---|---|
//! | `NAP`, `NAPS` | see below | `a_thread_looks_eight_times_and_longer_apart_each_time` |
//! | the first nap | looks after 1 ms cost turns | `looks_make_turns_of_many_cpus_no_longer` |
//! | `MOST_ENTERED` | bounds the nodes left behind | `few_nodes_are_left_by_threads_that_enter` |

use core::time::Duration;

use coreline_world::{Ordering, Parked, Time, Word, World};

use super::super::count::park;
use super::super::spin::{MOST, Spun, is_over, spin};
use super::super::wanted::learns;
use super::nodes::{FENCED, MOST_ENTERED, SLEEPS, TURN, Tables, WAIT};
use super::places::Place;
use super::{Order, Osq, try_with_tables, with_tables};
use crate::node_pool::{NONE, Number};

/// How long a thread that sleeps behind the first waiter waits before it looks whether it can
/// enter without a turn. It waits twice as long before each further look.
///
/// ```text
/// Thread 1, on CPU 0: takes and frees the lock, again and again
/// Thread 2, on CPU 0: is woken to its turn; has no CPU until the slice of thread 1 ends
/// Thread 3, on CPU 1: sleeps behind thread 2       <- CPU 1 idles, and the lock is mostly free
/// ```
///
/// It does not look sooner. If hundreds of CPUs take short turns, waits of a millisecond are
/// common, and a thread that enters while a first waiter spins takes the lock far away. Looks after
/// 1 ms made a turn a quarter longer on 384 simulated CPUs. Looks after 2 ms cost nothing.
const NAP: Duration = Duration::from_millis(2);

/// The number of looks, in half a second. A thread that could not enter then sleeps until its turn:
/// the lock is held for long, so looking again does not help.
const NAPS: u32 = 8;

/// How a thread waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lock) enum Manner {
    /// Spins for [`MOST`] and then gives up. It gives up immediately if all nodes are in use, or if
    /// too many abandoned ones are in queues and it can adopt none in this queue.
    Spins,
    /// Sleeps immediately.
    Sleeps,
    /// Spins for [`MOST`], and then sleeps until its turn or the deadline.
    SpinsAndSleeps,
}

/// How waiting for a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lock) enum Waited<E> {
    /// The caller is the first waiter, in the node of this number.
    Turn(Number),
    /// The deadline passed, or the thread has spun without success and does not sleep.
    Late,
    /// The caller entered without a turn. It brings the node of the next thread, as from
    /// [`pass`](Osq::pass): a turn that came meanwhile was passed on.
    Entered(E, Number),
    /// There is no node to wait in.
    NoNode,
}

impl<O: Order, W: World> Osq<O, W> {
    /// Whether no thread waits or is the first waiter.
    #[inline]
    pub(in crate::lock) fn is_empty(&self) -> bool {
        // Relaxed: a caller that must not miss a waiter has a fence before or behind this.
        self.tail.load(Ordering::Relaxed) == NONE
    }

    /// Waits for a turn. A thread that sleeps meanwhile tries to `enter` the lock now and then.
    /// `enter` must not panic: the node would keep its turn forever.
    pub(in crate::lock) fn wait<E>(
        &self,
        deadline: Option<Time>,
        manner: Manner,
        enter: Option<impl Fn() -> Option<E>>,
    ) -> Waited<E> {
        let may_give_up = manner == Manner::Spins || deadline.is_some();
        let came = try_with_tables::<W, _>(|tables| match may_give_up {
            true => self.come_to_leave(tables),
            false => self.come_to_stay(tables),
        });
        let Some(Place { number, has_turn, life }) = came else {
            return if manner == Manner::Spins { Waited::Late } else { Waited::NoNode };
        };
        if has_turn {
            return Waited::Turn(number);
        }
        with_tables::<W, _>(|tables| {
            let state = &tables.nodes.get(number).state;
            let until = |end| deadline.map_or(end, |deadline| deadline.min(end));
            let (here, now) = (W::cpu_hint(), W::now());
            // Acquire, in `spin`: pairs with the Release in `grant`.
            let spun = || spin::<W, _>(state, now, until(now + MOST), |state| state == TURN);
            if manner != Manner::Sleeps && spun() == Spun::Ready(TURN) {
                // The turn may have come when the thread was away.
                learns::<W>(here, now + MOST, W::now());
                return Waited::Turn(number);
            }
            if manner == Manner::Spins {
                let has_left = tables.leave(number, WAIT | life);
                return if has_left { Waited::Late } else { Waited::Turn(number) };
            }
            let (from, asleep) = (WAIT | life, SLEEPS | life);
            // Relaxed: asks to be woken, and publishes nothing. Acquire, where it fails: the turn
            // came; pairs with the Release in `grant`.
            if state.compare_exchange(from, asleep, Ordering::Relaxed, Ordering::Acquire).is_err() {
                return Waited::Turn(number);
            }
            self.sleep(tables, number, asleep, deadline, enter)
        })
    }

    /// Sleeps in the state `asleep` until the turn comes, or `enter` lets the caller in.
    fn sleep<E>(
        &self,
        tables: &Tables<W>,
        number: Number,
        asleep: u32,
        deadline: Option<Time>,
        enter: Option<impl Fn() -> Option<E>>,
    ) -> Waited<E> {
        let state = &tables.nodes.get(number).state;
        let until = |end| deadline.map_or(end, |deadline: Time| deadline.min(end));
        let mut naps = match &enter {
            Some(_) if W::RUNS => NAPS,
            Some(_) => 1,
            None => 0,
        };
        let mut nap = NAP;
        loop {
            let by = if naps == 0 { deadline } else { Some(until(W::now() + nap)) };
            let parked = park::<W>(state, asleep, by);
            // Acquire: pairs with the Release in `grant`.
            if state.load(Ordering::Acquire) == TURN {
                return Waited::Turn(number);
            }
            if parked != Parked::TimedOut {
                continue;
            }
            if naps == 0 || is_over::<W>(deadline) {
                let has_left = tables.leave(number, asleep);
                return if has_left { Waited::Late } else { Waited::Turn(number) };
            }
            // Relaxed: a count.
            let may_abandon = tables.abandoned.load(Ordering::Relaxed) < MOST_ENTERED;
            let enter = enter.as_ref().filter(|_| may_abandon);
            if let Some(entered) = enter.and_then(|enter| enter()) {
                let has_left = tables.leave(number, asleep);
                return Waited::Entered(entered, if has_left { NONE } else { self.pass(number) });
            }
            (naps, nap) = (naps - 1, nap * 2);
        }
    }

    /// A first waiter calls this before it sleeps. After it, each thread that writes the lock's
    /// word and then passes a light fence finds the queue [not empty](Osq::is_empty), or the first
    /// waiter sees its write. Returns whether there is such a fence.
    ///
    /// One heavy fence is enough from an arrival in an empty queue until the queue is empty again:
    /// a thread that looked at the queue before that fence also wrote before it. The turn carries
    /// along that there was one.
    pub(in crate::lock) fn fence(&self, first: Number) -> bool {
        with_tables::<W, _>(|tables| {
            let along = &tables.nodes.get(first).along;
            if along.get() & FENCED == 0 {
                if W::try_fence_all().is_err() {
                    return false;
                }
                along.set(along.get() | FENCED);
            }
            true
        })
    }

    /// Passes on the turn of the first waiter. Returns the node of the next one if it sleeps and
    /// must be [woken](Osq::wake); otherwise zero.
    pub(in crate::lock) fn pass(&self, first: Number) -> Number {
        with_tables::<W, _>(|tables| O::pass(self, tables, first)).unwrap_or(NONE)
    }

    /// Wakes the first waiter of a node that [`pass`](Osq::pass) gave; zero wakes none.
    pub(in crate::lock) fn wake(number: Number) {
        with_tables::<W, _>(|tables| tables.wake(number));
    }
}

#[cfg(test)]
mod tests;
