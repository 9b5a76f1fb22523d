//! The operations, and their definitions as programs of [`Steps`].
//!
//! Each definition names librseq's pseudo-code, if librseq has the operation.

use core::cell;
use core::ptr::{self, NonNull};

use super::{At, Full, Operation, ResizableStack, Restartable, WordOf};
use crate::arch::Sections;
use crate::{Integer, Unsigned, Word};

/// The reason why an operation ended before its commit. Words that other threads read are
/// unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The thread was preempted, moved, signalled or fenced. The operation starts over.
    Aborted,
    /// The thread has no slot that a section may use: [`NoSlot`](super::NoSlot).
    NoSlot,
}

/// The steps of a restartable operation. The interpreter may interrupt the thread before each step.
///
/// An interpreter guarantees that if the thread was interrupted since the operation began, the next
/// step returns [`Ended::Aborted`] without effect. So a commit that succeeds happened on the CPU of
/// the [`slot`](Steps::slot), and no other thread of that CPU ran in between.
///
/// # Safety
///
/// Each step behaves as its documentation says, because definitions follow pointers and rely on
/// this.
pub unsafe trait Steps<W: Restartable> {
    /// Finds the slot of this thread in two steps. The call reads the index, and then the limit. If
    /// the index is in a [row](super::rows), there are four steps. The call reads the CPU, finds
    /// the line, reads the row, and reads the limit.
    fn slot<'a, F>(&mut self, at: &At<'a, F, W>) -> Result<&'a F, Ended>;

    /// Reads a word.
    fn load<T: Word>(&mut self, word: &T) -> Result<T::Value, Ended>;

    /// Writes a word that no other thread reads before the commit, or writes it in a way that does
    /// not change what other threads read.
    fn store<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended>;

    /// Writes a word and ends the operation. The write is a release store, for threads of other
    /// CPUs that read the slot.
    fn commit<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended>;
}

/// *Load, add, store*: adds the value to the word, wrapping.
///
/// librseq: `rseq_load_add_store`.
#[derive(Debug, Clone, Copy)]
pub struct Add<V>(pub V);

impl<W: Restartable, F: WordOf<W> + Integer> Operation<W, F> for Add<F::Value>
where
    Self: Sections<F, ()>,
{
    type Output = ();

    fn define(self, steps: &mut impl Steps<W>, word: &F) -> Result<Self::Output, Ended> {
        let old = steps.load(word)?;
        steps.commit(word, old.wrapping_add(self.0))
    }
}

/// *Load*: returns the word.
#[derive(Debug, Clone, Copy)]
pub struct Load;

impl<W: Restartable, F: WordOf<W>> Operation<W, F> for Load
where
    Self: Sections<F, F::Value>,
{
    type Output = F::Value;

    fn define(self, steps: &mut impl Steps<W>, word: &F) -> Result<Self::Output, Ended> {
        steps.load(word)
    }
}

/// *Load, store*: writes the value, and returns the previous value.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<V>(pub V);

impl<W: Restartable, F: WordOf<W>> Operation<W, F> for Exchange<F::Value>
where
    Self: Sections<F, F::Value>,
{
    type Output = F::Value;

    fn define(self, steps: &mut impl Steps<W>, word: &F) -> Result<Self::Output, Ended> {
        let old = steps.load(word)?;
        steps.commit(word, self.0)?;
        Ok(old)
    }
}

/// *Load, compare, store*: writes `new` if the word is `expected`. Otherwise, it returns the word.
///
/// librseq: `rseq_load_cbne_store`.
#[derive(Debug, Clone, Copy)]
pub struct StoreIfEqual<V> {
    /// The expected value of the word.
    pub expected: V,
    /// The new value of the word.
    pub new: V,
}

