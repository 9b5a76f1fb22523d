//! Restartable operations: per-CPU memory without atomic instructions.
//!
//! A thread that updates the memory of *its* CPU needs no atomic instruction, as long as it can
//! tell that it was preempted or moved half-way, and then starts over. Linux offers that as rseq
//! (restartable sequences, [`rseq(2)`]; the vocabulary here is librseq's): a short section of code
//! that reads and prepares what it needs and ends in **one** store, the commit. If the thread is
//! preempted, moved or signalled before the commit, the kernel sends it to the section's abort
//! handler.
//!
//! # The closed set
//!
//! | on | operation of [`definition`] | module |
//! |---|---|---|
//! | a word | `Load`, `Exchange`, `StoreIfEqual` | [`operand`] |
//! | a word that holds an integer | `Add`, `AddIf` | [`operand`] |
//! | a [`List`] | `ListPush`, `ListPop` | [`list`] |
//! | an [`ArrayStack`] | `StackPush`, `StackPop`; for a batch | [`stack`] |
//! | a [`ResizableStack`] | the same, and `StackResize` | [`stack`] |
//! | a [`Buffer`] | `Append` | [`buffer`] |
//!
//! A word is a world's `U32`, `U64`, `Usize` or `Ptr`. Each operation has one definition for all of
//! them, and one section, whose accesses are as wide as the word.
//!
//! # The definition is executable
//!
//! An [`Operation`] is a value that holds its arguments, such as the number to add. Its method
//! [`attempt`](Operation::attempt) *is* the operation: a sequence of [`Steps`]. The thread may be
//! interrupted between any two of them, and nowhere else. A step then returns [`Ended::Aborted`],
//! nothing that others read has been written, and the operation starts over. A definition does not
//! say how it is run:
//!
//! * the simulator *interprets* it;
//! * `Native` *implements* it, in assembly, and the tests of `crate::arch` compare the two with an
//!   abort forced at every step;
//! * if there are no sections (in the model, and in `Native` if rseq is refused), or a thread has
//!   [no slot](NoSlot), the caller runs it by other means. The way is chosen once, before the first
//!   slot is used: plain and atomic additions to one slot would lose updates.
//!
//! # Slots
//!
//! Per-CPU memory is an array: slot *i* lies [`STRIDE`](Restartable::STRIDE) times *i* bytes after
//! slot 0. An index below the *limit* has a slot that sections may use. A section knows only its
//! [`At`]. The arrays themselves are algorithms: `coreline::percpu`.
//!
//! [`rseq(2)`]: https://docs.kernel.org/userspace-api/rseq.html

pub mod buffer;
pub mod definition;
pub mod limits;
pub mod list;
pub mod operand;
pub mod rows;
pub mod stack;

use core::fmt;
use core::ptr::NonNull;

pub use buffer::{Buffer, Full};
pub use definition::{Ended, Steps};
pub use limits::{Gate, Limits};
pub use list::{List, ListNode};
pub use operand::{Operand, WordOf};
pub use rows::{Rows, RowsBeside};
pub use stack::{ArrayStack, ResizableStack};

use crate::arch::Sections;
use crate::{Lacking, Words};

/// The index that selects the slot of per-CPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexBy {
    /// The CPU number: it always exists, and needs as many slots as the machine may ever have CPUs.
    Cpu,
    /// The kernel's concurrency ID (`mm_cid`): compact, below the number of threads and of allowed
    /// CPUs. Not every kernel has it.
    KernelCid,
}

impl fmt::Display for IndexBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IndexBy::Cpu => "cpu-id",
            IndexBy::KernelCid => "kernel-cid",
        })
    }
}

/// The calling thread has no slot that a restartable section may use. Either it has no index, or
/// the slot of its index is not initialised, or the slots are stopped, or this machine has no
/// sections.
///
/// Nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSlot;

/// A type that a slot of per-CPU memory may hold.
///
/// # Safety
///
/// If one value lends a reference to something inside itself, then every value has a live something
/// of that type at that place, from when it is made until it is dropped. So words and arrays and
/// structs of words are allowed. Enums and unions are not, nor types that hold one (`Option`,
/// `OnceLock`, a vector with room inside). A section computes the address of a field from that of
/// the same field in another slot.
pub unsafe trait Slot: Send + Sync + 'static {}

// SAFETY: every element of an array lies at the same offset in each value.
unsafe impl<T: Slot, const N: usize> Slot for [T; N] {}
// SAFETY: one field, at offset 0.
unsafe impl<T: Slot> Slot for crate::Line<T> {}

/// A field of type `F` in each slot of an array, on which a restartable operation works.
#[derive(Debug)]
pub struct At<'a, F, W: Restartable> {
    limits: &'a Limits<W>,
    first: First<'a, F, W>,
    rows: Option<&'a Rows<W>>,
}

/// Where the field in slot 0 lies.
#[derive(Debug)]
enum First<'a, F, W: Restartable> {
    Here(NonNull<F>),
    /// The field lies this many bytes after the place that the gate gives.
    Behind(&'a Gate<W>, usize),
}

impl<F, W: Restartable> Clone for First<'_, F, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, W: Restartable> Copy for First<'_, F, W> {}

impl<F, W: Restartable> Clone for At<'_, F, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, W: Restartable> Copy for At<'_, F, W> {}

