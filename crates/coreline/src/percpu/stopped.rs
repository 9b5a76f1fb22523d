//! [`Stopped`]: a slot that no section works on, whichever CPU it belongs to.

use core::cell::Cell;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

use coreline_world::restartable::definition::{
    AddIf, Append, ListPop, ListPush, StackPopBatch, StackPushBatch, StackResize,
};
use coreline_world::restartable::{self, Full, ListNode, Operation, Slot};
use coreline_world::{Integer, Lacking, Ordering, Word, World};

use super::field::add_if_atomically;
use super::guarded::{Buffer, Guarded, List, ResizableStack};
use super::indexing::{Indexing, OwnIndex};
use super::locked;
use super::slots::Slots;

/// Slots could not be stopped. They are as they were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// This machine cannot fence restartable sections.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// There is no such slot, or no thread has used it yet.
    #[error(
        "slot {index} is not in use: {populated} of {indexes} slots are; give an index below \
         {populated}, or {indexes} for the shared slot"
    )]
    NoSuchSlot {
        /// What was asked for.
        index: usize,
        /// How many there are, from 0 on.
        populated: usize,
        /// How many there can be.
        indexes: usize,
    },
    /// The calling thread has stopped the slots already.
    #[error("the calling thread has stopped these slots already; do all of it in one stop")]
    Nested,
}

/// A slot while no section works on it, from [`Slots::with_stopped`].
pub struct Stopped<'a, T: Slot, W: World, I: Indexing<W> = OwnIndex<W>> {
    slots: &'a Slots<T, W, I>,
    index: usize,
}

impl<'a, T: Slot, W: World, I: Indexing<W>> Stopped<'a, T, W, I> {
    /// # Safety
    ///
    /// The slot is initialised, and slots are stopped for `'a`.
    pub(super) unsafe fn new(slots: &'a Slots<T, W, I>, index: usize) -> Self {
        Stopped { slots, index }
    }

    /// Which slot it is.
    pub fn index(&self) -> usize {
        self.index
    }

    /// A field of the slot, to operate on.
    ///
    /// # Panics
    ///
    /// As [`Slots::field`].
    pub fn field<F: Slot>(&self, which: impl FnOnce(&T) -> &F) -> StoppedField<'_, T, F, W, I> {
        StoppedField { stopped: self, first: self.slots.field(which).first() }
    }
}

impl<T: Slot, W: World, I: Indexing<W>> Deref for Stopped<'_, T, W, I> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the promise of `new`.
        unsafe { self.slots.slot(self.index) }
    }
}

impl<T: Slot, W: World, I: Indexing<W>> fmt::Debug for Stopped<'_, T, W, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopped").field("index", &self.index).finish_non_exhaustive()
    }
}

/// A field of a [`Stopped`] slot. The operations are those of [`Field`](super::Field), on this
/// slot.
pub struct StoppedField<'a, T: Slot, F, W: World, I: Indexing<W> = OwnIndex<W>> {
    stopped: &'a Stopped<'a, T, W, I>,
    first: NonNull<F>,
}

impl<T: Slot, F, W: World, I: Indexing<W>> StoppedField<'_, T, F, W, I> {
    fn value(&self) -> &F {
        // SAFETY: `Stopped` is an initialised slot, and `Slots::field` found the field.
        unsafe { self.stopped.slots.at(self.first).slot(self.stopped.index) }
    }
}

impl<T: Slot, F, W: World, I: Indexing<W>> fmt::Debug for StoppedField<'_, T, F, W, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoppedField").field("stopped", self.stopped).finish_non_exhaustive()
    }
}

impl<T: Slot, F, W: World, I: Indexing<W>> StoppedField<'_, T, Guarded<F, W>, W, I> {
    fn run<O: Operation<W, F>>(&self, operation: O) -> O::Output {
        let Stopped { slots, index } = *self.stopped;
        // SAFETY: a guarded field begins with what operations work on; the slot is initialised, and
        // stopped.
        unsafe { locked::run(self.value(), slots.at(self.first.cast()), index, operation) }
    }
}

