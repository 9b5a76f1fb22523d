//! [`Field`]: the operations, on the calling thread's slot.
//!
//! Each is a section where there is a slot for one, and else what [`Slots`] says, out of line.

use core::fmt;
use core::ptr::NonNull;

use coreline_world::restartable::definition::{self};
use coreline_world::restartable::{At, Full, ListNode, NoSlot, Slot};
use coreline_world::{Integer, Ordering, Word, World};

use super::guarded::{ArrayStack, Buffer, Guarded, List};
use super::indexing::{Indexing, OwnIndex};
use super::locked::{Locked, complete};
use super::slots::Slots;

/// A field of every slot, from [`Slots::field`]. Its methods are the operations, each on the slot
/// of the thread that calls it.
pub struct Field<'a, T: Slot, F, W: World, I: Indexing<W> = OwnIndex<W>> {
    slots: &'a Slots<T, W, I>,
    first: NonNull<F>,
}

// SAFETY: a reference to slots, which are shared with every thread, and the address of what lies in
// each of them.
unsafe impl<T: Slot, F, W: World, I: Indexing<W>> Send for Field<'_, T, F, W, I> {}
// SAFETY: as above.
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

    /// The field in a slot that [`Slots::elsewhere`] chose.
    fn chosen(self, index: usize) -> &'a F {
        // SAFETY: `elsewhere` chooses initialised slots.
        unsafe { self.at().slot(index) }
    }
}

impl<'a, T: Slot, F, W: World, I: Indexing<W>> Field<'a, T, Guarded<F, W>, W, I> {
    /// What sections work on, which is what a guarded field begins with.
    #[inline]
    fn inner(self) -> At<'a, F, W> {
        // SAFETY: the promise of `new`.
        unsafe { self.slots.at(self.first.cast()) }
    }
}

/// On words.
impl<T: Slot, W: World, I: Indexing<W>> Field<'_, T, W::U64, W, I> {
    /// Adds `delta`, wrapping: [`definition::add`]. Orders nothing.
    #[inline]
    pub fn add(self, delta: u64) {
        if W::add(self.at(), delta).is_err() {
            self.add_elsewhere(delta);
        }
    }

    /// As [`add`](Field::add), in a section or not at all.
    ///
    /// # Errors
    ///
    /// [`NoSlot`] if the thread has no slot that a section may use now.
    #[inline]
    pub fn try_add(self, delta: u64) -> Result<(), NoSlot> {
        W::add(self.at(), delta)
    }

    #[cold]
    #[inline(never)]
    fn add_elsewhere(self, delta: u64) {
        let section = || W::add(self.at(), delta);
        // Relaxed: a word carries nothing but its own value; so for all of these.
        self.slots.elsewhere(section, |index| {
            self.chosen(index).fetch_add(delta, Ordering::Relaxed);
        });
    }

    /// Reads: [`definition::load`]. Orders nothing.
    #[inline]
    pub fn load(self) -> u64 {
        W::load(self.at()).unwrap_or_else(|_| self.load_elsewhere())
    }

    #[cold]
    #[inline(never)]
    fn load_elsewhere(self) -> u64 {
        let section = || W::load(self.at());
        self.slots.elsewhere(section, |index| self.chosen(index).load(Ordering::Relaxed))
    }

    /// Writes `new` if the word is `expected`: [`definition::store_if_equal`]. Orders nothing.
    ///
    /// # Errors
    ///
    /// What the word was, if it was something else.
    #[inline]
    pub fn store_if_equal(self, expected: u64, new: u64) -> Result<(), u64> {
        W::store_if_equal(self.at(), expected, new)
            .unwrap_or_else(|_| self.store_if_equal_elsewhere(expected, new))
    }

    #[cold]
    #[inline(never)]
    fn store_if_equal_elsewhere(self, expected: u64, new: u64) -> Result<(), u64> {
        let section = || W::store_if_equal(self.at(), expected, new);
        self.slots.elsewhere(section, |index| {
            let word = self.chosen(index);
            let relaxed = Ordering::Relaxed;
            word.compare_exchange(expected, new, relaxed, relaxed).map(drop)
        })
    }

    /// Adds `delta`, wrapping, if that leaves every bit of `fixed` as it is, and returns the sum:
    /// [`definition::add_if`]. Of two on one slot, the second sees what came before the first.
    ///
    /// # Errors
    ///
    /// What the word was, if the sum would differ in a bit of `fixed`. Nothing was added.
    #[inline]
    pub fn add_if(self, delta: u64, fixed: u64) -> Result<u64, u64> {
        W::add_if(self.at(), delta, fixed).unwrap_or_else(|_| self.add_if_elsewhere(delta, fixed))
    }

    #[cold]
    #[inline(never)]
    fn add_if_elsewhere(self, delta: u64, fixed: u64) -> Result<u64, u64> {
        let section = || W::add_if(self.at(), delta, fixed);
        self.slots.elsewhere(section, |index| add_if_atomically(self.chosen(index), delta, fixed))
    }

    /// The wrapping sum of all slots, read one after the other.
    ///
    /// Exact if nobody writes meanwhile. Otherwise each concurrent addition is in or out; additions
    /// that happened before the call are in.
    pub fn sum(self) -> u64 {
        let slots = self.slots.indexing().initialised().chain([self.slots.indexes()]);
        // Relaxed: a word carries nothing but its own value. An addition that happened before this
        // call is seen because reads of one word never go back in its modification order.
        let values = slots.map(|index| self.chosen(index).load(Ordering::Relaxed));
        values.fold(0, u64::wrapping_add)
    }
}

