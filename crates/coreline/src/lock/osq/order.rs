//! The order in which waiters get their turns.
//!
//! # What a holder in [`Near`] does when it passes on its turn
//!
//! - **A**: without a board, it takes the queue's first waiter. If that waiter is of another place,
//!   more follow, and there is no pause (`CALM`), the lock gets a board: step B.
//! - **B**: with a board, it takes the next waiter of the current run. If the run's ring is empty,
//!   it first sorts the waiters that came. If the run is over, it begins the next run. That run is
//!   at another place, unless the current place has the oldest waiter, or all of them. If no sorted
//!   waiter is left, it takes the queue's first one, and puts the board back.
//! - **C**: it hands over. If that waiter has given up, it begins again with A, or B.
//!
//! `sorting.rs` has what step B does. The words of both:
//!
//! | word | meaning |
//! |---|---|
//! | place | a last-level cache: where a thread was when it arrived |
//! | board | where a lock's waiters are sorted; it goes along with the turn |
//! | ring | the sorted waiters of one place, in order of arrival |
//! | run | turns of one ring, one after another; also what a holder must know of it |
//! | age | how many waiters were sorted since a waiter was, including itself |
//! | pass | a turn of a later arrival before a waiter's |
//!
//! | constant | why this value | test |
//! |---|---|---|
//! | [`Near::PASSES`], [`Near::SPAN`] | promised | `a_waiter_is_passed_over_..` in `laws.rs` |
//! | `PAUSE` | a board in vain is a small part of it | `sorting_in_vain_..` in `order/tests.rs` |
//! | `VAIN` | two rounds of four places | the same |
//! | `YOUNG` | leaves most of the span to runs | `the_runs_of_a_young_board_..` there |

use coreline_world::World;

use super::Osq;
use super::nodes::{CALM, Link, Run, Tables};
use crate::node_pool::{NONE, Number};
use sorting::{Sorting, sort_from};

mod sorting;

/// The order in which waiters get their turns: [`Near`] or [`Fifo`].
pub trait Order: sealed::Pass + 'static {}

mod sealed {
    use super::{Number, Order, Osq, Tables, World};

    pub trait Pass: Sized {
        /// Passes on the turn of a node, and puts the node back. Returns the node of the next
        /// thread if that thread sleeps and must be woken, else [`NONE`](super::NONE); returns
        /// `None` if there was no next one, and the queue is free.
        fn pass<W: World>(osq: &Osq<Self, W>, tables: &Tables<W>, number: Number) -> Option<Number>
        where
            Self: Order;
    }
}

pub(super) use sealed::Pass;

/// FIFO order, the order of arrival. A waiter that gives up may leave its position in the queue to
/// a thread that arrives later.
#[derive(Debug, Clone, Copy)]
pub struct Fifo;

impl Order for Fifo {}

impl Pass for Fifo {
    fn pass<W: World>(
        osq: &Osq<Self, W>,
        tables: &Tables<W>,
        mut number: Number,
    ) -> Option<Number> {
        let along = tables.nodes.get(number).along.get();
        // Read only if it is counted, and before the node is put back.
        let mut place = None;
        while let Some(next) = osq.behind(tables, number).map(Link::number) {
            let from = || *place.get_or_insert_with(|| tables.nodes.get(number).place.get());
            let asleep = tables.grant(next, from, along);
            tables.nodes.put_back(number);
            if asleep.is_some() {
                return asleep;
            }
            // That thread has given up: the node is ours, and what lies behind it.
            number = next;
        }
        tables.nodes.put_back(number);
        None
    }
}

