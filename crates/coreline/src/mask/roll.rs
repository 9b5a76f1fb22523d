//! The roll: which contexts take part, and the protocol by which all present contexts learn of a
//! change.
//!
//! Contexts have *seats*. A bit in two levels ([`Bits`]) says that the seat's owner may be present.
//! The seat's own words say whether it is. The owner sets the bit when it enters and finds it
//! clear, and leaves it set when it leaves. An announcer of a change reads bits first, and the
//! words of those seats whose bit is set.
//!
//! # State of a seat
//!
//! | word | bits | meaning | written by |
//! |---|---|---|---|
//! | `state` | 0 | the owner is present: it may use what it cached | owner |
//! | | 1.. | the last change that the owner knows of | owner |
//! | `wanted` | 0 | the owner is to refresh; clear: it may run the call | announcer; owner |
//! | | 1.. | the last change that the owner is to know of | announcer |
//!
//! | present | wanted beside known change | the owner |
//! |---|---|---|
//! | no | not newer | away; its cached copy is current |
//! | no | newer | away; must refresh when it enters |
//! | yes | not newer | present; uses its cached copy |
//! | yes | newer | present; uses its cached copy until it reads `wanted` again |
//!
//! An announcement clears a bit only if it also tells the owner to refresh. So an owner that finds
//! nothing wanted need not look at its bit. Either it is set, or the announcer that cleared it is
//! about to see the owner and will set it again. That is the whole fast path.
//!
//! # The two questions
//!
//! This is how [`tell`] announces. An update of a `Versioned` does without the first heavy fence:
//! see [`Rolls::publish`](super::rolls::Rolls::publish).
//!
//! Entering: say "present"; fence; read `wanted`. Announcing: publish; heavy fence; read bits and
//! states; sometimes clear the bits of owners that are away; write `wanted`; heavy fence; read
//! their states again. Both follow the same pattern (each writes its own word, then reads the
//! other's), so at least one of an enterer and an announcer sees the other. This is the purpose of
//! the second look:
//!
//! ```text
//! announcer: finds the seat away, clears the bit
//! owner:     enters, nothing wanted yet: its cached value is current
//! announcer: says what is wanted; the next change goes by a seat whose bit is clear
//! ```
//!
//! # Which of the two has the call
//!
//! A call lies on the announcer's stack. To run it, an owner first turns the call in `wanted` into
//! a refresh, with an exchange. To take it back from an owner that left, the announcer does the
//! same. One of the two wins: the owner, which acknowledges it, or the announcer, which then need
//! not wait.

use core::cell::Cell;
use core::mem;
use core::ptr::{self, NonNull};
use core::time::Duration;
use std::sync::Arc;

use coreline_topology::Topology;
use coreline_world::{Lacking, Line, Native, Ordering, Time, Word, World};

use super::bits::{self, Bits, PER_LEAF, Position};

/// In `state`: present.
const PRESENT: u64 = 1;

/// In `wanted`: refresh; there is nothing to run, or no longer.
const REFRESH: u64 = 1;

/// Initial `known` of a fresh seat: older than any announcement.
pub(super) const FIRST: u64 = 1;

/// A seat's words. The owner's line: an announcer writes it only when something changes.
struct Words<W: World> {
    state: W::U64,
    wanted: W::U64,
}

const _: () = {
    assert!(size_of::<Words<Native>>() == 16);
    assert!(align_of::<Words<Native>>() == 8);
    assert!(size_of::<Line<Words<Native>>>() == 64);
    assert!(align_of::<Line<Words<Native>>>() == 64);
};

/// The seats of a leaf.
type Seats<W> = Box<[Line<Words<W>>]>;

/// All seats.
pub(super) struct Roll<W: World> {
    present: Bits<W>,
    taken: Bits<W>,
    /// By leaf.
    seats: Box<[Seats<W>]>,
}

/// A taken seat, as its owner sees it.
pub(super) struct Seat<W: World> {
    /// It is in the roll, which the owner of the seat keeps alive.
    words: NonNull<Words<W>>,
    /// The change that was acknowledged last, with `REFRESH`: the highest word that is not news.
    /// `PRESENT` is the same bit, so it is also the seat's state while its owner is present.
    known: Cell<u64>,
    /// The highest word that the owner may pass without a closer look: `known` if light fences are
    /// [free](coreline_world::Fences::light_is_free), else 0. With 0 the closer look has the fence,
    /// so the fast path need not check.
    passes: Cell<u64>,
    at: Position,
    /// Nothing is cached yet.
    fresh: Cell<bool>,
}

