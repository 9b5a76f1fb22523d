//! [`PerCpuPool`]: memory for per-CPU values.
//!
//! # Layout
//!
//! ```text
//! chunk   slot 0           slot 1           ...  shared slot
//!         | stride bytes   | stride bytes   |    |                |
//! items   |a|b|ccc|        |a|b|ccc|        |    |a|b|ccc|        |
//! ```
//!
//! An item is the same bytes of every slot. A map with a bit for each 8 bytes of a stride says
//! which are taken; where none of the chunks that are looked at has room, one more is mapped. To
//! take and to free cost the same with one chunk and with a thousand: see `rooms.rs`; and the same
//! for each size: see `granules.rs`. Address space is all that a slot costs whose CPU never comes.
//!
//! # State
//!
//! | what | guarded by |
//! |---|---|
//! | the lists of chunks, their maps, what the checked mode remembers | `lock` |
//! | a chunk's memory: where it lies | nothing: it never changes, until the chunk is unmapped |
//!
//! How memory goes back is in `state.rs`.
//!
//! **Signals**: in a pool that is not checked, [`allocate`](PerCpuPool::allocate),
//! [`free`](PerCpuPool::free) and [`trim`](PerCpuPool::trim) are async-signal-safe, also where
//! memory cannot be mapped, placed or given huge pages. The global allocator gives what a closure
//! captures that says how a value begins, and the pool itself, and gets them back with the value,
//! and with the pool's last value or handle. **Fork**: a child that was forked while another thread
//! allocated goes on; it may lose the bytes that the thread was about to take or to give back, and
//! hands none out twice. Not so in a checked pool, whose lists may be torn then.

use core::alloc::Layout;
use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::{self, NonNull};
use std::sync::Arc;

use coreline_topology::{CpuId, NodeId};
use coreline_world::{Cell, Lacking, MapError, Native, World, WorldStatic};

use super::checked::{Fault, Faults, Strides};
use super::chunk::{Chunk, Item, NodeOf};
use super::granules::granules;
use super::lock::SlotLock;
use super::state::State;
use super::{Init, PerCpu, Slot};
use crate::IndexBy;

/// Per-CPU memory could not be had. Nothing was allocated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The machine has no such index.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// The machine has no memory left.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The value does not fit into a slot.
    #[error(
        "a value of {size} bytes, aligned to {align} bytes, does not fit into a slot of {stride} \
         bytes: keep a pointer there instead"
    )]
    TooLarge {
        /// The value's size in bytes.
        size: usize,
        /// The value's alignment in bytes.
        align: usize,
        /// The size of a slot in bytes.
        stride: usize,
    },
}

/// What a pool is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct PoolOptions {
    index_by: IndexBy,
    huge_pages: bool,
    checked: bool,
}

impl PoolOptions {
    /// Indexed by CPU number, pages of the usual size, not checked.
    pub const fn new() -> Self {
        PoolOptions { index_by: IndexBy::Cpu, huge_pages: false, checked: false }
    }

    /// What picks the slot.
    pub const fn index_by(mut self, by: IndexBy) -> Self {
        self.index_by = by;
        self
    }

    /// Asks for huge pages. Neighbouring slots share one then, and the node of whoever touches it
    /// first: for machines with many CPUs to a node, and values that all of them use.
    pub const fn huge_pages(mut self, huge_pages: bool) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Looks for writes after a free, double frees and leaks: see [`Fault`].
    pub const fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions::new()
    }
}

/// Memory for per-CPU values. A handle: clones are the same pool, which lives as long as one of
/// them, or a value.
///
/// ```
/// use coreline::percpu::{Fault, PerCpuPool, PoolOptions, Word64};
///
/// let pool = PerCpuPool::new(PoolOptions::new().checked(true))?;
/// let words = pool.per_cpu(|| Word64::new(0))?;
/// words.add(1);
/// std::mem::forget(words);
/// let faults = pool.close().unwrap_err();
/// assert_eq!(faults.0, [Fault::Leaked { count: 1 }]);
/// # Ok::<(), coreline::percpu::PoolError>(())
/// ```
pub struct PerCpuPool<W: World = Native> {
    shared: Arc<Shared<W>>,
}

/// What handles and items share.
pub(super) struct Shared<W: World> {
    pub(super) section: W::Section,
    pub(super) indexes: u32,
    node_of: Box<NodeOf>,
    options: PoolOptions,
    lock: SlotLock<W>,
    state: Cell<State<W>, W>,
}

// Nothing under the lock panics half-way, and what is asked for nodes changes nothing.
impl<W: World> UnwindSafe for Shared<W> {}
impl<W: World> RefUnwindSafe for Shared<W> {}

