//! Slots whose indexes a test hands out itself, CPU by CPU.

use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use std::sync::Arc;

use coreline::IndexBy;
use coreline::percpu::{Indexing, Init, Lines, Slots};
use coreline_world::restartable::Rows;
use coreline_world::{Integer, Ordering, Slot, Word, World};

/// [`Slots`] with memory of their own, and with rows for indexes.
#[derive(Debug)]
pub(crate) struct SlotsInRows<T: Slot, W: World> {
    /// Dropped before the memory is.
    slots: ManuallyDrop<Slots<T, W, InRows<W>>>,
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is reached through the slots alone, which may be sent.
unsafe impl<T: Slot, W: World> Send for SlotsInRows<T, W> {}
// SAFETY: the memory is reached through the slots alone, which may be shared.
unsafe impl<T: Slot, W: World> Sync for SlotsInRows<T, W> {}

impl<T: Slot, W: World> Deref for SlotsInRows<T, W> {
    type Target = Slots<T, W, InRows<W>>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

impl<T: Slot, W: World> Drop for SlotsInRows<T, W> {
    fn drop(&mut self) {
        // SAFETY: the slots are dropped once, here, and nothing uses their memory afterwards.
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
/// | `made` | the slots below it are initialised | the thread that makes the array |
pub(crate) struct InRows<W: World> {
    rows: Rows<W>,
    lines: Arc<Lines<W>>,
    made: W::U32,
}

impl<W: World> InRows<W> {
    fn made(&self) -> usize {
        // Acquire pairs with the release in `new_in`: the slots are initialised.
        self.made.load(Ordering::Acquire) as usize
    }

    fn row(&self, cpu: usize) -> &W::U32 {
        // SAFETY: these lines alone are the rows'; `give` asks its callers for the rest.
        unsafe { self.lines.make(&self.rows, cpu, NO_INDEX) }.expect("a test has memory")
    }
}

impl<W: World> Drop for InRows<W> {
    fn drop(&mut self) {
        // SAFETY: the lines are theirs, and nothing looks for an index any more.
        unsafe { self.lines.release(&self.rows) };
    }
}

/// What a row says of a CPU without an index.
pub(crate) const NO_INDEX: u32 = u32::MAX;

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
        // SAFETY: the row is only read.
        let row = unsafe { slots.indexing().rows.at(cpu) }?;
        // Acquire pairs with the release in `give`.
        let index = row.load(Ordering::Acquire) as usize;
        slots.indexing().is_initialised(index).then_some(index)
    }
}

impl<T: Slot, W: World> SlotsInRows<T, W> {
    /// Slots for at most so many indexes, none of which a CPU has, that begin as `init` says.
    pub(crate) fn new_in(indexes: usize, init: impl Fn() -> T + Send + Sync + 'static) -> Self {
        let (section, cpus) = W::section(IndexBy::Cpu).expect("CPUs have numbers");
        let indexes = indexes.min(cpus);
        assert!(size_of::<T>() <= W::STRIDE, "a slot is a stride at most");
        let layout = Layout::from_size_align((indexes + 1) * W::STRIDE, W::STRIDE)
            .expect("a stride is a power of two, and the indexes are numbers of CPUs");
        let memory = W::map(layout).expect("a test has memory");
        let rows = Rows::new_in(cpus as u32);
        let indexing = InRows { rows, lines: Lines::of_world(), made: W::U32::new_in(0) };
        let (first, init) = (memory.cast(), Init::closure(init));
        // SAFETY: the memory is as large, and nothing else knows it.
        let slots: Slots<T, W, InRows<W>> =
            unsafe { Slots::indexed_by(indexing, section, indexes as u32, first, init) };
        for index in 0..indexes {
            // SAFETY: below the number of indexes, and no row shows it.
            unsafe { slots.make(index) };
            // Release pairs with the acquire in `made`.
            slots.indexing().made.fetch_add(1, Ordering::Release);
        }
        SlotsInRows { slots: ManuallyDrop::new(slots), memory, layout }
    }

    /// Lets sections on a CPU work on the slot of this index, or on none.
    ///
    /// # Safety
    ///
    /// No two CPUs have an index at the same time; in between, a thread has fenced.
    pub(crate) unsafe fn give(&self, cpu: usize, index: Option<usize>) {
        let word = index.map_or(NO_INDEX, |index| index as u32);
        // Release pairs with the acquire of a section and of `find`: the slot is there, and what
        // sections of another CPU left in it is seen.
        self.indexing().row(cpu).store(word, Ordering::Release);
    }

    /// The index of a CPU.
    pub(crate) fn given(&self, cpu: usize) -> Option<usize> {
        // Relaxed: for a thread that hands out indexes itself.
        let word = self.indexing().row(cpu).load(Ordering::Relaxed);
        (word != NO_INDEX).then_some(word as usize)
    }
}

impl<W: World> core::fmt::Debug for InRows<W> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("InRows").field("rows", &self.rows).finish_non_exhaustive()
    }
}
