//! [`LeasedId`]: the number of a lease, and its round.

use core::ptr::NonNull;

use coreline_world::{Words, World};

/// A number that belongs to the caller, and its round if it has one.
pub(super) type Taken<'a, W> = (u32, Option<&'a <W as Words>::U32>);

/// A number that belongs to its owner, and its round if it has one.
pub(crate) struct LeasedId<W: World> {
    pub(super) number: u32,
    round: Option<NonNull<W::U32>>,
}

// SAFETY: the round is a word, which is shared with all threads.
unsafe impl<W: World> Send for LeasedId<W> {}
// SAFETY: the same.
unsafe impl<W: World> Sync for LeasedId<W> {}

impl<W: World> Clone for LeasedId<W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: World> Copy for LeasedId<W> {}

impl<W: World> LeasedId<W> {
    #[inline]
    pub(super) fn new((number, round): Taken<'_, W>) -> Self {
        LeasedId { number, round: round.map(NonNull::from_ref) }
    }

    /// The round.
    ///
    /// # Safety
    ///
    /// The domain that has the round lives for `'a`.
    #[inline]
    pub(super) unsafe fn round<'a>(self) -> Option<&'a W::U32> {
        // SAFETY: the caller's promise.
        self.round.map(|round| unsafe { round.as_ref() })
    }
}
