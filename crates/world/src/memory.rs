//! Memory: ranges of pages, and where they lie.

use core::alloc::Layout;
use core::ptr::NonNull;

use coreline_topology::NodeId;

use crate::{Lacking, Why};

/// The world has no memory of this size left. As [`Lacking`], made where nothing may allocate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot map {} bytes of memory: {why}; {remedy}", layout.size())]
pub struct MapError {
    /// What was asked for.
    pub layout: Layout,
    /// What the machine said.
    pub why: Why,
    /// What the reader can do about it.
    pub remedy: &'static str,
}

/// The capability *memory*: ranges that are large and live long. Per-CPU memory is its one user,
/// and where a slot lies decides what it costs: hence `place` and `advise_huge`.
///
/// Natively all of it is async-signal-safe and leaves `errno` alone, also where it fails.
pub trait Memory {
    /// Zeroed memory of this layout. A page of it costs nothing until it is touched.
    ///
    /// **Fork**: the child has its own copy.
    ///
    /// # Errors
    ///
    /// [`MapError`] if there is none left.
    fn map(layout: Layout) -> Result<NonNull<u8>, MapError>;

    /// Zeroed memory of this layout, in whole pages, each of which was read and not written yet:
    /// the first write to a page takes a copy-on-write fault. For programs that ask what such a
    /// fault costs: natively it is a private mapping of a file that lies in memory. A world without
    /// pages gives what [`map`](Memory::map) gives.
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

    /// Asks that the pages of this range, where they are not there yet, come from `node` as long
    /// as it has some. Changes nothing of what is in them.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the world cannot place memory: pages then come from the node of the
    /// thread that touches them first.
    ///
    /// # Safety
    ///
    /// The range lies in memory that came from [`map`](Memory::map) and is still mapped.
    unsafe fn place(at: NonNull<u8>, len: usize, node: NodeId) -> Result<(), Lacking>;

    /// Asks for huge pages in this range.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if there are none.
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
