//! [`Item`]: memory of a pool that one value has.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

use coreline_world::World;

use super::shared::Shared;

/// Bytes in every slot of a chunk, owned by one [`PerCpu`](crate::percpu::PerCpu).
pub(in crate::percpu) struct Item<W: World> {
    pub(super) pool: Arc<Shared<W>>,
    /// The bytes in slot 0.
    pub(in crate::percpu) first: NonNull<u8>,
    pub(in crate::percpu) layout: Layout,
}

// SAFETY: an address, in memory that lives as long as the item.
unsafe impl<W: World> Send for Item<W> {}
// SAFETY: shared, it gives out an address and a layout; what lies there is its owner's to guard.
unsafe impl<W: World> Sync for Item<W> {}

impl<W: World> Item<W> {
    /// How operations on the slots run, and how many indexes there are.
    pub(in crate::percpu) fn section(&self) -> (W::Section, u32) {
        (self.pool.section, self.pool.indexes)
    }

    /// Gives the bytes back to the pool, which may hand them out again.
    ///
    /// # Safety
    ///
    /// Called once, and the bytes are not used any more. `populated` slots were initialised, and
    /// the shared one.
    pub(in crate::percpu) unsafe fn free(&self, populated: usize) {
        // SAFETY: the caller's promise. The bytes are those of this item, so the pool knows them.
        let _ = unsafe { self.pool.free(self.first, self.layout, populated) };
    }
}
