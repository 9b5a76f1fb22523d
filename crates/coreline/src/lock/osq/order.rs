//! In which order waiters get their turns.

use coreline_world::{Ordering, Word, World};

use super::Osq;
use super::nodes::{Board, CALM, Link, RING, Ring, Tables, Waiter};
use crate::numbered::{NONE, Number};

/// The order of turns: [`Near`] or [`Fifo`].
pub trait Order: sealed::Pass + 'static {}

mod sealed {
    use super::{Number, Order, Osq, Tables, World};

    pub trait Pass: Sized {
        /// Passes on the turn of a node, and puts the node back. The node of the next thread, if
        /// that one sleeps and is to be woken, else [`NONE`](super::NONE); `None` if there was no
        /// next one, and the queue is free.
        fn pass<W: World>(osq: &Osq<Self, W>, tables: &Tables<W>, number: Number) -> Option<Number>
        where
            Self: Order;
    }
}

pub(super) use sealed::Pass;

/// In the order of arrival.
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
        while let Some(next) = osq.behind(tables, number).map(Link::number) {
            tables.nodes.put_back(number);
            if let Some(asleep) = tables.grant(next, along) {
                return Some(asleep);
            }
            // That thread has given up: the node is ours, and what lies behind it.
            number = next;
        }
        tables.nodes.put_back(number);
        None
    }
}

/// Waiters under the holder's last-level cache first. A lock that goes from cache to cache takes
/// its line, and those that it guards, along; the fewer times, the better.
///
/// Where waiters of several places wait, their lock gets a board, which goes along with the turn
/// until one waiter is left: a holder sorts the waiters by place there when none of its own is
/// left, so that each is looked at once. Nothing is added to the lock. (A. Kogan and D. Dice,
/// "Compact NUMA-aware locks", 2019, have two lists instead, and look at remote waiters again and
/// again; their locks, and boards that are bound while a lock is contended, are proposals for the
/// kernel.)
///
/// A waiter is passed over by at most [`PASSES`](Near::PASSES) that arrived later, turns under way
/// apart. A place has the lock for so many turns that the others with waiters together come to
/// that, or for its part of [`SPAN`](Near::SPAN), or until the first waiter elsewhere was passed
/// over so often; then comes the place of the waiter that was sorted first.
///
/// Without a board, turns cost as much as in [`Fifo`]: where all waiters are of one place from the
/// beginning, or one waits; and for 256 turns after a board has shown that few waiters are near
/// each other, or until none waits.
#[derive(Debug, Clone, Copy)]
pub struct Near;

impl Near {
    /// How many that arrived later may get their turns before a waiter.
    pub const PASSES: u32 = 64;

    /// For how many nanoseconds, turns that had begun apart: 1 ms.
    pub const SPAN: u64 = 1_000_000;
}

/// So many rings in a row that run out after one or two turns show that sorting is in vain: few
/// waiters are near each other, and a board takes more lines along than they save.
const VAIN: u32 = 4;

/// Then there is no board for so many turns, or until the queue is empty.
const PAUSE: u32 = 256;

impl Order for Near {}

impl Pass for Near {
    fn pass<W: World>(
        osq: &Osq<Self, W>,
        tables: &Tables<W>,
        mut number: Number,
    ) -> Option<Number> {
        let mut along = tables.nodes.get(number).along.get();
        let mut board = tables.nodes.get(number).board.get();
        let place = tables.nodes.get(number).place.get();
        loop {
            if board == NONE {
                let Some(next) = osq.behind(tables, number) else {
                    tables.nodes.put_back(number);
                    return None;
                };
                if along >= CALM {
                    along -= CALM;
                } else {
                    board = sort_from(tables, next, place);
                }
                let next = next.number();
                if board == NONE {
                    tables.nodes.put_back(number);
                    if let Some(asleep) = tables.grant(next, along) {
                        return Some(asleep);
                    }
                    number = next;
                    continue;
                }
            }
            let sorting = Sorting { tables, board: tables.boards.get(board) };
            let (next, of_queue) = sorting.choose();
            if of_queue {
                // All that were sorted have had their turns. While there is a board, none of the
                // pause before is left.
                if sorting.is_vain() {
                    along += PAUSE * CALM;
                }
                tables.boards.put_back(core::mem::replace(&mut board, NONE));
            }
            tables.nodes.get(next).board.set(board);
            if let Some(asleep) = tables.grant(next, along) {
                tables.nodes.put_back(number);
                return Some(asleep);
            }
            // That thread has given up, so the node is ours; of the queue's first one, what lies
            // behind it, too.
            let gone = if of_queue { core::mem::replace(&mut number, next) } else { next };
            tables.nodes.put_back(gone);
        }
    }
}

