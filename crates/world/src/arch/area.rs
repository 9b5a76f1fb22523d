//! The calling thread's rseq areas: the C library's, one of our own, and a blank one.
//!
//! # Three areas
//!
//! | area | lies | registered by | its IDs |
//! |---|---|---|---|
//! | the C library's | where it publishes | the C library, at thread start | the kernel's |
//! | our own | in the block, at 32 | us, when the thread first needs it | the kernel's, or -1 |
//! | the blank one | in the block, at 0 | nothing, ever | -1, for good |
//!
//! A section that is run on the blank area finds no index, whatever becomes of the other two. So
//! code that runs sections always has an area, and needs no branch to ask whether there is one.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::block::{Area, HINT, HOLDS, LAST_NUMBER, MARKS, NUMBER, OWN, READING};
use super::{Gated, InRow, Reading, processor};

/// The location of each thread's index: a field of one of the thread's areas.
///
/// Sections need only the area. The limits of their slots tell them which field it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    area: Area,
    /// [`CPU_ID`](super::CPU_ID) or [`MM_CID`](super::MM_CID).
    #[cfg_attr(not(test), allow(dead_code, reason = "tests choose limits by it"))]
    pub(super) field: usize,
}

impl Index {
    #[inline]
    pub(super) fn area(self) -> Area {
        self.area
    }
}

impl InRow {
    #[inline]
    pub(super) fn area(self) -> Area {
        self.cpu.area()
    }
}

impl Gated {
    #[inline]
    pub(super) fn area(self) -> Area {
        self.0.area()
    }
}

impl Area {
    /// The area at `offset` from the thread pointer.
    ///
    /// # Safety
    ///
    /// `offset` is a multiple of 32. There, from the thread pointer of each thread that uses the
    /// area, lie for the thread's whole life the 32 bytes of a `struct rseq`. Its owner
    /// registers it with the kernel under [`SIGNATURE`](super::SIGNATURE) or not at all, and leaves
    /// `rseq_cs` to the thread.
    pub(crate) unsafe fn at(offset: isize) -> Area {
        Area { offset }
    }

    /// The area that is never registered.
    #[inline]
    pub(crate) fn blank() -> Area {
        Area { offset: processor::block() }
    }

    /// The area that we register where the C library registers none.
    pub(crate) fn own() -> Area {
        Area { offset: processor::block() + OWN }
    }

    /// The area in which to read the CPU number: the blank one until [`read_in`](Area::read_in).
    #[inline]
    pub(crate) fn of_cpu() -> Area {
        Area { offset: processor::offset_of_reading::<{ Reading::Cpu as usize * 8 }>() }
    }

    /// The area in which to read the concurrency ID: the blank one until
    /// [`read_in`](Area::read_in).
    #[inline]
    pub(crate) fn of_cid() -> Area {
        Area { offset: processor::offset_of_reading::<{ Reading::Cid as usize * 8 }>() }
    }

    /// The area that sections run on: the blank one until [`read_in`](Area::read_in).
    ///
    /// The compiler may use what it has read before, in a loop for instance, and that is sound: a
    /// section that still runs on the blank area finds no slot, and does nothing.
    #[inline]
    pub(crate) fn of_sections() -> Area {
        Area { offset: processor::offset_of_sections() }
    }

    /// Has this area be used so from now on.
    pub(crate) fn read_in(self, what: Reading) {
        // SAFETY: the words are there, and zeros are valid ones.
        let word = unsafe { &READING[what as usize] };
        // Relaxed, twice: there is only one word to read, and it changes once. A thread that misses
        // the change reads the blank area, and looks here on its slow path. Looks first, for
        // threads without an index come here each time.
        if word.load(Ordering::Relaxed) != self.bytes_beyond_blank() {
            // Relaxed: it changes once. A thread that misses the change reads the blank area, and
            // looks here on its slow way.
            word.store(self.bytes_beyond_blank(), Ordering::Relaxed);
        }
    }

