//! [`Slots`]: an array of slots, one for each index, and the fallback for operations without a
//! section.
//!
//! # Slots appear when they are used
//!
//! At first only the shared slot exists. With [`OwnIndex`], the first operation with index *i*
//! initialises slots up to *i* and raises the limit. With compact indexes, only used slots exist,
//! and a sum reads no others. With rows, the limit may be that of all indexes from the beginning,
//! because a row shows an index only after its slot was made.
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | one of `limits` | sections may use slots below it; 0: none, now or ever | holder of `lock` |
//! | `populated` | the slots below it are initialised | the holder of `lock`; never falls |
//! | `lock` | held while slots are initialised, or stopped | [`SlotLock`] |
//!
//! # Where a section finds no slot
//!
//! | why | then |
//! |---|---|
//! | the index is not below the limit | initialise slots, and try again |
//! | another thread initialises or has stopped them | the shared slot, with atomics |
//! | the thread has no index | the shared slot, with atomics |
//! | this machine has no sections | the thread's slot, or one it had a while ago, with atomics |
//!
//! *By atomics* means one atomic instruction for words, or a loop of exchanges. Other operations
//! run by their definition, under the lock in the slot's field. Sections never touch the shared
//! slot. A thread that has stopped the slots writes them with atomics, too, while no section can
//! use them. So sections and atomics never write one slot at the same time. No operation waits for
//! the thread that initialises or has stopped slots, because it may run in a signal handler that
//! interrupts this very thread.
//!
//! # Terms
//!
//! | term | meaning |
//! |---|---|
//! | section | a restartable operation: it starts over if its thread loses the CPU before its end |
//! | limit | sections may use the slots with lower indexes |
//! | row | a word that gives a CPU its index, instead of the CPU's own number or concurrency ID |
//! | gate | a copy of the address of slot 0 and of the limit, for sections that know no [`Slots`] |
//! | by name | of a lock: its word names its holder, so a thread can tell whether it holds it |
//! | hold | blocks the thread's signals, so that no handler interrupts it with half a slot made |
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `LOOKS` | the shared slot is used | a handler may not end | `an_operation_whose_thread_..` |

mod field;
mod indexing;
mod stopped;
#[cfg(test)]
mod tests;

use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use coreline_world::restartable::{At, Gate, Limits, NoSlot, Slot};
use coreline_world::{MapError, Ordering, Word, World};

use super::lock::{SlotLock, SlotLockGuard};
use crate::heap;

pub use field::Field;
pub use indexing::{Indexing, OwnIndex};
pub use stopped::{StopError, Stopped, StoppedField};

/// How often an operation looks for its slot before it takes the shared one. After each look, the
/// thread may have moved to a CPU whose slot is not there yet. Without a bound, an operation in a
/// signal handler might not end.
const LOOKS: usize = 4;

/// An array with one `T` for each index, and one `T` for threads without an index.
///
/// A [`PerCpuPool`](super::PerCpuPool) provides its memory. The operations are methods of
/// [`Field`], from [`field`](Slots::field).
///
/// **Signals**: all operations are async-signal-safe if the initialiser ([`Init`]) is. **Fork**:
/// the child has its own copy, with the values at the time of the fork. If another thread was in an
/// operation at that time, the child has the whole effect of the operation or none.
#[repr(C)]
pub struct Slots<T: Slot, W: World, I: Indexing<W> = OwnIndex<W>> {
    limits: Limits<W>,
    indexing: I,
    section: W::Section,
    first: NonNull<T>,
    indexes: u32,
    lock: SlotLock<W>,
    init: Init<T>,
}

/// The initial value of a slot.
///
/// If operations are used in signal handlers, the initialiser must be async-signal-safe, because
/// the first operation of a CPU may run it.
pub enum Init<T> {
    /// The result of a function.
    Function(fn() -> T),
    /// The result of a closure.
    Closure(Box<dyn Fn() -> T + Send + Sync>),
}

impl<T> Init<T> {
    /// Creates an initialiser from a closure. The call allocates if the closure captures variables.
    pub fn closure(closure: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Init::Closure(Box::new(closure))
    }

    /// The same, or an error if there is no memory.
    pub(crate) fn try_closure(
        closure: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<Self, MapError> {
        Ok(Init::Closure(heap::boxed(closure)?))
    }

    fn value(&self) -> T {
        match self {
            Init::Function(function) => function(),
            Init::Closure(closure) => closure(),
        }
    }
}

impl<T> fmt::Debug for Init<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Init").finish_non_exhaustive()
    }
}

