//! [`DomainLocal`]: a value for each concurrency ID of a domain.

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use std::sync::Arc;

use coreline_world::restartable::Operation;
use coreline_world::restartable::definition::Add;
use coreline_world::{Integer, Native, Slot, World};

use super::core::{ByDomain, Core, Entry};
use crate::cid::{Recent, References};
use crate::heap;
use crate::percpu::{Indexing, Init, PoolError, Slots};

/// The reason why a local cannot be created. Nothing was allocated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// There is no memory left, or the value does not fit into a slot.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The calling thread is initialising a slot of the same domain.
    #[error("the calling thread is making a slot of this domain; make the local before the slot")]
    Nested,
}

/// A `T` for each concurrency ID of a domain, from
/// [`Domain::local`](super::Domain::local).
///
/// It dereferences to [`Slots`], whose methods operate on the slot of the calling thread's CPU
/// ([`field`](Slots::field)), sum the slots, and stop them. Each operation finds its CPU's ID and
/// commits in one restartable section. A thread holds no ID between two operations.
///
/// ```
/// use coreline::domain::Domain;
/// use coreline::percpu::Word64;
///
/// let tenant = Domain::new()?;
/// // Reads and writes.
/// let traffic = tenant.local(|| [Word64::new(0), Word64::new(0)])?;
/// traffic.field(|words| &words[0]).add(3);
/// traffic.field(|words| &words[1]).add(1);
/// assert_eq!(traffic.sums(), [3, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// **Memory**: `size_of::<T>()` bytes for each ID that the domain ever handed out, and for one
/// shared slot. The memory comes from the pool of all domains, so their slots share pages.
///
/// **Signals**: all operations are async-signal-safe, if `init` is. Creating and dropping a local
/// is not async-signal-safe. **Fork**: the child has its own copy. **Panics**: a panic in `init`
/// unwinds out of the operation that needed the slot. The operation has no effect, and the next
/// operation on the slot calls `init` again. Values that were created in other locals for the same
/// ID may leak.
pub struct DomainLocal<T: Slot, P: References = Recent, W: World = Native> {
    parts: NonNull<Parts<T, P, W>>,
}

/// The parts that do not move with the local.
#[repr(C)]
struct Parts<T: Slot, P: References, W: World> {
    /// It comes first, as the domain expects.
    entry: Entry<W>,
    slots: ManuallyDrop<Slots<T, W, ByDomain<P, W>>>,
}

// SAFETY: the parts are owned through the pointer, and are sent and shared as slots are.
unsafe impl<T: Slot, P: References, W: World> Send for DomainLocal<T, P, W> {}
// SAFETY: slots can be shared, and what changes of an entry changes under the domain's lock.
unsafe impl<T: Slot, P: References, W: World> Sync for DomainLocal<T, P, W> {}

// As the slots.
impl<T: Slot + UnwindSafe, P: References, W: World> UnwindSafe for DomainLocal<T, P, W> {}
impl<T: Slot + RefUnwindSafe, P: References, W: World> RefUnwindSafe for DomainLocal<T, P, W> {}

/// Bytes of each slot, until they belong to a local.
struct Bytes<'a, P: References, W: World> {
    core: &'a Core<P, W>,
    first: NonNull<u8>,
    layout: Layout,
}

impl<P: References, W: World> Drop for Bytes<'_, P, W> {
    fn drop(&mut self) {
        // SAFETY: no thread uses them any more, and they came from this pool.
        let _ = unsafe { self.core.common.pool.free(self.first, self.layout, 0) };
    }
}

impl<T: Slot, P: References, W: World> DomainLocal<T, P, W> {
    /// `captured`: the bytes that `init` has on the heap.
    pub(super) fn new_in(
        core: &Arc<Core<P, W>>,
        init: Init<T>,
        captured: usize,
    ) -> Result<Self, LocalError> {
        let layout = Layout::new::<T>();
        let pool = &core.common.pool;
        let bytes = Bytes { core, first: pool.allocate(layout)?, layout };
        // All that may fail comes before the slots, which own the bytes.
        let parts = heap::uninit::<Parts<T, P, W>>().map_err(PoolError::Map)?;
        let by_domain = ByDomain::new(core).map_err(PoolError::Map)?;
        let indexes = core.common.indexes();
        let first = bytes.first.cast();
        // SAFETY: the pool has memory of this layout for this many indexes, and one more.
        let slots = unsafe { Slots::indexed_by(by_domain, *pool.section(), indexes, first, init) };
        // From here on the local gives them back.
        let _ = ManuallyDrop::new(bytes);
        let own = size_of::<Parts<T, P, W>>() + slots.indexing().bytes() + captured;
        let entry = Entry::new_in(Self::make, layout.size().next_multiple_of(8), own);
        let parts = Box::write(parts, Parts { entry, slots: ManuallyDrop::new(slots) });
        let mut local = DomainLocal { parts: NonNull::from_mut(Box::leak(parts)) };
        let guard = core.lock().ok_or(LocalError::Nested)?;
        // SAFETY: no other thread knows the local.
        let slots = unsafe { &mut local.parts.as_mut().slots };
        core.each_made(&guard, |extent, index| {
            // SAFETY: an index of the pool's, whose slot is counted when it was made.
            unsafe {
                slots.make(index);
                slots.indexing_mut().own()[extent] += 1;
            }
        });
        // SAFETY: all slots that the domain counts as made are. The parts stay until `drop`.
        unsafe {
            slots.indexing_mut().join(&guard);
            let slots = NonNull::new_unchecked(&raw mut (*local.parts.as_ptr()).slots);
            ByDomain::<P, W>::settle(Slots::<T, W, _>::indexing_at(slots.cast()));
            core.insert(local.parts.cast(), &guard);
        }
        Ok(local)
    }

