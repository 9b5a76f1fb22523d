//! [`Indexing`]: how the operations on an array of slots find their index, and which slots are
//! there.

use core::fmt;

use coreline_world::restartable::{Rows, Slot};
use coreline_world::{Native, Ordering, Word, World};

use super::slots::Slots;

/// Where an array's indexes come from, and which of its slots are initialised.
///
/// # Safety
///
/// A slot that this calls initialised was [made](Slots::make), as is one whose index a row shows
/// while that is below the number of indexes; and it stays so. Each is named once where all are.
/// [`limit`](Indexing::limit) is at most the number of indexes; where there are no rows, all slots
/// below it are made.
/// Rows are changed as [`rows`](coreline_world::restartable::rows) says.
pub unsafe trait Indexing<W: World>: Sized + Send + Sync + 'static {
    /// The rows that say which index each CPU has; `None`: the index is the section's own. Always
    /// the same.
    ///
    /// A caller that has the slots alone cannot write to them:
    ///
    /// ```compile_fail
    /// use coreline::percpu::{Indexing, Slot, Slots};
    /// use coreline::world::{Native, Ordering, Word};
    ///
    /// fn give<T: Slot, I: Indexing<Native>>(slots: &Slots<T, Native, I>) {
    ///     let row = slots.indexing().rows().unwrap().at(0).unwrap();
    ///     row.store(3, Ordering::Relaxed);
    /// }
    /// ```
    fn rows(&self) -> Option<&Rows<W>>;

    /// The indexes that sections may use while the slots are not stopped: those below it.
    fn limit(&self, indexes: u32) -> u32;

    /// Whether the slot is initialised; the shared one is not asked for.
    fn is_initialised(&self, index: usize) -> bool;

    /// The slots that are initialised, by ascending index; the shared one is not among them.
    fn initialised(&self) -> impl Iterator<Item = usize>;

    /// The same, and behind them the shared one, which has this index.
    #[inline]
    fn initialised_and(&self, shared: usize) -> impl Iterator<Item = usize> {
        self.initialised().chain([shared])
    }

    /// For operations whose section found no slot: an index whose slot they may use now, made if it
    /// was not there. `None` sends them to the shared slot. Must not wait for another thread.
    fn find<T: Slot>(slots: &Slots<T, W, Self>) -> Option<usize>;
}

/// The section's own index: the CPU number, or the kernel's concurrency ID. Slots are initialised
/// up to the highest that was used.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | `populated` | the slots below it are initialised | holder of the array's lock; never falls |
#[repr(transparent)]
pub struct OwnIndex<W: World> {
    pub(super) populated: W::U32,
}

const _: () = {
    assert!(size_of::<OwnIndex<Native>>() == 4);
    assert!(align_of::<OwnIndex<Native>>() == 4);
};

impl<W: World> OwnIndex<W> {
    /// No slot is initialised.
    pub(super) fn new_in() -> Self {
        OwnIndex { populated: W::U32::new_in(0) }
    }

    /// How many slots are initialised, from index 0 on.
    pub(super) fn populated(&self) -> u32 {
        // Acquire pairs with the release in `Slots::populate_locked`: without it a slot below could
        // be read before it is initialised.
        self.populated.load(Ordering::Acquire)
    }
}

// SAFETY: `populated` never falls, and its slots were made before it rose. No rows.
unsafe impl<W: World> Indexing<W> for OwnIndex<W> {
    #[inline]
    fn rows(&self) -> Option<&Rows<W>> {
        None
    }

    fn limit(&self, _indexes: u32) -> u32 {
        self.populated()
    }

    fn is_initialised(&self, index: usize) -> bool {
        index < self.populated() as usize
    }

    fn initialised(&self) -> impl Iterator<Item = usize> {
        0..self.populated() as usize
    }

    // One range: of the two of a chain, compilers ask at each slot which it is. A life of an object
    // whose four counters are checked takes an eighth less.
    #[inline]
    fn initialised_and(&self, shared: usize) -> impl Iterator<Item = usize> {
        let populated = self.populated() as usize;
        (0..populated + 1).map(move |index| if index == populated { shared } else { index })
    }

    fn find<T: Slot>(slots: &Slots<T, W, Self>) -> Option<usize> {
        let index = W::index(slots.section());
        slots.populate(index).then_some(index)
    }
}

impl<W: World> fmt::Debug for OwnIndex<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnIndex").field("populated", &self.populated()).finish()
    }
}
