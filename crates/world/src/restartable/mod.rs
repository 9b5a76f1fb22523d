//! Restartable operations: per-CPU memory without atomic instructions.
//!
//! A thread that updates the memory of *its* CPU needs no atomic instruction, if it detects that it
//! was preempted or moved in the middle, and then starts over. Linux offers this as rseq
//! (restartable sequences, [`rseq(2)`]; this module uses librseq's vocabulary). A section is a
//! short piece of code that reads and prepares its data, and ends in **one** store, the commit. If
//! the thread is preempted, moved or signalled before the commit, the kernel sends it to the
//! section's abort handler.
//!
//! # The closed set
//!
//! | on | operation of [`definition`] | module |
//! |---|---|---|
//! | a word | `Load`, `Exchange`, `StoreIfEqual` | [`operand`] |
//! | a word that holds an integer | `Add`, `AddIf` | [`operand`] |
//! | a [`ResizableStack`] | `StackPush`, `StackPop`; for a batch; `StackResize` | [`stack`] |
//!
//! A word is a world's `U32`, `U64`, `Usize` or `Ptr`. Each operation has one definition for all of
//! them, and one section, whose accesses are as wide as the word.
//!
//! # The definition is executable
//!
//! An [`Operation`] is a value that holds its arguments, such as the number to add. Its method
//! [`attempt`](Operation::attempt) *is* the operation: a sequence of [`Steps`]. The thread may be
//! interrupted between any two steps, and nowhere else. The next step then returns
//! [`Ended::Aborted`], no word that other threads read has been written, and the operation starts
//! over. A definition does not state how it is run:
//!
//! * the simulator *interprets* it;
//! * `Native` *implements* it, in assembly, and the tests of `crate::arch` compare the two with an
//!   abort forced at every step;
//! * the caller *replaces* it with atomic instructions, if there are no sections (in the model, and
//!   in `Native` if rseq is refused) or the thread has [no slot](NoSlot). For an array of slots,
//!   the way is chosen once, before the first slot is used: plain and atomic additions to one slot
//!   would lose updates.
//!
//! # Slots
//!
//! Per-CPU memory is an array: slot *i* lies [`STRIDE`](Restartable::STRIDE) times *i* bytes after
//! slot 0. Sections may use the slots whose index is below the *limit*. All that a section gets is
//! an [`At`]: where the field lies in slot 0, the limit, and the rows if there are any. The arrays
//! themselves are algorithms: `coreline::percpu`.
//!
//! [`rseq(2)`]: https://docs.kernel.org/userspace-api/rseq.html

pub mod definition;
pub mod limits;
pub mod operand;
pub mod rows;
pub mod stack;

use core::fmt;
use core::ptr::NonNull;

pub use definition::{Ended, Steps};
pub use limits::{Gate, Limits};
pub use operand::{Operand, WordOf};
pub use rows::{Rows, RowsBeside};
pub use stack::{Full, ResizableStack};

use crate::arch::Sections;
pub use crate::slot::Slot;
use crate::{Lacking, Words};

/// The index that selects the slot of per-CPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexBy {
    /// The CPU number. It always exists, and needs as many slots as the machine may ever have CPUs.
    Cpu,
    /// The kernel's concurrency ID (`mm_cid`). It is below the number of CPUs that the machine may
    /// ever have, and two running threads never have the same one. Kernels promise no more. Usually
    /// it is below the number of threads and of allowed CPUs. Since Linux 6.19, it can be up to a
    /// quarter above the smaller of the two. Not every kernel has it.
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

/// The error if the calling thread has no slot that a restartable section may use. There are four
/// possible reasons. The thread has no index, the slot of its index is not initialised, the slots
/// are stopped, or the machine has no sections.
///
/// The operation had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSlot;

/// A field of type `F` in each slot of an array, on which a restartable operation works.
#[derive(Debug)]
pub struct At<'a, F, W: Restartable> {
    limits: &'a Limits<W>,
    first: First<'a, F, W>,
    rows: Option<&'a Rows<W>>,
}

