//! [`Field`]: the operations on the calling thread's slot.
//!
//! Each operation is a section if there is a slot for one. Otherwise it runs out of line, as
//! [`Slots`] describes. An operation on a word then uses an atomic instruction. Any other runs by
//! its definition, under the lock of its field.

use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;

use coreline_world::restartable::definition::{
    Add, AddIf, Exchange, Load, StackPop, StackPopBatch, StackPush, StackPushBatch, StackResize,
    StoreIfEqual,
};
use coreline_world::restartable::{At, Full, Limits, NoSlot, Operation, Slot};
use coreline_world::{Integer, Ordering, Unsigned, Word, World};

use super::Slots;
use super::indexing::{Indexing, OwnIndex};
use crate::percpu::fallback;
use crate::percpu::guarded::{Guarded, ResizableStack};

/// A field of every slot, from [`Slots::field`]. Its methods are the operations on the calling
/// thread's slot.
pub struct Field<'a, T: Slot, F, W: World, I: Indexing<W> = OwnIndex<W>> {
    slots: &'a Slots<T, W, I>,
    first: NonNull<F>,
}

// SAFETY: a reference to slots, which are shared with every thread, and the address of what lies in
// each of them.
unsafe impl<T: Slot, F, W: World, I: Indexing<W>> Send for Field<'_, T, F, W, I> {}
// SAFETY: nothing in it changes, and what it refers to is shared with every thread.
unsafe impl<T: Slot, F, W: World, I: Indexing<W>> Sync for Field<'_, T, F, W, I> {}

impl<T: Slot, F, W: World, I: Indexing<W>> Clone for Field<'_, T, F, W, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Slot, F, W: World, I: Indexing<W>> Copy for Field<'_, T, F, W, I> {}

impl<T: Slot, F, W: World, I: Indexing<W>> fmt::Debug for Field<'_, T, F, W, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field").field("slots", self.slots).finish_non_exhaustive()
    }
}

impl<'a, T: Slot, F, W: World, I: Indexing<W>> Field<'a, T, F, W, I> {
    /// # Safety
    ///
    /// Each slot has a field of this type where slot 0 has it at `first`.
    #[inline]
    pub(super) unsafe fn new(slots: &'a Slots<T, W, I>, first: NonNull<F>) -> Self {
        Field { slots, first }
    }

    /// The field in slot 0, which may not be initialised.
    pub(super) fn first(self) -> NonNull<F> {
        self.first
    }

    #[inline]
    fn at(self) -> At<'a, F, W> {
        // SAFETY: the promise of `new`.
        unsafe { self.slots.at(self.first) }
    }

    /// Returns the addresses of the slots' limits, and of the field in slot 0, for a section of
    /// another language. The other slots follow, [`STRIDE`](coreline_world::Restartable::STRIDE)
    /// bytes apart. The field may not be initialised while the limit is 0.
    ///
    /// Such a section does what an operation of this type does, on the area that
    /// `native::area_of_sections` of `coreline-world` names, and uses only slots below the limit.
    /// It needs an index of its own, so the slots must not be indexed by rows. No code but this
    /// crate's may write to the limits.
    pub fn addresses(self) -> (*const Limits<W>, *mut F) {
        let at = self.at();
        (at.limits(), at.first())
    }

    /// The field in a slot that [`Slots::elsewhere`] chose.
    fn chosen(self, index: usize) -> &'a F {
        // SAFETY: `elsewhere` chooses initialised slots.
        unsafe { self.at().slot(index) }
    }
}

