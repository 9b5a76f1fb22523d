//! The order in which waiters get their turns.

use coreline_world::{Ordering, Word, World};

use super::Osq;
use super::nodes::{AHEAD, Board, CALM, Link, RING, RINGS, Ring, Run, Tables, Waiter};
use crate::numbered::{NONE, Number};

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

/// FIFO order, the order of arrival. A waiter that gives up may leave its place to a thread that
/// arrives later.
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
            let asleep = tables.grant(next, along);
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
/// and Kogan, "Compact NUMA-aware locks", 2019) has two lists instead. It examines remote waiters
/// repeatedly. CNA was proposed for the kernel. Structures that are bound to a lock while it is
/// contended were also proposed.
///
/// Consecutive turns of one place are a *run*. The data that a holder needs about the run is passed
/// on in the waiter's node, which a hand-off writes anyway. A holder reads the board only when a
/// run ends, and when all waiters that it knows have had their turns.
///
/// At most [`PASSES`](Near::PASSES) later arrivals overtake a waiter, apart from turns in progress.
/// The length of a run is the larger of two numbers. One is the number of waiters with which the
/// run begins. The other is the run's share of `PASSES`, divided among the other places with
/// waiters. A board's first run has its share among all places. A run ends sooner when its part of
/// [`SPAN`](Near::SPAN) ends, or when `PASSES` later arrivals have overtaken the first waiter of
/// another place. The next run is at the place of the waiter that was sorted first. A thread that
/// adopts the place of a waiter that gave up counts as having arrived at that place.
///
/// Threads rejoin in the order of their turns. So threads of one place that had consecutive turns
/// also have consecutive turns the next time, and overtake no thread. The initial order of places
/// on a board also stays, even after the board is gone. During the first 125 µs of a board, the
/// runs follow an order in which near places are adjacent, within the same bounds.
///
/// Without a board, turns cost as much as in [`Fifo`]. There is no board while all waiters are of
/// one place, or while only one thread waits. If a board shows that few waiters are near each
/// other, there is no board for the next 1,024 turns, or until no thread waits.
#[derive(Debug, Clone, Copy)]
pub struct Near;

impl Near {
    /// The maximum number of later arrivals that may get their turns before a waiter.
    pub const PASSES: u32 = 64;

    /// The maximum time, in nanoseconds, for which later arrivals may get their turns before a
    /// waiter: 1 ms. For each other place, one turn that had already begun may be added.
    pub const SPAN: u64 = 1_000_000;
}

/// If so many rings in a row end after one or two turns, sorting is in vain: few waiters are near
/// each other, and a board moves more lines than it saves. With four places these are two rounds.
/// After one round, a thread that came late fixed a bad order until there was a board again. 4
/// threads on 4 nodes, two to a socket, then had 0.65 of the turns of the good order.
const VAIN: u32 = 8;

/// Then there is no board for so many turns, or until the queue is empty. A board in vain has 11
/// turns with four places and up to 31 with 24, each of which costs up to twice as much. That is 1
/// to 3 % of so many turns.
const PAUSE: u32 = 1024;

/// For this time of a board, in nanoseconds, rings come in the order of their places. Then they
/// come in order of age. Without an end, the threads of one ring could pass over a waiter deep in
/// another ring in run after run. The bound on passes would end that, but the bound on time would
/// not hold:
///
/// ```text
/// ring 1: a, b, c         ring 0: x      each ring has one long turn at a time
/// a                       x              x waits again
/// b                       x              passes over c a second time; in order of age, c is next
/// ```
const YOUNG: u64 = Near::SPAN / 8;

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
            if board == NONE {
                let Some(next) = osq.behind(tables, number) else {
                    tables.nodes.put_back(number);
                    return None;
                };
                if along >= CALM {
                    along -= CALM;
                } else if let Some(sorted) = sort_from(tables, next, place) {
                    (board, run) = sorted;
                }
                let next = next.number();
                if board == NONE {
                    let asleep = tables.grant(next, along);
                    tables.nodes.put_back(number);
                    if asleep.is_some() {
                        return asleep;
                    }
                    number = next;
                    continue;
                }
            }
            let sorting = Sorting { tables, board: tables.boards.get(board) };
            let (next, of_queue) = sorting.choose(&mut run);
            if of_queue {
                // All that were sorted have had their turns. While there is a board, none of the
                // pause before is left.
                if sorting.is_vain() {
                    along += PAUSE * CALM;
                }
                tables.boards.put_back(core::mem::replace(&mut board, NONE));
            }
            let node = tables.nodes.get(next);
            node.board.set(board);
            run.give(node);
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

