//! The parts that a domain's locals share: its IDs, the number of slots made, and the list of its
//! locals.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | a row of `engine` | the ID of its CPU's sections | the holder of `lock`; all, from `Kept` |
//! | `made` | by extent: how many indexes have slots | the holder of `lock`; never falls |
//! | `locals`, `next` | the locals, in a list | the holder of `lock` |
//! | `lock` | held to give or take IDs, make slots, change the list | [`SlotLock`] |
//! | `waiters` | the queue of threads that wait for `lock` | see [`Osq`] |
//! | `generation` | of the memory in which the queue's threads are | never changes |
//!
//! # Slots first, then the row
//!
//! A section looks only at its row. So a row shows an ID only after every local has its slot:
//!
//! ```text
//! Thread 1: takes ID 3 for CPU 2, and stores the row
//! Thread 2, on CPU 2: reads its row: 3; adds to slot 3 of a local
//! Thread 1: makes slot 3 of that local                <- the addition is gone
//! ```
//!
//! To give out an ID for the first time, a thread makes its slot in all locals, raises `made`, and
//! stores the row, all under `lock`. A new local makes its slots for all of `made` and joins the
//! list under the same lock. The fence of the [expiry](Referring::expire_locked) is for a section
//! that has read an ID from its row before the ID was taken away.
//!
//! # No operation waits
//!
//! An operation that looks for a slot tries the lock. If it is held, the operation uses the shared
//! slot. The holder may be the thread that a signal handler interrupted, and may be running an
//! `init` that uses this domain.
//!
//! # Which thread is next
//!
//! `lock` must be one that a forked child takes over, and that knows its holder. Such a lock has no
//! queue, so new arrivals may repeatedly overtake a waiting thread. So threads that wait for it
//! (for leases from elsewhere, new locals, scans) wait in a separate queue, in order of arrival.
//! Only the first one there waits for the lock itself, together with operations, which never wait.
//! If 64 simulated CPUs want 32 leases, one of them waits for 2.4 ms without the queue, and for 0.1
//! ms with it.
//!
//! A thread blocks its signals while it is in the queue. So the holder cannot fork during that
//! time. The child of another thread does not queue: its copy of the queue has threads that the
//! child does not have.

use core::iter;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::{self, NonNull};
use std::sync::Arc;

use coreline_topology::CpuId;
use coreline_world::restartable::{Rows, RowsBeside};
use coreline_world::{Lacking, MapError, Native, Ordering, Slot, Time, Word, World};

use super::domains::Common;
use crate::cid::{Place, Recent, References, Referring};
use crate::heap;
use crate::lock::{Fifo, Osq};
use crate::percpu::{Indexing, SlotLock, SlotLockGuard, Slots};

/// See the module.
pub(super) struct Core<P: References, W: World> {
    pub(super) engine: Referring<P, W>,
    pub(super) common: Arc<Common<P, W>>,
    made: Box<[W::U32]>,
    locals: W::Ptr<Entry<W>>,
    lock: SlotLock<W>,
    pub(super) waiters: Osq<Fifo, W>,
    pub(super) generation: u32,
}

const _: () = {
    assert!(size_of::<Core<Recent, Native>>() == 160);
    assert!(align_of::<Core<Recent, Native>>() == 8);
};

/// A local, as its domain knows it. It begins with this struct.
pub(super) struct Entry<W: World> {
    next: W::Ptr<Entry<W>>,
    /// Makes a slot.
    ///
    /// # Safety
    ///
    /// The entry is that of the local whose function this is. Otherwise as [`Slots::make`].
    make: unsafe fn(NonNull<Entry<W>>, usize),
    /// The bytes of each slot.
    slot: u32,
    /// All other bytes of it.
    own: u32,
}

const _: () = {
    assert!(size_of::<Entry<Native>>() == 24);
    assert!(align_of::<Entry<Native>>() == 8);
};

impl<W: World> Entry<W> {
    pub(super) fn new_in(
        make: unsafe fn(NonNull<Entry<W>>, usize),
        slot: usize,
        own: usize,
    ) -> Self {
        let count = |bytes| u32::try_from(bytes).unwrap_or(u32::MAX);
        let next = W::Ptr::new_in(ptr::null_mut());
        Entry { next, make, slot: count(slot), own: count(own) }
    }
}

