//! The definitions of the operations, as programs of [`Steps`].
//!
//! Each has librseq's pseudo-code name beside it, where librseq has the operation.

use core::ptr::NonNull;

use super::{ArrayStack, At, Buffer, Full, List, ListNode, Restartable};
use crate::{Cell, Word};

/// Why an operation ended before its commit. Nothing that others look at was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The thread was preempted, moved, signalled or fenced. The operation starts over.
    Aborted,
    /// The thread has no slot that a section may use: [`NoSlot`](super::NoSlot).
    NoSlot,
}

/// What one step of a restartable operation can be. The interpreter may interrupt the thread before
/// each of them.
///
/// An interpreter promises: if the thread was interrupted since the operation began, the next step
/// returns [`Ended::Aborted`] without effect. So a commit that succeeds happened with the thread on
/// the CPU of its [`slot`](Steps::slot), and with no other thread of that CPU in between.
///
/// # Safety
///
/// The steps do what they say: definitions follow pointers on the strength of that.
pub unsafe trait Steps<W: Restartable> {
    /// Finds the slot of this thread, in two steps: reads the index, reads the limit. Where the
    /// index is in a [row](super::rows), in four: reads the CPU, finds the line, reads the row,
    /// reads the limit.
    fn slot<'a, F>(&mut self, at: &At<'a, F, W>) -> Result<&'a F, Ended>;

    /// Reads a word.
    fn load<T: Word>(&mut self, word: &T) -> Result<T::Value, Ended>;

    /// Writes a word that nobody looks at before the commit.
    fn store<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended>;

    /// Writes bytes that nobody looks at before the commit, `offset` bytes behind the beginning.
    fn copy<const N: usize>(
        &mut self,
        to: &Cell<[u8; N], W>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Ended>;

    /// Writes a word and ends the operation: a release store, for who reads the slot without being
    /// on its CPU.
    fn commit<T: Word>(&mut self, word: &T, value: T::Value) -> Result<(), Ended>;
}

/// *Load, add, store*: adds `delta` to the word of the calling CPU's slot, wrapping.
///
/// librseq: `rseq_load_add_store`.
pub fn add<W: Restartable>(
    steps: &mut impl Steps<W>,
    at: At<'_, W::U64, W>,
    delta: u64,
) -> Result<(), Ended> {
    let word = steps.slot(&at)?;
    let old = steps.load(word)?;
    steps.commit(word, old.wrapping_add(delta))
}

/// *Load*: the word of the calling CPU's slot.
pub fn load<W: Restartable>(
    steps: &mut impl Steps<W>,
    at: At<'_, W::U64, W>,
) -> Result<u64, Ended> {
    let word = steps.slot(&at)?;
    steps.load(word)
}

/// *Load, compare, store*: writes `new` if the word is `expected`; else returns what it is.
///
/// librseq: `rseq_load_cbne_store`.
pub fn store_if_equal<W: Restartable>(
    steps: &mut impl Steps<W>,
    at: At<'_, W::U64, W>,
    expected: u64,
    new: u64,
) -> Result<Result<(), u64>, Ended> {
    let word = steps.slot(&at)?;
    let old = steps.load(word)?;
    if old != expected {
        return Ok(Err(old));
    }
    steps.commit(word, new).map(Ok)
}

/// *Load, add, compare, store*: adds `delta`, wrapping, if that leaves every bit of `fixed` as it
/// is, and returns the sum; else returns what the word is.
///
/// With `fixed` = the sign bit, a credit does not go below zero; with the bits from *k* up, a count
/// does not leave its block of 2^*k*.
pub fn add_if<W: Restartable>(
    steps: &mut impl Steps<W>,
    at: At<'_, W::U64, W>,
    delta: u64,
    fixed: u64,
) -> Result<Result<u64, u64>, Ended> {
    let word = steps.slot(&at)?;
    let old = steps.load(word)?;
    let sum = old.wrapping_add(delta);
    if (old ^ sum) & fixed != 0 {
        return Ok(Err(old));
    }
    steps.commit(word, sum).map(|()| Ok(sum))
}

/// *Load, store, store*: makes `node` the first of the list.
///
/// # Safety
///
/// The node is live and in no list.
pub unsafe fn list_push<W: Restartable>(
    steps: &mut impl Steps<W>,
    at: At<'_, List<W>, W>,
    node: NonNull<ListNode<W>>,
) -> Result<(), Ended> {
    let list = steps.slot(&at)?;
    let first = steps.load(&list.first)?;
    // SAFETY: the caller's promise.
    steps.store(unsafe { &node.as_ref().next }, first)?;
    steps.commit(&list.first, node.as_ptr())
}

