//! Rolls, each made when those before it are full, so that every reader gets a seat.

use core::iter;
use core::ptr::{self, NonNull};

use coreline_topology::Topology;
use coreline_world::{Lacking, Ordering, Time, Word, World};

use super::Position;
use super::roll::{self, Change, Roll, Seat, Told, Waited};

/// A list of rolls that grows. A new roll has as many seats as all earlier rolls together, up to
/// the limit of one roll. So the more readers there are, the fewer rolls are added for each.
///
/// A roll may be added while a change is told. If the change passes by an owner of a seat there,
/// this owner finds what was published before it, like any owner whose bit a change does not find.
/// The pointer to the roll was written before the owner's first entry, whose fences pair with the
/// fence before [`tell`](Rolls::tell) or [`publish`](Rolls::publish) reads that pointer.
///
/// ```text
/// announcer: publishes; fence; finds no more rolls
/// owner:     adds a roll, takes a seat, enters: fence; reads   <- finds what was published
/// ```
pub(super) struct Rolls<W: World> {
    roll: Roll<W>,
    /// The next roll, from a box; null if this is the last.
    next: W::Ptr<Rolls<W>>,
}

/// The place of a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RollPosition {
    roll: usize,
    at: Position,
}

/// A taken seat, and the roll that it is in.
pub(super) struct Taken<W: World> {
    pub(super) seat: Seat<W>,
    pub(super) roll: NonNull<Roll<W>>,
}

impl<W: World> Rolls<W> {
    /// One roll, with at least this many seats as far as possible.
    pub(super) fn new_in(topology: &Topology, least: usize) -> Self {
        let roll = Roll::new_in(topology, least);
        Rolls { roll, next: <W::Ptr<Rolls<W>> as Word>::new_in(ptr::null_mut()) }
    }

    fn iter(&self) -> impl Iterator<Item = &Rolls<W>> + Clone {
        iter::successors(Some(self), |rolls| {
            // Acquire: pairs with the Release of `grow`: the roll is whole.
            let next = rolls.next.load(Ordering::Acquire);
            // SAFETY: null, or from a box that is freed when `self` is dropped.
            unsafe { next.as_ref() }
        })
    }

    /// How many seats there are.
    pub(super) fn capacity(&self) -> usize {
        self.iter().map(|rolls| rolls.roll.capacity()).sum()
    }

    /// A free seat: one of the first ones, if one is free. If none is free, it adds seats.
    ///
    /// # Safety
    ///
    /// The seat and its roll must not be used after the rolls are gone.
    pub(super) unsafe fn take(&self) -> Taken<W> {
        loop {
            let mut last = self;
            for rolls in self.iter() {
                // SAFETY: the caller's promise.
                if let Some(seat) = unsafe { rolls.roll.take() } {
                    return Taken { seat, roll: NonNull::from(&rolls.roll) };
                }
                last = rolls;
            }
            // And again, as others may take the seats that this thread adds.
            self.grow(last);
        }
    }

    /// Adds a roll after the last one, unless another thread has.
    fn grow(&self, last: &Rolls<W>) {
        let more = Box::into_raw(Box::new(Rolls::new_in(&W::topology(), self.capacity())));
        let none = ptr::null_mut();
        // Release: pairs with the Acquire of `iter`. Relaxed on failure: nothing is read there.
        let added = last.next.compare_exchange(none, more, Ordering::Release, Ordering::Relaxed);
        if added.is_err() {
            // SAFETY: from a box above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(more) });
        }
    }

    /// The bytes that they have allocated, besides the first one's own.
    pub(super) fn bytes(&self) -> usize {
        let rolls = self.iter().map(|rolls| rolls.roll.bytes());
        rolls.sum::<usize>() + (self.iter().count() - 1) * size_of::<Self>()
    }