/// Proof that a domain's lock is held.
pub(super) type Guard<'a, W> = SlotLockGuard<'a, W>;

impl<P: References, W: World> Core<P, W> {
    pub(super) fn new_in(common: &Arc<Common<P, W>>) -> Self {
        Core {
            engine: Referring::new_in(common.layout.parts()),
            common: Arc::clone(common),
            made: common.extents.iter().map(|_| W::U32::new_in(0)).collect(),
            locals: W::Ptr::new_in(ptr::null_mut()),
            lock: SlotLock::new_in(),
            waiters: Osq::new_in(),
            generation: W::generation().get(),
        }
    }

    /// The place of a CPU, if the layout has it.
    pub(super) fn place(&self, cpu: usize) -> Option<Place> {
        self.common.layout.parts().place(CpuId::new(u32::try_from(cpu).ok()?)).ok()
    }

    /// Takes the lock; `None` if the calling thread has it.
    pub(super) fn lock(&self) -> Option<Guard<'_, W>> {
        if self.lock.is_mine() {
            return None;
        }
        Some(self.lock.try_lock_by_name().unwrap_or_else(|| self.wait_for_lock()))
    }

    #[cold]
    #[inline(never)]
    fn wait_for_lock(&self) -> Guard<'_, W> {
        self.lock.lock_by_name(|| {
            // In a forked child the queue is that of its parent's threads, and does not move.
            let moves = self.generation == W::generation().get();
            moves.then(|| self.waiters.lock())
        })
    }

    /// The ID that operations at this place may use now. It never waits.
    pub(super) fn use_at(&self, place: Place) -> Option<u32> {
        if let Some(cid) = self.engine.try_reuse_at(place) {
            return Some(cid);
        }
        self.use_locked_at(place, &self.lock.try_lock_by_name()?)
    }

    /// The same, for the holder of the lock.
    pub(super) fn use_locked_at(&self, place: Place, guard: &Guard<'_, W>) -> Option<u32> {
        let give = || {
            let prepare = |cid| self.make(usize::from(place.group), cid, guard);
            self.engine.try_use_at(place, prepare)
        };
        let cid = give()?;
        // Where sections cannot be fenced, IDs stay where they are. The scan marks this row, too,
        // and leaves it its ID.
        drop(self.expire_locked(W::now(), guard));
        give().or(Some(cid))
    }

    /// Takes back IDs that were not used for long.
    pub(super) fn expire(&self, now: Time) -> Result<(), Lacking> {
        // If there is none, the calling thread is giving a CPU an ID, and expires after that.
        self.lock().map_or(Ok(()), |guard| self.expire_locked(now, &guard))
    }

    /// The same, if it is time for that and the lock is free. It never waits.
    #[cold]
    #[inline(never)]
    pub(super) fn try_expire(&self) {
        let now = W::now();
        if self.engine.base().is_due(now)
            && let Some(guard) = self.lock.try_lock_by_name()
        {
            // Where sections cannot be fenced, IDs stay where they are.
            drop(self.expire_locked(now, &guard));
        }
    }

    fn expire_locked(&self, now: Time, _guard: &Guard<'_, W>) -> Result<(), Lacking> {
        // Without sections nothing has to be fenced: an operation that still uses its old ID uses
        // atomics, as all operations do.
        self.engine.expire_locked(now, || match W::runs_sections(self.common.pool.section()) {
            true => W::fence_restartable(),
            false => Ok(()),
        })
    }

    /// Makes the slots of an extent up to this index, in every local.
    pub(super) fn make(&self, extent: usize, index: u32, _guard: &Guard<'_, W>) {
        let first = self.common.extents[extent].range.start;
        for index in first + self.made_of(extent)..=index {
            for local in self.locals() {
                // SAFETY: an entry's function is that of its local. The index is one of the pool's,
                // and is made once, unless an `init` panicked before `made` rose: then no operation
                // has met the slots that were made, and what is in them is leaked.
                unsafe { (local.as_ref().make)(local, index as usize) };
            }
            // Release: pairs with the Acquire in `made_of`: the slots are there.
            self.made[extent].store(index - first + 1, Ordering::Release);
        }
    }

    /// Returns the number of slots of an extent that exist.
    fn made_of(&self, extent: usize) -> u32 {
        // Acquire: pairs with the Release in `make`.
        self.made[extent].load(Ordering::Acquire)
    }

    fn made(&self) -> impl Iterator<Item = u32> {
        (0..self.made.len()).map(|extent| self.made_of(extent))
    }

    /// Call this under the lock.
    fn locals(&self) -> impl Iterator<Item = NonNull<Entry<W>>> {
        // Relaxed: the lock orders the list.
        let first = NonNull::new(self.locals.load(Ordering::Relaxed));
        iter::successors(first, |local| {
            // Relaxed: the lock orders the list.
            // SAFETY: what is in the list lives, as it leaves the list under the lock.
            NonNull::new(unsafe { local.as_ref() }.next.load(Ordering::Relaxed))
        })
    }

    /// Adds a local.
    ///
    /// # Safety
    ///
    /// It has all slots of [`each_made`](Self::each_made), begins with the entry, and stays where
    /// it is until it is [removed](Self::remove).
    pub(super) unsafe fn insert(&self, local: NonNull<Entry<W>>, _guard: &Guard<'_, W>) {
        // Relaxed: the lock orders the list.
        let next = self.locals.load(Ordering::Relaxed);
        // SAFETY: the caller promises that the local begins with the entry and stays.
        unsafe { local.as_ref() }.next.store(next, Ordering::Relaxed);
        // Release: a forked child has the local with what comes behind it, or not.
        self.locals.store(local.as_ptr(), Ordering::Release);
    }

    /// Removes a local. It has the slots that are made, as long as the guard is held. Returns
    /// `None` if the calling thread has the lock. Then the local stays, and must.
    pub(super) fn remove(&self, local: NonNull<Entry<W>>) -> Option<Guard<'_, W>> {
        let guard = self.lock()?;
        // SAFETY: what is in the list lives, the local is its owner's, and the lock is held.
        let next = |local: NonNull<Entry<W>>| unsafe { &(*local.as_ptr()).next };
        let before = self.locals().find(|&other| {
            // Relaxed: the lock orders the list.
            next(other).load(Ordering::Relaxed) == local.as_ptr()
        });
        let link = before.map_or(&self.locals, next);
        // Relaxed, both: the lock orders the list.
        link.store(next(local).load(Ordering::Relaxed), Ordering::Relaxed);
        Some(guard)
    }

    /// The indexes whose slots are there, of this many of each extent.
    fn indexes(&self, made: impl Iterator<Item = u32>) -> impl Iterator<Item = usize> {
        let range = |(extent, made): (usize, u32)| {
            let first = self.common.extents[extent].range.start;
            first as usize..(first + made) as usize
        };
        made.enumerate().flat_map(range)
    }

    /// Calls `f` with the extent and the index of each slot that a local must have to be
    /// [inserted](Self::insert).
    pub(super) fn each_made(&self, _guard: &Guard<'_, W>, mut f: impl FnMut(usize, usize)) {
        for (extent, made) in self.made().enumerate() {
            let first = self.common.extents[extent].range.start;
            (first..first + made).for_each(|index| f(extent, index as usize));
        }
    }

    /// All bytes of the locals and of this struct, besides its own.
    pub(super) fn bytes(&self) -> usize {
        // If there is no guard, the calling thread has the lock already.
        let _guard = self.lock();
        let slots = 1 + self.made().sum::<u32>() as usize;
        let locals = self.locals().map(|local| {
            // SAFETY: what is in the list lives.
            let local = unsafe { local.as_ref() };
            local.own as usize + local.slot as usize * slots
        });
        self.engine.bytes() + size_of_val(&*self.made) + locals.sum::<usize>()
    }
}