// SAFETY: the words may be used by every thread, and the owner that took the seat promises that
// they are there, on whatever thread.
unsafe impl<W: World> Send for Seat<W> {}

/// The demand on an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct News(u64);

impl News {
    /// Whether the owner must run the call, which the announcer keeps alive until this is
    /// acknowledged.
    pub(super) fn is_call(self) -> bool {
        self.0 & REFRESH == 0
    }

    /// The demand to know of this change, or of a later one that is demanded already.
    pub(super) fn at_least(self, number: u64) -> News {
        News(self.0.max(number << 1 | REFRESH))
    }
}

/// Why an owner has to look closer when it enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entered {
    /// Its cached data is out of date.
    Stale,
    /// It was asked to run the call.
    Asked(News),
}

/// When bits of owners that were away were cleared last.
#[derive(Debug)]
pub(super) struct Trimmed(Option<Time>);

impl Trimmed {
    pub(super) const NEVER: Self = Trimmed(None);

    /// Whether the announcement that is made now clears bits: the first one does, and then one in
    /// each such span.
    pub(super) fn is_due(&mut self, now: Time, every: Duration) -> bool {
        let is_due = self.0.is_none_or(|at| now - at >= every);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// An announcement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    /// Its number: one more than the last.
    pub(super) number: u64,
    /// Whether present owners must run a call; otherwise they must refresh.
    pub(super) call: bool,
    /// Whether the bits of owners that are away may be cleared.
    pub(super) trim: bool,
    /// [`Seat::id`] of the announcer's own seat, which need not be told.
    pub(super) but: Option<usize>,
}

/// The seats whose owners learn of a change.
#[derive(Default)]
pub(super) struct Told {
    /// Present, and asked to run the call.
    called: Vec<Position>,
    /// Present: they will refresh, or leave.
    pub(super) pending: Vec<Position>,
    /// How many were away: they refresh when they enter.
    pub(super) away: usize,
    /// Away at the first look, so the announcer looks again.
    left: Vec<Position>,
}

/// The result of a wait for those that were told.
#[derive(Default)]
pub(super) struct Waited {
    /// Owners that have done what was wanted.
    pub(super) reached: usize,
    /// Owners that had neither run the call nor left by the deadline.
    pub(super) late: usize,
}

impl Told {
    /// Whether no owner was told anything.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty() && self.called.is_empty() && self.pending.is_empty()
    }
}

impl<W: World> Roll<W> {
    /// Free seats: for each last-level cache of the machine twice as many as CPUs, and at least
    /// `least` in all.
    pub(super) fn new_in(topology: &Topology, least: usize) -> Self {
        let mut sizes = vec![0; topology.cache_count().max(1)];
        for cpu in topology.cpus() {
            let leaf = cpu.cache.index() % sizes.len();
            sizes[leaf] = (sizes[leaf] + 2).min(PER_LEAF as usize);
        }
        let share = least.div_ceil(sizes.len()).min(PER_LEAF as usize);
        sizes.iter_mut().for_each(|size| *size = share.max(*size));
        let wanted = FIRST << 1 | REFRESH;
        let seat = |_| Line(Words { state: W::U64::new_in(0), wanted: W::U64::new_in(wanted) });
        let used = bits::used(&sizes);
        Roll {
            present: Bits::new_in(Arc::clone(&used)),
            taken: Bits::new_in(used),
            seats: sizes.iter().map(|&size| (0..size).map(seat).collect()).collect(),
        }
    }

    /// How many seats there are.
    pub(super) fn capacity(&self) -> usize {
        self.seats.iter().map(|leaf| leaf.len()).sum()
    }

    /// The bytes that it has allocated, besides its own.
    pub(super) fn bytes(&self) -> usize {
        let lines: usize = self.seats.iter().map(|leaf| size_of_val(&**leaf)).sum();
        let bits = self.present.bytes() + self.taken.bytes();
        bits + size_of_val(&*self.seats) + lines
    }

    fn seat(&self, at: Position) -> &Words<W> {
        &self.seats[at.leaf()][at.bit()]
    }

    /// A free seat near the caller: under its last-level cache if one is free there. `None` if all
    /// are taken.
    ///
    /// # Safety
    ///
    /// The seat must not be used after the roll is gone.
    pub(super) unsafe fn take(&self) -> Option<Seat<W>> {
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
        // Known is less than is wanted of any seat, so the first entry looks closer.
        let passes = if W::light_is_free() { PRESENT } else { 0 };
        Some(Seat {
            words: NonNull::from(self.seat(at)),
            known: Cell::new(PRESENT),
            passes: Cell::new(passes),
            at,
            fresh: Cell::new(true),
        })
    }

