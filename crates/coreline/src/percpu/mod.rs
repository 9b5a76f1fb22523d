//! Per-CPU memory: one copy of a value for each CPU, used without atomic instructions.
//!
//! A [`PerCpu<T>`] is an array of `T`, one *slot* for each index, a fixed stride apart. The index
//! is the CPU number or the kernel's concurrency ID ([`IndexBy`]). A thread accesses the slot of
//! its own index by [restartable operations](coreline_world::restartable). The set of these
//! operations is closed. The operations on words are load, exchange, store if equal, add, and add
//! if. The operations on bounded stacks are push and pop, of one or many pointers. If the machine
//! has restartable sections, no operation takes a lock, allocates or makes a system call. The two
//! exceptions are the first operation of a CPU, which initialises the slot, and operations while
//! slots are stopped. On Linux, all operations are async-signal-safe, with and without sections.
//!
//! ```
//! use coreline::percpu::{PerCpu, Word64};
//! use coreline::world::{Native, Slot, Word};
//!
//! /// What a server counts.
//! struct Traffic {
//!     requests: Word64,
//!     bytes: Word64,
//! }
//!
//! // SAFETY: a struct, so every value has the same fields in the same places.
//! unsafe impl Slot for Traffic {}
//!
//! let new = || Traffic { requests: Word64::new(0), bytes: Word64::new(0) };
//! let traffic = PerCpu::<Traffic>::new(new)?;
//! traffic.field(|slot| &slot.requests).add(1);
//! traffic.field(|slot| &slot.bytes).add(512);
//! assert_eq!(traffic.field(|slot| &slot.requests).sum(), 1);
//! assert_eq!(traffic.field(|slot| &slot.bytes).sum(), 512);
//! # Ok::<(), coreline::percpu::PoolError>(())
//! ```
//!
//! # Words
//!
//! A word holds a `u64` ([`Word64`]), a `u32` ([`Word32`]), a `usize` ([`WordSize`]) or a pointer
//! ([`WordPtr`]), and has the same size. With an exchange of a pointer, a thread takes the value of
//! its CPU's slot, and leaves another value or null:
//!
//! ```
//! use core::ptr::null_mut;
//! use coreline::percpu::{PerCpu, WordPtr};
//!
//! /// A buffer for each CPU, made when there is none.
//! let buffers = PerCpu::<WordPtr<Vec<u8>>>::new(|| WordPtr::new(null_mut()))?;
//! let buffer = buffers.field(|word| word);
//! // SAFETY: a box that was left there, which the exchange gives to one thread; or null.
//! let left = |word: *mut Vec<u8>| unsafe { (!word.is_null()).then(|| Box::from_raw(word)) };
//!
//! let mut scratch = left(buffer.exchange(null_mut())).unwrap_or_default();
//! scratch.extend(b"a request");
//! scratch.clear();
//! // The CPU may be another by now, and may have one.
//! drop(left(buffer.exchange(Box::into_raw(scratch))));
//!
//! // In the end, of all CPUs.
//! buffers.with_all_stopped(|slots| {
//!     slots.for_each(|slot| drop(left(slot.field(|word| word).replace(null_mut()))));
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Memory
//!
//! Slots come from a [`PerCpuPool`], which packs the slots of many small values. Slot 3 of one
//! value is near slot 3 of the next value, on cache lines that only CPU 3 uses. The first use of a
//! slot initialises all slots up to that slot. The slots above it cost only address space. If the
//! index is the CPU number, a slot's page comes from that CPU's node. The memory of dropped values
//! is reused. [`PerCpuPool::trim`] returns this memory to the machine.
//!
//! # Other CPUs' slots
//!
//! Any thread may read any slot ([`Slots::get`], [`Slots::iter`], `sum`). To change another CPU's
//! slot, a thread must first stop the slots: [`Slots::with_stopped`].
//!
//! # Whole values
//!
//! Two collections keep values of any type for each CPU, without slots and without `unsafe` code in
//! programs. A [`PerCpuBag`] keeps spare values, and a [`LossyBuffer`] keeps records, some of which
//! may be lost. Their operations take an atomic instruction, because any thread may use every part
//! of a collection.
//!
//! # Source
//!
//! The kernel's `mm/percpu.c`; librseq's `mempool.h` (memory, checked mode) and `pseudocode.h`
//! (operations); TCMalloc's `percpu.h` (stopping, fencing).

mod bag;
mod fallback;
mod guarded;
mod lines;
mod lock;
mod lossy;
mod pool;
mod slots;
mod striped;

use core::mem::{self, ManuallyDrop};
use core::ops::Deref;

use coreline_world::restartable::Operation;
use coreline_world::restartable::definition::Add;
pub use coreline_world::restartable::{Full, Slot};
use coreline_world::{Integer, Native, Words, World};

pub use bag::PerCpuBag;
pub use guarded::{Guarded, ResizableStack};
pub use lines::Lines;
pub(crate) use lock::{SlotLock, SlotLockGuard};
pub use lossy::{Draining, LossyBuffer};
pub use pool::{Fault, Faults, PerCpuPool, PoolError, PoolOptions};
pub use slots::{Field, Indexing, Init, OwnIndex, Slots, StopError, Stopped, StoppedField};
pub(crate) use striped::own as own_stripe;

use crate::IndexBy;
use pool::Item;

/// A word of 64 bits in a slot. In world `W`, it is `W::U64`.
pub type Word64 = <Native as Words>::U64;
/// A word of 32 bits in a slot. In world `W`, it is `W::U32`.
pub type Word32 = <Native as Words>::U32;
/// A word in a slot that holds a `usize`. In world `W`, it is `W::Usize`.
pub type WordSize = <Native as Words>::Usize;
/// A word in a slot that holds a pointer. In world `W`, it is `W::Ptr`.
pub type WordPtr<T> = <Native as Words>::Ptr<T>;

