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
//!
//! # The block
//!
//! | offset | bytes | is |
//! |---|---|---|
//! | 0 | 32 | the blank area |
//! | 32 | 32 | our own area |
//! | 64 | 4 | marks, for [`rseq`](crate::native::linux::rseq); zero at first |
//! | 68 | 4 | a hint of the CPU, for the same; zero at first |
//! | 72 | 4 | the thread's number, for [`signals`](crate::native::linux::signals); zero at first |
//! | 76 | 4 | how many holds off of signals are nested, for the same; zero at first |
//!
//! It is thread-local memory at a fixed distance from the thread pointer (the *initial-exec* model
//! of ELF), because a section addresses its area by a distance that is the same in every thread.
//! In a library that `dlopen` loads, the block comes out of what the C library keeps in reserve:
//! glibc has some; musl has none and refuses to load such a library.
//!
//! The kernel writes the IDs at registration; a kernel that knows no `mm_cid` never writes that
//! field, so that it says -1 there.
//!
//! # The words
//!
//! Three words of the process say in which area IDs are read, and on which sections run
//! ([`Reading`]), as bytes beyond the blank one. They are no `static` of Rust because other crates
//! inline the code that reads them, and rustc would have each of those ask the dynamic linker for
//! their address. The last number that a thread was given is a word, too: copies of this crate
//! share the block, and so the numbers.
//!
//! The symbols are weak and hidden: of two copies of this crate in one program or library one
//! block is kept, and an area in which one copy may read IDs, or run sections, is as good for the
//! other: a copy that runs none keeps its limits at 0. So the block's symbol ends in its length: a
//! copy whose block is longer would find the bytes of another thread-local behind a shorter one.
//! The words' symbol says how many they are, for the same reason, and ends in the length of the
//! block that they count from: a copy with another block would add to the distance from that one
//! what counts from its own, and run sections on bytes that are no area. Copies with blocks of
//! different lengths, or in different libraries, have a block and words each, and the thread's
//! registration is that of the first to register.

use core::arch::global_asm;
use core::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

use super::{Gated, InRow, Reading, processor};

/// Where our own area lies in the block.
const OWN: isize = 32;
/// Where the marks lie in the block.
const MARKS: isize = 64;
/// Where the hint lies in the block.
const HINT: isize = 68;
/// Where the thread's number lies in the block.
const NUMBER: isize = 72;
/// Where the number of nested holds lies in the block.
const HOLDS: isize = 76;

/// The length of the block, which symbols end in.
macro_rules! length {
    () => {
        80
    };
}

/// How many words say in which area something is read.
macro_rules! words {
    () => {
        3
    };
}

const _: () = {
    assert!(length!() == HOLDS + 4, "the block ends with its last word");
    assert!(words!() == Reading::Sections as usize + 1, "there is a word for each");
};

unsafe extern "C" {
    /// The block, by its symbol. Not an address of anything: see [`processor::block`].
    #[link_name = concat!("coreline_rseq_block_", length!())]
    pub(super) static BLOCK: u8;
    /// The words, by [`Reading`].
    #[link_name = concat!("coreline_rseq_areas_", words!(), "_of_block_", length!())]
    pub(super) static READING: [AtomicIsize; words!()];
    /// The last number that a thread was given.
    #[link_name = "coreline_last_thread"]
    static LAST_NUMBER: AtomicU32;
}

// `cpu_id` and `mm_cid` of both areas begin as -1, `RSEQ_CPU_ID_UNINITIALIZED`.
global_asm!(
    ".pushsection .tdata.coreline_rseq_block, \"awT\", %progbits",
    ".weak {block}",
    ".hidden {block}",
    ".type {block}, %object",
    ".size {block}, {length}",
    ".balign 32",
    "{block}:",
    ".long 0, -1, 0, 0, 0, 0, -1, 0",
    ".long 0, -1, 0, 0, 0, 0, -1, 0",
    ".zero {length} - {marks}",
    ".popsection",
    ".pushsection .bss.coreline_rseq_areas, \"aw\", %nobits",
    ".weak {reading}",
    ".hidden {reading}",
    ".type {reading}, %object",
    ".size {reading}, 8 * {words}",
    ".balign 16",
    "{reading}:",
    ".zero 8 * {words}",
    ".popsection",
    ".pushsection .bss.coreline_last_thread, \"aw\", %nobits",
    ".weak {last}",
    ".hidden {last}",
    ".type {last}, %object",
    ".size {last}, 4",
    ".balign 4",
    "{last}:",
    ".zero 4",
    ".popsection",
    block = sym BLOCK,
    reading = sym READING,
    last = sym LAST_NUMBER,
    length = const length!(),
    marks = const MARKS,
    words = const words!(),
);

/// Where each thread has one of its areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area {
    /// Bytes from the thread pointer to the area.
    pub(super) offset: isize,
}

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
        // Relaxed, twice: a word is all there is to read, and it changes once. A thread that
        // misses the change reads the blank area, and looks here on its slow path. Looks first, for
        // threads without an index come here each time.
        if word.load(Ordering::Relaxed) != self.bytes_beyond_blank() {
            // Relaxed: it changes once. A thread that misses the change reads the blank area, and
            // looks here on its slow way.
            word.store(self.bytes_beyond_blank(), Ordering::Relaxed);
        }
    }

    /// How many bytes beyond the blank area this one lies. Zero for the blank one only.
    pub(crate) fn bytes_beyond_blank(self) -> isize {
        self.offset.wrapping_sub(processor::block())
    }

    /// A field of the area as an index: [`CPU_ID`](super::CPU_ID) or [`MM_CID`](super::MM_CID).
    #[inline]
    pub(crate) fn index(self, field: usize) -> Index {
        Index { area: self, field }
    }

    /// Where the calling thread has this area.
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