/// Operations on words: a `u32`, a `u64`, a `usize` or a pointer.
impl<T: Slot, F: Word, W: World, I: Indexing<W>> Field<'_, T, F, W, I> {
    /// Runs an operation: in a section, or else as `atomics` on a word that is not a section's.
    #[inline]
    fn run<O: Operation<W, F>>(
        self,
        operation: O,
        atomics: impl FnOnce(&F, O) -> O::Output,
    ) -> O::Output {
        match W::run(self.at(), operation) {
            Ok(output) => output,
            Err(NoSlot) => self.elsewhere(operation, atomics),
        }
    }

    #[cold]
    #[inline(never)]
    fn elsewhere<O: Operation<W, F>>(
        self,
        operation: O,
        atomics: impl FnOnce(&F, O) -> O::Output,
    ) -> O::Output {
        match self.slots.elsewhere(|| W::run(self.at(), operation)) {
            Ok(output) => output,
            Err(index) => atomics(self.chosen(index), operation),
        }
    }

    /// Reads the word: [`Load`]. A load of an integer is relaxed. A load of a pointer makes
    /// everything visible that the storing thread wrote before.
    #[inline]
    pub fn load(self) -> F::Value
    where
        Load: Operation<W, F, Output = F::Value>,
    {
        // Acquire pairs with the release in `exchange` and `store_if_equal`: what a pointer points
        // to could else be seen as it was before. (An integer needs none.)
        self.run(Load, |word, Load| word.load(Ordering::Acquire))
    }

    /// Writes `new`, and returns the old value: [`Exchange`]. For a pointer, the call publishes
    /// what this thread wrote before, and makes visible what the thread that stored the old pointer
    /// wrote before. For an integer, the call is relaxed: it orders no other accesses.
    ///
    /// An exchange of a pointer transfers ownership. If two threads exchange on one slot, only the
    /// second thread gets the pointer that the first thread stored.
    #[inline]
    pub fn exchange(self, new: F::Value) -> F::Value
    where
        Exchange<F::Value>: Operation<W, F, Output = F::Value>,
    {
        self.run(Exchange(new), |word, Exchange(new)| {
            // Acquire and release pair with each other, here and in `load` and `store_if_equal`:
            // what a pointer points to could else be seen as it was before. (An integer needs
            // none.)
            word.swap(new, Ordering::AcqRel)
        })
    }

    /// Writes `new` if the word is `expected`: [`StoreIfEqual`]. For a pointer, a write publishes
    /// what this thread wrote before. Whether the call writes or not, it makes visible what the
    /// thread that stored the old pointer wrote before. For an integer, the call is relaxed: it
    /// orders no other accesses.
    ///
    /// The call compares only values, so it has the ABA problem. A pointer that was removed and put
    /// back meanwhile compares equal. So do not pop from a hand-written stack this way, because the
    /// element below the top may have changed. A [`ResizableStack`] pops in one section.
    ///
    /// # Errors
    ///
    /// Returns the value of the word if it was not `expected`.
    #[inline]
    pub fn store_if_equal(self, expected: F::Value, new: F::Value) -> Result<(), F::Value>
    where
        StoreIfEqual<F::Value>: Operation<W, F, Output = Result<(), F::Value>>,
    {
        self.run(StoreIfEqual { expected, new }, |word, StoreIfEqual { expected, new }| {
            // Acquire and release pair with each other, here and in `load` and `exchange`: what a
            // pointer points to could else be seen as it was before. (An integer needs none.)
            let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
            word.compare_exchange(expected, new, done, failed).map(drop)
        })
    }
}

/// Operations on words that hold an integer.
impl<T: Slot, F: Integer, W: World, I: Indexing<W>> Field<'_, T, F, W, I> {
    /// Adds `delta`, wrapping: [`Add`]. The addition is relaxed.
    #[inline]
    pub fn add(self, delta: F::Value)
    where
        Add<F::Value>: Operation<W, F, Output = ()>,
    {
        // Relaxed: a word carries nothing but its own value.
        self.run(Add(delta), |word, Add(delta)| _ = word.fetch_add(delta, Ordering::Relaxed));
    }

    /// Adds `delta`, wrapping, if the addition changes no bit of `fixed`. Returns the sum:
    /// [`AddIf`]. If two threads call `add_if` on one slot, the second thread sees everything that
    /// the first wrote before.
    ///
    /// # Errors
    ///
    /// Returns the value of the word if the sum would differ in a bit of `fixed`. Then nothing is
    /// added.
    #[inline]
    pub fn add_if(self, delta: F::Value, fixed: F::Value) -> Result<F::Value, F::Value>
    where
        AddIf<F::Value>: Operation<W, F, Output = Result<F::Value, F::Value>>,
    {
        self.run(AddIf { delta, fixed }, add_if_atomically)
    }

    /// Returns the wrapping sum of all slots, read one after the other.
    ///
    /// The sum is exact if no thread writes meanwhile. Otherwise it includes all additions that
    /// happened before the call. A concurrent addition may or may not be included.
    pub fn sum(self) -> F::Value {
        let slots = self.slots.indexing().initialised().chain([self.slots.indexes()]);
        // Relaxed: a word carries nothing but its own value. An addition that happened before this
        // call is seen because reads of one word never go back in its modification order.
        let values = slots.map(|index| self.chosen(index).load(Ordering::Relaxed));
        values.fold(F::Value::default(), Unsigned::wrapping_add)
    }
}

