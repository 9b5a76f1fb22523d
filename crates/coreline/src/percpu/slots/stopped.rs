//! [`Stopped`]: a slot of any CPU, while no section uses it.

use core::cell::Cell;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

use coreline_world::restartable::definition::{AddIf, StackPopBatch, StackPushBatch, StackResize};
use coreline_world::restartable::{Operation, Slot};
use coreline_world::{Integer, Lacking, Ordering, Word, World};

use super::Slots;
use super::field::add_if_atomically;
use super::indexing::{Indexing, OwnIndex};
use crate::percpu::fallback;
use crate::percpu::guarded::{Guarded, ResizableStack};

/// The reason why slots could not be stopped. The slots are unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// This machine cannot fence restartable sections.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// There is no slot with this index, or no thread has used it yet.
    #[error(
        "slot {index} is not in use: {populated} of {indexes} slots are; give the index of one of \
         these, or {indexes} for the shared slot"
    )]
    NoSuchSlot {
        /// The requested index.
        index: usize,
        /// The number of slots in use. With [`OwnIndex`], these are the slots below this index.
        populated: usize,
        /// The largest possible number of slots.
        indexes: usize,
    },
    /// The calling thread has stopped the slots already.
    #[error("the calling thread has already stopped these slots; make all changes in one stop")]
    Nested,
}

/// A slot while no section uses it, from [`Slots::with_stopped`].
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

    /// Returns the index of the slot.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns a field of the slot, whose methods are the operations.
    ///
    /// # Panics
    ///
    /// The same panics as for [`Slots::field`].
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

/// A field of a [`Stopped`] slot. It has the operations of [`Field`](super::Field), on this slot.
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
        unsafe { fallback::run(self.value(), slots.at(self.first.cast()), index, operation) }
    }
}

/// Operations on words. They use atomic instructions, because concurrent operations do so, too.
impl<T: Slot, F: Word, W: World, I: Indexing<W>> StoppedField<'_, T, F, W, I> {
    /// Writes `new` and returns the old value. For a pointer, the call publishes what this thread
    /// wrote before, and makes visible what the thread that stored the old pointer wrote before.
    /// For an integer, the call is relaxed.
    pub fn replace(&self, new: F::Value) -> F::Value {
        // Acquire and release pair with `Field`'s operations, in sections and with atomics.
        // Otherwise a thread could see the old target of a pointer. (An integer needs none.)
        self.value().swap(new, Ordering::AcqRel)
    }
}

/// Operations on words that hold an integer.
impl<T: Slot, F: Integer, W: World, I: Indexing<W>> StoppedField<'_, T, F, W, I> {
    /// Adds `delta`, wrapping.
    pub fn add(&self, delta: F::Value) {
        // Relaxed: a word carries nothing but its own value.
        self.value().fetch_add(delta, Ordering::Relaxed);
    }

    /// Adds `delta` if the addition changes no bit of `fixed`, like
    /// [`Field::add_if`](super::Field::add_if).
    ///
    /// # Errors
    ///
    /// Returns the value of the word if the sum would differ in a bit of `fixed`.
    pub fn add_if(&self, delta: F::Value, fixed: F::Value) -> Result<F::Value, F::Value> {
        add_if_atomically(self.value(), AddIf { delta, fixed })
    }
}

/// Operations on stacks.
impl<T: Slot, E: 'static, const N: usize, W: World, I: Indexing<W>>
    StoppedField<'_, T, ResizableStack<E, N, W>, W, I>
{
    /// Pushes as many of `values` onto the stack as there is room for, the first one first, and
    /// returns their number.
    pub fn push_batch(&self, values: &[NonNull<E>]) -> usize {
        self.run(StackPushBatch(values))
    }

    /// Pops values from the stack into `into`, the top first, until the stack is empty or `into` is
    /// full. Returns their number.
    pub fn pop_batch(&self, into: &mut [Option<NonNull<E>>]) -> usize {
        self.run(StackPopBatch(Cell::from_mut(into).as_slice_of_cells()))
    }

    /// Sets the capacity of the stack, like [`Field::resize`](super::Field::resize). Use it to take
    /// room back from other CPUs.
    pub fn resize(&self, capacity: usize) -> usize {
        self.run(StackResize(capacity))
    }
}