/// The index for operations on a [`DomainLocal`](super::DomainLocal), which is the ID that the
/// domain has given the CPU.
pub struct ByDomain<P: References, W: World> {
    /// They belong to `core`; here a section finds them without reading that.
    rows: RowsBeside<W>,
    core: Arc<Core<P, W>>,
    /// How many slots of each extent there are, if the domain does not know the local. If it does,
    /// the first is [`KNOWN`], and the local has all slots that the domain has made. Then the rest
    /// is kept for `drop`, which must not allocate.
    own: Box<[u32]>,
}

/// More slots than there are.
const KNOWN: u32 = u32::MAX;

// As a handle of the domain.
impl<P: References, W: World> UnwindSafe for ByDomain<P, W> {}
impl<P: References, W: World> RefUnwindSafe for ByDomain<P, W> {}

impl<P: References, W: World> ByDomain<P, W> {
    /// See [`find`](Indexing::find).
    #[inline(never)]
    fn find_slowly<T: Slot>(slots: &Slots<T, W, Self>) -> Option<usize> {
        let core = &slots.indexing().core;
        let index = core.use_at(core.place(W::index(slots.section()))?)?;
        slots.indexing().look();
        slots.reopen().then_some(index as usize)
    }

    pub(super) fn new(core: &Arc<Core<P, W>>) -> Result<Self, MapError> {
        let own = heap::slice(core.made.iter().map(|_| 0))?;
        // SAFETY: the core lives as long as this.
        let rows = unsafe { RowsBeside::new(core.engine.base().rows_by_cpu()) };
        Ok(ByDomain { rows, core: Arc::clone(core), own })
    }

