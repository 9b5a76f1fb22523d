//! `reciprocating`: D. Dice and A. Kogan, "Reciprocating locks", PPoPP 2025 (arXiv 2501.02380),
//! written from the algorithm of its first listing.
//!
//! The lock is one word. An arriving thread swaps its number into the word, and so gets the number
//! of the thread that arrived before it. That thread is its successor, because arrivals form a
//! stack. A holder at the end of a segment takes all arrivals at once. These threads have their
//! turns in reverse order. Threads that arrive meanwhile form the next segment. So arrival and
//! release take a constant number of steps, and no waiter reads the node of another waiter. A
//! thread overtakes a waiter at most once for each turn of that waiter.
//!
//! Each segment has an *end*. The last thread's successor would be a thread that has already had
//! its turn, because the stack began on top of that thread. The number of that thread is the end,
//! and it is passed on with the lock. A thread whose successor is the end has no successor.
//!
//! In the paper, `arrivals` is called Arrivals, a node is a wait element with its Gate, the end is
//! `eos`, and `LOCKED` is LOCKEDEMPTY.

use coreline_world::{Line, Ordering, Testbed, Word};

use super::Lock;

/// The reciprocating lock of Dice and Kogan.
///
/// | `arrivals` | the lock is |
/// |---|---|
/// | 0 | free |
/// | `LOCKED` | held, and no thread has arrived since the holder took the arrivals |
/// | 2 and more | held, and the thread whose number is 2 less arrived last |
pub struct Reciprocating<W: Testbed> {
    arrivals: W::U32,
    /// For each thread: 0 while it waits, then the end of the segment.
    gates: Box<[Line<W::U32>]>,
}

const LOCKED: u32 = 1;

impl<W: Testbed> Reciprocating<W> {
    fn gate(&self, number: u32) -> &W::U32 {
        &self.gates[number as usize - 2]
    }
}

impl<W: Testbed> Lock<W> for Reciprocating<W> {
    fn new_in(nodes: &[u32]) -> Self {
        let gate = |_: &u32| Line(W::U32::new_in(0));
        Reciprocating { arrivals: W::U32::new_in(0), gates: nodes.iter().map(gate).collect() }
    }

    fn hold(&self, thread: usize, turn: impl FnOnce()) {
        let me = thread as u32 + 2;
        // Relaxed: published by the swap.
        self.gate(me).store(0, Ordering::Relaxed);
        // Acquire: pairs with the Release exchange below, of a holder that left the lock free, and
        // with the Release half of the arrival before, whose gate this thread may open. Release:
        // pairs with the Acquire of the arrival after.
        let before = self.arrivals.swap(me, Ordering::AcqRel);
        let (mut next, mut end) = (0, me);
        if before != 0 {
            if before != LOCKED {
                next = before;
            }
            // Acquire: pairs with the Release of the holder that opens it.
            end = self.gate(me).wait_until(Ordering::Acquire, |end| end != 0);
            if next == end {
                (next, end) = (0, LOCKED);
            }
        }
        turn();
        if next != 0 {
            // Release: pairs with the Acquire of that waiter.
            return self.gate(next).store(end, Ordering::Release);
        }
        // Release: pairs with the Acquire of the next arrival.
        let left = self.arrivals.compare_exchange(end, 0, Ordering::Release, Ordering::Relaxed);
        if left.is_err() {
            // Acquire: pairs with the Release half of the arrivals, whose gates are closed before.
            let last = self.arrivals.swap(LOCKED, Ordering::Acquire);
            // Release: pairs with the Acquire of that waiter.
            self.gate(last).store(end, Ordering::Release);
        }
    }
}
