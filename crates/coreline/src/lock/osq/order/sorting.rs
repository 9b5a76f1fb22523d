//! Waiters that a holder sorts by place, and which of them is next: step B of `order.rs`.

use coreline_world::{Ordering, Word, World};

use super::super::nodes::{AHEAD, Board, Link, RING, RINGS, Ring, Run, Tables, Waiter};
use super::Near;
use crate::node_pool::{NONE, Number};

/// If this number of consecutive runs end after one or two turns because their rings are empty,
/// sorting gains nothing: few waiters are near each other, and a board moves more lines than it
/// saves. With four places these are two rounds. After one round, a thread that came late fixed a
/// bad order until there was a board again. 4 threads on 4 nodes, two to a socket, then had 0.65 of
/// the turns of the good order.
const VAIN: u32 = 8;

/// While a board is younger than this, in nanoseconds, runs follow the order of places. After that,
/// the next run is that of the oldest waiter. Otherwise the threads of one ring could pass over a
/// waiter deep in another ring in run after run. The bound on passes would end that, but the bound
/// on time would not hold:
///
/// ```text
/// ring 1: a, b, c   ring 0: x   a turn lasts as long as a run may, so each run has one turn
///
/// ring 1 runs: a
/// ring 0 runs: x                x waits again, and is younger than b and c
/// ring 1 runs: b
/// ring 0 runs: x                passes over c a second time; in order of age, c is next
/// ```
const YOUNG: u64 = Near::SPAN / 8;

/// A board for the waiters from `first` on, the queue's first one, and the current run. `None` if
/// that waiter is of the holder's place, or alone, or cannot be sorted, or if all boards are taken.
/// Then that waiter is next.
pub(super) fn sort_from<W: World>(
    tables: &Tables<W>,
    first: Link,
    place: u32,
) -> Option<(Number, Run)> {
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

/// How long a run may last. Each place but the waiter's own gets an equal share of the span without
/// the board's youth. That is enough: once the board is no longer young, the oldest waiter's ring
/// is next, so later arrivals pass over a waiter in at most one run of each other place. The
/// waiters that such a run leaves in its ring came later than the waiter, and follow it.
///
/// The shares are for all places of the machine, and not only for those with waiters now: threads
/// of the others may come, and no bound as that on passes would end a run in time for them.
fn share<W: World>(tables: &Tables<W>) -> u64 {
    (Near::SPAN - YOUNG) / u64::from(tables.other_places)
}

/// The bound on passes, beside numbers that may be below zero.
const MOST_PASSES: i32 = Near::PASSES.cast_signed();

/// The first waiter of a ring. The older one is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct First {
    age: u32,
    ring: u32,
}

/// The rings that have waiters.
struct Candidates {
    oldest: Option<First>,
    second: Option<First>,
    /// The ring behind the current one, in the order of places.
    nearest: u32,
    /// How many rings share the lock with the next run's: those that have waiters, and the current
    /// one even if it has none, because its threads may wait again soon. So this is the number of
    /// rings with waiters without the current one: the next one is among them in its place.
    others: u32,
}

/// How many waiters of a board were sorted, and how many turns there were.
struct Progress {
    sorted: u32,
    turns: u32,
}

impl Progress {
    /// How many later arrivals have had their turns before a waiter of this age, if the next turn
    /// goes to one of them, too. `sorted - age` waiters were sorted before it, so all other turns
    /// were those of later ones. That is exact for the oldest waiter. For another one it is less,
    /// and may be below zero, by the number of waiters sorted before it that still wait.
    fn passes(&self, age: u32) -> i32 {
        self.turns.wrapping_add(1).wrapping_sub(self.sorted.wrapping_sub(age)).cast_signed()
    }
}

/// How many turns a run has, at most, of a ring with this many waiters, beside this many other
/// rings. The oldest waiter of these was passed over this many times.
///
/// All that wait there have a turn, even if they pass over others: next time their turns follow one
/// another, and they pass over none. Cut into shares of five turns, which is what 15 other places
/// leave, runs of places with eight threads would stay about as short. If fewer wait, threads that
/// arrive during the run get the rest of the share, and one turn more, because the first of them
/// passes over no thread.
fn allowance(waiters: u32, others: u32, passed: i32) -> u32 {
    let left = waiters.max(Near::PASSES / others.max(1) + 1).cast_signed();
    left.min(MOST_PASSES - passed).max(1).cast_unsigned()
}