/// A board for the waiters from `first` on, the queue's first one, and the current run. `None` if
/// that waiter is of the holder's place, or alone, or cannot be sorted, or if all boards are taken.
/// Then that waiter is next.
fn sort_from<W: World>(tables: &Tables<W>, first: Link, place: u32) -> Option<(Number, Run)> {
    if first.place() == place || !Waiter::fits(first.number()) {
        return None;
    }
    // Relaxed: only compared.
    if tables.nodes.get(first.number()).next.load(Ordering::Relaxed) == NONE {
        return None;
    }
    let number = tables.boards.take()?;
    let board = tables.boards.get(number);
    let now = W::now().as_nanos();
    board.rest.set(first.word());
    board.born.set(now);
    board.sorted.set(0);
    board.turns.set(0);
    // The holder's own turn is the first one of the run.
    board.began.set(u32::MAX);
    board.short.set(0);
    let left = Near::PASSES / tables.other_places;
    let until = now + share(tables);
    let start = board.rings[place as usize].start.get();
    Some((number, Run { ring: place, start, len: 0, left, until, ahead: 0 }))
}

/// How long a place has the lock. Shares of time are of all places, because time has no second
/// bound as passes have. They add up to the span, because a waiter is passed over in at most one
/// run of each other place. The waiters left there came later, and go behind it once the board is
/// no longer young.
fn share<W: World>(tables: &Tables<W>) -> u64 {
    (Near::SPAN - YOUNG) / u64::from(tables.other_places)
}

/// The lock's holder, which sorts the waiters on the lock's board by place.
struct Sorting<'a, W: World> {
    tables: &'a Tables<W>,
    board: &'a Board<W>,
}

impl<'a, W: World> Sorting<'a, W> {
    /// The next waiter, and whether it is the queue's first one. Otherwise it was sorted, and is no
    /// longer on the board.
    fn choose(&self, run: &mut Run) -> (Number, bool) {
        if run.len == 0 {
            self.count(run);
            self.sort(run.ring);
            run.len = self.ring(run.ring).len.get();
        }
        let runs_out = run.len == 0;
        if !runs_out && run.left > 0 && W::now().as_nanos() < run.until {
            return (run.take(self.ring(run.ring)), false);
        }
        let turns = self.count(run);
        self.sort(run.ring);
        let board = self.board;
        let ring = self.ring(run.ring);
        if let Some(first) = ring.first() {
            board.firsts[run.ring as usize].set(first.word());
        }
        let Some(next) = self.next(run.ring, turns) else {
            return (Link::of(board.rest.get()).number(), true);
        };
        board.firsts[next.ring as usize].set(0);
        let is_short = runs_out && turns.wrapping_sub(board.began.get()) <= 2;
        board.short.set(if is_short { board.short.get() + 1 } else { 0 });
        board.began.set(turns);
        *run = next;
        (run.take(self.ring(run.ring)), false)
    }

    /// Records what the run has taken; returns how many waiters were taken since the board is in
    /// use.
    fn count(&self, run: &Run) -> u32 {
        let ring = self.ring(run.ring);
        let turns = self.board.turns.get().wrapping_add(ring.len.get() - run.len);
        ring.start.set(run.start);
        ring.len.set(run.len);
        self.board.turns.set(turns);
        turns
    }

    /// Whether sorting costs and gains nothing. Then no more waiters are sorted, so the board ends
    /// when the sorted ones have had their turns, unless a ring has more of them after all.
    fn is_vain(&self) -> bool {
        self.board.short.get() >= VAIN
    }

