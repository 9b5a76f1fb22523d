//! The differences between processors. Besides `native`, this is the only place for an operating
//! system's rules, and the only place for `asm!`.
//!
//! Every processor's file gives the same names:
//!
//! | name | is |
//! |---|---|
//! | `Area` | where each thread's rseq area lies, and its ID fields |
//! | `Index` | the ID field that is the index |
//! | [`Section`] of each operation | its [definition](crate::restartable::definition) in assembly |
//! | `watch` | a section that does nothing but wait to be preempted, for the self-test |
//! | `thread_pointer` | the thread pointer |
//! | `block` | bytes from there to the block of `block.rs` |
//! | `offset_of_reading` | to the area in which IDs are read, of the kind whose word lies there |
//! | `offset_of_sections` | to the area that sections run on |
//! | `read` | a word of the calling thread |
//! | `IN_ORDER` | whether every load acquires and every store releases |
//!
//! x86-64 and aarch64 have them. On other processors, no thread has a slot, and every restartable
//! operation runs without a section. The same holds under Miri, which knows no assembly.
//!
//! # The rules of a section
//!
//! A section is announced by a descriptor ([`struct rseq_cs`]): its start, its length, and the
//! address at which to continue after an abort. The thread stores the descriptor's address into
//! `rseq_cs` of its own rseq area and enters. The kernel checks this field when it is about to
//! return to a thread that it preempted, moved or has a signal for. If the thread is between the
//! section's start and its end, it continues at the abort handler, with `rseq_cs` cleared.
//!
//! A kernel with the second ABI checks less, for a registration of more than 32 bytes: only after
//! an interrupt or a fault of user code, not after a system call. It writes IDs only when they
//! change. Sections need no more: a thread in a section left user code by an interrupt or a fault,
//! since nothing in it calls the kernel. `membarrier` interrupts, too, and a thread that a signal
//! is delivered to in a section was interrupted before. No code may take a cleared `rseq_cs` or a
//! rewritten ID as a sign of a switch.
//!
//! | offset | field of the area | written by | here |
//! |---|---|---|---|
//! | 0 | `cpu_id_start` | kernel | read by the self-test |
//! | 4 | `cpu_id`; negative while not registered | kernel | index, or whose row; read inside |
//! | 8 | `rseq_cs` | thread, kernel | the descriptor's address |
//! | 16 | `flags` | kernel | whether the thread can have slice extensions |
//! | 24 | `mm_cid`, where the kernel has it | kernel | index, read inside |
//! | 28 | `slice_ctrl`, where the kernel has it | thread, kernel | a request, and its outcome |
//!
//! No code here writes an ID field (a kernel may kill the process for that) or accesses another
//! thread's area.
//!
//! * **Arming is the last instruction before the start.** If there were one in between, a thread
//!   preempted there would be outside the section. The kernel would clear `rseq_cs`, and the
//!   section would run unprotected.
//! * **Nothing clears `rseq_cs` at the end.** A thread that has left stands outside the section, so
//!   the kernel finds nothing to abort and clears the field itself. That saves a store per
//!   operation. The price is that the field points at the descriptor until the kernel next checks
//!   it. The kernel kills a process whose descriptor it cannot read. So code with sections must
//!   never be unmapped: see `native/linux/rseq/mapped.rs`.
//! * **The abort handler is preceded by the signature** under which the thread was registered with
//!   the kernel, so that a corrupted descriptor cannot send a thread to an arbitrary address.
//! * **Nothing in a section calls the kernel.** The kernel does not allow it.
//!
//! # How a section is written
//!
//! Each is a macro over the text of its *points*: the numbered places where the thread can be
//! interrupted. In production, a point is [`nothing`]. In tests, it is a trap that can be armed, so
//! the very text that runs in production is interrupted at every point. Flags and the registers of
//! traps carry nothing across a point.
//!
//! | point | stands before |
//! |---|---|
//! | 0 | the section is armed |
//! | 1 | the CPU is read |
//! | 10, 11 | the line of the CPU's row is read, and the row: where a row shows the index |
//! | 2 | the limit is read; by concurrency ID twice, as the CPU has one, too |
//! | 3 | the slot is read for the first time |
//! | 4 to 8 | the further steps of the definition, once per element in loops |
//! | 9 | what follows the commit |
//!
//! `text` has the text of each operation, and `section` puts it between the processor's `enter`,
//! which arms, finds the slot and leaves it in `{slot}`, and `leave`, which ends the section. A
//! section with a result says in a register whether it has one. Its exit without a slot is label 8,
//! behind the end, because stable Rust does not allow outputs together with labels.
//!
//! The ways to an index are `find_index`, a part of `enter`. They are chosen by the names of what
//! they start from, [`Index`] and [`InRow`]. [`Gated`] is like the first, and then reads the
//! location of slot 0. The first tries the CPU number, and then the concurrency ID if the CPU
//! number is not below its limit. An array by concurrency ID has a limit of 0 for CPU numbers, and
//! the other way round. So no load must say which of the two is meant, and the branch always goes
//! the same way. A concurrency ID counts only if the CPU number is not negative, because an area
//! without registration can seem to have one.
//!
//! Labels are numeric because a section is inlined into many callers, and start at 2 because labels
//! of zeros and ones read as binary numbers in x86 syntax: 2 is where to start over, 3 and 4 the
//! section's start and end, 5 the descriptor, 6 the abort handler, 7 belongs to traps, 8 is the way
//! out, 9 a loop, or where two ways meet, 12 where a push finds no empty entry.
//!
//! Sources: `Documentation/userspace-api/rseq.rst` and `kernel/rseq.c` of Linux; librseq, whose
//! names for operations and whose numbered injection points are used here.
//!
//! [`struct rseq_cs`]: https://docs.kernel.org/userspace-api/rseq.html

