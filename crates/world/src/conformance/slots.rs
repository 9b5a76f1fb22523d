//! Slots with memory of their own, for laws and tests of what is below `coreline::percpu`.

use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use std::sync::Arc;

use crate::restartable::{Indexing, Init, Lines, OwnIndex, Rows};
use crate::{IndexBy, Integer, Lacking, Ordering, Slot, Slots, Word, World};

/// [`Slots`], one stride apart, in memory that is mapped for them alone.
#[derive(Debug)]
pub struct OwnSlots<T: Slot, W: World, I: Indexing<W> = OwnIndex<W>> {
    /// Dropped before the memory is.
    slots: ManuallyDrop<Slots<T, W, I>>,
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is reached through the slots alone, which may be sent and shared.
unsafe impl<T: Slot, W: World, I: Indexing<W>> Send for OwnSlots<T, W, I> {}
// SAFETY: as above.
unsafe impl<T: Slot, W: World, I: Indexing<W>> Sync for OwnSlots<T, W, I> {}

impl<T: Slot, W: World> OwnSlots<T, W> {
    /// Slots that begin as `init` says.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    ///
    /// # Panics
    ///
    /// If `T` is larger than a stride, or there is no memory.
    pub fn new_in(
        by: IndexBy,
        init: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<Self, Lacking> {
        let (section, indexes) = W::section(by)?;
        let (memory, layout) = map::<T, W>(indexes);
        // SAFETY: the memory is as large, and nobody else knows it.
        let slots =
            unsafe { Slots::new_in(section, indexes as u32, memory.cast(), Init::closure(init)) };
        Ok(OwnSlots { slots: ManuallyDrop::new(slots), memory, layout })
    }
}

/// Memory for slots of so many indexes, and the shared one.
fn map<T: Slot, W: World>(indexes: usize) -> (NonNull<u8>, Layout) {
    assert!(size_of::<T>() <= W::STRIDE, "a slot is a stride at most");
    let layout = Layout::from_size_align((indexes + 1) * W::STRIDE, W::STRIDE)
        .expect("a stride is a power of two, and the indexes are numbers of CPUs");
    (W::map(layout).expect("a test has memory"), layout)
}

impl<W: World> OwnSlots<W::U64, W> {
    /// A word for each index, 0 at first.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    pub fn words(by: IndexBy) -> Result<Self, Lacking> {
        Self::new_in(by, || Word::new_in(0))
    }
}

impl<W: World, I: Indexing<W>> OwnSlots<W::U64, W, I> {
    /// Adds to the calling thread's word.
    #[inline]
    pub fn add(&self, delta: u64) {
        self.field(|word| word).add(delta);
    }

    /// The wrapping sum of all words.
    pub fn sum(&self) -> u64 {
        self.field(|word| word).sum()
    }
}

impl<T: Slot, W: World, I: Indexing<W>> Deref for OwnSlots<T, W, I> {
    type Target = Slots<T, W, I>;

    #[inline]
    fn deref(&self) -> &Slots<T, W, I> {
        &self.slots
    }
}

impl<T: Slot, W: World, I: Indexing<W>> Drop for OwnSlots<T, W, I> {
    fn drop(&mut self) {
        // SAFETY: the slots are dropped once, here, and nobody uses their memory afterwards.
        unsafe {
            ManuallyDrop::drop(&mut self.slots);
            W::unmap(self.memory, self.layout);
        }
    }
}

/// Indexes that a test hands out to CPUs. All slots are there from the beginning.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | a row | the index that its CPU has, or [`NO_INDEX`] | the test, one thread at a time |
/// | `made` | the slots below it are initialised | who makes the array |
pub struct InRows<W: World> {
    rows: Rows<W>,
    lines: Arc<Lines<W>>,
    made: W::U32,
}

impl<W: World> InRows<W> {
    fn made(&self) -> usize {
        // Acquire pairs with the release in `in_rows`.
        self.made.load(Ordering::Acquire) as usize
    }

    fn row(&self, cpu: usize) -> &W::U32 {
        // SAFETY: always these lines.
        unsafe { self.rows.make(cpu, &self.lines) }.expect("a test has memory")
    }
}

impl<W: World> Drop for InRows<W> {
    fn drop(&mut self) {
        // SAFETY: from there, and nobody looks for an index any more.
        unsafe { self.rows.release(&self.lines) };
    }
}

/// What a row says of a CPU without an index.
pub const NO_INDEX: u32 = u32::MAX;

// SAFETY: `made` rises behind the slot that was made, and no index above it is handed out; `give`
// asks its callers for what `rows` says.
unsafe impl<W: World> Indexing<W> for InRows<W> {
    #[inline]
    fn rows(&self) -> Option<&Rows<W>> {
        Some(&self.rows)
    }

    fn limit(&self, indexes: u32) -> u32 {
        indexes
    }

    fn is_initialised(&self, index: usize) -> bool {
        index < self.made()
    }

    fn initialised(&self) -> impl Iterator<Item = usize> {
        0..self.made()
    }

    fn find<T: Slot>(slots: &Slots<T, W, Self>) -> Option<usize> {
        // Where the thread was not registered yet, it is now.
        let cpu = W::index(slots.section());
        // SAFETY: it is read.
        let row = unsafe { slots.indexing().rows.at(cpu) }?;
        // Acquire pairs with the release in `give`.
        let index = row.load(Ordering::Acquire) as usize;
        slots.indexing().is_initialised(index).then_some(index)
    }
}

impl<T: Slot, W: World> OwnSlots<T, W, InRows<W>> {
    /// Slots for at most so many indexes, none of which a CPU has, that begin as `init` says.
    ///
    /// # Panics
    ///
    /// As [`new_in`](OwnSlots::new_in).
    pub fn in_rows(indexes: usize, init: impl Fn() -> T + Send + Sync + 'static) -> Self {
        let (section, cpus) = W::section(IndexBy::Cpu).expect("CPUs have numbers");
        let indexes = indexes.min(cpus);
        let (memory, layout) = map::<T, W>(indexes);
        let rows = Rows::new_in(cpus as u32, NO_INDEX);
        let indexing = InRows { rows, lines: Lines::of_world(), made: W::U32::new_in(0) };
        let (first, init) = (memory.cast(), Init::closure(init));
        // SAFETY: the memory is as large, and nobody else knows it.
        let slots: Slots<T, W, InRows<W>> =
            unsafe { Slots::indexed_by(indexing, section, indexes as u32, first, init) };
        for index in 0..indexes {
            // SAFETY: below the number of indexes, and in nobody's row.
            unsafe { slots.make(index) };
            // Release pairs with the acquire in `made`.
            slots.indexing().made.fetch_add(1, Ordering::Release);
        }
        OwnSlots { slots: ManuallyDrop::new(slots), memory, layout }
    }

    /// Lets sections on a CPU work on the slot of this index, or on none.
    ///
    /// # Safety
    ///
    /// No two CPUs have an index at the same time. In between, who took it away has fenced.
    pub unsafe fn give(&self, cpu: usize, index: Option<usize>) {
        let word = index.map_or(NO_INDEX, |index| index as u32);
        // Release pairs with the acquire of a section and of `find`: the slot is there, and what
        // sections of another CPU left in it is seen.
        self.indexing().row(cpu).store(word, Ordering::Release);
    }

    /// The index of a CPU.
    pub fn given(&self, cpu: usize) -> Option<usize> {
        // Relaxed: for those who hand out indexes.
        let word = self.indexing().row(cpu).load(Ordering::Relaxed);
        (word != NO_INDEX).then_some(word as usize)
    }
}
