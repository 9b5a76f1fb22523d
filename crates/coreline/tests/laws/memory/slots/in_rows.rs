//! Slots whose indexes a test hands out itself, CPU by CPU.

use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use std::sync::Arc;

use coreline::percpu::{Indexing, Init, Lines, Slots};
use coreline::{IndexBy, PerCpuPool};
use coreline_world::restartable::Rows;
use coreline_world::{Ordering, Slot, Word, World};

/// [`Slots`] with rows for indexes.
#[derive(Debug)]
pub(crate) struct SlotsInRows<T: Slot, W: World> {
    /// Dropped before their memory goes back.
    slots: ManuallyDrop<Slots<T, W, InRows<W>>>,
    pool: PerCpuPool<W>,
}

impl<T: Slot, W: World> Deref for SlotsInRows<T, W> {
    type Target = Slots<T, W, InRows<W>>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

impl<T: Slot, W: World> Drop for SlotsInRows<T, W> {
    fn drop(&mut self) {
        let (first, made) = (self.first().cast(), self.indexing().made);
        // SAFETY: the slots are dropped once, here, and nothing uses their memory afterwards.
        unsafe {
            ManuallyDrop::drop(&mut self.slots);
            self.pool.free(first, Layout::new::<T>(), made).expect("the pool gave it");
        }
    }
}

/// Indexes that a test hands out to CPUs, one thread at a time.
#[derive(Debug)]
pub(crate) struct InRows<W: World> {
    rows: Rows<W>,
    lines: Arc<Lines<W>>,
    /// The slots below it are initialised: all, from when the array is made.
    made: usize,
}

impl<W: World> InRows<W> {
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

// SAFETY: the slots below `made` are made, and `give` asks its callers for what `rows` says.
unsafe impl<W: World> Indexing<W> for InRows<W> {
    #[inline]
    fn rows(&self) -> Option<&Rows<W>> {
        Some(&self.rows)
    }

    fn limit(&self, indexes: u32) -> u32 {
        indexes
    }

    fn is_initialised(&self, index: usize) -> bool {
        index < self.made
    }

    fn initialised(&self) -> impl Iterator<Item = usize> {
        0..self.made
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
        let pool = PerCpuPool::global_in(IndexBy::Cpu).expect("CPUs have numbers");
        let (section, cpus) = W::section(IndexBy::Cpu).expect("CPUs have numbers");
        let indexes = indexes.min(cpus);
        let first = pool.allocate(Layout::new::<T>()).expect("a test has memory").cast();
        let rows = Rows::new_in(cpus as u32);
        let indexing = InRows { rows, lines: Lines::of_world(), made: 0 };
        // SAFETY: the pool has memory for as many slots as CPUs, and one more; no row shows an
        // index, and all slots are made before this is shared.
        let slots = unsafe {
            let mut slots = Slots::<T, W, _>::indexed_by(
                indexing,
                section,
                indexes as u32,
                first,
                Init::closure(init),
            );
            (0..indexes).for_each(|index| slots.make(index));
            slots.indexing_mut().made = indexes;
            slots
        };
        SlotsInRows { slots: ManuallyDrop::new(slots), pool }
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