    /// Gives a seat back and clears its bit, so that no announcement reads a seat without an owner.
    pub(super) fn give_back(&self, seat: &Seat<W>) {
        // Its guard may have been forgotten, so it leaves here, or never. But an owner that has not
        // entered yet says nothing:
        //
        //   owner:     claims the call, runs it, acknowledges, leaves, gives the seat back
        //   next:      takes the seat, gives it back, and so says that it knows of no change
        //   announcer: the call was claimed: waits for an acknowledgement that is gone
        if !seat.fresh.get() {
            seat.leave();
        }
        // After it left: an announcer that does not find the bit has acquired all that the owner
        // did, as `Bits` promises of bits that are gone. Before the seat is free: no other owner
        // may lose its bit. It needs none until it looks closer, as its first entry does:
        //
        //   owner:     leaves, clears the bit, gives the seat back
        //   next:      takes the seat, enters: it knows of nothing, so it sets the bit, passes the
        //              fence, and caches what is current
        //   announcer: finds the bit; or was by before, and then the fence shows what it published
        //
        // An announcer that found the bit before may set it again behind this, or clear it for the
        // next owner: it looks again then, as with owners that come back. A bit that is set at a
        // free seat costs a look until a trim.
        self.present.clear(seat.at);
        self.taken.clear(seat.at);
    }

    /// The demand on an owner that enters.
    pub(super) fn entered(&self, seat: &Seat<W>, news: News) -> Entered {
        let clear = self.set_bit(seat);
        if news.is_call() && !clear && !seat.fresh.get() {
            return Entered::Asked(news);
        }
        // It caches nothing, so there is nothing that it could still use.
        seat.acknowledge(news);
        seat.fresh.set(false);
        Entered::Stale
    }

    /// Sets the bit of an owner that has seen what is wanted of it, if it is clear; returns whether
    /// it was. Call it before every acknowledgement of a refresh, and before the owner rebuilds its
    /// cached data:
    ///
    /// ```text
    /// announcer: finds the owner away, clears its bit
    /// owner:     enters, finds nothing wanted
    /// announcer: wants it to refresh
    /// owner:     looks, refreshes, acknowledges, leaves
    /// announcer: sees that it is away; its bit stays clear
    /// owner:     enters, finds nothing wanted, and the next change goes by it
    /// ```
    pub(super) fn set_bit(&self, seat: &Seat<W>) -> bool {
        // Not what `set` returns, which is false if another thread was faster: an announcer that
        // finds us half way sets our bit for us, and we missed announcements while it was clear.
        let clear = !self.present.test(seat.at);
        if clear {
            self.present.set(seat.at);
        }
        // SeqCst: pairs with the fence in `Rolls::publish`, and with both heavy fences in `tell`:
        // first our bit, then what was published. Without it an announcer could go by our bit,
        // while we miss what it published.
        W::fence(Ordering::SeqCst);
        clear
    }

    /// Tells all owners whose bits are set what is wanted. Call it between two heavy fences.
    fn ask(&self, change: Change) -> Told {
        let refresh = change.number << 1 | REFRESH;
        let mut told = Told::default();
        self.present.each(|at| {
            let words = self.seat(at);
            if change.but == Some(ptr::from_ref(words).addr()) {
                return;
            }
            // Relaxed: nothing follows from an owner that is away here. It is looked at again
            // below, and one that is present is waited for, by an Acquire each.
            let state = words.state.load(Ordering::Relaxed);
            if state & PRESENT != 0 {
                // A call is not to hide that it has missed something before:
                //
                //   announcer: finds the owner away: it is to refresh
                //   owner:     enters, has not yet read what is wanted
                //   announcer: comes with the next change, and wants it to run a call instead
                //
                // Relaxed: one announcer at a time, and it has seen the end of every call.
                let missed = words.wanted.load(Ordering::Relaxed) > state;
                let call = change.call && !missed;
                let wanted = if call { change.number << 1 } else { refresh };
                // Release: pairs with the Acquire in `news`: the call, and what was published.
                words.wanted.store(wanted, Ordering::Release);
                let whom = if call { &mut told.called } else { &mut told.pending };
                whom.push(at);
                return;
            }
            // Also if its bit stays; and before the fence, not when it is seen to have come:
            //
            //   owner:     enters, finds nothing wanted
            //   announcer: sees that it is present, says only now what is wanted
            //   owner:     leaves, enters again, and does not see what is wanted yet
            //   announcer: sees that the owner left, and frees what it now reads
            self.want_refresh(at, change.number, change.trim);
            told.left.push(at);
        });
        told
    }

