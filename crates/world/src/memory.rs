//! Memory: ranges of pages, and their placement.

use core::alloc::Layout;
use core::ptr::NonNull;

use coreline_topology::NodeId;

use crate::{Lacking, Why};

/// The world has no memory of this size left. It is like [`Lacking`], but made where nothing may
/// allocate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot map {} bytes of memory: {why}; {remedy}", layout.size())]
pub struct MapError {
    /// The requested layout.
    pub layout: Layout,
    /// The machine's error.
    pub why: Why,
    /// What the reader can do about it.
    pub remedy: &'static str,
}

/// The capability *memory*: ranges that are large and live long. Only per-CPU memory uses it. Its
/// cost depends on where a slot lies, so there are `place` and `advise_huge`.
///
/// Natively all of it is async-signal-safe and does not change `errno`, even if it fails.
pub trait Memory {
    /// Maps zeroed memory of this layout. A page of it costs nothing until a thread touches it.
    ///
    /// **Fork**: the child has its own copy.
    ///
    /// # Errors
    ///
    /// [`MapError`] if no memory is left.
    fn map(layout: Layout) -> Result<NonNull<u8>, MapError>;

    /// Maps zeroed memory of this layout, in whole pages that were each read but not written: the
    /// first write to a page takes a copy-on-write fault. It is for programs that measure the cost
    /// of such a fault. Natively it is a private mapping of a file in memory. A world without pages
    /// returns the same as [`map`](Memory::map).
    ///
    /// # Errors
    ///
    /// [`MapError`] as from [`map`](Memory::map), and if the layout is not whole pages.
    fn map_copy_on_write(layout: Layout) -> Result<NonNull<u8>, MapError> {
        Self::map(layout)
    }

    /// Gives the memory back.
    ///
    /// # Safety
    ///
    /// It came from one of the two functions that map, with this layout, and no thread uses it any
    /// more.
    unsafe fn unmap(at: NonNull<u8>, layout: Layout);

    /// Asks that the pages of this range that do not exist yet come from `node` as long as it has
    /// some. It does not change the content.
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

    /// Asks for huge pages in this range.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if there are no huge pages.
    ///
    /// # Safety
    ///
    /// As for [`place`](Memory::place).
    unsafe fn advise_huge(at: NonNull<u8>, len: usize) -> Result<(), Lacking>;

    /// Gives back the pages that lie wholly in this range, as far as the world can. Each byte of
    /// the range is what it was, or zero, after that. A world without pages does nothing.
    ///
    /// # Safety
    ///
    /// As for [`place`](Memory::place); and no thread uses the range meanwhile.
    unsafe fn discard(at: NonNull<u8>, len: usize) {
        let _ = (at, len);
    }
}