/// The lock's holder, which sorts the waiters on the lock's board by place.
pub(super) struct Sorting<'a, W: World> {
    tables: &'a Tables<W>,
    board: &'a Board<W>,
}

impl<'a, W: World> Sorting<'a, W> {
    pub(super) fn new(tables: &'a Tables<W>, board: Number) -> Self {
        Sorting { tables, board: tables.boards.get(board) }
    }

    /// The next waiter, and whether it is the queue's first one. Otherwise it was sorted, and is no
    /// longer on the board.
    pub(super) fn choose(&self, run: &mut Run) -> (Number, bool) {
        // B1: a run that has no waiters left may have some of its place that came meanwhile.
        if run.len == 0 {
            self.count(run);
            self.sort(run.ring);
            run.len = self.ring(run.ring).len.get();
        }
        let runs_out = run.len == 0;
        // B2: the run goes on.
        if !runs_out && run.left > 0 && W::now().as_nanos() < run.until {
            return (run.take(self.ring(run.ring)), false);
        }
        // B3: the run is over. What is left in its ring waits for another run.
        let turns = self.count(run);
        self.sort(run.ring);
        let board = self.board;
        let ring = self.ring(run.ring);
        if let Some(first) = ring.first() {
            board.firsts[run.ring as usize].set(first.word());
        }
        // B4: the next run, if any ring has waiters.
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

    /// Records the waiters that the run has taken. Returns how many waiters were taken since the
    /// board is in use.
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
    pub(super) fn is_vain(&self) -> bool {
        self.board.short.get() >= VAIN
    }

    /// The run after the run of `current`, after this many turns, or `None` if no ring has waiters.
    fn next(&self, current: u32, turns: u32) -> Option<Run> {
        let sorted = self.board.sorted.get();
        let candidates = self.candidates(current, sorted);
        let oldest = candidates.oldest?;
        let progress = Progress { sorted, turns };
        let now = W::now().as_nanos();
        let is_young = now.saturating_sub(self.board.born.get()) < YOUNG;
        let ring = match is_young && progress.passes(oldest.age) < MOST_PASSES {
            true => candidates.nearest,
            false => oldest.ring,
        };
        // The oldest waiter that the run passes over.
        let other = if ring == oldest.ring { candidates.second } else { Some(oldest) };
        let passed = other.map_or(0, |other| progress.passes(other.age));
        let of = self.ring(ring);
        let left = allowance(of.len.get(), candidates.others, passed);
        let (start, len) = (of.start.get(), of.len.get());
        Some(Run { ring, start, len, left, until: now + share(self.tables), ahead: 0 })
    }

    /// The rings that may come after `current`: those that have waiters.
    fn candidates(&self, current: u32, sorted: u32) -> Candidates {
        let mut found = Candidates { oldest: None, second: None, nearest: current, others: 0 };
        let mut nearest = u32::MAX;
        for (ring, first) in (0..).zip(&self.board.firsts.0) {
            let first = first.get();
            if first == 0 {
                continue;
            }
            found.others += u32::from(ring != current);
            let this = Some(First { age: Waiter::of(first).age(sorted), ring });
            if this > found.oldest {
                (found.oldest, found.second) = (this, found.oldest);
            } else if this > found.second {
                found.second = this;
            }
            let distance = ring.wrapping_sub(current + 1) % RINGS as u32;
            if distance < nearest {
                (nearest, found.nearest) = (distance, ring);
            }
        }
        found
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
            // Acquire: pairs with the Release of the link in `append`: the next one's node is seen.
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
    pub(super) fn take<W: World>(&mut self, ring: &Ring<W>) -> Number {
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

    /// The numbers of this many waiters, starting at `start`.
    fn read(&self, start: u32, count: u32) -> u128 {
        let number = |at: u32| {
            let place = (start + at) as usize % RING;
            u128::from(Waiter::of(self.waiters[place].get()).number()) << (16 * at)
        };
        (0..count).map(number).fold(0, core::ops::BitOr::bitor)
    }

    /// Puts a waiter in, if there is room.
    pub(super) fn put(&self, waiter: Waiter) -> bool {
        let len = self.len.get();
        if len as usize == RING {
            return false;
        }
        self.waiters[(self.start.get() + len) as usize % RING].set(waiter.word());
        self.len.set(len + 1);
        true
    }
}
