//! `reciprocating`: D. Dice and A. Kogan, "Reciprocating locks", PPoPP 2025 (arXiv 2501.02380),
//! written from the algorithm of its first listing.
//!
//! One word. A thread that arrives swaps its number in, and so learns which came before it: that
//! is its successor, as arrivals form a stack. A holder whose segment is over takes all arrivals
//! at once, and they have their turns, last first; those that come meanwhile form the next
//! segment. So arrival and release take a constant number of steps, no waiter reads another one's
//! node, and a thread passes over a waiter at most once for each of that waiter's turns.
//!
//! Of a segment all know the *end*: the last thread's successor would be a thread that has had its
//! turn already, as the stack began on top of it. The end is handed along, and the thread whose
//! successor it is has none.
//!
//! In the paper's words: `arrivals` is its Arrivals, a node is a wait element with its Gate, the
//! end is `eos`, and `LOCKED` is LOCKEDEMPTY.

use coreline_world::{Line, Ordering, Testbed, Word};

use super::Lock;

/// Dice and Kogan's lock.
///
/// | `arrivals` | the lock is |
/// |---|---|
/// | 0 | free |
/// | `LOCKED` | held, and no thread has arrived since the holder took the arrivals |
/// | 2 and more | held; the thread of this number, less 2, arrived last |
pub struct Reciprocating<W: Testbed> {
    arrivals: W::U32,
    /// By thread: 0 while it waits, then the end of the segment.
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
