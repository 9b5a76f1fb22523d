//! The roll: who takes part, and the protocol by which everybody present learns of a change.
//!
//! Contexts have *seats*. A bit in two levels ([`Bits`]) says that the seat's owner may be present;
//! the seat's own words say whether it is. The bit is set by the owner when it enters and finds it
//! clear, and is left behind when the owner leaves. Whoever announces a change reads bits first,
//! and the words of those seats whose bit is set.
//!
//! # State of a seat
//!
//! | word | bits | meaning | written by |
//! |---|---|---|---|
//! | `state` | 0 | the owner is present: it may use what it cached | owner |
//! | | 1.. | the last change that the owner knows of | owner |
//! | `wanted` | 0 | the owner is to refresh; clear: it is to run the call | announcer |
//! | | 1.. | the last change that the owner is to know of | announcer |
//!
//! | present | wanted and known change | the owner |
//! |---|---|---|
//! | no | equal | is away, and its cached things are good, if its bit is set |
//! | no | differ | is away, and must refresh when it comes |
//! | yes | equal | works with what it cached |
//! | yes | differ | still works with what it cached, until it next looks |
//!
//! # The two questions
//!
//! Entering: say "present"; fence; set the bit; fence; read `wanted`. Announcing: publish; heavy
//! fence; read bits, states; write `wanted`, and at times clear the bits of those that are away;
//! heavy fence; read their states again. Both are the same pattern (each writes its own word, then
//! reads the other's), so of an enterer and an announcer at least one sees the other. What the
//! second look is for:
//!
//! ```text
//! announcer: finds the seat away
//! owner:     enters, finds its bit set, nothing wanted: its cached value is current
//! announcer: clears the bit                              <- and nobody ever tells the owner
//! ```

use coreline_topology::Topology;
use coreline_world::{Line, Ordering, Word, World};

use super::bits::{Bits, MOST_LEAVES, PER_LEAF, Position};

/// In `state`: present.
const PRESENT: u64 = 1;

/// In `wanted`: refresh; there is nothing to run, or not any more.
const REFRESH: u64 = 1;

/// A seat's words. The owner's line: an announcer writes it only when something changes.
struct Words<W: World> {
    state: W::U64,
    wanted: W::U64,
}

/// The seats of a leaf.
type Seats<W> = Box<[Line<Words<W>>]>;

/// All seats.
pub(super) struct Roll<W: World> {
    present: Bits<W>,
    taken: Bits<W>,
    /// By leaf.
    seats: Box<[Seats<W>]>,
}

/// A taken seat, as its owner holds it.
pub(super) struct Seat {
    at: Position,
    /// The change that was acknowledged last, with `REFRESH`: the highest word that is no news. As
    /// `PRESENT` is the same bit, it is also the seat's state while its owner is present.
    known: u64,
    /// Nothing is cached yet.
    fresh: bool,
}

/// What an owner finds wanted of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct News(u64);

impl News {
    /// Whether the call is to be run, which the announcer keeps alive until this is acknowledged.
    pub(super) fn is_call(self) -> bool {
        self.0 & REFRESH == 0
    }
}

/// What an owner finds when it enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entered {
    /// What it cached is current.
    Current,
    /// What it cached is not.
    Stale,
    /// It was asked to run the call.
    Asked(News),
}

/// An announcement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    /// Its number: one more than the last.
    pub(super) number: u64,
    /// Whether those present are to run a call; else they are to refresh.
    pub(super) call: bool,
    /// Whether the bits of those that are away may be cleared.
    pub(super) trim: bool,
    /// The announcer's own seat: it needs no telling.
    pub(super) but: Option<Position>,
}

/// Who learns of a change.
#[derive(Default)]
pub(super) struct Told {
    /// Present: they will acknowledge it, or leave.
    pub(super) pending: Vec<Position>,
    /// How many were away: they refresh when they come.
    pub(super) away: usize,
}

