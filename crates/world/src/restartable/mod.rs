//! Restartable operations: per-CPU memory without atomic instructions.
//!
//! A thread that updates the memory of *its* CPU needs no atomic instruction, as long as it can
//! tell that it was preempted or moved half-way, and then starts over. Linux offers that as rseq
//! (restartable sequences, [`rseq(2)`]; the vocabulary here is librseq's): a short section of code
//! that reads and prepares what it likes and ends in **one** store, the commit. If the thread is
//! preempted, moved or signalled before the commit, the kernel sends it to the section's abort
//! handler.
//!
//! # The closed set
//!
//! | on | operation | module |
//! |---|---|---|
//! | a word | [`add`], [`load`], [`store_if_equal`], [`add_if`] | [`definition`] |
//! | a [`List`] | [`list_push`], [`list_pop`] | [`definition`], [`list`] |
//! | an [`ArrayStack`] | [`stack_push`], [`stack_pop`]; for a batch | [`definition`], [`stack`] |
//! | a [`Buffer`] | [`append`] | [`definition`], [`buffer`] |
//!
//! # The definition is executable
//!
//! The functions of [`definition`] *are* the operations: sequences of [`Steps`]. Between any two of
//! them, and nowhere else, the thread may be interrupted; a step then answers [`Ended::Aborted`],
//! nothing that others look at has been written, and the operation starts over. Nothing in a
//! definition says how:
//!
//! * the simulator *interprets* it, and may preempt, move or fence the thread between any two
//!   steps;
//! * `Native` *implements* it, in assembly, and the tests of `crate::arch` compare the two with an
//!   abort forced at every step;
//! * where sections cannot be had (the model, and `Native` where rseq is refused), [`Slots`] runs
//!   operations on words as one atomic instruction, and the others by their definition under a
//!   lock. Which way is settled once, before the first slot is used: plain and atomic additions to
//!   one slot would lose updates.
//!
//! # Slots
//!
//! Per-CPU memory is an array: slot *i* lies [`STRIDE`](Restartable::STRIDE) times *i* bytes behind
//! slot 0. An index below the *limit* has an initialised slot; one more, the *shared* slot, is for
//! threads that have no index (started behind the C library's back, say, so that nobody registered
//! them for rseq). [`Slots`] is that array; `coreline::percpu` gives it memory.
//!
//! [`rseq(2)`]: https://docs.kernel.org/userspace-api/rseq.html
//! [`add`]: definition::add
//! [`load`]: definition::load
//! [`store_if_equal`]: definition::store_if_equal
//! [`add_if`]: definition::add_if
//! [`list_push`]: definition::list_push
//! [`list_pop`]: definition::list_pop
//! [`stack_push`]: definition::stack_push
//! [`stack_pop`]: definition::stack_pop
//! [`append`]: definition::append

pub mod buffer;
pub mod definition;
pub mod list;
pub mod rows;
pub mod stack;

use core::fmt;
use core::ptr::NonNull;

pub use buffer::{Buffer, Full};
pub use definition::{Ended, Steps};
pub use list::{List, ListNode};
pub use rows::Rows;
pub use stack::ArrayStack;

use crate::{Fences, Lacking, Signals, Threads, Words};

/// What picks the slot of per-CPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexBy {
    /// The CPU number: always there, as many slots as the machine may ever have CPUs.
    Cpu,
    /// The kernel's concurrency ID (`mm_cid`): compact, below the number of threads and of allowed
    /// CPUs; not on every kernel.
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

/// The calling thread has no slot that a restartable section may use: it has no index, or the slot
/// of its index is not initialised, or the slots are stopped, or this machine has no sections.
///
/// Nothing was done. [`Field`] knows what to do instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSlot;

/// What a slot of per-CPU memory may hold.
///
/// # Safety
///
/// If one value lends a reference to something inside of itself, then every value has a live
/// something of that type at that place, from when it is made until it is dropped. So for words,
/// and for arrays and structs of such; not for enums and unions, nor for what holds one (`Option`,
/// `OnceLock`, a vector with room inside). A section computes the address of a field from that of
/// the same field in another slot.
pub unsafe trait Slot: Send + Sync + 'static {}

// SAFETY: every element of an array lies at the same offset in each value.
unsafe impl<T: Slot, const N: usize> Slot for [T; N] {}
// SAFETY: one field, at offset 0.
unsafe impl<T: Slot> Slot for crate::Line<T> {}

/// A field of type `F` in each slot of an array: what a restartable operation works on.
#[derive(Debug)]
pub struct At<'a, F, W: Restartable> {
    section: &'a W::Section,
    limit: &'a W::U32,
    first: NonNull<F>,
    rows: Option<&'a Rows<W>>,
}

impl<F, W: Restartable> Clone for At<'_, F, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, W: Restartable> Copy for At<'_, F, W> {}

impl<'a, F, W: Restartable> At<'a, F, W> {
    /// The field at `first` in slot 0, and at the same place in the slots below `limit`.
    ///
    /// # Safety
    ///
    /// For `'a`: whenever `limit` says *n*, there are live values of `F` at `first` and at each of
    /// the *n* - 1 multiples of [`STRIDE`](Restartable::STRIDE) behind it; it says no more than the
    /// number of indexes of `section`; and only operations of this module, with this `section`,
    /// write to them, but while the slots are [stopped](Slots::with_stopped). By
    /// [rows](At::by_rows) there are values where a row shows an index below *n*, which may be any
    /// number.
    #[inline]
    pub unsafe fn new(section: &'a W::Section, limit: &'a W::U32, first: NonNull<F>) -> Self {
        At { section, limit, first, rows: None }
    }

    /// The same, where the index is what the [row](rows) of the CPU says; `None`: the section's.
    #[inline]
    pub fn by_rows(self, rows: Option<&'a Rows<W>>) -> Self {
        At { rows, ..self }
    }