    /// Wants the owner of a seat to refresh. `clears`: the owner was away, and loses its bit.
    fn want_refresh(&self, at: Position, number: u64, clears: bool) {
        // Before `wanted`, so that an owner that acknowledges that sees its bit clear:
        //
        //   announcer: wants it to refresh
        //   owner:     enters, finds its bit set, refreshes, leaves
        //   announcer: clears its bit, sees that it is away
        //   owner:     enters, finds nothing wanted, and the next change goes by it
        if clears {
            self.present.clear(at);
        }
        // Release: pairs with the Acquire in `news`: that its bit is clear, and what was published.
        self.seat(at).wanted.store(number << 1 | REFRESH, Ordering::Release);
    }

    /// Wants all owners whose bits are set to refresh, whether they are present or not. Returns
    /// whether there are any. `trim`: clears the bits of those that are away, and calls `cleared`
    /// for each. Then a heavy fence and [`restore`](Roll::restore) must follow before any other
    /// change, because such an owner may be present by then.
    pub(super) fn publish(
        &self,
        number: u64,
        trim: bool,
        mut cleared: impl FnMut(Position),
    ) -> bool {
        let mut is_any = false;
        self.present.each(|at| {
            is_any = true;
            // Relaxed: nothing follows from an owner that is away here: see `restore`.
            let clears = trim && self.seat(at).state.load(Ordering::Relaxed) & PRESENT == 0;
            if clears {
                cleared(at);
            }
            self.want_refresh(at, number, clears);
        });
        is_any
    }

    /// Sets the bit of a seat again if its owner has come since `publish` cleared the bit, or if
    /// that is not known: the heavy fence in between was refused.
    pub(super) fn restore(&self, at: Position, is_known: bool) {
        if !is_known || self.known(at) != u64::MAX {
            self.present.set(at);
        }
    }

    /// Calls `f` for every owner that may hold what was published, with the last change that it
    /// knows of. `last` is the last change of all. One thread at a time, with `publish`.
    ///
    /// Call it after a heavy fence, or if `publish` found no bit:
    ///
    /// ```text
    /// owner: says that it is present; light fence; reads `wanted`
    /// here:  `publish` wrote `wanted`; heavy fence; finds the owner away: it sees that
    /// ```
    ///
    /// An owner whose bit is clear has a refresh before it, which sets the bit. What it finds then
    /// was current at the fence of `publish`, or came later.
    ///
    /// Also has each owner refresh that was not told of a change which it does not know of:
    ///
    /// ```text
    /// owner:  enters, finds that change 4 is the last
    /// update: publishes change 5, goes by the owner, whose bit is clear
    /// owner:  sets its bit, acknowledges change 4, finds what change 5 published
    /// here:   it seems to hold what change 5 replaced, and would at each later look
    /// ```
    pub(super) fn each_holder(&self, last: u64, mut f: impl FnMut(Position, u64)) {
        self.present.each(|at| {
            let known = self.known(at);
            if known == u64::MAX {
                return;
            }
            // Relaxed: one announcer at a time writes it, and `Versioned` makes no calls.
            if known < last && self.seat(at).wanted.load(Ordering::Relaxed) >> 1 < last {
                self.want_refresh(at, last, false);
            }
            f(at, known);
        });
    }

    /// Takes leaves without a bit out of the bits' summary.
    pub(super) fn trim(&self) {
        self.present.trim();
    }

    /// Takes back what `ask` said, because the second heavy fence is refused.
    fn take_all_back(&self, change: Change, told: Told) {
        // Owners that came in between are told of the next change; as in `look_again`.
        for at in told.left {
            self.present.set(at);
        }
        for at in told.called {
            self.take_back(at, change.number);
        }
    }

    /// Looks again at the owners that were away. Call it after the second heavy fence.
    fn look_again(&self, told: &mut Told) {
        for at in mem::take(&mut told.left) {
            // Acquire: pairs with the Release of `acknowledge` and `leave`.
            if self.seat(at).state.load(Ordering::Acquire) & PRESENT == 0 {
                told.away += 1;
                continue;
            }
            // It entered in between, and may have found nothing wanted. Its bit is set even if it
            // knows of this change by now: otherwise the next one goes by it while it is still
            // here.
            self.present.set(at);
            told.pending.push(at);
        }
    }