// SAFETY: the slots are reached as `&T` from every thread (`Slot` is `Sync`), and dropped with the
// array wherever it goes (`Slot` is `Send`). The pointer owns them.
unsafe impl<T: Slot, W: World, I: Indexing<W>> Send for Slots<T, W, I> {}
// SAFETY: the slots are reached as `&T` from every thread (`Slot` is `Sync`); the rest is words and
// what never changes.
unsafe impl<T: Slot, W: World, I: Indexing<W>> Sync for Slots<T, W, I> {}

// As for an array of `T`. If the initialiser panics, its slot is not made. If a function panics
// while slots are stopped for it, they are opened again.
impl<T: Slot + UnwindSafe, W: World, I: Indexing<W>> UnwindSafe for Slots<T, W, I> {}
impl<T: Slot + RefUnwindSafe, W: World, I: Indexing<W>> RefUnwindSafe for Slots<T, W, I> {}

impl<T: Slot, W: World> Slots<T, W> {
    /// Creates slots at `first` and at the next `indexes` multiples of the stride. The last of
    /// these slots is the shared slot. The first thread that uses a slot initialises it with
    /// `init`, under the world's [`hold`](coreline_world::Signals::hold).
    ///
    /// # Safety
    ///
    /// There is aligned memory for the slots, which no other code uses while this value lives.
    /// `section` and `indexes` come from [`section`](coreline_world::Restartable::section), or
    /// `indexes` is less.
    pub unsafe fn new_in(
        section: W::Section,
        indexes: u32,
        first: NonNull<T>,
        init: Init<T>,
    ) -> Self {
        // SAFETY: the caller's promise. No slot is there yet that a section could use.
        unsafe { Slots::with(Limits::new_in(), OwnIndex::new_in(), section, indexes, first, init) }
    }

    /// Returns the number of initialised slots, from index 0 on, without the shared slot.
    pub fn populated(&self) -> usize {
        self.indexing.populated() as usize
    }

    /// Sees to it that the slot is initialised; `false` if there is none of this index, or another
    /// thread is at it, or slots are stopped.
    pub(crate) fn populate(&self, index: usize) -> bool {
        let Some(index) = u32::try_from(index).ok().filter(|&index| index < self.indexes) else {
            return false;
        };
        // Where there are no sections, the limit stays 0.
        let open =
            if W::runs_sections(&self.section) { self.limit() } else { &self.indexing.populated };
        // Acquire pairs with the release in `populate_locked`: the slot is initialised.
        if index < open.load(Ordering::Acquire) {
            return true;
        }
        let Some(guard) = self.lock.try_lock_by_name() else {
            return false;
        };
        self.populate_locked(index, &guard);
        true
    }

    /// Initialises the slots up to `index` that are not, and opens them for sections. They may have
    /// been closed by a thread that stopped them and does not exist in this forked child.
    fn populate_locked(&self, index: u32, _guard: &SlotLockGuard<'_, W>) {
        // Relaxed: only the holder of the lock writes it.
        let populated = self.indexing.populated.load(Ordering::Relaxed);
        for index in populated..=index {
            // SAFETY: in the memory of `new_in`, and no other thread knows the slot yet.
            unsafe { self.make(index as usize) };
            // Release pairs with the acquire in `populated` and in `populate`: the slots are
            // initialised. One by one, so that none is made twice if `init` panics at the next.
            self.indexing.populated.store(index + 1, Ordering::Release);
        }
        self.open();
    }
}

impl<T: Slot, W: World, I: Indexing<W>> Slots<T, W, I> {
    /// Creates slots, like [`new_in`](Slots::new_in), with another [`Indexing`]. Slots are
    /// initialised when the indexing calls [`make`](Slots::make).
    ///
    /// # Safety
    ///
    /// The same conditions as for [`new_in`](Slots::new_in). If there are rows, `indexes` may be
    /// any number.
    pub unsafe fn indexed_by(
        indexing: I,
        section: W::Section,
        indexes: u32,
        first: NonNull<T>,
        init: Init<T>,
    ) -> Self {
        let limits = if W::runs_sections(&section) {
            Limits::below(W::index_by(&section), indexing.limit(indexes))
        } else {
            Limits::new_in()
        };
        // SAFETY: the caller's promise. Sections may use what rows show, as long as those show it.
        unsafe { Slots::with(limits, indexing, section, indexes, first, init) }
    }