#![cfg_attr(
    any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, reason = "without sections nothing looks for a slot or a row")
)]

use core::sync::atomic::AtomicU32;

use crate::restartable::rows::PER_LINE;

#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod area;
#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod block;
#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
#[allow(unreachable_pub, reason = "in the bounds of a public trait")]
pub use area::Index;
#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use area::{hint, holds, known_number, last_number, marks, number};
#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use block::Area;

#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
#[macro_use]
mod sections;

#[cfg(all(not(miri), target_arch = "aarch64"))]
#[macro_use]
mod aarch64;
#[cfg(all(not(miri), target_arch = "aarch64"))]
use aarch64 as processor;

#[cfg(all(not(miri), target_arch = "x86_64"))]
#[macro_use]
mod x86_64;
#[cfg(all(not(miri), target_arch = "x86_64"))]
use x86_64 as processor;

#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
#[macro_use]
mod operations;
#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use processor::{IN_ORDER, SIGNATURE, watch};

#[cfg(all(test, not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod injection;

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod other;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[allow(unreachable_pub, reason = "in the bounds of a public trait")]
pub use other::Index;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) use other::{
    Area, IN_ORDER, SIGNATURE, hint, holds, known_number, last_number, marks, number, watch,
};

/// The offset of the CPU number in the rseq area; negative while the thread is not registered.
pub(crate) const CPU_ID: usize = 4;
/// The offset of the concurrency ID in the rseq area; 0 while the thread is not registered.
pub(crate) const MM_CID: usize = 24;

/// The offset of the word of concurrency IDs in [`Limits`](crate::restartable::Limits). The word of
/// CPU numbers, and of rows, is at 0.
pub(crate) const LIMIT_OF_CIDS: usize = 4;

/// The offset of the address of slot 0 in a [`Gate`](crate::restartable::Gate). Its limits are
/// at 0.
pub(crate) const GATE_FIRST: usize = 8;

/// The offset of the pointer to their table in [`Rows`](crate::restartable::Rows).
pub(crate) const ROWS_TABLE: usize = 0;
/// The offset of the number of CPUs in them.
pub(crate) const ROWS_CPUS: usize = 8;

/// The shift that turns a CPU's number into its line's number.
#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
const LINE_OF_CPU: u32 = PER_LINE.ilog2();
/// The place of a CPU in its line, as a mask.
#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
const CPU_IN_LINE: usize = PER_LINE - 1;

// Sections find the line and the row by shifts.
const _: () = assert!(PER_LINE.is_power_of_two());

/// The use of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// `cpu_id`.
    Cpu,
    /// `mm_cid`, and whether `cpu_id` is negative.
    Cid,
    /// All that a section reads and writes.
    Sections,
}

/// The index in the row of the thread's CPU.
#[derive(Debug, Clone, Copy)]
pub struct InRow {
    /// The CPU of each thread is read in the same area.
    pub(crate) cpu: Index,
    /// The [`Rows`](crate::restartable::Rows).
    pub(crate) rows: *const u8,
}

/// The index of each thread in its rseq area, for slots whose location is in a gate.
#[derive(Debug, Clone, Copy)]
pub struct Gated(pub(crate) Index);

/// The values that a section needs to find its slot.
#[derive(Debug, Clone, Copy)]
pub struct SlotsAt<I, F> {
    /// The index of each thread: in its rseq area, or in its CPU's row.
    pub(crate) index: I,
    /// The first of the two words of [`Limits`](crate::restartable::Limits): the slots with an
    /// index below its word may be used. Read inside of the section, before the slot: acquire
    /// loads. Of a [`Gate`](crate::restartable::Gate), where the index is [`Gated`].
    pub(crate) limits: *const AtomicU32,
    /// The field in slot 0 that the section works on; if the index is [`Gated`], as if the gate
    /// were at 0.
    pub(crate) first: *mut F,
}

/// An operation on an `F`, as a section. `I` is the way in which the section finds its slot. It is
/// [`Index`], [`InRow`] or [`Gated`].
pub trait Section<I, F, R>: Sized {
    /// Runs the operation. Returns `None`, without effect, if the thread has no slot.
    ///
    /// # Safety
    ///
    /// `at` is from an [`At`](crate::restartable::At) of an `F`, and has the same invariant. An `F`
    /// has its layout of the native world. The kernel maintains the index, or the CPU number if a
    /// row contains the index.
    unsafe fn run(self, at: SlotsAt<I, F>) -> Option<R>;
}

/// All sections of an operation.
pub trait Sections<F, R>:
    Section<Index, F, R> + Section<InRow, F, R> + Section<Gated, F, R>
{
}

impl<F, R, O> Sections<F, R> for O where
    O: Section<Index, F, R> + Section<InRow, F, R> + Section<Gated, F, R>
{
}

/// Slots lie this far apart, so that an index is shifted and not multiplied.
pub(crate) const STRIDE_SHIFT: u32 = 16;

/// How an operation ended that says more than that there was no slot.
mod status {
    /// There was no slot.
    pub(super) const NO_SLOT: u64 = 0;
    /// It committed.
    pub(super) const DONE: u64 = 1;
    /// It found what it does not work on: another value, an empty stack, no room.
    pub(super) const REFUSED: u64 = 2;
}

/// Whether there are sections for this processor.
pub(crate) const HAS_SECTIONS: bool =
    cfg!(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")));

/// How a section ended that waited to be preempted, and watched a word meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    /// The kernel sent the thread to the section's abort handler.
    Aborted,
    /// Another thread wrote the word between two reads of the section, and the section went on.
    Changed,
    /// Neither, in the time given.
    Expired,
}
