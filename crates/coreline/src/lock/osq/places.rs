//! Places in a queue, for a thread that stays, and for one that may give up and leave its place to
//! another.
//!
//! While a lock is held for long, no holder comes to the nodes that waiters leave in its queue.
//! Threads that try again and again, each time for a while, would leave a node each time. So if
//! [`CROWDED`] abandoned nodes are in queues, a thread that may give up looks from the end of the
//! queue for a place of its lock that another thread has left. It *adopts* the place: it waits in
//! that node. It adds a node only if it finds no such place.
//!
//! The search ends at the first node without a *life* (see below), which is that of a thread that
//! stays, or that came before the queues were crowded. Behind such a node, a queue has at most as
//! many places as threads ever waited there at one time, however often they try.
//!
//! # Which places
//!
//! These are places of threads that came while the queues were crowded. The state of such a node
//! has a *life* above its kind. The node also has the address of its lock and the number of the
//! node before it. A life begins when a thread comes, and goes on when another thread adopts the
//! place.
//!
//! A thread that looks for a place reads nodes that may become free at any time, and then belong to
//! another lock. It reads the state, the lock and the node before, and then:
//!
//! - to adopt it, the thread exchanges the state. This succeeds only in the life that it read, so
//!   the lock is that of the place;
//! - to go on to the node before, it reads the state again. In the same life, that node was in this
//!   queue, too:
//!
//! ```text
//! Thread 1: reads the state of node 5; it waits         <- thread 1 wants lock A
//! Thread 2: has its turn in node 5, puts it back
//! Thread 3: takes node 5 and comes to lock B behind node 7, which was left
//! Thread 1: reads that node 7 is before node 5, finds the life another one
//! ```
//!
//! Each place gives one turn at most, whichever thread is in it. So a thread waits for no more
//! turns than there were places before its own when it came.

use coreline_world::{Integer, Ordering, Word, World};

use super::nodes::{CROWDED, KIND, LEFT, Node, Tables, WAIT};
use super::{Order, Osq};
use crate::node_pool::{NONE, Number};

/// A thread's place in a queue.
pub(super) struct Place {
    pub(super) number: Number,
    /// Whether the queue was empty. If so, the state says nothing about that.
    pub(super) has_turn: bool,
    /// The bits above [`KIND`] in the state until the turn comes.
    pub(super) life: u32,
}

impl<O: Order, W: World> Osq<O, W> {
    /// A place for a thread that stays until its turn, or that comes while few abandoned nodes are
    /// in queues. `None` if all nodes are in use.
    pub(super) fn come_to_stay(&self, tables: &Tables<W>) -> Option<Place> {
        let number = tables.nodes.take()?;
        Some(Place { number, has_turn: self.arrive(tables, number), life: 0 })
    }

    /// A place for a thread that may give up. `None` if all nodes are in use, or if too many
    /// abandoned ones are in queues and the thread finds none in this queue.
    pub(super) fn come_to_leave(&self, tables: &Tables<W>) -> Option<Place> {
        // Relaxed: a count.
        let abandoned = tables.abandoned.load(Ordering::Relaxed);
        if abandoned < CROWDED {
            return self.come_to_stay(tables);
        }
        if let Some(place) = self.adopt(tables, abandoned) {
            return Some(place);
        }
        if tables.is_full() {
            return None;
        }
        let number = tables.nodes.take()?;
        let node = tables.nodes.get(number);
        let at = tables.place();
        node.prepare(at);
        let life = node.begin(self.address());
        let before = self.append(tables, number, at);
        if before != NONE {
            // Release: pairs with the Acquire in `adopt`; what the node before was prepared with
            // came with the swap of the tail.
            node.before.store(before, Ordering::Release);
        }
        Some(Place { number, has_turn: before == NONE, life })
    }

    /// A place in this queue that another thread has left, if one is found among this many.
    #[cold]
    #[inline(never)]
    fn adopt(&self, tables: &Tables<W>, most: u32) -> Option<Place> {
        // Acquire: pairs with the Release in `append`, which published the node.
        let mut number = self.tail.load(Ordering::Acquire);
        let mut mark = NONE;
        for step in 1..=most {
            if number == NONE || number == mark {
                return None;
            }
            // The nodes' `before` words may form a cycle. Node 2 came behind node 1. Then node 1 is
            // sorted, has its turn sooner, is taken once more, and comes behind node 2. A mark at
            // each power of two is in the cycle at last (Brent, "An improved Monte Carlo
            // factorization algorithm", 1980).
            if step.is_power_of_two() {
                mark = number;
            }
            let node = tables.nodes.get(number);
            // Acquire: pairs with the Release in `leave`; and no later load comes before it.
            let state = node.state.load(Ordering::Acquire);
            let life = state & !KIND;
            // Acquire: pairs with the Release in `begin`: if the address is of a later life, the
            // exchange below finds that the one before is over.
            if life == 0 || node.lock.load(Ordering::Acquire) != self.address() {
                return None;
            }
            // Acquire: pairs with the Release in `leave`, of what the thread did in the node that
            // left it. Relaxed, where it fails: not the caller's.
            let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
            let is_left = state & KIND == LEFT;
            if is_left && node.state.compare_exchange(state, WAIT | life, taken, failed).is_ok() {
                // Relaxed: a count; see `leave`.
                tables.abandoned.fetch_sub(1, Ordering::Relaxed);
                node.place.set(tables.place());
                return Some(Place { number, has_turn: false, life });
            }
            // Acquire: pairs with the Release in `come_to_leave`, of the node before; and in
            // `begin`, as that of the lock.
            let before = node.before.load(Ordering::Acquire);
            // Relaxed: compared only; after the loads above, which are Acquire.
            if node.state.load(Ordering::Relaxed) & !KIND != life {
                return None;
            }
            number = before;
        }
        None
    }

    /// A value that tells this lock from all others, while it stays where it is.
    fn address(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }
}

impl<W: World> Node<W> {
    /// Makes a prepared node of the caller's a place that may be adopted, in a queue of this lock;
    /// returns its life.
    fn begin(&self, lock: u64) -> u32 {
        /// The number of lives that are distinguished; zero is none.
        const LIVES: u32 = u32::MAX / (KIND + 1);
        let life = self.life.get() % LIVES + 1;
        self.life.set(life);
        // Release, twice: pair with the Acquire in `adopt`: a thread that sees one of these sees
        // that the life before is over.
        self.lock.store(lock, Ordering::Release);
        // Release: as the lock.
        self.before.store(NONE, Ordering::Release);
        let life = life * (KIND + 1);
        // Release: pairs with the Acquire of the state in `adopt`: a thread that sees this life
        // sees its lock and the node before it, and not those of the life before.
        self.state.store(WAIT | life, Ordering::Release);
        life
    }
}

#[cfg(test)]
mod tests;