impl<W: World> Roll<W> {
    /// Free seats: for each last-level cache of the machine twice as many as CPUs, and at least
    /// `least` altogether.
    pub(super) fn new_in(topology: &Topology, least: usize) -> Self {
        let mut sizes = vec![0; topology.cache_count().clamp(1, MOST_LEAVES)];
        for cpu in topology.cpus() {
            let leaf = cpu.cache.index() % sizes.len();
            sizes[leaf] = (sizes[leaf] + 2).min(PER_LEAF as usize);
        }
        let share = least.div_ceil(sizes.len()).min(PER_LEAF as usize);
        sizes.iter_mut().for_each(|size| *size = share.max(*size));
        let seat = |_| Line(Words { state: W::U64::new_in(0), wanted: W::U64::new_in(0) });
        Roll {
            present: Bits::new_in(sizes.iter().copied()),
            taken: Bits::new_in(sizes.iter().copied()),
            seats: sizes.iter().map(|&size| (0..size).map(seat).collect()).collect(),
        }
    }

    /// How many seats there are.
    pub(super) fn capacity(&self) -> usize {
        self.seats.iter().map(|leaf| leaf.len()).sum()
    }

    fn seat(&self, at: Position) -> &Words<W> {
        &self.seats[at.leaf()][at.bit()]
    }

    /// A free seat near the caller: under its last-level cache if one is free there. `None` if all
    /// are taken.
    pub(super) fn take(&self) -> Option<Seat> {
        let leaves = self.seats.len();
        let near = W::cache().index();
        let mut positions = (0..leaves).map(|offset| (near + offset) % leaves);
        let at = positions.find_map(|leaf| {
            loop {
                let at = self.taken.first_clear(leaf, self.seats[leaf].len())?;
                // Acquire and Release in there: the last owner's word for its state is ours.
                if self.taken.set(at) {
                    return Some(at);
                }
            }
        })?;
        // Relaxed: the last owner's store came with the bit of `taken`.
        let known = self.seat(at).state.load(Ordering::Relaxed) | PRESENT;
        Some(Seat { at, known, fresh: true })
    }

    /// Gives a seat back. Its bit stays, for the next owner or a trim.
    pub(super) fn give_back(&self, seat: &Seat) {
        // Its guard may have been forgotten. Nobody else would ever say that it left.
        self.leave(seat);
        self.taken.clear(seat.at);
    }

    /// The owner enters.
    #[inline]
    pub(super) fn enter(&self, seat: &mut Seat) -> Entered {
        // Release: whoever reads this word learns what we know, and must also have all that we did
        // before we acknowledged it, which it would get from the acknowledgement's own store:
        //
        //   owner:     reads the old value, acknowledges, leaves, enters
        //   announcer: reads the last of these stores, frees the old value   <- beside that read
        //
        // What follows is ordered by the light fence.
        self.seat(seat.at).state.store(seat.known, Ordering::Release);
        // Pairs with both heavy fences in `tell`. Without it an announcer could miss that we are
        // present, while we miss that it clears our bit, or what it published.
        W::fence_light();
        // Not what `set` says, which is that nobody else was faster: an announcer that finds us
        // half way sets our bit for us, and we missed what was announced while it was clear.
        let clear = !self.present.test(seat.at);
        if clear {
            self.present.set(seat.at);
        }
        // Pairs with the same: first our bit, then what is wanted, and what was published.
        W::fence_light();
        match self.news(seat) {
            None if !clear && !seat.fresh => Entered::Current,
            Some(news) if news.is_call() && !clear && !seat.fresh => Entered::Asked(news),
            news => {
                // It caches nothing, so there is nothing that it could still use.
                if let Some(news) = news {
                    self.acknowledge(seat, news);
                }
                seat.fresh = false;
                Entered::Stale
            }
        }
    }

    /// What is wanted of the owner, who is present: one load.
    #[inline]
    pub(super) fn news(&self, seat: &Seat) -> Option<News> {
        // Acquire: pairs with the Release stores in `tell`: the call, and what was published.
        let wanted = self.seat(seat.at).wanted.load(Ordering::Acquire);
        (wanted > seat.known).then_some(News(wanted))
    }