/// A board for the waiters from `first` on, the queue's first one; [`NONE`] if that one is of the
/// holder's place, or alone, or if all boards are taken: then it is next.
fn sort_from<W: World>(tables: &Tables<W>, first: Link, place: u32) -> Number {
    if first.place() == place {
        return NONE;
    }
    // Relaxed: only compared.
    if tables.nodes.get(first.number()).next.load(Ordering::Relaxed) == NONE {
        return NONE;
    }
    let Some(number) = tables.boards.take() else {
        return NONE;
    };
    let board = tables.boards.get(number);
    board.rest.set(first.word());
    board.ring.set(place);
    board.run.set(0);
    board.sorted.set(0);
    board.turns.set(0);
    board.oldest.set(0);
    board.short.set(0);
    board.others.set(tables.other_places);
    board.since.set(W::now().as_nanos());
    number
}

/// A holder at its board.
struct Sorting<'a, W: World> {
    tables: &'a Tables<W>,
    board: &'a Board<W>,
}

impl<'a, W: World> Sorting<'a, W> {
    /// The waiter whose turn is next, and whether it is the queue's first one; else it was sorted,
    /// and is on the board no more.
    fn choose(&self) -> (Number, bool) {
        let board = self.board;
        let turns = board.turns.get().wrapping_add(1);
        board.turns.set(turns);
        let number = board.ring.get();
        let ring = self.ring(number);
        if ring.first().is_none() {
            self.sort(number);
        }
        let run = board.run.get();
        let runs_out = ring.first().is_none();
        if !runs_out && !self.is_over(run, turns) {
            board.run.set(run + 1);
            return (ring.take(), false);
        }
        self.sort(number);
        if let Some(first) = ring.first() {
            board.firsts[number as usize].set(first.word());
        }
        let Some((next, oldest)) = self.oldest() else {
            return (Link::of(board.rest.get()).number(), true);
        };
        board.firsts[next as usize].set(0);
        board.oldest.set(oldest);
        let is_short = runs_out && run <= 1;
        board.short.set(if is_short { board.short.get() + 1 } else { 0 });
        board.ring.set(next);
        board.run.set(0);
        board.since.set(W::now().as_nanos());
        (self.ring(next).take(), false)
    }

    /// Whether sorting costs and gains nothing. Then no waiter is sorted, so that the board ends
    /// when those that were have had their turns; unless a ring has more of them after all.
    fn is_vain(&self) -> bool {
        self.board.short.get() >= VAIN
    }

    /// Whether another ring comes next, if there is another.
    fn is_over(&self, run: u32, turns: u32) -> bool {
        // All that were sorted before the oldest one had their turns: those after them went to
        // waiters that came later. Less than none, where some of them had not.
        let passes = turns.wrapping_sub(self.board.oldest.get()).cast_signed();
        let since = self.board.since.get();
        // The share of turns goes by the rings that have waiters. More of them may have some a
        // moment later: then the bound on passes ends a run. Time has no such second bound, so its
        // shares are those of all places. They come to the span, as a waiter is passed over in one
        // run of each other place at most: what is left there came later, and so goes behind it.
        run >= Near::PASSES / self.board.others.get()
            || passes >= Near::PASSES.cast_signed()
            || W::now().as_nanos().saturating_sub(since)
                >= Near::SPAN / u64::from(self.tables.other_places)
    }