    /// The offset of this area from the blank area, in bytes. Only the blank area has 0.
    pub(crate) fn bytes_beyond_blank(self) -> isize {
        self.offset.wrapping_sub(processor::block())
    }

    /// A field of the area as an index: [`CPU_ID`](super::CPU_ID) or [`MM_CID`](super::MM_CID).
    #[inline]
    pub(crate) fn index(self, field: usize) -> Index {
        Index { area: self, field }
    }

    /// How many bytes from the thread pointer the area lies.
    pub(crate) fn offset(self) -> isize {
        self.offset
    }

    /// The address of the calling thread's area.
    #[inline]
    pub(crate) fn address(self) -> usize {
        processor::thread_pointer().wrapping_add_signed(self.offset)
    }

    /// The CPU that runs the thread; 0 while the thread is not registered.
    pub(crate) fn cpu_id_start(self) -> u32 {
        // SAFETY: the invariant of `Area`: the fields of the calling thread's area lie there.
        unsafe { processor::read::<0>(self.offset) }
    }

    /// The CPU that runs the thread; above `i32::MAX` while the thread is not registered.
    #[inline]
    pub(crate) fn cpu_id(self) -> u32 {
        // SAFETY: the invariant of `Area`: the fields of the calling thread's area lie there.
        unsafe { processor::read::<4>(self.offset) }
    }

    /// The thread's concurrency ID. Meaningless while the thread is not registered, and where the
    /// kernel keeps none.
    #[inline]
    pub(crate) fn mm_cid(self) -> u32 {
        // SAFETY: the invariant of `Area`: the fields of the calling thread's area lie there.
        unsafe { processor::read::<24>(self.offset) }
    }

    /// `flags`: what the kernel offers the thread beside IDs. Zero while the thread is not
    /// registered, and in the legacy ABI.
    #[inline]
    pub(crate) fn flags(self) -> u32 {
        // SAFETY: the invariant of `Area`: the fields of the calling thread's area lie there.
        unsafe { processor::read::<16>(self.offset) }
    }

    /// `slice_ctrl`: what became of the thread's request for an extension. Meaningless unless
    /// [`flags`](Area::flags) says that the thread has extensions.
    #[inline]
    pub(crate) fn slice_control(self) -> u32 {
        // SAFETY: the invariant of `Area`: the fields of the calling thread's area lie there.
        unsafe { processor::read::<28>(self.offset) }
    }

    /// The first byte of `slice_ctrl`, the request, which the thread writes. Only that thread, and
    /// signal handlers on it, may use it.
    #[inline]
    pub(crate) fn slice_request(self) -> *const AtomicU8 {
        core::ptr::with_exposed_provenance(self.address().wrapping_add(28))
    }
}

/// The calling thread's marks. Only that thread, and signal handlers on it, may use them.
pub(crate) fn marks() -> *const AtomicU32 {
    word_of_block(MARKS)
}

/// The calling thread's hint of its CPU. Only that thread, and signal handlers on it, may use it.
pub(crate) fn hint() -> *const AtomicU32 {
    word_of_block(HINT)
}

/// The calling thread's number. Only that thread, and signal handlers on it, may use it.
pub(crate) fn number() -> *const AtomicU32 {
    word_of_block(NUMBER)
}

/// The calling thread's number; 0 while it has none.
#[inline]
pub(crate) fn known_number() -> u32 {
    // SAFETY: the block of each thread has a word there, for the thread's whole life.
    unsafe { processor::read::<{ NUMBER as usize }>(processor::block()) }
}

/// How many holds off of the calling thread's signals are nested. Only that thread may use it.
pub(crate) fn holds() -> *const AtomicU32 {
    word_of_block(HOLDS)
}

/// The last number that a thread was given.
pub(crate) fn last_number() -> &'static AtomicU32 {
    // SAFETY: the word is there, and zero is a valid one.
    unsafe { &LAST_NUMBER }
}

fn word_of_block(offset: isize) -> *const AtomicU32 {
    let block = processor::thread_pointer().wrapping_add_signed(processor::block());
    core::ptr::with_exposed_provenance(block.wrapping_add_signed(offset))
}