    /// The owner has done what was wanted.
    pub(super) fn acknowledge(&self, seat: &mut Seat, news: News) {
        seat.known = news.0 | REFRESH;
        // Release: pairs with the Acquire of `is_done`. What the owner read of the old value, it
        // read before this; without it that value could be freed under a late read.
        self.seat(seat.at).state.store(seat.known, Ordering::Release);
    }

    /// The owner leaves: it uses nothing that it cached until it enters again. Its bit stays.
    #[inline]
    pub(super) fn leave(&self, seat: &Seat) {
        // Release: as in `acknowledge`.
        self.seat(seat.at).state.store(seat.known & !PRESENT, Ordering::Release);
    }

    /// Tells everybody of a change that is published already. One announcer at a time.
    pub(super) fn tell(&self, change: Change) -> Told {
        // Pairs with the light fences in `enter`: who is not seen below sees what was published.
        W::fence_all();
        let refresh = change.number << 1 | REFRESH;
        let mut told = Told::default();
        let mut away = Vec::new();
        self.present.each(|at| {
            if change.but == Some(at) {
                return;
            }
            let words = self.seat(at);
            // Acquire: pairs with the Release in `leave`: what it did while it was present.
            let state = words.state.load(Ordering::Acquire);
            if state & PRESENT != 0 {
                // A call is not to hide that it has missed something before:
                //
                //   announcer: finds the owner away: it is to refresh
                //   owner:     enters, has not yet read what is wanted
                //   announcer: comes with the next change, and wants it to run a call instead
                //
                // Relaxed: one announcer at a time, and nobody else writes it.
                let missed = words.wanted.load(Ordering::Relaxed) > state;
                let call = change.call && !missed;
                let wanted = if call { change.number << 1 } else { refresh };
                // Release: pairs with the Acquire in `news`.
                words.wanted.store(wanted, Ordering::Release);
                told.pending.push(at);
                return;
            }
            // Also if its bit is cleared: it may be on its way in with the bit still in sight. And
            // before the fence, not when that is seen below:
            //
            //   owner:     enters, finds its bit set and nothing wanted
            //   announcer: sees that it is present, says only now what is wanted
            //   owner:     leaves, enters again, and does not see what is wanted yet
            //   announcer: sees that the owner left, and frees what it now reads
            //
            // Release: pairs with the Acquire in `news`.
            words.wanted.store(refresh, Ordering::Release);
            if change.trim {
                self.present.clear(at);
            }
            away.push(at);
        });
        if away.is_empty() && told.pending.is_empty() {
            return told;
        }
        // Pairs with the light fences in `enter`: who is away from here on, and was away above or
        // leaves now, will find when it comes that its bit is clear or that something is wanted.
        // Also if all were present:
        //
        //   announcer: finds the owner present, writes `wanted`
        //   owner:     leaves, enters again, and does not see `wanted` yet
        //   announcer: sees that the owner left, and frees what it now reads
        W::fence_all();
        for at in away {
            // Acquire: as in `is_done`.
            if self.seat(at).state.load(Ordering::Acquire) & PRESENT == 0 {
                told.away += 1;
                continue;
            }
            // It entered in between, and may have found all as it was. Its bit, also if it knows of
            // this change by now: else the next one goes by it while it is still here.
            self.present.set(at);
            told.pending.push(at);
        }
        if change.trim {
            self.present.trim();
        }
        told
    }

    /// Whether a seat's owner knows of a change, or is away.
    pub(super) fn is_done(&self, at: Position, number: u64) -> bool {
        // Acquire: pairs with the Release of `acknowledge` and `leave`.
        is_done(self.seat(at).state.load(Ordering::Acquire), number)
    }

    /// Waits until everybody who was told has run the call of this change or is away, and cannot
    /// run it any more. Returns how many acknowledged.
    pub(super) fn wait_for_call(&self, mut pending: Vec<Position>, number: u64) -> usize {
        let mut ran = 0;
        loop {
            self.wait_until_done(&pending, number);
            // Acquire: as in `is_done`.
            let state = |at: &Position| self.seat(*at).state.load(Ordering::Acquire);
            let knows = |at: &Position| state(at) >> 1 >= number;
            let told = pending.len();
            pending.retain(|at| !knows(at));
            ran += told - pending.len();
            if pending.is_empty() {
                return ran;
            }
            // Who left without an acknowledgement would find, when it comes again, a call that is
            // gone.
            for &at in &pending {
                // Release: pairs with the Acquire in `news`.
                self.seat(at).wanted.store(number << 1 | REFRESH, Ordering::Release);
            }
            // Pairs with the light fences in `enter`: who is still away now will find that it must
            // refresh. Who is not may have found the call, and is waited for once more; who has run
            // it meanwhile is counted.
            W::fence_all();
            pending.retain(|at| state(at) & PRESENT != 0 || knows(at));
        }
    }