    /// The run after that of `current`, after so many turns; `None` if no ring has waiters.
    fn next(&self, current: u32, turns: u32) -> Option<Run> {
        let board = self.board;
        let sorted = board.sorted.get();
        let mut found: [Option<(u32, u32)>; 2] = [None; 2];
        let mut nearest = (u32::MAX, current);
        let mut others = 0;
        for (number, first) in (0..).zip(&board.firsts.0) {
            let first = first.get();
            if first == 0 {
                continue;
            }
            // The one that comes next is counted in place of the one before, and so also where that
            // one has no waiters now: its threads may wait again soon.
            others += u32::from(number != current);
            let this = Some((Waiter::of(first).age(sorted), number));
            if this > found[0] {
                found = [this, found[0]];
            } else if this > found[1] {
                found[1] = this;
            }
            nearest = nearest.min((number.wrapping_sub(current + 1) % RINGS as u32, number));
        }
        let others = others.max(1);
        let [oldest, second] = found;
        let oldest = oldest?;
        // How many that came later had their turns before a waiter of such an age, if the next turn
        // goes to one of them, too: all that were sorted before the oldest one of all had theirs.
        // Less than none, where some had not.
        let passes =
            |age: u32| turns.wrapping_add(1).wrapping_sub(sorted.wrapping_sub(age)).cast_signed();
        let now = W::now().as_nanos();
        let is_young = now.saturating_sub(board.born.get()) < YOUNG;
        let by_place = is_young && passes(oldest.0) < Near::PASSES.cast_signed();
        let ring = if by_place { nearest.1 } else { oldest.1 };
        let other = if ring == oldest.1 { second } else { Some(oldest) };
        // All that wait there, even if they pass over others: next time they come one after the
        // other, and pass over none. Cut into shares of five turns, which is what 15 other places
        // leave, runs of places with eight threads would stay about as short. Where fewer wait,
        // threads that come meanwhile have the share, and one turn more: in order of age, the first
        // passes over none.
        let passed = other.map_or(0, |(age, _)| passes(age));
        let of = self.ring(ring);
        let left = of.len.get().max(Near::PASSES / others + 1).cast_signed();
        let left = left.min(Near::PASSES.cast_signed() - passed);
        Some(Run {
            ring,
            start: of.start.get(),
            len: of.len.get(),
            left: left.max(1).cast_unsigned(),
            until: now + share(self.tables),
            ahead: 0,
        })
    }

    fn ring(&self, number: u32) -> &'a Ring<W> {
        &self.board.rings[number as usize]
    }

    /// Sorts waiters in the order of their arrival, as long as there is room and more follow. The
    /// ring `current` has its turn, and has no first waiter.
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
            if next == Link::NONE || !Waiter::fits(rest.number()) {
                break;
            }
            let waiter = Waiter::new(rest.number(), sorted);
            if !self.ring(number).put(waiter) {
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

impl Run {
    /// Takes the next waiter out of the ring, which has one. The ring learns of it when the run is
    /// [counted](Sorting::count).
    fn take<W: World>(&mut self, ring: &Ring<W>) -> Number {
        if self.ahead == 0 {
            self.ahead = ring.read(self.start, self.len.min(AHEAD));
        }
        let next = self.ahead as u32 & 0xffff;
        self.ahead >>= 16;
        self.start = (self.start + 1) % RING as u32;
        self.len -= 1;
        self.left = self.left.saturating_sub(1);
        next
    }
}

impl<W: World> Ring<W> {
    fn first(&self) -> Option<Waiter> {
        let first = || Waiter::of(self.waiters[self.start.get() as usize].get());
        (self.len.get() != 0).then(first)
    }

    /// The numbers of so many waiters, starting at `start`.
    fn read(&self, start: u32, count: u32) -> u128 {
        let number = |at: u32| {
            let place = (start + at) as usize % RING;
            u128::from(Waiter::of(self.waiters[place].get()).number()) << (16 * at)
        };
        (0..count).map(number).fold(0, core::ops::BitOr::bitor)
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
}

#[cfg(test)]
mod tests;