    /// `limits` and `indexing` have their final values already. A store to them here would be to
    /// this frame, before the array moves to its place. The simulator would charge it for a line of
    /// the stack, and which other variables lie on that line is the compiler's choice.
    ///
    /// # Safety
    ///
    /// As for [`indexed_by`](Slots::indexed_by); sections may use the slots below the limit, as
    /// [`Indexing`] promises.
    unsafe fn with(
        limits: Limits<W>,
        indexing: I,
        section: W::Section,
        indexes: u32,
        first: NonNull<T>,
        init: Init<T>,
    ) -> Self {
        let shared = init.value();
        // SAFETY: the shared slot is part of the caller's memory, and no other thread knows it yet.
        unsafe { first.byte_add(indexes as usize * W::STRIDE).write(shared) };
        Slots { limits, indexing, section, first, indexes, lock: SlotLock::new_in(), init }
    }

    /// Returns the [`Indexing`] of the slots.
    pub fn indexing(&self) -> &I {
        &self.indexing
    }

    /// Returns a mutable reference to the [`Indexing`], to change which slots it reports as
    /// initialised.
    ///
    /// # Safety
    ///
    /// All slots that the indexing then reports as initialised were [initialised](Slots::make).
    pub unsafe fn indexing_mut(&mut self) -> &mut I {
        &mut self.indexing
    }

    /// The address from which a section finds the index.
    ///
    /// # Safety
    ///
    /// The slots are there.
    pub(crate) unsafe fn indexing_at(slots: NonNull<Self>) -> NonNull<I> {
        // SAFETY: a field of what is there.
        unsafe { NonNull::new_unchecked(&raw mut (*slots.as_ptr()).indexing) }
    }

    /// Returns the address of slot 0, initialised or not.
    pub fn first(&self) -> NonNull<T> {
        self.first
    }

    /// Initialises a slot. If `init` panics, the slot stays uninitialised.
    ///
    /// # Safety
    ///
    /// The index is below the number of indexes. The slot is not initialised, and no other thread
    /// initialises it meanwhile.
    pub unsafe fn make(&self, index: usize) {
        let slot = self.init.value();
        // SAFETY: in the memory of `indexed_by`, and the caller's promise.
        unsafe { self.first.byte_add(index * W::STRIDE).write(slot) };
    }

    /// Opens the slots for sections again if the thread that had stopped them does not exist in
    /// this forked child. Returns `false` while a live thread has stopped them.
    pub fn reopen(&self) -> bool {
        // Relaxed: a hint. If they were opened meanwhile, the lock below is free.
        if !W::runs_sections(&self.section) || self.limit().load(Ordering::Relaxed) != 0 {
            return true;
        }
        let guard = self.lock.try_lock_by_name();
        if guard.is_some() {
            self.open();
        }
        guard.is_some()
    }

    /// See the module.
    fn limit(&self) -> &W::U32 {
        self.limits.by(W::index_by(&self.section))
    }

    /// Copies the address and the limit of the slots into the gate, if `may` then returns `true`.
    /// No thread stops the slots while `may` runs. Does nothing while a thread initialises slots or
    /// has them stopped. So the gate's limit may be lower than that of the slots, until a section
    /// that finds no slot behind the gate has its thread call this again.
    ///
    /// From then on, only [`stop_all`](Slots::stop_all) with this gate may stop these slots.
    /// [`with_stopped`](Slots::with_stopped) and [`with_all_stopped`](Slots::with_all_stopped)
    /// close no gate, so sections that use the gate would run on stopped slots.
    pub(crate) fn open_gate(&self, gate: &Gate<W>, may: impl FnOnce() -> bool) {
        let by = W::index_by(&self.section);
        // Relaxed: a hint. Threads without an index come here with each operation.
        let known = gate.limits().by(by).load(Ordering::Relaxed);
        // Relaxed: a hint, too.
        if self.limit().load(Ordering::Relaxed) == known {
            return;
        }
        // While the lock is held, no thread stops them, or has them stopped:
        //
        //   Thread 1: reads the slots' limit: 3
        //   Thread 2: stops the slots: their limit = 0, the gate's limit = 0, fences
        //   Thread 1: the gate's limit = 3             <- sections run on slots that are stopped
        if let Some(_guard) = self.lock.try_lock_by_name()
            && may()
        {
            // Relaxed: only the holder of the lock writes it.
            let limit = self.limit().load(Ordering::Relaxed);
            gate.open(by, self.first.as_ptr().cast(), limit);
        }
    }

    /// Whether another thread copies the limit into a gate or raises it, and has not stopped the
    /// slots. The result is a hint.
    pub(crate) fn is_gate_busy(&self) -> bool {
        // Relaxed: a hint.
        self.lock.is_held() && self.limit().load(Ordering::Relaxed) != 0
    }

    /// Returns the section by which operations on these slots run.
    pub fn section(&self) -> &W::Section {
        &self.section
    }