/// A `T` for each CPU, or for each concurrency ID.
///
/// It dereferences to [`Slots`], whose methods are the interface. The most important method is
/// [`field`](Slots::field), which returns the operations on the calling thread's own slot.
///
/// **Memory**: `size_of::<T>()` bytes in each slot up to the highest used slot, and in the shared
/// slot. See [`PerCpuPool`].
///
/// **Signals**: all operations are async-signal-safe if the slots' initialiser is: see [`Init`].
/// [`PerCpuPool`] has the rules for creating and dropping a value.
///
/// **Fork**: the child has its own copy with the values at the time of the fork. Unused slots are
/// initialised in the child as in the parent.
pub struct PerCpu<T: Slot, W: World = Native> {
    /// Dropped before their memory goes back.
    slots: ManuallyDrop<Slots<T, W>>,
    item: Item<W>,
}

impl<T: Slot> PerCpu<T> {
    /// Creates one `T` for each CPU, from the process's [global pool](PerCpuPool::global). `init`
    /// creates a `T` when its CPU first uses it.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if `T` is too large, or there is no memory.
    pub fn new(init: impl Fn() -> T + Send + Sync + 'static) -> Result<Self, PoolError> {
        Self::new_in(IndexBy::Cpu, init)
    }

    /// Creates one `T` for each index of the kind `by`, like [`new`](PerCpu::new).
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](PerCpu::new_in).
    pub fn indexed_by(
        by: IndexBy,
        init: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<Self, PoolError> {
        Self::new_in(by, init)
    }
}

impl<T: Slot, W: World> PerCpu<T, W> {
    /// Creates one `T` for each index, from the world's [global pool](PerCpuPool::global).
    ///
    /// # Errors
    ///
    /// [`PoolError`] if the machine has no such index, `T` is too large, or there is no memory.
    pub fn new_in(
        by: IndexBy,
        init: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<Self, PoolError> {
        PerCpuPool::global_in(by)?.per_cpu(init)
    }

    /// Returns an iterator of mutable references, in the order of [`iter`](Slots::iter).
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut()
    }

    /// Takes over the item, which nothing else uses.
    fn in_item(item: Item<W>, init: Init<T>) -> Self {
        /// Gives the bytes back if `init` panics.
        struct Empty<'a, W: World>(&'a Item<W>);

        impl<W: World> Drop for Empty<'_, W> {
            fn drop(&mut self) {
                // SAFETY: once, here; nothing was made of the bytes.
                unsafe { self.0.free(0) };
            }
        }

        let (section, indexes) = item.section();
        let empty = Empty(&item);
        // SAFETY: an item has memory of the layout that it was allocated with, that of `T`, in each
        // slot; and `section` and `indexes` are those that the chunk was made for.
        let slots = unsafe { Slots::new_in(section, indexes, item.first.cast(), init) };
        mem::forget(empty);
        PerCpu { slots: ManuallyDrop::new(slots), item }
    }
}

impl<T: Slot, W: World> Deref for PerCpu<T, W> {
    type Target = Slots<T, W>;

    #[inline]
    fn deref(&self) -> &Slots<T, W> {
        &self.slots
    }
}

impl<T: Slot, W: World> Drop for PerCpu<T, W> {
    fn drop(&mut self) {
        let populated = self.slots.populated();
        // SAFETY: once, here; the slots are gone before their memory is.
        unsafe {
            ManuallyDrop::drop(&mut self.slots);
            self.item.free(populated);
        }
    }
}

impl_debug!([T: Slot, W: World] PerCpu<T, W> as it (*it.slots));

/// A value that is a single word with an integer.
impl<T: Slot + Integer> PerCpu<T>
where
    Add<T::Value>: Operation<Native, T, Output = ()>,
{
    /// Creates a word for each index, initially 0.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](PerCpu::new_in).
    pub fn words(by: IndexBy) -> Result<Self, PoolError> {
        Self::words_in(by)
    }
}

/// A value that is a single word with an integer, in world `W`.
impl<T: Slot + Integer, W: World> PerCpu<T, W>
where
    Add<T::Value>: Operation<W, T, Output = ()>,
{
    /// Creates a word for each index, like [`words`](PerCpu::words), in world `W`.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](PerCpu::new_in).
    pub fn words_in(by: IndexBy) -> Result<Self, PoolError> {
        Self::new_in(by, || T::new_in(T::Value::default()))
    }

    /// Adds to the calling thread's word: [`Field::add`].
    #[inline]
    pub fn add(&self, delta: T::Value) {
        self.field(|word| word).add(delta);
    }

    /// Returns the wrapping sum of all words: [`Field::sum`].
    pub fn sum(&self) -> T::Value {
        self.field(|word| word).sum()
    }
}

#[cfg(test)]
mod tests {
    use coreline_world::{Ordering, implements};

    use super::*;

    #[test]
    fn slots_are_sent_and_shared_as_what_is_in_them() {
        assert!(implements!(PerCpu<Word64>: Send) && implements!(PerCpu<Word64>: Sync));
    }

    #[test]
    fn a_slot_appears_when_it_is_used() {
        let words = PerCpu::<Word64>::new(|| Word64::new(7)).unwrap();
        assert_eq!((words.populated(), words.iter().count()), (0, 1));
        words.field(|word| word).add(1);
        let populated = words.populated();
        assert!(populated > 0 && populated <= words.indexes());
        // Relaxed: one thread.
        let sum: u64 = words.iter().map(|word| word.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 7 * (populated as u64 + 1) + 1);
    }
}