impl PerCpuPool {
    /// A pool of this process.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    pub fn new(options: PoolOptions) -> Result<Self, Lacking> {
        Self::new_in(options)
    }

    /// The process's pool for this index, that every value without a pool of its own comes from.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    pub fn global(by: IndexBy) -> Result<Self, Lacking> {
        Self::global_in(by)
    }
}

impl<W: World> PerCpuPool<W> {
    /// A pool in world `W`.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    pub fn new_in(options: PoolOptions) -> Result<Self, Lacking> {
        W::section(options.index_by).map(|section| Self::of_section(section, options))
    }

    fn of_section((section, indexes): (W::Section, usize), options: PoolOptions) -> Self {
        let node_of: Box<NodeOf> = match options.index_by {
            IndexBy::Cpu => {
                let node_of = |index| Some(W::topology().cpu(CpuId::new(index as u32))?.node);
                Box::new(node_of)
            }
            IndexBy::KernelCid => Box::new(|_| None),
        };
        Self::of_nodes((section, indexes), node_of, options)
    }

    /// A pool of so many indexes, which rows show, and which lie on these nodes.
    pub(crate) fn by_rows(
        indexes: usize,
        node_of: impl Fn(usize) -> Option<NodeId> + Send + Sync + 'static,
    ) -> Result<Self, Lacking> {
        let options = PoolOptions::new();
        let (section, _) = W::section(options.index_by)?;
        Ok(Self::of_nodes((section, indexes), Box::new(node_of), options))
    }

    fn of_nodes(
        (section, indexes): (W::Section, usize),
        node_of: Box<NodeOf>,
        options: PoolOptions,
    ) -> Self {
        let shared = Shared {
            section,
            indexes: u32::try_from(indexes).expect("a CPU number has 32 bits"),
            node_of,
            options,
            lock: SlotLock::new_in(),
            state: Cell::new_in(State::new(options.checked)),
        };
        PerCpuPool { shared: Arc::new(shared) }
    }

    /// The world's pool for this index, that every value without a pool of its own comes from.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    pub fn global_in(by: IndexBy) -> Result<Self, Lacking> {
        static BY_CPU: WorldStatic = WorldStatic::new("per-CPU memory by CPU number");
        static BY_CID: WorldStatic = WorldStatic::new("per-CPU memory by concurrency ID");
        let key = match by {
            IndexBy::Cpu => &BY_CPU,
            IndexBy::KernelCid => &BY_CID,
        };
        let section = W::section(by)?;
        let pool = || Self::of_section(section, PoolOptions::new().index_by(by));
        Ok(W::with_static(key, pool, Clone::clone))
    }

    /// One `T` for each index. Each begins as `init` returns it, when it is first used.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if `T` is too large, or there is no memory.
    pub fn per_cpu<T: Slot>(
        &self,
        init: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<PerCpu<T, W>, PoolError> {
        self.per_cpu_of(Init::closure(init))
    }

    pub(crate) fn per_cpu_of<T: Slot>(&self, init: Init<T>) -> Result<PerCpu<T, W>, PoolError> {
        let layout = Layout::new::<T>();
        let first = self.shared.allocate(layout)?;
        let pool = Arc::clone(&self.shared);
        Ok(PerCpu::in_item(Item { pool, first, layout }, init))
    }

    /// Bytes of this layout in each slot and in the shared one, as they are; returns the address in
    /// slot 0. For code that makes [`Slots`](super::Slots) of its own; [`per_cpu`] does it all.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if they do not fit, or there is no memory.
    ///
    /// [`per_cpu`]: PerCpuPool::per_cpu
    pub fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, PoolError> {
        self.shared.allocate(layout)
    }

    /// Gives back what [`allocate`](PerCpuPool::allocate) returned for this layout. A checked pool
    /// fills the bytes in the first `populated` slots, and in the shared one.
    ///
    /// # Errors
    ///
    /// [`Fault::FreedTwice`] if they were given back already, with nothing done.
    ///
    /// # Safety
    ///
    /// [`allocate`](PerCpuPool::allocate) of this pool once returned the address. No thread uses
    /// the bytes any more. If they were given back already, [`trim`](PerCpuPool::trim) was not
    /// called since, or the pool is checked.
    pub unsafe fn free(
        &self,
        first: NonNull<u8>,
        layout: Layout,
        populated: usize,
    ) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.shared.free(first, layout, populated) }
    }

    /// How operations on values of this pool run.
    pub fn section(&self) -> &W::Section {
        &self.shared.section
    }

    /// How many values of this pool there are.
    pub fn live(&self) -> usize {
        self.shared.with(|state| state.chunks().map(|chunk| chunk.live).sum())
    }

    /// Bytes of address space that the pool has mapped.
    pub fn mapped(&self) -> usize {
        self.shared.with(|state| state.chunks().map(|chunk| chunk.layout.size()).sum())
    }

    /// Gives memory that holds no value back to the machine. Returns how many bytes of address
    /// space it unmapped: [`mapped`](PerCpuPool::mapped) falls by as much.
    ///
    /// Memory comes in chunks of one stride for each index, natively 64 KiB. A chunk without a
    /// value is unmapped. Of a chunk with values, the pages are discarded in which no slot has one;
    /// they stay mapped, and do not count. (A pool with huge pages keeps them.) New values go to
    /// chunks that hold others first, so that some chunks become free. A pool gives nothing back on
    /// its own while it lives.
    ///
    /// Values without a pool of their own come from [`PerCpuPool::global`]; domains and their
    /// locals have the pool of [`Domains`](crate::domain::Domains::pool). Both are trimmed by this.
    ///
    /// **Cost**: a lock and a system call for each chunk that is unmapped; and for each range of
    /// pages that is discarded, a lock, a walk over the other chunks, and a system call for each
    /// index. The system calls are made without the lock: other threads make and drop values
    /// meanwhile. They may map a chunk because they do not find room that is being discarded.
    ///
    /// **Signals**: async-signal-safe in a pool that is not checked. **Fork**: a child that is
    /// forked meanwhile goes on. It may lose the memory of one chunk for each thread that was
    /// trimming. **Checked pools**: a value that is still watched after it was dropped keeps
    /// its chunk; call [`faults`](PerCpuPool::faults) first.
    ///
    /// ```
    /// use coreline::percpu::{PerCpuPool, PoolOptions, Word64};
    ///
    /// let pool = PerCpuPool::new(PoolOptions::new())?;
    /// let words: Vec<_> = (0..10_000)
    ///     .map(|_| pool.per_cpu(|| Word64::new(0)))
    ///     .collect::<Result<_, _>>()?;
    /// assert_eq!(pool.trim(), 0, "all of it is in use");
    /// drop(words);
    /// let mapped = pool.mapped();
    /// assert_eq!((pool.trim(), pool.mapped()), (mapped, 0));
    /// # Ok::<(), coreline::percpu::PoolError>(())
    /// ```
    pub fn trim(&self) -> usize {
        let mut bytes = 0;
        // No more than there are now: else this need not end beside threads that map more.
        for _ in 0..self.shared.with(|state| state.chunks().count()) {
            let Some(chunk) = self.shared.with(State::take_out_empty) else { break };
            // SAFETY: mapped by `Chunk::map`. It left the pool's lists under the lock, and had no
            // item, so no other thread knows it.
            unsafe {
                bytes += chunk.as_ref().layout.size();
                Chunk::unmap::<W>(chunk);
            }
        }
        // It would take huge pages apart.
        if !self.shared.options.huge_pages {
            self.discard_pages();
        }
        bytes
    }

    /// Gives back to the machine the pages that are free in every slot of a chunk.
    fn discard_pages(&self) {
        let shared = &self.shared;
        // SAFETY: each comes back once.
        let next = |last| shared.with(|state| unsafe { state.next_free_pages(last) });
        let mut next_pages = next(None);
        while let Some(pages) = next_pages {
            let granules = pages.granules.clone();
            // SAFETY: the pages are this thread's until they come back. So the chunk is not empty,
            // and stays mapped.
            unsafe { Chunk::discard::<W>(pages.memory, shared.indexes, granules) };
            next_pages = next(Some(pages));
        }
    }

    /// Why slots do not lie where they should, or have no huge pages though they should. Returns
    /// `None` if all memory that the pool has mapped now is as it was asked for.
    pub fn lacking(&self) -> Option<Lacking> {
        self.shared.with(|state| state.chunks().find_map(|chunk| chunk.lacking.clone()))
    }

    /// What the checked mode has found since the last time; nothing in a pool that is not checked.
    /// What is freed already is no longer watched after that.
    pub fn faults(&self) -> Vec<Fault> {
        let strides = self.shared.strides();
        self.shared
            .with(|state| Some(state.checks.as_mut()?.finish(&mut state.rooms, strides)))
            .unwrap_or_default()
    }

    /// Says that all values of the pool should be gone. Those that are not keep their memory.
    ///
    /// # Errors
    ///
    /// All that the checked mode found, and how many values there still are; the latter in a pool
    /// that is not checked, too.
    pub fn close(self) -> Result<(), Faults> {
        let mut faults = self.faults();
        let count = self.live();
        if count > 0 {
            faults.push(Fault::Leaked { count });
        }
        if faults.is_empty() { Ok(()) } else { Err(Faults(faults)) }
    }
}