    /// The rows that say which index each CPU has; `None`: the index is the section's own.
    #[inline]
    pub fn rows(&self) -> Option<&'a Rows<W>> {
        self.rows
    }

    /// How operations on these slots run.
    #[inline]
    pub fn section(&self) -> &'a W::Section {
        self.section
    }

    /// The indexes below it have a slot that sections may use.
    #[inline]
    pub fn limit(&self) -> &'a W::U32 {
        self.limit
    }

    /// The field in slot 0. May dangle while the limit is 0.
    #[inline]
    pub fn first(&self) -> NonNull<F> {
        self.first
    }

    /// The field in slot `index`.
    ///
    /// # Safety
    ///
    /// There is such a slot, and it is initialised.
    #[inline]
    pub unsafe fn slot(&self, index: usize) -> &'a F {
        // SAFETY: the caller's promise, and that of `new`: the slots lie a stride apart.
        unsafe { self.first.byte_add(index * W::STRIDE).as_ref() }
    }
}

/// The capability *restartable operations*.
///
/// The operations are associated functions, one for each function of [`definition`]; a world
/// without sections leaves them as they are here and never finds a slot. All are async-signal-safe,
/// and a signal handler's own operation on the same slots is never lost and never makes the
/// interrupted one lose its effect.
///
/// Algorithms do not call them: they go through [`Slots::field`], which knows what to do where
/// there is [`NoSlot`].
pub trait Restartable: Words + Signals + Threads + Fences {
    /// How this machine runs the operations on an index: settled when the memory is made, and the
    /// same for all memory of one index in one machine.
    type Section: Copy + Send + Sync + fmt::Debug;

    /// The distance of two slots in bytes: a power of two, at least the size of a page.
    const STRIDE: usize;

    /// Settles how to run operations indexed by `by`, and how many indexes there can be.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    fn section(by: IndexBy) -> Result<(Self::Section, usize), Lacking>;

    /// What picks the slot.
    fn index_by(section: &Self::Section) -> IndexBy;

    /// Whether operations run in restartable sections, and not on atomics.
    fn runs_sections(section: &Self::Section) -> bool;

    /// The calling thread's present index; `usize::MAX` if it has none. It may change at any time.
    /// On atomics it may be one that the thread had a while ago:
    /// [`cpu_hint`](crate::Place::cpu_hint).
    ///
    /// For slow paths: a world may take the occasion to give the thread an index.
    fn index(section: &Self::Section) -> usize;

    /// As [`definition::add`].
    ///
    /// # Errors
    ///
    /// [`NoSlot`], with nothing done; so for all of these.
    #[inline]
    fn add(at: At<'_, Self::U64, Self>, delta: u64) -> Result<(), NoSlot> {
        let _ = (at, delta);
        Err(NoSlot)
    }

    /// As [`definition::load`].
    #[inline]
    fn load(at: At<'_, Self::U64, Self>) -> Result<u64, NoSlot> {
        let _ = at;
        Err(NoSlot)
    }

    /// As [`definition::store_if_equal`].
    #[inline]
    fn store_if_equal(
        at: At<'_, Self::U64, Self>,
        expected: u64,
        new: u64,
    ) -> Result<Result<(), u64>, NoSlot> {
        let _ = (at, expected, new);
        Err(NoSlot)
    }

    /// As [`definition::add_if`].
    #[inline]
    fn add_if(
        at: At<'_, Self::U64, Self>,
        delta: u64,
        fixed: u64,
    ) -> Result<Result<u64, u64>, NoSlot> {
        let _ = (at, delta, fixed);
        Err(NoSlot)
    }

    /// As [`definition::list_push`].
    ///
    /// # Safety
    ///
    /// The node is live and in no list, and stays live until it was popped.
    #[inline]
    unsafe fn list_push(
        at: At<'_, List<Self>, Self>,
        node: NonNull<ListNode<Self>>,
    ) -> Result<(), NoSlot> {
        let _ = (at, node);
        Err(NoSlot)
    }

    /// As [`definition::list_pop`].
    #[inline]
    fn list_pop(at: At<'_, List<Self>, Self>) -> Result<Option<NonNull<ListNode<Self>>>, NoSlot> {
        let _ = at;
        Err(NoSlot)
    }

    /// As [`definition::stack_push`].
    #[inline]
    fn stack_push<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Self>, Self>,
        value: NonNull<T>,
    ) -> Result<Result<(), Full>, NoSlot> {
        let _ = (at, value);
        Err(NoSlot)
    }

    /// As [`definition::stack_pop`].
    #[inline]
    fn stack_pop<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Self>, Self>,
    ) -> Result<Option<NonNull<T>>, NoSlot> {
        let _ = at;
        Err(NoSlot)
    }

    /// As [`definition::stack_push_batch`].
    #[inline]
    fn stack_push_batch<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Self>, Self>,
        values: &[NonNull<T>],
    ) -> Result<usize, NoSlot> {
        let _ = (at, values);
        Err(NoSlot)
    }

    /// As [`definition::stack_pop_batch`].
    #[inline]
    fn stack_pop_batch<T: 'static, const N: usize>(
        at: At<'_, ArrayStack<T, N, Self>, Self>,
        into: &mut [Option<NonNull<T>>],
    ) -> Result<usize, NoSlot> {
        let _ = (at, into);
        Err(NoSlot)
    }

    /// As [`definition::append`].
    #[inline]
    fn append<const N: usize>(
        at: At<'_, Buffer<N, Self>, Self>,
        bytes: &[u8],
    ) -> Result<Result<usize, Full>, NoSlot> {
        let _ = (at, bytes);
        Err(NoSlot)
    }
}