    /// The last change that a seat's owner knows of; every change if it is away.
    fn known(&self, at: Position) -> u64 {
        // Acquire: pairs with the Release of `acknowledge` and `leave`.
        known(self.seat(at).state.load(Ordering::Acquire))
    }

    /// Waits until each owner that was told has run the call of this change or is away, at most
    /// until `deadline`. After that no owner can run the call any more. If an owner is running it
    /// at that time, the call waits for it, even after the deadline.
    pub(super) fn wait_for_call(&self, told: &Told, number: u64, deadline: Option<Time>) -> Waited {
        let mut waited = Waited::default();
        let pending = told.pending.iter().map(|&at| (at, false));
        for (at, is_called) in pending.chain(told.called.iter().map(|&at| (at, true))) {
            let state = self.wait_until_done(at, number, deadline);
            let is_reached = match state {
                Some(state) if state >> 1 >= number => true,
                // It left without having run the call, or has not looked.
                _ => is_called && !self.take_back(at, number),
            };
            waited.reached += usize::from(is_reached);
            waited.late += usize::from(!is_reached && state.is_none());
        }
        waited
    }

    /// Takes a call back from an owner that does not run it yet, and returns true. Otherwise waits
    /// until the owner has run it.
    fn take_back(&self, at: Position, number: u64) -> bool {
        let (call, refresh) = (number << 1, number << 1 | REFRESH);
        let Words { state, wanted } = self.seat(at);
        // Relaxed: an owner that acquires this acquires the Release store in `tell`, which it
        // replaces by one operation. Also on failure: what the owner did comes with its
        // acknowledgement.
        if wanted.compare_exchange(call, refresh, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return true;
        }
        // Acquire: pairs with the Release of `acknowledge`, which comes also if the call panics.
        state.wait_until(Ordering::Acquire, |state| state >> 1 >= number);
        false
    }

    /// Waits until a seat's owner knows of a change, or is away; returns its state. Returns `None`
    /// if `deadline` came before.
    pub(super) fn wait_until_done(
        &self,
        at: Position,
        number: u64,
        deadline: Option<Time>,
    ) -> Option<u64> {
        let (state, is_done) = (&self.seat(at).state, |state| is_done(state, number));
        // Acquire, in both: pairs with the Release of `acknowledge` and `leave`.
        match deadline {
            Some(deadline) => state.wait_until_by(Ordering::Acquire, deadline, is_done),
            // Acquire: see above.
            None => Some(state.wait_until(Ordering::Acquire, is_done)),
        }
    }
}

/// Tells the owners of several rolls of a change, like [`Roll::tell`]. Returns the indices of the
/// rolls in which some were told. It makes two heavy fences, however many rolls there are, or one
/// if none was told.
pub(super) fn tell<'a, W: World>(
    rolls: impl IntoIterator<Item = &'a Roll<W>, IntoIter: Clone>,
    change: Change,
) -> Result<Vec<(usize, Told)>, Lacking> {
    let rolls = rolls.into_iter();
    // Pairs with the light fences of `enter`: an owner not seen by `ask` sees what was published.
    W::try_fence_all()?;
    let asked = rolls.clone().enumerate().map(|(index, roll)| (index, roll.ask(change)));
    let mut asked: Vec<_> = asked.filter(|(_, told)| !told.is_empty()).collect();
    let roll = |index| rolls.clone().nth(index).expect("rolls are never taken away");
    if !asked.is_empty() {
        // Pairs with the light fences of `enter`: an owner that is away in `look_again`, or leaves
        // from here on, finds when it enters again that something is wanted. Needed also if all
        // were present:
        //
        //   announcer: finds the owner present, writes `wanted`
        //   owner:     leaves, enters again, and does not see `wanted` yet
        //   announcer: sees that the owner left, and frees what it now reads
        if let Err(refused) = W::try_fence_all() {
            asked.into_iter().for_each(|(index, told)| roll(index).take_all_back(change, told));
            return Err(refused);
        }
        asked.iter_mut().for_each(|(index, told)| roll(*index).look_again(told));
    }
    if change.trim {
        // All rolls: owners that gave their seats back have cleared their bits themselves.
        rolls.for_each(Roll::trim);
    }
    Ok(asked)
}

fn known(state: u64) -> u64 {
    if state & PRESENT == 0 { u64::MAX } else { state >> 1 }
}

fn is_done(state: u64, number: u64) -> bool {
    known(state) >= number
}

mod owner;
#[cfg(test)]
mod tests;