    /// The ring whose first waiter was sorted before those of all others, and how many had been
    /// before the oldest one of another ring.
    fn oldest(&self) -> Option<(u32, u32)> {
        let sorted = self.board.sorted.get();
        let mut found: [Option<(u32, u32)>; 2] = [None; 2];
        let mut others = 0;
        for (number, first) in (0..).zip(&self.board.firsts.0) {
            let first = first.get();
            if first == 0 {
                continue;
            }
            // The one that comes next is counted in place of the one before, and so also where that
            // one has no waiters now: its threads may wait again soon.
            others += u32::from(number != self.board.ring.get());
            let this = Some((Waiter::of(first).age(sorted), number));
            if this > found[0] {
                found = [this, found[0]];
            } else if this > found[1] {
                found[1] = this;
            }
        }
        self.board.others.set(others.max(1));
        let [next, other] = found;
        Some((next?.1, sorted.wrapping_sub(other.map_or(0, |(age, _)| age))))
    }

    fn ring(&self, number: u32) -> &'a Ring<W> {
        &self.board.rings[number as usize]
    }

    /// Sorts waiters in the order of their arrival, as long as there is room and more come behind.
    /// The ring `current` has its turn, and no first one.
    fn sort(&self, current: u32) {
        let board = self.board;
        if self.is_vain() {
            return;
        }
        let mut rest = Link::of(board.rest.get());
        let mut sorted = board.sorted.get();
        loop {
            let node = self.tables.nodes.get(rest.number());
            // Acquire: pairs with the Release in `arrive`, of what the next one wrote to its node.
            let next = Link::of(node.next.load(Ordering::Acquire));
            let number = rest.place();
            let waiter = Waiter::new(rest.number(), sorted);
            if next == Link::NONE || !self.ring(number).put(waiter) {
                break;
            }
            let first = &board.firsts[number as usize];
            if number != current && first.get() == 0 {
                first.set(waiter.word());
            }
            rest = next;
            sorted = sorted.wrapping_add(1);
        }
        board.rest.set(rest.word());
        board.sorted.set(sorted);
    }
}

impl<W: World> Ring<W> {
    fn first(&self) -> Option<Waiter> {
        let first = || Waiter::of(self.waiters[self.start.get() as usize].get());
        (self.len.get() != 0).then(first)
    }

    /// Puts a waiter in, if there is room.
    fn put(&self, waiter: Waiter) -> bool {
        let len = self.len.get();
        if len as usize == RING {
            return false;
        }
        self.waiters[(self.start.get() + len) as usize % RING].set(waiter.word());
        self.len.set(len + 1);
        true
    }

    /// Takes the first one out. There is one.
    fn take(&self) -> Number {
        let start = self.start.get();
        self.start.set((start + 1) % RING as u32);
        self.len.set(self.len.get() - 1);
        Waiter::of(self.waiters[start as usize].get()).number()
    }
}

#[cfg(test)]
mod tests {
    use coreline_world::Native;

    use super::*;
    use crate::numbered::Pooled;

    #[test]
    fn a_ring_keeps_the_order_wherever_it_begins() {
        for start in 0..RING as u32 {
            let board: Board<Native> = Pooled::<Native>::new_in();
            let ring = &board.rings[0].0;
            ring.start.set(start);
            let numbers: Vec<Number> = (1..=RING as u32).collect();
            assert!(numbers.iter().all(|number| ring.put(Waiter::new(*number, 0))), "room");
            assert!(!ring.put(Waiter::new(31, 0)), "a full ring has no room");
            let taken: Vec<Number> = numbers.iter().map(|_| ring.take()).collect();
            assert_eq!(taken, numbers, "a ring that began at {start}");
            assert!(ring.first().is_none());
        }
    }
}
