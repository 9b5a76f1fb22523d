//! `mcs`: the queue of Mellor-Crummey and Scott, "Algorithms for scalable synchronization on
//! shared-memory multiprocessors", 1991, section 2.4 and figure 5, unchanged.
//!
//! The variant `fifo` adds two features: waiters can give up, and nodes come from a pool to which
//! holders return them. In this lock, a thread keeps its node forever, as in the paper. This is the
//! lowest possible cost of a queue.

use coreline_world::{Line, Ordering, Testbed, Word};

use super::Lock;

/// The queue of Mellor-Crummey and Scott.
///
/// `tail` is 0 if the lock is free, or the number of the thread that arrived last, from 1 on.
pub struct Mcs<W: Testbed> {
    tail: W::U32,
    nodes: Box<[Line<Node<W>>]>,
}

/// The node in which a thread waits.
struct Node<W: Testbed> {
    /// The thread that arrived next, or 0 if there is none yet.
    next: W::U32,
    /// 1 while its thread waits.
    waits: W::U32,
}

impl<W: Testbed> Lock<W> for Mcs<W> {
    fn new_in(nodes: &[u32]) -> Self {
        let node = |_: &u32| Line(Node { next: W::U32::new_in(0), waits: W::U32::new_in(0) });
        Mcs { tail: W::U32::new_in(0), nodes: nodes.iter().map(node).collect() }
    }

    fn hold(&self, thread: usize, turn: impl FnOnce()) {
        let (me, mine) = (thread as u32 + 1, &self.nodes[thread]);
        // Relaxed: published by the swap.
        mine.next.store(0, Ordering::Relaxed);
        // Acquire: pairs with the Release exchange below, of a holder that left the lock free, and
        // with the Release half of the arrival before. Release: pairs with the Acquire of the next
        // arrival, which writes to the node.
        let before = self.tail.swap(me, Ordering::AcqRel);
        if before != 0 {
            // Relaxed: published by the link.
            mine.waits.store(1, Ordering::Relaxed);
            // Release: pairs with the Acquire looks at `next` below.
            self.nodes[before as usize - 1].next.store(me, Ordering::Release);
            // Acquire: pairs with the Release of the holder before.
            mine.waits.wait_until(Ordering::Acquire, |waits| waits == 0);
        }
        turn();
        // Acquire: pairs with the Release of the link above.
        let mut next = mine.next.load(Ordering::Acquire);
        if next == 0 {
            // Release: pairs with the Acquire of the next arrival's swap.
            let left = self.tail.compare_exchange(me, 0, Ordering::Release, Ordering::Relaxed);
            if left.is_ok() {
                return;
            }
            // Acquire: pairs with the Release of the link above, which is on its way.
            next = mine.next.wait_until(Ordering::Acquire, |next| next != 0);
        }
        // Release: pairs with the Acquire of the waiter.
        self.nodes[next as usize - 1].waits.store(0, Ordering::Release);
    }
}
