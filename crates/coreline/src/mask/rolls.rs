//! Rolls, each made when those before it are full, so that no reader is refused.

use core::iter;
use core::ptr::{self, NonNull};

use coreline_topology::Topology;
use coreline_world::{Lacking, Ordering, Time, Word, World};

use super::Position;
use super::roll::{self, Change, Roll, Seat, Told};

/// Rolls that grow. The seats of one that is added are as many as there were before it, as far as
/// one roll can have them: the more readers, the fewer rolls are added for each.
///
/// Growing and telling exclude each other by the caller's lock. So a reader whose roll a change
/// went by came later, by that lock and the Acquire in [`iter`](Rolls::iter), and finds what was
/// published before the change.
pub(super) struct Rolls<W: World> {
    roll: Roll<W>,
    /// The next one, from a box; null if this is the last.
    next: W::Ptr<Rolls<W>>,
}

/// Where a seat is.
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
    /// One roll, with at least so many seats as far as it can have them.
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

    /// A free seat; `None` if all are taken.
    ///
    /// # Safety
    ///
    /// The seat and its roll are not used when the rolls are gone.
    pub(super) unsafe fn take(&self) -> Option<Taken<W>> {
        self.iter().find_map(|rolls| {
            // SAFETY: the caller's promise.
            let seat = unsafe { rolls.roll.take() }?;
            Some(Taken { seat, roll: NonNull::from(&rolls.roll) })
        })
    }

    /// Adds a roll. One thread at a time, and not while another tells.
    pub(super) fn grow(&self) {
        let more = Box::new(Rolls::new_in(&W::topology(), self.capacity()));
        let last = self.iter().last().unwrap_or(self);
        // Release: pairs with the Acquire of `iter`.
        last.next.store(Box::into_raw(more), Ordering::Release);
    }

    /// Tells all owners of a change, as [`Roll::tell`]; returns where those are that were present.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if a heavy fence is refused. Those that were told already learn of the next
    /// change, too: their bits stay.
    pub(super) fn tell(
        &self,
        change: Change,
    ) -> Result<impl Iterator<Item = RollPosition> + use<W>, Lacking> {
        let rolls = self.iter().map(|rolls| &rolls.roll);
        let told = roll::tell(rolls, change)?.into_iter();
        let place = |(roll, told): (usize, Told)| {
            told.pending.into_iter().map(move |at| RollPosition { roll, at })
        };
        Ok(told.flat_map(place))
    }

    fn roll(&self, place: RollPosition) -> &Roll<W> {
        let rolls = self.iter().nth(place.roll);
        &rolls.expect("rolls are never taken away").roll
    }

    /// The last change that the owner of a seat knows of; all of them if it is away.
    pub(super) fn known(&self, place: RollPosition) -> u64 {
        self.roll(place).known(place.at)
    }

    /// Waits until the owner of a seat knows of a change, or is away.
    pub(super) fn wait_until_done(&self, place: RollPosition, number: u64) {
        self.roll(place).wait_until_done(place.at, number);
    }

    /// The same, until `deadline` at most: whether it came to that.
    pub(super) fn wait_until_done_by(
        &self,
        place: RollPosition,
        number: u64,
        deadline: Time,
    ) -> bool {
        self.roll(place).wait_until_done_by(place.at, number, deadline)
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
