//! The queue of a lock whose waiters sleep when they have spun in vain.
//!
//! Such a lock is one word beside an [`Osq`]. The thread that has its turn in the queue is the
//! *first waiter*: it alone waits for the word, and passes its turn on when it has the lock.

use coreline_world::{Ordering, Parked, Time, Word, World};

use super::super::spin::{MOST, Spun, spin};
use super::nodes::{FENCED, SLEEPS, TURN, WAIT};
use super::{Order, Osq, with_tables};
use crate::numbered::{NONE, Number};

/// How a thread waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lock) enum Manner {
    /// Spins for [`MOST`] and then gives up; at once, while too many nodes are left in queues.
    Spins,
    /// Sleeps at once.
    Sleeps,
    SpinsAndSleeps,
}

/// How waiting for a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lock) enum Waited {
    /// The caller is the first waiter, in the node of this number.
    Turn(Number),
    /// The deadline passed, or the thread has spun in vain and does not sleep.
    Late,
    /// There is no node to wait in.
    NoNode,
}

impl<O: Order, W: World> Osq<O, W> {
    /// Whether no thread waits, or is the first waiter.
    #[inline]
    pub(in crate::lock) fn is_empty(&self) -> bool {
        // Relaxed: a caller that must not miss a waiter has a fence before or behind this.
        self.tail.load(Ordering::Relaxed) == NONE
    }

    /// Waits for a turn.
    pub(in crate::lock) fn wait(&self, deadline: Option<Time>, manner: Manner) -> Waited {
        with_tables::<W, _>(|tables| {
            if manner == Manner::Spins && tables.is_left_full() {
                return Waited::Late;
            }
            if deadline.is_some() && tables.is_left_full() {
                return Waited::NoNode;
            }
            let Some(number) = tables.nodes.take() else {
                return Waited::NoNode;
            };
            if self.arrive(tables, number) {
                return Waited::Turn(number);
            }
            let state = &tables.nodes.get(number).state;
            let now = W::now();
            let end = deadline.map_or(now + MOST, |deadline| deadline.min(now + MOST));
            // Acquire, in `spin`: pairs with the Release in `grant`.
            let spun = || spin::<W, _>(state, now, end, |state| state == TURN);
            if manner != Manner::Sleeps && spun() == Spun::Ready(TURN) {
                return Waited::Turn(number);
            }
            if manner == Manner::Spins {
                let has_left = tables.leave(number, WAIT);
                return if has_left { Waited::Late } else { Waited::Turn(number) };
            }
            // Relaxed: asks to be woken, and publishes nothing. Acquire, where it fails: the turn
            // came; pairs with the Release in `grant`.
            let asleep = state.compare_exchange(WAIT, SLEEPS, Ordering::Relaxed, Ordering::Acquire);
            if asleep.is_err() {
                return Waited::Turn(number);
            }
            loop {
                let parked = W::park(state, SLEEPS, deadline);
                // Acquire: pairs with the Release in `grant`.
                if state.load(Ordering::Acquire) == TURN {
                    return Waited::Turn(number);
                }
                if parked == Parked::TimedOut {
                    return if tables.leave(number, SLEEPS) {
                        Waited::Late
                    } else {
                        Waited::Turn(number)
                    };
                }
            }
        })
    }

    /// What a first waiter does before it sleeps: after this, each thread that writes the lock's
    /// word and then has a light fence finds the queue [not empty](Osq::is_empty), or its write is
    /// seen by the first waiter. Whether that could be done.
    ///
    /// One heavy fence is enough from an arrival in an empty queue until the queue is empty again:
    /// a thread whose look at the queue came before that fence wrote before it, too. That there was
    /// one goes along with the turn.
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

    /// Passes on the turn of the first waiter. The node of the next one, if it sleeps and is to be
    /// [woken](Osq::wake); else zero.
    pub(in crate::lock) fn pass(&self, first: Number) -> Number {
        with_tables::<W, _>(|tables| O::pass(self, tables, first)).unwrap_or(NONE)
    }

    /// Wakes the first waiter of a node that [`pass`](Osq::pass) gave; of zero, none.
    pub(in crate::lock) fn wake(number: Number) {
        with_tables::<W, _>(|tables| tables.wake(number));
    }
}