impl<W: World> Clone for PerCpuPool<W> {
    fn clone(&self) -> Self {
        PerCpuPool { shared: Arc::clone(&self.shared) }
    }
}

impl<W: World> fmt::Debug for PerCpuPool<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpuPool")
            .field("section", &self.shared.section)
            .field("indexes", &self.shared.indexes)
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl<W: World> Shared<W> {
    fn strides(&self) -> Strides {
        Strides { stride: W::STRIDE, indexes: self.indexes as usize }
    }

    /// Calls `f` with the state, under the lock.
    fn with<R>(&self, f: impl FnOnce(&mut State<W>) -> R) -> R {
        let _guard = self.lock.lock();
        self.state.with_mut(|state| {
            // SAFETY: the lock keeps all other threads away.
            let state = unsafe { &mut *state };
            state.settle();
            f(state)
        })
    }

    fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, PoolError> {
        let (size, align, stride) = (layout.size(), layout.align(), W::STRIDE);
        if size > stride || align > stride {
            return Err(PoolError::TooLarge { size, align, stride });
        }
        if let Some(first) = self.with(|state| state.take(layout)) {
            return Ok(first);
        }
        // Without the lock: system calls. Signals are let in unless the caller holds them off, as
        // a domain's first lease does. Two threads may map a chunk each; both count.
        let huge_pages = self.options.huge_pages;
        let mut chunk = Chunk::map::<W>(&self.node_of, self.indexes, huge_pages)?;
        self.with(|state| {
            // SAFETY: just mapped, and no other thread knows it.
            let new = unsafe { chunk.as_mut() };
            let first = new.take(granules(layout));
            // SAFETY: in no list; the pool's from now on, whose lock is held.
            unsafe {
                state.link(chunk);
                state.rooms.raise(chunk, State::<W>::WHOLE);
            }
            Ok(first.expect("it fits into an empty stride"))
        })
    }

    /// # Safety
    ///
    /// As for [`PerCpuPool::free`].
    pub(super) unsafe fn free(
        &self,
        first: NonNull<u8>,
        layout: Layout,
        populated: usize,
    ) -> Result<(), Fault> {
        let strides = self.strides();
        self.with(|state| {
            // SAFETY: the caller's promise: `allocate` returned the address.
            let chunk = unsafe { Chunk::of::<W>(first, self.indexes) };
            // A checked pool looks for the chunk: it may be unmapped, if the bytes were freed.
            let is_free = state.checks.as_ref().is_some_and(|checks| {
                let is_there = state.chunks().any(|other| ptr::eq(other, chunk.as_ptr()));
                !is_there || checks.is_watched(first)
            });
            // SAFETY: the chunk is there, as the caller promises where it was not looked for. The
            // lock is held.
            if is_free || !unsafe { chunk.as_ref() }.has(first, layout) {
                let fault = Fault::FreedTwice { at: first.addr().get(), size: layout.size() };
                if let Some(checks) = &mut state.checks {
                    checks.note(fault.clone());
                }
                return Err(fault);
            }
            // SAFETY: the chunk has the bytes, and the caller says that no thread uses them.
            unsafe {
                (*chunk.as_ptr()).live -= 1;
                match &mut state.checks {
                    None => state.rooms.give_back(chunk, first, layout),
                    Some(checks) => {
                        checks.watch(&mut state.rooms, strides, chunk, first, layout, populated);
                    }
                }
            }
            Ok(())
        })
    }
}