    /// Waits until each of these seats' owners knows of a change, or is away.
    pub(super) fn wait_until_done(&self, seats: &[Position], number: u64) {
        for &at in seats {
            // Acquire: as in `is_done`.
            self.seat(at).state.wait_until(Ordering::Acquire, |state| is_done(state, number));
        }
    }
}

impl Seat {
    pub(super) fn position(&self) -> Position {
        self.at
    }
}

fn is_done(state: u64, number: u64) -> bool {
    state & PRESENT == 0 || state >> 1 >= number
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use coreline_sim::{Faults, Machine, Sim};
    use coreline_world::{Fences, JoinHandle, Place, Placement, Threads, Words};

    use super::*;

    type Tell = fn(&Roll<Sim>, Change) -> Told;

    /// What `tell` would be without its second look: a bit is cleared because its owner was away,
    /// and whether it still is nobody asks.
    fn clear_before_verify(roll: &Roll<Sim>, change: Change) -> Told {
        Sim::fence_all();
        let mut told = Told::default();
        roll.present.each(|at| {
            let words = roll.seat(at);
            if words.state.load(Ordering::Acquire) & PRESENT == 0 {
                roll.present.clear(at);
                told.away += 1;
            } else {
                words.wanted.store(change.number << 1 | REFRESH, Ordering::Release);
                told.pending.push(at);
            }
        });
        Sim::fence_all();
        told
    }

    /// Whether an owner, in any of several runs, still worked with what was replaced after
    /// everybody was told and had acknowledged or left.
    fn is_broken(tell: Tell) -> bool {
        let faults = Faults { delay: 4, ..Faults::NONE };
        (0..24).any(|seed| {
            let machine = Machine::preset("host-2c").unwrap().seed(seed).faults(faults);
            machine.run(move || works_with_what_is_gone(tell)).unwrap().value
        })
    }

    fn works_with_what_is_gone(tell: Tell) -> bool {
        const CHANGES: u64 = 60;
        type Word = <Sim as Words>::U64;
        let roll = Roll::<Sim>::new_in(&Sim::topology(), 1);
        let word = || <Word as coreline_world::Word>::new_in(0);
        // The current value, and the newest that is gone for good.
        let shared = Arc::new((roll, word(), word()));
        let theirs = Arc::clone(&shared);
        let owner = move || {
            let (roll, current, gone) = &*theirs;
            let mut seat = roll.take().unwrap();
            let (cached, broken) = (Cell::new(0), Cell::new(false));
            while current.load(Ordering::Acquire) < CHANGES {
                if roll.enter(&mut seat) != Entered::Current {
                    cached.set(current.load(Ordering::Acquire));
                }
                if let Some(news) = roll.news(&seat) {
                    cached.set(current.load(Ordering::Acquire));
                    roll.acknowledge(&mut seat, news);
                }
                broken.set(broken.get() || cached.get() < gone.load(Ordering::Acquire));
                roll.leave(&seat);
            }
            broken.get()
        };
        let owner = Sim::spawn(Placement::Anywhere, owner).unwrap();
        let (roll, current, gone) = &*shared;
        for number in 1..=CHANGES {
            current.store(number, Ordering::Release);
            let told = tell(roll, Change { number, call: false, trim: true, but: None });
            roll.wait_until_done(&told.pending, number);
            gone.store(number, Ordering::Release);
        }
        owner.join()
    }

    #[test]
    fn a_clear_without_a_second_look_is_caught() {
        assert!(is_broken(clear_before_verify));
        assert!(!is_broken(Roll::tell));
    }
}
