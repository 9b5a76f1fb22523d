//! The checked mode of a pool, which detects misuse of freed memory.
//!
//! A checked pool fills a freed item with [`POISON`], and does not hand it out again for a while.
//! If a byte differs later, it was written after the free. Only initialised slots are filled,
//! because no thread had the address of any other slot.
//!
//! | mistake | how it comes about | found |
//! |---|---|---|
//! | written after free | a pointer to a slot was kept | when it is handed out again, or asked |
//! | freed twice | [`PerCpuPool::free`](super::PerCpuPool::free) was called again | at once |
//! | leaked | a handle was forgotten | when the pool is closed |
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `WATCHED` | a late write is missed | memory | `mistakes_are_found_..`, in the laws |

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use std::collections::VecDeque;

use super::chunk::Chunk;
use super::rooms::Rooms;

/// The pattern in freed bytes: the kernel's `POISON_FREE`.
const POISON: u8 = 0x6b;
/// How many freed items are kept from being handed out.
const WATCHED: usize = 1024;

/// A mistake that a checked pool found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A slot was written after it was freed.
    #[error("byte {offset} of slot {slot} was written after it was freed: it is {found:#04x}")]
    WrittenAfterFree {
        /// The slot's index.
        slot: usize,
        /// The offset in the slot's stride.
        offset: usize,
        /// The byte that was found at this offset.
        found: u8,
    },
    /// The item to be freed is not allocated, because it was already freed or belongs to another
    /// pool.
    #[error("the {size} bytes at {at:#x} are not allocated in this pool; were they freed before?")]
    FreedTwice {
        /// The address of the item in slot 0.
        at: usize,
        /// The size of the item in each slot, in bytes.
        size: usize,
    },
    /// Items were never freed.
    #[error("{count} values were not dropped before the pool was closed; drop them first")]
    Leaked {
        /// The number of items.
        count: usize,
    },
}

/// All mistakes that a checked pool found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} mistakes with per-CPU memory", self.0.len())?;
        self.0.iter().try_for_each(|fault| write!(f, "; {fault}"))
    }
}

impl core::error::Error for Faults {}

/// A freed item that is watched.
struct Freed {
    chunk: NonNull<Chunk>,
    first: NonNull<u8>,
    layout: Layout,
    /// The slots that were filled: these, and the shared one.
    populated: usize,
}

/// The memory of a checked pool.
#[derive(Default)]
pub(super) struct Checks {
    freed: VecDeque<Freed>,
    found: Vec<Fault>,
}

/// The places of the slots of a chunk.
#[derive(Clone, Copy)]
pub(super) struct Strides {
    pub(super) stride: usize,
    pub(super) indexes: usize,
}

impl Strides {
    /// The bytes of an item in its initialised slots, with the slots' indexes.
    ///
    /// # Safety
    ///
    /// The chunk is mapped, has the item, and nothing else uses it.
    unsafe fn bytes<'a>(self, freed: &Freed) -> impl Iterator<Item = (usize, &'a mut [u8])> {
        let (first, size) = (freed.first, freed.layout.size());
        (0..freed.populated).chain([self.indexes]).map(move |slot| {
            // SAFETY: the caller's promise.
            let bytes = unsafe {
                let at = first.byte_add(slot * self.stride);
                core::slice::from_raw_parts_mut(at.as_ptr(), size)
            };
            (slot, bytes)
        })
    }
}

impl Checks {
    /// Watches an item that was freed just now.
    ///
    /// # Safety
    ///
    /// The chunk is mapped, has the item, and nothing uses it as long as it is watched.
    pub(super) unsafe fn watch(
        &mut self,
        rooms: &mut Rooms,
        strides: Strides,
        chunk: NonNull<Chunk>,
        first: NonNull<u8>,
        layout: Layout,
        populated: usize,
    ) {
        let freed = Freed { chunk, first, layout, populated };
        // SAFETY: the caller's promise.
        unsafe { strides.bytes(&freed) }.for_each(|(_, bytes)| bytes.fill(POISON));
        self.freed.push_back(freed);
        if self.freed.len() > WATCHED {
            self.release_oldest(rooms, strides);
        }
    }

    /// Notes a mistake.
    pub(super) fn note(&mut self, fault: Fault) {
        self.found.push(fault);
    }

    /// Whether an item is watched, and so was freed.
    pub(super) fn is_watched(&self, first: NonNull<u8>) -> bool {
        self.freed.iter().any(|freed| freed.first == first)
    }

    /// Stops watching all items, and hands out what was found since the last time.
    pub(super) fn finish(&mut self, rooms: &mut Rooms, strides: Strides) -> Vec<Fault> {
        while !self.freed.is_empty() {
            self.release_oldest(rooms, strides);
        }
        core::mem::take(&mut self.found)
    }

    fn release_oldest(&mut self, rooms: &mut Rooms, strides: Strides) {
        let Some(freed) = self.freed.pop_front() else {
            return;
        };
        // SAFETY: the promise of `watch`; and the caller holds the pool's lock.
        let begin = freed.first.addr().get() - unsafe { freed.chunk.as_ref() }.begin();
        // SAFETY: `watch` was promised that the chunk is mapped and has the item, and that nothing
        // uses the item while it is watched. It left `freed` above, and so is looked at once.
        for (slot, bytes) in unsafe { strides.bytes(&freed) } {
            let written = bytes.iter().enumerate().find(|(_, byte)| **byte != POISON);
            self.found.extend(written.map(|(at, &found)| Fault::WrittenAfterFree {
                slot,
                offset: begin + at,
                found,
            }));
        }
        // SAFETY: the promise of `watch`; and the caller holds the pool's lock.
        unsafe { rooms.give_back(freed.chunk, freed.first, freed.layout) };
    }
}