    /// # Safety
    ///
    /// The same conditions as for [`Slots::make`], for the local that has the entry.
    unsafe fn make(entry: NonNull<Entry<W>>, index: usize) {
        // SAFETY: the caller promises that the entry is this local's, whose parts begin with it.
        unsafe { entry.cast::<Parts<T, P, W>>().as_ref().slots.make(index) };
    }

    fn parts(&self) -> &Parts<T, P, W> {
        // SAFETY: owned.
        unsafe { self.parts.as_ref() }
    }

    pub(super) fn core(&self) -> &Arc<Core<P, W>> {
        self.parts().slots.indexing().core()
    }

    /// Returns an iterator of all values: the values of the CPUs' IDs, the values of leases, and
    /// the shared value.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let slots = &**self;
        let indexes = slots.indexing().initialised_and(slots.indexes());
        // SAFETY: initialised, each once, and the caller alone has the local. The domain may make
        // other slots meanwhile.
        indexes.map(|index| unsafe { slots.first().byte_add(index * W::STRIDE).as_mut() })
    }
}

impl<T: Slot, P: References, W: World> Deref for DomainLocal<T, P, W> {
    type Target = Slots<T, W, ByDomain<P, W>>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.parts().slots
    }
}

impl<T: Slot, P: References, W: World> Drop for DomainLocal<T, P, W> {
    fn drop(&mut self) {
        let core = Arc::clone(self.core());
        // SAFETY: the domain, which knows the entry alone, makes no slots after `remove`; no other
        // thread has the local.
        let slots = unsafe {
            let slots = &raw mut (*self.parts.as_ptr()).slots;
            if (*slots).indexing().is_known() {
                // Dropped where a slot of the domain is made: it stays, and so does what it has.
                let Some(guard) = core.remove(self.parts.cast()) else { return };
                (*slots).indexing_mut().leave(&guard);
            }
            &mut *slots
        };
        let _bytes = Bytes { core: &core, first: slots.first().cast(), layout: Layout::new::<T>() };
        // SAFETY: once, here. The box was leaked by `new_in`.
        unsafe {
            ManuallyDrop::drop(slots);
            drop(Box::from_raw(self.parts.as_ptr()));
        }
    }
}

impl_debug!([T: Slot, P: References, W: World] DomainLocal<T, P, W> as it (**it));

/// A local whose value is one word that holds an integer.
impl<T: Slot + Integer, P: References, W: World> DomainLocal<T, P, W> {
    /// Adds to the word of the calling thread's CPU: [`Field::add`](crate::percpu::Field::add).
    #[inline]
    pub fn add(&self, delta: T::Value)
    where
        Add<T::Value>: Operation<W, T, Output = ()>,
    {
        self.field(|word| word).add(delta);
    }

    /// Returns the wrapping sum of all words: [`Field::sum`](crate::percpu::Field::sum).
    pub fn sum(&self) -> T::Value {
        self.field(|word| word).sum()
    }
}

/// A local whose value is several words that hold integers.
impl<T: Slot + Integer, P: References, W: World, const N: usize> DomainLocal<[T; N], P, W> {
    /// Returns the wrapping sum of each word: [`Field::sum`](crate::percpu::Field::sum).
    pub fn sums(&self) -> [T::Value; N] {
        core::array::from_fn(|which| self.field(|words| &words[which]).sum())
    }
}

/// A value that only a [`Lease`](super::Lease) of its slot, or the owner of the whole
/// [`DomainLocal`], can access.
pub struct Exclusive<T> {
    value: UnsafeCell<T>,
}

// SAFETY: `&Exclusive` exposes nothing; only the single lessee reaches the value, which is so sent
// from one lessee to the next.
unsafe impl<T: Send> Sync for Exclusive<T> {}
// SAFETY: a shared reference to a value gives no reference to anything inside it.
unsafe impl<T: Send + 'static> Slot for Exclusive<T> {}

// By a shared reference no value is seen, whatever a panic left there.
impl<T> RefUnwindSafe for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// Creates a slot that holds `value`.
    pub const fn new(value: T) -> Self {
        Exclusive { value: UnsafeCell::new(value) }
    }

    /// Returns the value, which only the caller can access.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    pub(super) fn get(&self) -> *mut T {
        self.value.get()
    }
}

impl_debug!([T] Exclusive<T> { .. });