impl<'a, F, W: Restartable> At<'a, F, W> {
    /// The field at `first` in slot 0, and at the same place in the slots below the limit, which
    /// is the one word of `limits` that is written.
    ///
    /// # Safety
    ///
    /// For `'a`: whenever the limit says *n*, there are live values of `F` at `first` and at each
    /// of the *n* - 1 multiples of [`STRIDE`](Restartable::STRIDE) behind it; it says no more than
    /// the number of indexes, the other word of `limits` says 0, and both do where the machine
    /// [runs no sections](Restartable::runs_sections); and only operations of this module, by the
    /// same index, write to them. Another writer first makes the limit 0 and then
    /// [fences](crate::Fences::fence_restartable). By [rows](At::by_rows), whose limit is the word
    /// of CPU numbers, there are values where a row shows an index below *n*, which may be any
    /// number.
    #[inline]
    pub unsafe fn new(limits: &'a Limits<W>, first: NonNull<F>) -> Self {
        At { limits, first: First::Here(first), rows: None }
    }

    /// Like [`new`](At::new), but for slots that may be made later: the field lies `offset` bytes
    /// after the beginning of a slot.
    ///
    /// # Safety
    ///
    /// As for [`new`](At::new), of what the gate says whenever it is open.
    #[inline]
    pub unsafe fn behind(gate: &'a Gate<W>, offset: usize) -> Self {
        At { limits: gate.limits(), first: First::Behind(gate, offset), rows: None }
    }

    /// The same, but the index is what the [row](rows) of the CPU says; `None`: the thread's own
    /// index. This is not for slots [behind](At::behind) a gate, which have an index of their own.
    #[inline]
    pub fn by_rows(self, rows: Option<&'a Rows<W>>) -> Self {
        At { rows, ..self }
    }

    /// The rows that say which index each CPU has; `None`: the index is the thread's own.
    #[inline]
    pub fn rows(&self) -> Option<&'a Rows<W>> {
        self.rows
    }

    /// The words of which one is the limit.
    #[inline]
    pub fn limits(&self) -> &'a Limits<W> {
        self.limits
    }

    /// The gate that gives the place of slot 0, and how many bytes after that the field lies;
    /// `None` if the place is known.
    #[inline]
    pub fn gate(&self) -> Option<(&'a Gate<W>, usize)> {
        match self.first {
            First::Here(_) => None,
            First::Behind(gate, offset) => Some((gate, offset)),
        }
    }

    /// The field in slot 0. It may dangle while the limit is 0.
    #[inline]
    pub fn first(&self) -> *mut F {
        match self.first {
            First::Here(first) => first.as_ptr(),
            First::Behind(gate, offset) => gate.first().wrapping_add(offset).cast(),
        }
    }

    /// The field in slot `index`.
    ///
    /// # Safety
    ///
    /// The slot exists and is initialised.
    #[inline]
    pub unsafe fn slot(&self, index: usize) -> &'a F {
        // SAFETY: the caller's promise, and that of `new`: the slots lie a stride apart.
        unsafe { &*self.first().byte_add(index * W::STRIDE) }
    }
}

/// One operation of the closed set on an `F` in a slot, as a value that holds its arguments.
///
/// Only this crate adds to the set, because an operation has its section next to its definition.
pub trait Operation<W: Restartable, F>:
    Sections<F, <Self as Operation<W, F>>::Output> + Copy
{
    /// The result.
    type Output;

    /// The definition, on the field in the thread's slot.
    ///
    /// # Errors
    ///
    /// [`Ended`], with nothing done, if a step says so.
    fn define(self, steps: &mut impl Steps<W>, on: &F) -> Result<Self::Output, Ended>;

    /// The whole operation, once: finds the slot, and then runs the
    /// [definition](Operation::define).
    ///
    /// # Errors
    ///
    /// [`Ended`], with nothing done, if a step says so.
    fn attempt(self, steps: &mut impl Steps<W>, at: At<'_, F, W>) -> Result<Self::Output, Ended> {
        let on = steps.slot(&at)?;
        self.define(steps, on)
    }
}

/// The capability *restartable operations*.
///
/// All operations are async-signal-safe, and a signal handler's own operation on the same slots is
/// never lost and never makes the interrupted one lose its effect.
pub trait Restartable: Words {
    /// How this machine runs the operations on an index. It is chosen when the memory is made, and
    /// is the same for all memory of one index in one machine.
    type Section: Copy + Send + Sync + fmt::Debug;

    /// The distance of two slots in bytes: a power of two, at least the size of a page.
    const STRIDE: usize;

    /// Chooses how to run operations indexed by `by`; returns how many indexes there can be.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    fn section(by: IndexBy) -> Result<(Self::Section, usize), Lacking>;

    /// The index that selects the slot.
    fn index_by(section: &Self::Section) -> IndexBy;

    /// Whether operations run in restartable sections, and not on atomics.
    fn runs_sections(section: &Self::Section) -> bool;

    /// The calling thread's present index; `usize::MAX` if it has none. It may change at any time.
    /// On atomics it may be an earlier index of the thread: [`cpu_hint`](crate::Place::cpu_hint).
    ///
    /// It is for slow paths: a world may give the thread an index meanwhile.
    fn index(section: &Self::Section) -> usize;

    /// Runs an operation on the calling thread's slot, in a section. A world without sections does
    /// not override this, and never finds a slot.
    ///
    /// # Errors
    ///
    /// [`NoSlot`], with nothing done.
    #[inline]
    fn run<F, O: Operation<Self, F>>(
        at: At<'_, F, Self>,
        operation: O,
    ) -> Result<O::Output, NoSlot> {
        let _ = (at, operation);
        Err(NoSlot)
    }
}
