//! Slots with memory of their own, for laws and tests of what is below `coreline::percpu`.

use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::restartable::Init;
use crate::{IndexBy, Lacking, Slot, Slots, World};

/// [`Slots`], one stride apart, in memory that is mapped for them alone.
#[derive(Debug)]
pub struct OwnSlots<T: Slot, W: World> {
    /// Dropped before the memory is.
    slots: ManuallyDrop<Slots<T, W>>,
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is reached through the slots alone, which may be sent and shared.
unsafe impl<T: Slot, W: World> Send for OwnSlots<T, W> {}
// SAFETY: as above.
unsafe impl<T: Slot, W: World> Sync for OwnSlots<T, W> {}

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
        assert!(size_of::<T>() <= W::STRIDE, "a slot is a stride at most");
        let (section, indexes) = W::section(by)?;
        let layout = Layout::from_size_align((indexes + 1) * W::STRIDE, W::STRIDE)
            .expect("a stride is a power of two, and the indexes are numbers of CPUs");
        let memory = W::map(layout).expect("a test has memory");
        // SAFETY: the memory is as large, and nobody else knows it.
        let slots =
            unsafe { Slots::new_in(section, indexes as u32, memory.cast(), Init::closure(init)) };
        Ok(OwnSlots { slots: ManuallyDrop::new(slots), memory, layout })
    }
}

impl<W: World> OwnSlots<W::U64, W> {
    /// A word for each index, 0 at first.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    pub fn words(by: IndexBy) -> Result<Self, Lacking> {
        Self::new_in(by, || crate::Word::new_in(0))
    }

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

impl<T: Slot, W: World> Deref for OwnSlots<T, W> {
    type Target = Slots<T, W>;

    #[inline]
    fn deref(&self) -> &Slots<T, W> {
        &self.slots
    }
}

impl<T: Slot, W: World> Drop for OwnSlots<T, W> {
    fn drop(&mut self) {
        // SAFETY: the slots are dropped once, here, and nobody uses their memory afterwards.
        unsafe {
            ManuallyDrop::drop(&mut self.slots);
            W::unmap(self.memory, self.layout);
        }
    }
}