    /// Returns the number of possible indexes, without the shared slot.
    pub fn indexes(&self) -> usize {
        self.indexes as usize
    }

    /// Returns slot `index`, if it is initialised. The index of the shared slot is
    /// [`indexes`](Slots::indexes).
    ///
    /// Another CPU's slot may be read but not written, because an operation of that CPU would
    /// overwrite the write. See [`with_stopped`](Slots::with_stopped).
    pub fn get(&self, index: usize) -> Option<&T> {
        if index == self.indexes() {
            return Some(self.shared());
        }
        // SAFETY: initialised, and it stays so.
        self.indexing.is_initialised(index).then(|| unsafe { self.slot(index) })
    }

    /// Returns the slot for threads without an index, and for operations that find no slot.
    #[inline]
    pub fn shared(&self) -> &T {
        // SAFETY: `new_in` initialised it.
        unsafe { self.slot(self.indexes as usize) }
    }

    /// Returns an iterator over the initialised slots by ascending index, with the shared slot
    /// last.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        // SAFETY: as in `get`; and the shared slot is initialised.
        self.indexing.initialised_and(self.indexes()).map(|index| unsafe { self.slot(index) })
    }

    /// Returns an iterator of mutable references, in the order of [`iter`](Slots::iter).
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (first, indexes) = (self.first, self.indexes());
        // SAFETY: as in `get`; each slot is met once, and no section runs: it would need a
        // reference to the slots.
        let slot = move |index| unsafe { first.byte_add(index * W::STRIDE).as_mut() };
        self.indexing.initialised_and(indexes).map(slot)
    }

    /// Returns a field of every slot, whose operations use the calling thread's slot.
    ///
    /// The closure `which` must be a projection, such as `|slot| &slot.hits`.
    ///
    /// # Panics
    ///
    /// Panics if `which` returns a reference to data outside the slot.
    #[inline]
    pub fn field<F: Slot>(&self, which: impl FnOnce(&T) -> &F) -> Field<'_, T, F, W, I> {
        let shared = self.shared();
        let offset = (&raw const *which(shared)).addr().wrapping_sub((&raw const *shared).addr());
        assert!(
            size_of::<F>() <= size_of::<T>() && offset <= size_of::<T>() - size_of::<F>(),
            "the projection leaves the slot"
        );
        // SAFETY: in the slot, so in the caller's memory. It is a field of the shared slot, and
        // `Slot` says that every slot has the same ones.
        unsafe { Field::new(self, self.first.byte_add(offset).cast()) }
    }

    /// The facts about the field at `first` in slot 0 that sections need.
    ///
    /// # Safety
    ///
    /// There is such a field.
    #[inline]
    pub(super) unsafe fn at<F>(&self, first: NonNull<F>) -> At<'_, F, W> {
        // SAFETY: slots below the limit are initialised; `field` found the field. Code that is no
        // section writes the shared slot, slots of a machine that has no sections, and slots that
        // its thread has stopped.
        unsafe { At::new(&self.limits, first) }.by_rows(self.indexing.rows())
    }

    /// # Safety
    ///
    /// The slot is initialised.
    #[inline]
    pub(super) unsafe fn slot(&self, index: usize) -> &T {
        // SAFETY: the caller's promise, and the memory is that of `new_in`.
        unsafe { self.first.byte_add(index * W::STRIDE).as_ref() }
    }

    /// The outcome of an operation whose section found no slot: the result of another try, or the
    /// index of an initialised slot on which the operation must run without a section. See the
    /// module.
    pub(super) fn elsewhere<R>(
        &self,
        section: impl FnMut() -> Result<R, NoSlot>,
    ) -> Result<R, usize> {
        if W::runs_sections(&self.section) {
            return self.after_looks(section);
        }
        Err(I::find(self).unwrap_or(self.indexes()))
    }

    /// Apart, so that the usual way of machines without sections stays short.
    #[inline(never)]
    fn after_looks<R>(&self, mut section: impl FnMut() -> Result<R, NoSlot>) -> Result<R, usize> {
        for _ in 0..LOOKS {
            if I::find(self).is_none() {
                break;
            }
            if let Ok(result) = section() {
                return Ok(result);
            }
        }
        Err(self.indexes())
    }

    /// Lets sections use the slots that are there, if this machine has sections. A section on a
    /// machine without (whose threads' areas are never registered) must find none.
    fn open(&self) {
        if W::runs_sections(&self.section) {
            // Release pairs with the acquire of a section's own load: it sees the slots
            // initialised, and what was written to them while they were stopped.
            self.limit().store(self.indexing.limit(self.indexes), Ordering::Release);
        }
    }

    /// Runs `f` on slot `index` while no section works on any of these slots. `index` may be the
    /// index of the shared slot, which is [`indexes`](Slots::indexes).
    ///
    /// Concurrent operations on any CPU use the shared slot. So words of the shared slot can still
    /// change while `f` runs. On a machine without sections, words of every slot can change. These
    /// changes use atomic instructions. So `f` must also use atomic instructions, as the methods of
    /// [`StoppedField`](super::StoppedField) do.
    ///
    /// `f` runs with the thread's signals blocked, so keep it short. It must not fork, and must not
    /// start threads that need to receive signals.
    ///
    /// # Errors
    ///
    /// [`StopError`] if the machine cannot [fence sections][fence], if there is no such slot, or if
    /// the calling thread has stopped these slots already. On a machine without sections, this
    /// fence only orders memory.
    ///
    /// [fence]: coreline_world::Fences::fence_restartable
    pub fn with_stopped<R>(
        &self,
        index: usize,
        f: impl FnOnce(Stopped<'_, T, W, I>) -> R,
    ) -> Result<R, StopError> {
        if index != self.indexes() && self.get(index).is_none() {
            let populated = self.indexing.initialised().count();
            return Err(StopError::NoSuchSlot { index, populated, indexes: self.indexes() });
        }
        // SAFETY: the slot is initialised, and `stop` keeps the others away.
        self.stop(None, || f(unsafe { Stopped::new(self, index) }))
    }

    /// Runs `f` on all initialised slots, the shared slot last, like
    /// [`with_stopped`](Slots::with_stopped).
    ///
    /// # Errors
    ///
    /// [`StopError`] if the machine cannot fence sections, or if the calling thread has stopped
    /// these slots already.
    pub fn with_all_stopped<R>(
        &self,
        f: impl FnOnce(&mut dyn Iterator<Item = Stopped<'_, T, W, I>>) -> R,
    ) -> Result<R, StopError> {
        self.stop_all(None, f)
    }

    /// As [`with_all_stopped`](Slots::with_all_stopped), and the gate to the slots is closed, until
    /// it is [opened](Slots::open_gate) again.
    pub(crate) fn stop_all<R>(
        &self,
        gate: Option<&Gate<W>>,
        f: impl FnOnce(&mut dyn Iterator<Item = Stopped<'_, T, W, I>>) -> R,
    ) -> Result<R, StopError> {
        self.stop(gate, || {
            let indexes = self.indexing.initialised_and(self.indexes());
            // SAFETY: the slots are initialised, and `stop` keeps the others away.
            f(&mut indexes.map(|index| unsafe { Stopped::new(self, index) }))
        })
    }

    fn stop<R>(&self, gate: Option<&Gate<W>>, f: impl FnOnce() -> R) -> Result<R, StopError> {
        /// Opens the slots for sections again, also if `f` panics, and before the lock is free.
        struct Reopen<'a, T: Slot, W: World, I: Indexing<W>>(&'a Slots<T, W, I>);

        impl<T: Slot, W: World, I: Indexing<W>> Drop for Reopen<'_, T, W, I> {
            fn drop(&mut self) {
                self.0.open();
            }
        }

        let _lock = loop {
            if self.lock.is_mine() {
                return Err(StopError::Nested);
            }
            if let Some(guard) = self.lock.try_lock_by_name() {
                break guard;
            }
            self.lock.wait();
        };
        // Why the fence: a section loads the limit once, and commits a few instructions later.
        //
        //   Thread 1: index 3, below the limit; loads the word: 7
        //   Thread 2: limit = 0; takes the word: 7, leaves 0
        //   Thread 1: commits 7 + 1                          <- 7 is there twice
        //
        // The fence restarts thread 1 after the limit is 0 and before thread 2 takes the word; the
        // restarted section finds no slot. Relaxed: the fence orders the store before itself.
        self.limit().store(0, Ordering::Relaxed);
        let _reopen = Reopen(self);
        if let Some(gate) = gate {
            gate.close(W::index_by(&self.section));
        }
        W::fence_restartable()?;
        Ok(f())
    }
}

impl<T: Slot, W: World, I: Indexing<W>> Drop for Slots<T, W, I> {
    fn drop(&mut self) {
        for index in self.indexing.initialised_and(self.indexes()) {
            // SAFETY: initialised, and never used again.
            unsafe { self.first.byte_add(index * W::STRIDE).drop_in_place() };
        }
    }
}

impl<T: Slot, W: World, I: Indexing<W>> fmt::Debug for Slots<T, W, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("section", &self.section)
            .field("indexes", &self.indexes)
            .field("initialised", &self.indexing.initialised().count())
            .finish_non_exhaustive()
    }
}
