//! Memory: ranges of pages, and their placement.

use core::alloc::Layout;
use core::ptr::NonNull;

use coreline_topology::NodeId;

use crate::{Lacking, Why};

/// The error if the world has no memory of this size left. It is like [`Lacking`], but code that
/// must not allocate can create it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot map {} bytes of memory: {why}; {remedy}", layout.size())]
pub struct MapError {
    /// The requested layout.
    pub layout: Layout,
    /// The reason that the machine gave.
    pub why: Why,
    /// The remedy that the user can try.
    pub remedy: &'static str,
}

/// The capability *memory*: large, long-lived ranges. Only per-CPU memory uses it. The cost of
/// per-CPU memory depends on the location of a slot, so there are `place` and `advise_huge`.
///
/// Natively all functions are async-signal-safe and preserve `errno`, even if they fail.
pub trait Memory {
    /// Maps zeroed memory of this layout. A page costs nothing until a thread touches it.
    ///
    /// **Fork**: the child has its own copy.
    ///
    /// # Errors
    ///
    /// [`MapError`] if no memory is left.
    fn map(layout: Layout) -> Result<NonNull<u8>, MapError>;

    /// Maps zeroed memory of this layout, in whole pages. The call reads each page but does not
    /// write it, so the first write to a page takes a copy-on-write fault. Use it in programs that
    /// measure the cost of such a fault. Natively, the memory is a private mapping of a file in
    /// memory. In a world without pages, the call works like [`map`](Memory::map).
    ///
    /// # Errors
    ///
    /// [`MapError`] under the same conditions as for [`map`](Memory::map), and if the layout is not
    /// whole pages.
    fn map_copy_on_write(layout: Layout) -> Result<NonNull<u8>, MapError> {
        Self::map(layout)
    }

    /// Unmaps the memory.
    ///
    /// # Safety
    ///
    /// The memory came from [`map`](Memory::map) or
    /// [`map_copy_on_write`](Memory::map_copy_on_write) with this layout, and no thread uses it any
    /// more.
    unsafe fn unmap(at: NonNull<u8>, layout: Layout);

    /// Requests that the missing pages of this range come from `node` while the node has free
    /// pages. The content does not change.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the world cannot place memory. Pages then come from the node of the thread
    /// that touches them first.
    ///
    /// # Safety
    ///
    /// The range lies in memory that came from [`map`](Memory::map) and is still mapped.
    unsafe fn place(at: NonNull<u8>, len: usize, node: NodeId) -> Result<(), Lacking>;

    /// Requests huge pages in this range.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if there are no huge pages.
    ///
    /// # Safety
    ///
    /// The same conditions as for [`place`](Memory::place).
    unsafe fn advise_huge(at: NonNull<u8>, len: usize) -> Result<(), Lacking>;

    /// Frees the pages that lie wholly in this range, as far as the world can. Afterwards each byte
    /// of the range is unchanged or zero. A world without pages does nothing.
    ///
    /// # Safety
    ///
    /// The same conditions as for [`place`](Memory::place), and no thread uses the range meanwhile.
    unsafe fn discard(at: NonNull<u8>, len: usize) {
        let _ = (at, len);
    }
}
