//! The thread-local block of two of a thread's [areas](super::area), and the words that say which
//! area is read.
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
//! what counts from its own, and run sections on bytes that are not an area. Copies with blocks of
//! different lengths, or in different libraries, have a block and words each, and the thread's
//! registration is that of the first to register.

use core::arch::global_asm;
use core::sync::atomic::{AtomicIsize, AtomicU32};

use super::Reading;

/// The offset of our own area in the block.
pub(super) const OWN: isize = 32;
/// The offset of the marks in the block.
pub(super) const MARKS: isize = 64;
/// The offset of the hint in the block.
pub(super) const HINT: isize = 68;
/// The offset of the thread's number in the block.
pub(super) const NUMBER: isize = 72;
/// The offset of the number of nested holds in the block.
pub(super) const HOLDS: isize = 76;

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
    /// The block, by its symbol. Not an address of anything: see `block` of a processor's file.
    #[link_name = concat!("coreline_rseq_block_", length!())]
    pub(super) static BLOCK: u8;
    /// The words, by [`Reading`].
    #[link_name = concat!("coreline_rseq_areas_", words!(), "_of_block_", length!())]
    pub(super) static READING: [AtomicIsize; words!()];
    /// The last number that a thread was given.
    #[link_name = "coreline_last_thread"]
    pub(super) static LAST_NUMBER: AtomicU32;
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

/// The place of one of the areas of each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area {
    /// Bytes from the thread pointer to the area.
    pub(super) offset: isize,
}