/// The offset of the field in slot 0.
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
    /// Creates the field at `first` in slot 0, and at the same offset in the other slots below the
    /// limit. The limit is the one word of `limits` that is written.
    ///
    /// # Safety
    ///
    /// These conditions hold for `'a`. Whenever the limit is *n*, there are live values of `F` at
    /// `first` and at each of the *n* - 1 multiples of [`STRIDE`](Restartable::STRIDE) behind it.
    /// The limit is at most the number of indexes, and the other word of `limits` is 0. Both words
    /// are 0 if the machine [runs no sections](Restartable::runs_sections). Only operations of this
    /// module, by the same index, write to the values. Another writer first sets the limit to 0,
    /// and then [fences](crate::Fences::fence_restartable). With [rows](At::by_rows), the limit is
    /// the word of CPU numbers. In that case, a value exists wherever a row contains an index below
    /// *n*, and *n* may be any number.
    #[inline]
    pub unsafe fn new(limits: &'a Limits<W>, first: NonNull<F>) -> Self {
        At { limits, first: First::Here(first), rows: None }
    }

    /// Creates the field, like [`new`](At::new), but in slots that may be created later. The field
    /// lies `offset` bytes after the beginning of a slot.
    ///
    /// # Safety
    ///
    /// The same conditions as for [`new`](At::new), for the address and the limit of the gate,
    /// whenever the gate is open.
    #[inline]
    pub unsafe fn behind(gate: &'a Gate<W>, offset: usize) -> Self {
        At { limits: gate.limits(), first: First::Behind(gate, offset), rows: None }
    }

    /// Takes the index from the [row](rows) of the CPU. With `None`, the index is the thread's own.
    /// Do not use it for slots [behind](At::behind) a gate, which have an index of their own.
    #[inline]
    pub fn by_rows(self, rows: Option<&'a Rows<W>>) -> Self {
        At { rows, ..self }
    }

    /// Returns the rows that map each CPU to its index, or `None` if the index is the thread's own.
    #[inline]
    pub fn rows(&self) -> Option<&'a Rows<W>> {
        self.rows
    }

    /// Returns the two words, one of which is the limit.
    #[inline]
    pub fn limits(&self) -> &'a Limits<W> {
        self.limits
    }

    /// Returns the gate that holds the address of slot 0, and the offset of the field from that
    /// address in bytes. Returns `None` if the field was created with a known address.
    #[inline]
    pub fn gate(&self) -> Option<(&'a Gate<W>, usize)> {
        match self.first {
            First::Here(_) => None,
            First::Behind(gate, offset) => Some((gate, offset)),
        }
    }

    /// Returns the field in slot 0. The pointer may dangle while the limit is 0.
    #[inline]
    pub fn first(&self) -> *mut F {
        match self.first {
            First::Here(first) => first.as_ptr(),
            First::Behind(gate, offset) => gate.first().wrapping_add(offset).cast(),
        }
    }

    /// Returns the field in slot `index`.
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

/// An operation of the closed set on an `F` in a slot. It is a value that holds the operation's
/// arguments.
///
/// Only this crate extends the set, because an operation has its section next to its definition.
pub trait Operation<W: Restartable, F>:
    Sections<F, <Self as Operation<W, F>>::Output> + Copy
{
    /// The result of the operation.
    type Output;

    /// Runs the definition on the field in the thread's slot.
    ///
    /// # Errors
    ///
    /// [`Ended`], without effect, if a step ends the operation.
    fn define(self, steps: &mut impl Steps<W>, on: &F) -> Result<Self::Output, Ended>;

    /// Runs the whole operation once. It finds the slot, and then runs the
    /// [definition](Operation::define).
    ///
    /// # Errors
    ///
    /// [`Ended`], without effect, if a step ends the operation.
    fn attempt(self, steps: &mut impl Steps<W>, at: At<'_, F, W>) -> Result<Self::Output, Ended> {
        let on = steps.slot(&at)?;
        self.define(steps, on)
    }
}

/// The capability *restartable operations*.
///
/// All operations are async-signal-safe. A signal handler may operate on the same slots as the code
/// that it interrupts. Neither operation is lost.
pub trait Restartable: Words {
    /// The way in which this machine runs the operations on an index. It is chosen when the memory
    /// is created. All memory of one machine with the same [`IndexBy`] has the same section.
    type Section: Copy + Send + Sync + fmt::Debug;

    /// The distance between two slots, in bytes. It is a power of two, and at least the size of a
    /// page.
    const STRIDE: usize;

    /// Chooses how to run operations indexed by `by`. Returns that choice and the number of
    /// possible indexes.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    fn section(by: IndexBy) -> Result<(Self::Section, usize), Lacking>;

    /// Returns the index that selects the slot.
    fn index_by(section: &Self::Section) -> IndexBy;

    /// Returns whether operations run in restartable sections. If not, they run on atomics.
    fn runs_sections(section: &Self::Section) -> bool;

    /// Returns the calling thread's present index, or `usize::MAX` if it has none. The index may
    /// change at any time. On atomics it may be an earlier index of the thread:
    /// [`cpu_hint`](crate::Place::cpu_hint).
    ///
    /// Use it only in slow paths, because a world may assign an index to the thread in this call.
    fn index(section: &Self::Section) -> usize;

    /// Runs an operation on the calling thread's slot, in a section. A world without sections does
    /// not override this method, and never finds a slot.
    ///
    /// # Errors
    ///
    /// [`NoSlot`] if the thread has no slot. Then the operation has no effect.
    #[inline]
    fn run<F, O: Operation<Self, F>>(
        at: At<'_, F, Self>,
        operation: O,
    ) -> Result<O::Output, NoSlot> {
        let _ = (at, operation);
        Err(NoSlot)
    }
}
