//! `cna`: A. Kogan and D. Dice, "Compact NUMA-aware locks", EuroSys 2019, written from the
//! algorithm in its section 4.
//!
//! The lock has the queue of [`mcs`](super::mcs). A holder that frees the lock looks for the first
//! waiter of its own node. It moves the waiters that it skips to a *secondary* queue, whose head is
//! passed on with the lock. If there is no such waiter, or at random once in 65,536 turns, the
//! secondary queue returns to the front of the main queue.
//!
//! As in the paper, waiters are sorted by memory node, even if a node has several last-level
//! caches. The paper's optimisation for light contention (section 6) is included. While the
//! secondary queue is empty, 255 of 256 turns go to the next waiter, whatever its node is.

use coreline_world::{Line, Ordering, Testbed, Word};

use super::Lock;
use super::test_and_set::Dice;

/// The compact NUMA-aware queue of Kogan and Dice.
///
/// `tail` is 0 if the lock is free, or the number of the thread that arrived last, from 2 on.
pub struct Cna<W: Testbed> {
    tail: W::U32,
    nodes: Box<[Line<Node<W>>]>,
    /// The memory node of each thread.
    places: Box<[u32]>,
}

/// The node in which a thread waits.
struct Node<W: Testbed> {
    /// The thread that arrived next, or 0 if there is none yet.
    next: W::U32,
    /// 0 while its thread waits; then the head of the secondary queue, or [`TURN`] if that is
    /// empty.
    spin: W::U32,
    /// The place of the thread; [`UNKNOWN`] if it did not wait.
    place: W::U32,
    /// The tail of the secondary queue, in its head.
    last: W::U32,
    dice: Dice<W>,
}

const TURN: u32 = 1;
const UNKNOWN: u32 = u32::MAX;

/// The paper's THRESHOLD: the lock stays on its node unless a drawn number has none of these bits.
const STAY: u32 = 0xffff;

/// The paper's THRESHOLD2: nothing is sorted unless a drawn number has none of these bits.
const PLAIN: u32 = 0xff;

impl<W: Testbed> Cna<W> {
    fn node(&self, number: u32) -> &Node<W> {
        &self.nodes[number as usize - 2]
    }

    /// The first waiter of the holder's place; those before it go to the secondary queue.
    fn find(&self, mine: &Node<W>, first: u32, here: u32) -> Option<u32> {
        // Relaxed: written before the link, which was read with Acquire; so are all places here.
        let place = |number| self.node(number).place.load(Ordering::Relaxed);
        if place(first) == here {
            return Some(first);
        }
        let mut last = first;
        loop {
            // Acquire: pairs with the Release of the link in `hold`.
            let this = self.node(last).next.load(Ordering::Acquire);
            if this == 0 {
                return None;
            }
            if place(this) == here {
                // Relaxed, all that follow: the secondary queue is the holder's, and goes to the
                // next one with the Release of the hand-off.
                let head = mine.spin.load(Ordering::Relaxed);
                if head == TURN {
                    mine.spin.store(first, Ordering::Relaxed);
                } else {
                    // Relaxed: the holder's.
                    let end = self.node(head).last.load(Ordering::Relaxed);
                    // Relaxed: the holder's.
                    self.node(end).next.store(first, Ordering::Relaxed);
                }
                // Relaxed: the holder's.
                self.node(last).next.store(0, Ordering::Relaxed);
                // Relaxed: the holder's.
                let head = mine.spin.load(Ordering::Relaxed);
                // Relaxed: the holder's.
                self.node(head).last.store(last, Ordering::Relaxed);
                return Some(this);
            }
            last = this;
        }
    }

    fn pass(&self, thread: usize) {
        let (me, mine) = (thread as u32 + 2, &self.nodes[thread]);
        // Relaxed: the holder's own.
        let head = mine.spin.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the link in `hold`.
        let mut next = mine.next.load(Ordering::Acquire);
        if next == 0 {
            // The queue ends with the secondary one, if there is any.
            // Relaxed: the holder's.
            let end = if head == TURN { 0 } else { self.node(head).last.load(Ordering::Relaxed) };
            // Release: pairs with the Acquire of the next arrival's swap.
            let left = self.tail.compare_exchange(me, end, Ordering::Release, Ordering::Relaxed);
            match left {
                Ok(_) if head == TURN => return,
                // Release: pairs with the Acquire of the waiter.
                Ok(_) => return self.node(head).spin.store(TURN, Ordering::Release),
                Err(_) => {}
            }
            // Acquire: pairs with the Release of the link in `hold`, which is on its way.
            next = mine.next.wait_until(Ordering::Acquire, |next| next != 0);
        }
        if head == TURN && mine.dice.draw() & PLAIN != 0 {
            // Release: pairs with the Acquire of the waiter.
            return self.node(next).spin.store(TURN, Ordering::Release);
        }
        // Relaxed: the holder's own.
        let place = mine.place.load(Ordering::Relaxed);
        let here = if place == UNKNOWN { self.places[thread] } else { place };
        let near = if mine.dice.draw() & STAY != 0 { self.find(mine, next, here) } else { None };
        if let Some(near) = near {
            // Relaxed: the holder's own.
            let head = mine.spin.load(Ordering::Relaxed);
            // Release: pairs with the Acquire of the waiter.
            self.node(near).spin.store(head, Ordering::Release);
        } else if head == TURN {
            // Release: pairs with the Acquire of the waiter.
            self.node(next).spin.store(TURN, Ordering::Release);
        } else {
            // Relaxed, both: the holder's; the main queue comes behind the secondary one.
            let end = self.node(head).last.load(Ordering::Relaxed);
            self.node(end).next.store(next, Ordering::Relaxed);
            // Release: pairs with the Acquire of the waiter.
            self.node(head).spin.store(TURN, Ordering::Release);
        }
    }
}

impl<W: Testbed> Lock<W> for Cna<W> {
    fn new_in(nodes: &[u32]) -> Self {
        let node = |thread| {
            let word = || W::U32::new_in(0);
            let dice = Dice::new_in(thread);
            Line(Node { next: word(), spin: word(), place: word(), last: word(), dice })
        };
        let nodes_of = (0..nodes.len()).map(node).collect();
        Cna { tail: W::U32::new_in(0), nodes: nodes_of, places: nodes.into() }
    }

    fn hold(&self, thread: usize, turn: impl FnOnce()) {
        let (me, mine) = (thread as u32 + 2, &self.nodes[thread]);
        // Relaxed, all three: published by the swap, or by the link.
        mine.next.store(0, Ordering::Relaxed);
        mine.place.store(UNKNOWN, Ordering::Relaxed);
        mine.spin.store(0, Ordering::Relaxed);
        // Acquire: pairs with the Release exchange in `pass`, of a holder that left the lock free,
        // and with the Release half of the arrival before. Release: pairs with the Acquire of the
        // next arrival, which writes to the node.
        let before = self.tail.swap(me, Ordering::AcqRel);
        if before == 0 {
            // Relaxed: the holder's own.
            mine.spin.store(TURN, Ordering::Relaxed);
        } else {
            // Relaxed: published by the link.
            mine.place.store(self.places[thread], Ordering::Relaxed);
            // Release: pairs with the Acquire looks at `next`.
            self.node(before).next.store(me, Ordering::Release);
            // Acquire: pairs with the Release of the holder before.
            mine.spin.wait_until(Ordering::Acquire, |spin| spin != 0);
        }
        turn();
        self.pass(thread);
    }
}