/// The order in which waiters under the holder's last-level cache come first. When a lock moves to
/// another cache, its own line and the lines of the guarded data move, too. So fewer moves are
/// better.
///
/// If waiters of several places wait, their lock gets a board, which is passed on with the turn
/// until one waiter is left. A holder sorts the waiters onto the board by place when no waiter of
/// its own place is left. So each waiter is examined once. The lock itself does not grow. CNA (Dice
/// and Kogan, ["Compact NUMA-aware locks"](https://arxiv.org/abs/1810.05600), 2019), which was
/// proposed for the kernel, has two lists instead. It examines remote waiters repeatedly.
///
/// Consecutive turns of one place are a *run*. The data that a holder needs about the run is passed
/// on in the waiter's node, which a hand-off writes anyway. A holder reads the board only when a
/// run ends, and when all waiters that it knows have had their turns.
///
/// At most [`PASSES`](Near::PASSES) later arrivals overtake a waiter, apart from turns in progress.
/// The length of a run is the larger of two numbers. One is the number of waiters with which the
/// run begins. The other is `PASSES` divided by the number of other places with waiters, plus 1.
/// The place of the previous run counts as one of these, even if no thread waits there now. The
/// first run of a board has `PASSES` divided by the number of all other places. A run ends sooner
/// when its part of [`SPAN`](Near::SPAN) ends, or when `PASSES` later arrivals have overtaken the
/// first waiter of another place. The next run is at the place of the waiter that was sorted first.
/// A thread that takes over the node of a waiter that gave up counts as having arrived when that
/// waiter arrived.
///
/// Threads rejoin in the order of their turns. So threads of one place that had consecutive turns
/// also have consecutive turns the next time, and overtake no thread. The initial order of places
/// on a board also stays, even after the board is gone. During the first 125 µs of a board, the
/// runs follow an order in which near places are adjacent, within the same bounds.
///
/// Without a board, turns cost as much as in [`Fifo`]. There is no board while all waiters are of
/// one place, or while only one thread waits. If a board shows that few waiters are near each
/// other, there is no board for the next 1,024 turns, or until no thread waits. Waiters that gave
/// up count as turns here.
#[derive(Debug, Clone, Copy)]
pub struct Near;

impl Near {
    /// The maximum number of later arrivals that may get their turns before a waiter.
    pub const PASSES: u32 = 64;

    /// The maximum time, in nanoseconds, for which later arrivals may get their turns before a
    /// waiter: 1 ms. The waiter may also wait for one turn of each other place that had already
    /// begun.
    pub const SPAN: u64 = 1_000_000;
}

/// After sorting that gained nothing, there is no board for this number of nodes, or until the
/// queue is empty. Such a board has about `VAIN` runs, and then the turns of the waiters that are
/// still on it. With four places, these are 9 turns if one thread waits at each, and 20 or 21 if
/// two do. Each costs up to twice as much. That is 1 to 2 % of this many turns. With more places,
/// more waiters are on it.
const PAUSE: u32 = 1024;

impl Order for Near {}

impl Pass for Near {
    fn pass<W: World>(
        osq: &Osq<Self, W>,
        tables: &Tables<W>,
        mut number: Number,
    ) -> Option<Number> {
        let node = tables.nodes.get(number);
        let mut along = node.along.get();
        let mut board = node.board.get();
        let place = node.place.get();
        let mut run = if board == NONE { Run::default() } else { Run::new(node) };
        loop {
            // A: without a board, the queue's first waiter is next. It may be time for a board.
            let mut first = NONE;
            if board == NONE {
                let Some(behind) = osq.behind(tables, number) else {
                    tables.nodes.put_back(number);
                    return None;
                };
                first = behind.number();
                if along >= CALM {
                    along -= CALM;
                } else if let Some(sorted) = sort_from(tables, behind, place) {
                    (board, run) = sorted;
                }
            }
            // B: with a board, it says which waiter is next. It ends with the sorted waiters.
            let (mut next, mut of_queue) = (first, true);
            if board != NONE {
                let sorting = Sorting::new(tables, board);
                (next, of_queue) = sorting.choose(&mut run);
                if of_queue {
                    // While there is a board, none of the pause before is left.
                    if sorting.is_vain() {
                        along += PAUSE * CALM;
                    }
                    tables.boards.put_back(core::mem::replace(&mut board, NONE));
                }
                let node = tables.nodes.get(next);
                node.board.set(board);
                run.give(node);
            }
            // C: that waiter has the turn, unless it has given up. Then its node is the caller's,
            // and if it was the queue's first one, also what lies behind it.
            if let Some(asleep) = tables.grant(next, || place, along) {
                tables.nodes.put_back(number);
                return Some(asleep);
            }
            let gone = if of_queue { core::mem::replace(&mut number, next) } else { next };
            tables.nodes.put_back(gone);
        }
    }
}

#[cfg(test)]
mod tests;