pub(super) fn add_if_atomically<T: Integer<Value = u64>>(
    word: &T,
    delta: u64,
    fixed: u64,
) -> Result<u64, u64> {
    // Relaxed: the exchange below is what counts.
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let sum = old.wrapping_add(delta);
        if (old ^ sum) & fixed != 0 {
            return Err(old);
        }
        // Acquire and release pair with each other, here: who adds sees what those did who added to
        // the slot before, as threads in sections do, which take turns on one CPU. A batched
        // counter would else miss what another thread announced.
        match word.compare_exchange_weak(old, sum, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Ok(sum),
            Err(now) => old = now,
        }
    }
}

/// On lists.
impl<T: Slot, W: World, I: Indexing<W>> Field<'_, T, List<W>, W, I> {
    /// Makes `node` the first of this CPU's list: [`definition::list_push`].
    ///
    /// # Safety
    ///
    /// The node is live and in no list, and stays live until it was popped. No reference to its
    /// link is used meanwhile.
    #[inline]
    pub unsafe fn push(self, node: NonNull<ListNode<W>>) {
        // SAFETY: the caller's promise.
        if unsafe { W::list_push(self.inner(), node) }.is_err() {
            self.push_elsewhere(node);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_elsewhere(self, node: NonNull<ListNode<W>>) {
        // SAFETY: the promise of `push`, whose node was not pushed yet.
        let section = || unsafe { W::list_push(self.inner(), node) };
        self.slots.elsewhere(section, |index| {
            let _guard = self.chosen(index).lock.lock();
            // SAFETY: as above; and locked, in a slot that sections do not use.
            unsafe { complete(definition::list_push(&mut Locked::on(index), self.inner(), node)) };
        });
    }

    /// Takes the first node from this CPU's list: [`definition::list_pop`].
    #[inline]
    pub fn pop(self) -> Option<NonNull<ListNode<W>>> {
        W::list_pop(self.inner()).unwrap_or_else(|_| self.pop_elsewhere())
    }

    #[cold]
    #[inline(never)]
    fn pop_elsewhere(self) -> Option<NonNull<ListNode<W>>> {
        let section = || W::list_pop(self.inner());
        self.slots.elsewhere(section, |index| {
            let _guard = self.chosen(index).lock.lock();
            // SAFETY: locked, in a slot that sections do not use.
            complete(definition::list_pop(&mut unsafe { Locked::on(index) }, self.inner()))
        })
    }
}

/// On stacks.
impl<T: Slot, E: 'static, const N: usize, W: World, I: Indexing<W>>
    Field<'_, T, ArrayStack<E, N, W>, W, I>
{
    /// Puts `value` on top of this CPU's stack: [`definition::stack_push`].
    ///
    /// # Errors
    ///
    /// [`Full`] if there are `N` on it.
    #[inline]
    pub fn push(self, value: NonNull<E>) -> Result<(), Full> {
        W::stack_push(self.inner(), value).unwrap_or_else(|_| self.push_elsewhere(value))
    }

    #[cold]
    #[inline(never)]
    fn push_elsewhere(self, value: NonNull<E>) -> Result<(), Full> {
        let section = || W::stack_push(self.inner(), value);
        self.slots.elsewhere(section, |index| {
            let _guard = self.chosen(index).lock.lock();
            // SAFETY: locked, in a slot that sections do not use.
            let mut steps = unsafe { Locked::on(index) };
            complete(definition::stack_push(&mut steps, self.inner(), value))
        })
    }

    /// Takes the top of this CPU's stack: [`definition::stack_pop`].
    #[inline]
    pub fn pop(self) -> Option<NonNull<E>> {
        W::stack_pop(self.inner()).unwrap_or_else(|_| self.pop_elsewhere())
    }

    #[cold]
    #[inline(never)]
    fn pop_elsewhere(self) -> Option<NonNull<E>> {
        let section = || W::stack_pop(self.inner());
        self.slots.elsewhere(section, |index| {
            let _guard = self.chosen(index).lock.lock();
            // SAFETY: locked, in a slot that sections do not use.
            complete(definition::stack_pop(&mut unsafe { Locked::on(index) }, self.inner()))
        })
    }

    /// Puts as many of `values` on this CPU's stack as there is room for, from the first on, and
    /// returns how many: [`definition::stack_push_batch`].
    #[inline]
    pub fn push_batch(self, values: &[NonNull<E>]) -> usize {
        W::stack_push_batch(self.inner(), values)
            .unwrap_or_else(|_| self.push_batch_elsewhere(values))
    }

    #[cold]
    #[inline(never)]
    fn push_batch_elsewhere(self, values: &[NonNull<E>]) -> usize {
        let section = || W::stack_push_batch(self.inner(), values);
        self.slots.elsewhere(section, |index| {
            let _guard = self.chosen(index).lock.lock();
            // SAFETY: locked, in a slot that sections do not use.
            let mut steps = unsafe { Locked::on(index) };
            complete(definition::stack_push_batch(&mut steps, self.inner(), values))
        })
    }

    /// Takes as many from this CPU's stack as there are and fit into `into`, the top first, and
    /// returns how many: [`definition::stack_pop_batch`].
    #[inline]
    pub fn pop_batch(self, into: &mut [Option<NonNull<E>>]) -> usize {
        match W::stack_pop_batch(self.inner(), into) {
            Ok(popped) => popped,
            Err(_) => self.pop_batch_elsewhere(into),
        }
    }

    #[cold]
    #[inline(never)]
    fn pop_batch_elsewhere(self, into: &mut [Option<NonNull<E>>]) -> usize {
        let into = core::cell::RefCell::new(into);
        let section = || W::stack_pop_batch(self.inner(), &mut into.borrow_mut());
        self.slots.elsewhere(section, |index| {
            let _guard = self.chosen(index).lock.lock();
            // SAFETY: locked, in a slot that sections do not use.
            let mut steps = unsafe { Locked::on(index) };
            complete(definition::stack_pop_batch(&mut steps, self.inner(), &mut into.borrow_mut()))
        })
    }
}

/// On buffers.
impl<T: Slot, const N: usize, W: World, I: Indexing<W>> Field<'_, T, Buffer<N, W>, W, I> {
    /// Puts the bytes behind those in this CPU's buffer, and returns where they begin there:
    /// [`definition::append`].
    ///
    /// # Errors
    ///
    /// [`Full`] if they do not all fit.
    #[inline]
    pub fn append(self, bytes: &[u8]) -> Result<usize, Full> {
        W::append(self.inner(), bytes).unwrap_or_else(|_| self.append_elsewhere(bytes))
    }

    #[cold]
    #[inline(never)]
    fn append_elsewhere(self, bytes: &[u8]) -> Result<usize, Full> {
        let section = || W::append(self.inner(), bytes);
        self.slots.elsewhere(section, |index| {
            let _guard = self.chosen(index).lock.lock();
            // SAFETY: locked, in a slot that sections do not use.
            let mut steps = unsafe { Locked::on(index) };
            complete(definition::append(&mut steps, self.inner(), bytes))
        })
    }
}