impl<W: World> Drop for Shared<W> {
    fn drop(&mut self) {
        let mut next = self.state.get_mut().head();
        while let Some(at) = next {
            // SAFETY: mapped by `Chunk::map`; every item holds the pool, so there is none.
            unsafe {
                next = at.as_ref().next;
                Chunk::unmap::<W>(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use coreline_world::Restartable;

    use super::super::granules::tests::looked;
    use super::*;

    /// Chunks that are full but for holes of 3 granules, none of which is aligned as an item of 3
    /// granules is. None of them is looked at for such an item.
    #[test]
    fn chunks_are_not_looked_at_for_holes_that_are_of_no_use() {
        let pool = PerCpuPool::<Native>::new(PoolOptions::new()).unwrap();
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        for _ in 0..8 * Native::STRIDE / 64 {
            pool.allocate(layout(40)).unwrap();
        }
        let mapped = pool.mapped();
        // The full ones go to the lists where they belong, and one more is mapped.
        pool.allocate(layout(24)).unwrap();
        assert!(pool.mapped() > mapped);
        let (first, words) = looked(|| pool.allocate(layout(24)).unwrap());
        assert!(words <= 4, "{words} words");
        // Nor for what comes back, where it makes room for other sizes only.
        // SAFETY: just allocated, and used by nothing.
        unsafe { pool.free(first, layout(24), 0).unwrap() };
        let small: Vec<_> = (0..64).map(|_| pool.allocate(layout(8)).unwrap()).collect();
        for at in small {
            let ((), words) = looked(|| {
                // SAFETY: allocated above, and used by nothing.
                unsafe { pool.free(at, layout(8), 0).unwrap() };
                pool.allocate(layout(24)).unwrap();
            });
            assert!(words <= 16, "{words} words");
        }
    }
}