/// On words: atomic instructions, since operations that come meanwhile use such.
impl<T: Slot, F: Word, W: World, I: Indexing<W>> StoppedField<'_, T, F, W, I> {
    /// Writes `new` and returns what was there. Orders as [`Field::load`](super::Field::load).
    pub fn replace(&self, new: F::Value) -> F::Value {
        // Acquire and release pair with `Field`'s operations, in sections and by atomics: what a
        // pointer points to could else be seen as it was before. (An integer needs none.)
        self.value().swap(new, Ordering::AcqRel)
    }
}

/// On words that hold an integer.
impl<T: Slot, F: Integer, W: World, I: Indexing<W>> StoppedField<'_, T, F, W, I> {
    /// Adds `delta`, wrapping.
    pub fn add(&self, delta: F::Value) {
        // Relaxed: a word carries nothing but its own value.
        self.value().fetch_add(delta, Ordering::Relaxed);
    }

    /// As [`Field::add_if`](super::Field::add_if).
    ///
    /// # Errors
    ///
    /// What the word was, if the sum would differ in a bit of `fixed`.
    pub fn add_if(&self, delta: F::Value, fixed: F::Value) -> Result<F::Value, F::Value> {
        add_if_atomically(self.value(), AddIf { delta, fixed })
    }
}

/// On lists.
impl<T: Slot, W: World, I: Indexing<W>> StoppedField<'_, T, List<W>, W, I> {
    /// Makes `node` the first of the list.
    ///
    /// # Safety
    ///
    /// As for [`Field::push`](super::Field::push).
    pub unsafe fn push(&self, node: NonNull<ListNode<W>>) {
        // SAFETY: the caller's promise.
        self.run(unsafe { ListPush::new(node) });
    }

    /// Takes the first node from the list.
    pub fn pop(&self) -> Option<NonNull<ListNode<W>>> {
        self.run(ListPop)
    }
}

/// On stacks, resizable or not.
impl<T: Slot, E: 'static, const N: usize, const WORDS: usize, W: World, I: Indexing<W>>
    StoppedField<'_, T, Guarded<restartable::ArrayStack<E, N, W, WORDS>, W>, W, I>
{
    /// Puts as many of `values` on the stack as there is room for, and returns how many.
    pub fn push_batch(&self, values: &[NonNull<E>]) -> usize {
        self.run(StackPushBatch(values))
    }

    /// Takes as many from the stack as there are and fit into `into`, the top first, and returns
    /// how many.
    pub fn pop_batch(&self, into: &mut [Option<NonNull<E>>]) -> usize {
        self.run(StackPopBatch(Cell::from_mut(into).as_slice_of_cells()))
    }
}

/// On resizable stacks.
impl<T: Slot, E: 'static, const N: usize, W: World, I: Indexing<W>>
    StoppedField<'_, T, ResizableStack<E, N, W>, W, I>
{
    /// As [`Field::resize`](super::Field::resize): how a thread takes room back from other CPUs.
    pub fn resize(&self, capacity: usize) -> usize {
        self.run(StackResize(capacity))
    }
}

/// On buffers.
impl<T: Slot, const N: usize, W: World, I: Indexing<W>> StoppedField<'_, T, Buffer<N, W>, W, I> {
    /// As [`Field::append`](super::Field::append).
    ///
    /// # Errors
    ///
    /// [`Full`] if they do not all fit.
    pub fn append(&self, bytes: &[u8]) -> Result<usize, Full> {
        self.run(Append(bytes))
    }

    /// Calls `f` with the bytes that were appended, and empties the buffer. `f` must not append to
    /// this buffer: while slots are stopped, all that is appended goes to the shared slot, and if
    /// that is the one that is drained, `f` would wait for itself.
    pub fn drain<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let buffer = self.value();
        let _guard = buffer.lock.lock();
        // SAFETY: no section works on a stopped slot, and the lock excludes other operations.
        unsafe { buffer.drain(f) }
    }
}