    /// Tells all owners of a change, like [`Roll::tell`]. Returns the owners that were told, by
    /// roll.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if a heavy fence is refused. Those that were told already also learn of the next
    /// change, because their bits stay.
    pub(super) fn tell(&self, change: Change) -> Result<Vec<(usize, Told)>, Lacking> {
        roll::tell(self.iter().map(|rolls| &rolls.roll), change)
    }

    /// Has all owners whose bits are set [refresh](Roll::publish). It makes no heavy fence, and
    /// waits for none. Each owner that looks after this finds what was published before. Returns
    /// whether there are such owners, and whose bits were cleared, for [`restore`](Rolls::restore).
    /// One thread at a time.
    pub(super) fn publish(&self, number: u64, trim: bool) -> (bool, Vec<RollPosition>) {
        // SeqCst: pairs with the fence in `set_bit`: what was published, then bits and rolls. An
        // owner whose bit is not found here finds what was published.
        W::fence(Ordering::SeqCst);
        let (mut is_any, mut cleared) = (false, Vec::new());
        for (roll, rolls) in self.iter().enumerate() {
            let push = |at| cleared.push(RollPosition { roll, at });
            is_any |= rolls.roll.publish(number, trim, push);
        }
        (is_any, cleared)
    }

    /// Sets bits that [`publish`](Rolls::publish) has cleared, for owners that have
    /// [come](Roll::restore) since.
    pub(super) fn restore(&self, cleared: Vec<RollPosition>, is_known: bool) {
        cleared.into_iter().for_each(|place| self.roll(place).restore(place.at, is_known));
    }

    /// Takes leaves without a bit out of the summaries, of all rolls: owners that gave their seats
    /// back have cleared their bits themselves.
    pub(super) fn trim(&self) {
        self.iter().for_each(|rolls| rolls.roll.trim());
    }

    /// Calls `f` for every owner that is present, with the last change that it knows of, like
    /// [`Roll::each_holder`].
    pub(super) fn each_holder(&self, last: u64, mut f: impl FnMut(RollPosition, u64)) {
        for (roll, rolls) in self.iter().enumerate() {
            rolls.roll.each_holder(last, |at, known| f(RollPosition { roll, at }, known));
        }
    }

    /// Waits for those that were told, like [`Roll::wait_for_call`].
    pub(super) fn wait_for_call(
        &self,
        told: &[(usize, Told)],
        number: u64,
        deadline: Option<Time>,
    ) -> Waited {
        let waited =
            told.iter().map(|(roll, told)| self.nth(*roll).wait_for_call(told, number, deadline));
        waited.fold(Waited::default(), |sum, waited| Waited {
            reached: sum.reached + waited.reached,
            late: sum.late + waited.late,
        })
    }

    fn nth(&self, index: usize) -> &Roll<W> {
        let rolls = self.iter().nth(index);
        &rolls.expect("rolls are never taken away").roll
    }

    fn roll(&self, place: RollPosition) -> &Roll<W> {
        self.nth(place.roll)
    }

    /// Waits until the owner of a seat knows of a change, or is away, at most until `deadline`;
    /// returns whether that happened.
    pub(super) fn wait_until_done(
        &self,
        place: RollPosition,
        number: u64,
        deadline: Option<Time>,
    ) -> bool {
        self.roll(place).wait_until_done(place.at, number, deadline).is_some()
    }
}

impl<W: World> Drop for Rolls<W> {
    fn drop(&mut self) {
        // Relaxed: the last owner's drop has acquired all others'. Not by recursion, which would
        // take a stack frame for each.
        let mut next = self.next.load(Ordering::Relaxed);
        while let Some(rolls) = NonNull::new(next) {
            // SAFETY: from a box, in one place, and taken out of it below before it is dropped.
            let rolls = unsafe { Box::from_raw(rolls.as_ptr()) };
            // Relaxed: no other thread has these rolls any more.
            next = rolls.next.swap(ptr::null_mut(), Ordering::Relaxed);
        }
    }
}