/// *Load, compare, load, store*: takes the first node from the list.
///
/// librseq: `rseq_load_cbeq_store_add_load_store`.
pub fn list_pop<W: Restartable>(
    steps: &mut impl Steps<W>,
    at: At<'_, List<W>, W>,
) -> Result<Option<NonNull<ListNode<W>>>, Ended> {
    let list = steps.slot(&at)?;
    let Some(node) = NonNull::new(steps.load(&list.first)?) else {
        return Ok(None);
    };
    // SAFETY: who pushed the node keeps it live until it is popped, and it was the first of this
    // list when it was read. It still is if this step is taken: only threads of this CPU pop from
    // the list, and had one of them run, the step would answer `Aborted`. Who takes nodes from
    // another CPU stops the slots first, and so fences before it can free one.
    let next = steps.load(unsafe { &node.as_ref().next })?;
    steps.commit(&list.first, next)?;
    Ok(Some(node))
}

/// *Load, compare, store, store*: puts `value` on top of the stack.
///
/// librseq: `rseq_load_cbne_store_store`.
pub fn stack_push<T: 'static, const N: usize, W: Restartable>(
    steps: &mut impl Steps<W>,
    at: At<'_, ArrayStack<T, N, W>, W>,
    value: NonNull<T>,
) -> Result<Result<(), Full>, Ended> {
    let stack = steps.slot(&at)?;
    let len = steps.load(&stack.len)?;
    let Some(entry) = stack.entries.get(len as usize) else {
        return Ok(Err(Full));
    };
    steps.store(entry, value.as_ptr())?;
    steps.commit(&stack.len, len + 1).map(Ok)
}

/// *Load, compare, load, store*: takes the top of the stack.
pub fn stack_pop<T: 'static, const N: usize, W: Restartable>(
    steps: &mut impl Steps<W>,
    at: At<'_, ArrayStack<T, N, W>, W>,
) -> Result<Option<NonNull<T>>, Ended> {
    let stack = steps.slot(&at)?;
    let len = steps.load(&stack.len)?;
    if len == 0 {
        return Ok(None);
    }
    let value = steps.load(&stack.entries[len as usize - 1])?;
    steps.commit(&stack.len, len - 1)?;
    Ok(NonNull::new(value))
}

/// As many [`stack_push`]es as there is room for, in one operation; returns how many.
pub fn stack_push_batch<T: 'static, const N: usize, W: Restartable>(
    steps: &mut impl Steps<W>,
    at: At<'_, ArrayStack<T, N, W>, W>,
    values: &[NonNull<T>],
) -> Result<usize, Ended> {
    let stack = steps.slot(&at)?;
    let len = steps.load(&stack.len)?;
    let room = &stack.entries[len as usize..];
    let pushed = room.len().min(values.len());
    for (entry, value) in room.iter().zip(values) {
        steps.store(entry, value.as_ptr())?;
    }
    steps.commit(&stack.len, len + pushed as u64)?;
    Ok(pushed)
}

/// As many [`stack_pop`]s as there are values and room, in one operation; returns how many. The
/// first is the top. What `into` holds beyond that number is not specified.
pub fn stack_pop_batch<T: 'static, const N: usize, W: Restartable>(
    steps: &mut impl Steps<W>,
    at: At<'_, ArrayStack<T, N, W>, W>,
    into: &mut [Option<NonNull<T>>],
) -> Result<usize, Ended> {
    let stack = steps.slot(&at)?;
    let len = steps.load(&stack.len)?;
    let popped = into.len().min(len as usize);
    for (to, entry) in into.iter_mut().zip(stack.entries[..len as usize].iter().rev()) {
        *to = NonNull::new(steps.load(entry)?);
    }
    steps.commit(&stack.len, len - popped as u64)?;
    Ok(popped)
}

/// *Load, compare, memcpy, store*: puts the bytes behind those that are there, all or none; returns
/// where they begin.
///
/// librseq: `rseq_load_cbne_memcpy_store`.
pub fn append<const N: usize, W: Restartable>(
    steps: &mut impl Steps<W>,
    at: At<'_, Buffer<N, W>, W>,
    bytes: &[u8],
) -> Result<Result<usize, Full>, Ended> {
    let buffer = steps.slot(&at)?;
    let begin = steps.load(&buffer.len)?;
    let end = begin + bytes.len() as u64;
    if end > N as u64 {
        return Ok(Err(Full));
    }
    steps.copy(&buffer.bytes, begin as usize, bytes)?;
    steps.commit(&buffer.len, end)?;
    Ok(Ok(begin as usize))
}