pub(super) fn add_if_atomically<F: Integer>(
    word: &F,
    AddIf { delta, fixed }: AddIf<F::Value>,
) -> Result<F::Value, F::Value> {
    // Relaxed: the exchange below is what counts.
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let sum = old.wrapping_add(delta);
        if (old ^ sum) & fixed != F::Value::default() {
            return Err(old);
        }
        // Acquire and release pair with each other, here: a thread sees what those did that added
        // to the slot before it, as threads in sections do, which take turns on one CPU. A batched
        // counter would else miss what another thread announced. Relaxed on failure: the word is
        // only compared again.
        match word.compare_exchange_weak(old, sum, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Ok(sum),
            Err(now) => old = now,
        }
    }
}

/// Operations on fields with a lock.
impl<'a, T: Slot, F, W: World, I: Indexing<W>> Field<'a, T, Guarded<F, W>, W, I> {
    /// The field that sections work on, which is the beginning of a guarded field.
    #[inline]
    fn inner(self) -> At<'a, F, W> {
        // SAFETY: the promise of `new`.
        unsafe { self.slots.at(self.first.cast()) }
    }

    /// Runs an operation: in a section, or else by its definition, in a slot that is not a
    /// section's.
    #[inline]
    fn run_guarded<O: Operation<W, F>>(self, operation: O) -> O::Output {
        match W::run(self.inner(), operation) {
            Ok(output) => output,
            Err(NoSlot) => self.guarded_elsewhere(operation),
        }
    }

    #[cold]
    #[inline(never)]
    fn guarded_elsewhere<O: Operation<W, F>>(self, operation: O) -> O::Output {
        match self.slots.elsewhere(|| W::run(self.inner(), operation)) {
            Ok(output) => output,
            // SAFETY: `elsewhere` chooses an initialised slot on which no section works.
            Err(index) => unsafe {
                fallback::run(self.chosen(index), self.inner(), index, operation)
            },
        }
    }
}

/// Operations on stacks.
impl<T: Slot, E: 'static, const N: usize, W: World, I: Indexing<W>>
    Field<'_, T, ResizableStack<E, N, W>, W, I>
{
    /// Pushes `value` onto this CPU's stack: [`StackPush`].
    ///
    /// # Errors
    ///
    /// [`Full`] if the stack has reached or exceeds its capacity.
    #[inline]
    pub fn push(self, value: NonNull<E>) -> Result<(), Full> {
        self.run_guarded(StackPush(value))
    }

    /// Pops the top of this CPU's stack: [`StackPop`].
    #[inline]
    pub fn pop(self) -> Option<NonNull<E>> {
        self.run_guarded(StackPop)
    }

    /// Pushes `value`, like [`push`](Field::push), but only if a section can do it.
    ///
    /// # Errors
    ///
    /// [`NoSlot`] if the thread has no slot that a section may use now.
    #[inline]
    pub fn try_push(self, value: NonNull<E>) -> Result<Result<(), Full>, NoSlot> {
        W::run(self.inner(), StackPush(value))
    }

    /// Pops the top, like [`pop`](Field::pop), but only if a section can do it.
    ///
    /// # Errors
    ///
    /// [`NoSlot`] if the thread has no slot that a section may use now.
    #[inline]
    pub fn try_pop(self) -> Result<Option<NonNull<E>>, NoSlot> {
        W::run(self.inner(), StackPop)
    }

    /// Pushes as many of `values` onto this CPU's stack as there is room for, the first one first,
    /// and returns their number: [`StackPushBatch`].
    #[inline]
    pub fn push_batch(self, values: &[NonNull<E>]) -> usize {
        self.run_guarded(StackPushBatch(values))
    }

    /// Pops values from this CPU's stack into `into`, the top first, until the stack is empty or
    /// `into` is full. Returns their number: [`StackPopBatch`].
    #[inline]
    pub fn pop_batch(self, into: &mut [Option<NonNull<E>>]) -> usize {
        self.run_guarded(StackPopBatch(Cell::from_mut(into).as_slice_of_cells()))
    }

    /// Sets the capacity of this CPU's stack to `capacity` pointers, at most `N`, and returns the
    /// old capacity: [`StackResize`]. All pointers on the stack stay, even if there are more of
    /// them than the new capacity.
    ///
    /// Use it in slow paths that find their CPU's stack too small or too large. The call costs no
    /// more than a push. If the thread was moved meanwhile, it resizes the stack of its new CPU.
    #[inline]
    pub fn resize(self, capacity: usize) -> usize {
        self.run_guarded(StackResize(capacity))
    }
}