impl<W: Restartable, F: WordOf<W>> Operation<W, F> for StoreIfEqual<F::Value>
where
    Self: Sections<F, Result<(), F::Value>>,
{
    type Output = Result<(), F::Value>;

    fn define(self, steps: &mut impl Steps<W>, word: &F) -> Result<Self::Output, Ended> {
        let old = steps.load(word)?;
        if old != self.expected {
            return Ok(Err(old));
        }
        steps.commit(word, self.new).map(Ok)
    }
}

/// *Load, add, compare, store*: adds `delta`, wrapping, if the sum does not change any bit of
/// `fixed`, and returns the sum. Otherwise, it returns the word.
///
/// If `fixed` is the sign bit, a credit does not go below zero. If `fixed` has the bits from *k*
/// up, a count does not leave its block of 2^*k*.
#[derive(Debug, Clone, Copy)]
pub struct AddIf<V> {
    /// The value to add.
    pub delta: V,
    /// The bits that must not change.
    pub fixed: V,
}

impl<W: Restartable, F: WordOf<W> + Integer> Operation<W, F> for AddIf<F::Value>
where
    Self: Sections<F, Result<F::Value, F::Value>>,
{
    type Output = Result<F::Value, F::Value>;

    fn define(self, steps: &mut impl Steps<W>, word: &F) -> Result<Self::Output, Ended> {
        let old = steps.load(word)?;
        let sum = old.wrapping_add(self.delta);
        if (old ^ sum) & self.fixed != F::Value::default() {
            return Ok(Err(old));
        }
        steps.commit(word, sum).map(|()| Ok(sum))
    }
}

/// Makes operations copies, whatever they point to: a derived implementation would ask for more.
macro_rules! copied {
    ($($operation:ident<$($lifetime:lifetime,)? $parameter:ident>;)*) => {$(
        impl<$($lifetime,)? $parameter> Clone for $operation<$($lifetime,)? $parameter> {
            #[inline]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($lifetime,)? $parameter> Copy for $operation<$($lifetime,)? $parameter> {}
    )*};
}

copied! {
    StackPush<T>;
    StackPushBatch<'a, T>;
    StackPopBatch<'a, T>;
}

/// *Load, load, compare, store*: pushes a pointer into the top entry, if a pop has left it empty.
/// Otherwise, the operation executes two more stores and puts the pointer after the last entry.
#[derive(Debug)]
pub struct StackPush<T>(pub NonNull<T>);

impl<T: 'static, const N: usize, W: Restartable> Operation<W, ResizableStack<T, N, W>>
    for StackPush<T>
{
    type Output = Result<(), Full>;

    fn define(
        self,
        steps: &mut impl Steps<W>,
        stack: &ResizableStack<T, N, W>,
    ) -> Result<Self::Output, Ended> {
        let len = steps.load(&stack.len)?;
        let capacity = steps.load(&stack.capacity)?;
        if (1..=capacity).contains(&len) {
            let last = &stack.entries[len as usize - 1];
            if steps.load(last)?.is_null() {
                return steps.commit(last, self.0.as_ptr()).map(Ok);
            }
        }
        if len >= capacity {
            return Ok(Err(Full));
        }
        let next = &stack.entries[len as usize];
        // One entry more, and that one is empty: as many pointers as before.
        steps.store(next, ptr::null_mut())?;
        steps.store(&stack.len, len + 1)?;
        steps.commit(next, self.0.as_ptr()).map(Ok)
    }
}

/// How many of the first `len` entries hold a pointer. This is a step unless there are none.
fn filled<T: 'static, const N: usize, W: Restartable>(
    steps: &mut impl Steps<W>,
    stack: &ResizableStack<T, N, W>,
    len: u64,
) -> Result<u64, Ended> {
    let Some(last) = len.checked_sub(1) else { return Ok(0) };
    Ok(if steps.load(&stack.entries[last as usize])?.is_null() { last } else { len })
}

/// *Load, load, compare, store*: pops the top of the stack, if the top is the last entry.
/// Otherwise, the operation executes one more load and store, and takes the entry below.
#[derive(Debug, Clone, Copy)]
pub struct StackPop;

