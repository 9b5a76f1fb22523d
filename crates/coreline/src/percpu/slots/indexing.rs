//! [`Indexing`]: how the operations on an array of slots find their index, and which slots exist.

use core::fmt;

use coreline_world::restartable::{Rows, Slot};
use coreline_world::{Native, Ordering, Word, World};

use super::Slots;

/// The source of an array's indexes, and the record of its initialised slots.
///
/// # Safety
///
/// A slot that the implementation reports as initialised was [initialised](Slots::make), and stays
/// initialised. The same holds for a slot whose index is in a row, if the index is below the number
/// of indexes. An enumeration of the slots contains each slot once. [`limit`](Indexing::limit) is
/// at most the number of indexes. If there are no rows, all slots below this limit are initialised.
/// Rows are changed only as [`rows`](coreline_world::restartable::rows) describes.
pub unsafe trait Indexing<W: World>: Sized + Send + Sync + 'static {
    /// Returns the rows that hold the index of each CPU. `None` means that the index is the
    /// section's own. The result never changes.
    ///
    /// A caller that has only the slots cannot write to the rows:
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

    /// Returns the limit of indexes. Sections may use the indexes below it while the slots are not
    /// stopped.
    fn limit(&self, indexes: u32) -> u32;

    /// Returns whether the slot is initialised. It is not called for the shared slot.
    fn is_initialised(&self, index: usize) -> bool;

    /// Returns the indexes of the initialised slots in ascending order, without the shared slot's
    /// index.
    fn initialised(&self) -> impl Iterator<Item = usize>;

    /// Returns the indexes of the initialised slots in ascending order, followed by the shared
    /// slot's index, which is `shared`.
    #[inline]
    fn initialised_and(&self, shared: usize) -> impl Iterator<Item = usize> {
        self.initialised().chain([shared])
    }

    /// Returns the index of a slot for an operation whose section found none. `find` initialises
    /// the slot if necessary. `None` means that the operation uses the shared slot. `find` must not
    /// wait for another thread.
    fn find<T: Slot>(slots: &Slots<T, W, Self>) -> Option<usize>;
}

/// The section's own index: the CPU number, or the kernel's concurrency ID. Slots are initialised
/// up to the highest used slot.
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

    // One range and no `chain`: the compiler asks at each step of a chain in which of its two parts
    // it is. With one range, creating an object, checking its four counters and dropping it take an
    // eighth less time.
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