    /// The caller promises that the local stays at its address.
    ///
    /// # Safety
    ///
    /// It does, and no `&mut` to it is made until it drops.
    pub(super) unsafe fn settle(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe {
            RowsBeside::settle(NonNull::new_unchecked(&raw mut (*this.as_ptr()).rows));
            this.as_ref().look();
        }
    }

    /// Looks for lines of rows that were made since.
    fn look(&self) {
        // SAFETY: those that it was made of.
        unsafe { self.rows.look(self.core.engine.base().rows_by_cpu()) };
    }

    pub(super) fn core(&self) -> &Arc<Core<P, W>> {
        &self.core
    }

    /// Whether the domain knows the local.
    pub(super) fn is_known(&self) -> bool {
        self.own.first() == Some(&KNOWN)
    }

    /// The domain is about to know the local, which has all slots that are made.
    pub(super) fn join(&mut self, _guard: &Guard<'_, W>) {
        self.own[0] = KNOWN;
    }

    /// The domain does not know the local any more. The guard is that of its removal.
    pub(super) fn leave(&mut self, _guard: &Guard<'_, W>) {
        self.own.iter_mut().zip(self.core.made()).for_each(|(own, made)| *own = made);
    }

    /// How many slots of each extent there are, if the domain does not know the local.
    pub(super) fn own(&mut self) -> &mut [u32] {
        &mut self.own
    }

    /// The bytes that it has allocated, besides its own.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.own)
    }

    fn made(&self) -> impl Iterator<Item = u32> {
        let extents = 0..self.core.made.len();
        let is_known = self.is_known();
        extents.map(move |extent| match is_known {
            false => self.own[extent],
            true => self.core.made_of(extent),
        })
    }
}

// SAFETY: `made` never falls, and each local had the slots before it rose, or before it joined the
// list. Rows show IDs below it only: see the module. A thread that changes rows holds the domain's
// lock, and fences before it frees an ID.
unsafe impl<P: References, W: World> Indexing<W> for ByDomain<P, W> {
    #[inline]
    fn rows(&self) -> Option<&Rows<W>> {
        Some(self.rows.rows())
    }

    fn limit(&self, _indexes: u32) -> u32 {
        self.core.common.width()
    }

    fn is_initialised(&self, index: usize) -> bool {
        let Some(extent) = self.core.common.extent_of(index) else { return false };
        let first = self.core.common.extents[extent].range.start as usize;
        self.made().nth(extent).is_some_and(|made| index - first < made as usize)
    }

    fn initialised(&self) -> impl Iterator<Item = usize> {
        self.core.indexes(self.made())
    }

    fn find<T: Slot>(slots: &Slots<T, W, Self>) -> Option<usize> {
        let base = slots.indexing().core.engine.base();
        if !W::runs_sections(slots.section())
            && let Some(index) = base.shown_at(W::cpu_hint().index())
        {
            return Some(index as usize);
        }
        Self::find_slowly(slots)
    }
}

impl_debug!([P: References, W: World] ByDomain<P, W> { policy: P::NAME, .. });