impl<T: 'static, const N: usize, W: Restartable> Operation<W, ResizableStack<T, N, W>>
    for StackPop
{
    type Output = Option<NonNull<T>>;

    fn define(
        self,
        steps: &mut impl Steps<W>,
        stack: &ResizableStack<T, N, W>,
    ) -> Result<Self::Output, Ended> {
        let len = steps.load(&stack.len)?;
        let Some(last) = stack.entries[..len as usize].last() else { return Ok(None) };
        if let Some(value) = NonNull::new(steps.load(last)?) {
            steps.commit(last, ptr::null_mut())?;
            return Ok(Some(value));
        }
        let Some(below) = stack.entries[..len as usize - 1].last() else { return Ok(None) };
        let value = steps.load(below)?;
        // One entry less, and that one was empty: as many pointers as before.
        steps.store(&stack.len, len - 1)?;
        steps.commit(below, ptr::null_mut())?;
        Ok(NonNull::new(value))
    }
}

/// *Batch of [`StackPush`]*: pushes as many pointers as there is room for, in one operation.
/// Returns the number of pushed pointers.
#[derive(Debug)]
pub struct StackPushBatch<'a, T>(pub &'a [NonNull<T>]);

impl<T: 'static, const N: usize, W: Restartable> Operation<W, ResizableStack<T, N, W>>
    for StackPushBatch<'_, T>
{
    type Output = usize;

    fn define(
        self,
        steps: &mut impl Steps<W>,
        stack: &ResizableStack<T, N, W>,
    ) -> Result<Self::Output, Ended> {
        let len = steps.load(&stack.len)?;
        let capacity = steps.load(&stack.capacity)?;
        let len = filled(steps, stack, len)?;
        // Without an empty entry, which would hold a pointer as soon as it is written.
        steps.store(&stack.len, len)?;
        // More may be on the stack than it has room for since it was resized.
        let room = &stack.entries[len as usize..capacity.max(len) as usize];
        let pushed = room.len().min(self.0.len());
        for (entry, value) in room.iter().zip(self.0) {
            steps.store(entry, value.as_ptr())?;
        }
        steps.commit(&stack.len, len + pushed as u64)?;
        Ok(pushed)
    }
}

/// *Batch of [`StackPop`]*: pops as many pointers as the stack and the slice allow, in one
/// operation. Returns the number of popped pointers. The first pointer is the top of the stack. The
/// content of the entries beyond that number is not specified.
#[derive(Debug)]
pub struct StackPopBatch<'a, T>(pub &'a [cell::Cell<Option<NonNull<T>>>]);

impl<T: 'static, const N: usize, W: Restartable> Operation<W, ResizableStack<T, N, W>>
    for StackPopBatch<'_, T>
{
    type Output = usize;

    fn define(
        self,
        steps: &mut impl Steps<W>,
        stack: &ResizableStack<T, N, W>,
    ) -> Result<Self::Output, Ended> {
        let len = steps.load(&stack.len)?;
        let len = filled(steps, stack, len)?;
        let popped = self.0.len().min(len as usize);
        for (to, entry) in self.0.iter().zip(stack.entries[..len as usize].iter().rev()) {
            to.set(NonNull::new(steps.load(entry)?));
        }
        steps.commit(&stack.len, len - popped as u64)?;
        Ok(popped)
    }
}

/// *Load, store*: sets the capacity of the stack to this number, or to `N` if `N` is less. Returns
/// the previous capacity. The content does not change.
#[derive(Debug, Clone, Copy)]
pub struct StackResize(pub usize);

impl<T: 'static, const N: usize, W: Restartable> Operation<W, ResizableStack<T, N, W>>
    for StackResize
{
    type Output = usize;

    fn define(
        self,
        steps: &mut impl Steps<W>,
        stack: &ResizableStack<T, N, W>,
    ) -> Result<Self::Output, Ended> {
        let old = steps.load(&stack.capacity)?;
        steps.commit(&stack.capacity, self.0.min(N) as u64)?;
        Ok(old as usize)
    }
}
