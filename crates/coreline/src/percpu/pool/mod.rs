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
//! An item is the same range of bytes in every slot. A bitmap with a bit for each 8 bytes of a
//! stride records the allocated ones. If none of the searched chunks has room, the pool maps one
//! more. The cost of allocating and freeing does not depend on the number of chunks (see
//! `rooms.rs`) or on the size (see `granules.rs`). The slot of a CPU that never uses it costs only
//! address space.
//!
//! # State
//!
//! | what | guarded by |
//! |---|---|
//! | the lists of chunks, their maps, what the checked mode remembers | `lock` |
//! | a chunk's memory: where it lies | nothing: it never changes, until the chunk is unmapped |
//!
//! `state.rs` describes how memory is returned.
//!
//! **Signals**: in an unchecked pool, [`allocate`](PerCpuPool::allocate),
//! [`free`](PerCpuPool::free) and [`trim`](PerCpuPool::trim) are async-signal-safe, even if memory
//! cannot be mapped, placed or given huge pages. The captures of an initialising closure come from
//! the global allocator, and are freed with the value. The pool itself also comes from the global
//! allocator, and is freed with its last value or handle. **Fork**: a child that was forked while
//! another thread allocated can continue. It may lose the bytes that the thread was about to
//! allocate or free, and hands none out twice. This does not hold for a checked pool, whose lists
//! may then be inconsistent.

mod checked;
mod chunk;
mod granules;
mod item;
mod rooms;
mod shared;
mod state;

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

use coreline_topology::{CpuId, NodeId};
use coreline_world::{Lacking, MapError, Native, World, WorldStatic};

use super::{Init, PerCpu, Slot};
use crate::IndexBy;
use chunk::{Chunk, NodeOf};
use shared::Shared;
use state::State;

pub use checked::{Fault, Faults};
pub(super) use item::Item;

/// The reason why per-CPU memory is not available. Nothing was allocated.
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

/// The options of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct PoolOptions {
    index_by: IndexBy,
    huge_pages: bool,
    checked: bool,
}

impl PoolOptions {
    /// Creates the default options: indexed by CPU number, pages of the usual size, not checked.
    pub const fn new() -> Self {
        PoolOptions { index_by: IndexBy::Cpu, huge_pages: false, checked: false }
    }

    /// Sets the index that selects the slot.
    pub const fn index_by(mut self, by: IndexBy) -> Self {
        self.index_by = by;
        self
    }

    /// Requests huge pages. Neighbouring slots then share a page, which is on the node of the first
    /// CPU to touch it. Use huge pages on machines with many CPUs per node, for values that all
    /// these CPUs use.
    pub const fn huge_pages(mut self, huge_pages: bool) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Enables the detection of writes after a free, double frees and leaks: see [`Fault`].
    pub const fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }
}

impl_default!([] PoolOptions, new);

/// Memory for per-CPU values. The type is a handle, and its clones are the same pool. The pool
/// lives as long as a handle or a value exists.
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

impl PerCpuPool {
    /// Creates a pool of this process.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    pub fn new(options: PoolOptions) -> Result<Self, Lacking> {
        Self::new_in(options)
    }

    /// Returns the process's pool for this index. Values without an explicit pool come from it.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if the machine has no such index.
    pub fn global(by: IndexBy) -> Result<Self, Lacking> {
        Self::global_in(by)
    }
}

impl<W: World> PerCpuPool<W> {
    /// Creates a pool in world `W`.
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

    /// A pool with this number of indexes. Rows hold the indexes, and `node_of` returns the node of
    /// each index.
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
        let indexes = u32::try_from(indexes).expect("a CPU number has 32 bits");
        let shared = Shared::new((section, indexes), node_of, options);
        PerCpuPool { shared: Arc::new(shared) }
    }

    /// Returns the world's pool for this index. Values without an explicit pool come from it.
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

    /// Creates one `T` for each index. `init` creates a `T` when its index is first used.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if `T` is too large, or there is no memory.
    pub fn per_cpu<T: Slot>(
        &self,
        init: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<PerCpu<T, W>, PoolError> {
        self.per_cpu_of(Init::try_closure(init)?)
    }

    pub(crate) fn per_cpu_of<T: Slot>(&self, init: Init<T>) -> Result<PerCpu<T, W>, PoolError> {
        let layout = Layout::new::<T>();
        let first = self.shared.allocate(layout)?;
        let pool = Arc::clone(&self.shared);
        Ok(PerCpu::in_item(Item { pool, first, layout }, init))
    }

    /// Allocates uninitialised bytes of this layout in each slot and in the shared slot. Returns
    /// the address in slot 0. Use it in code that creates its own [`Slots`](super::Slots).
    /// [`per_cpu`] allocates the bytes and creates the slots.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if the bytes do not fit into a slot, or there is no memory.
    ///
    /// [`per_cpu`]: PerCpuPool::per_cpu
    pub fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, PoolError> {
        self.shared.allocate(layout)
    }

    /// Frees the bytes that [`allocate`](PerCpuPool::allocate) returned for this layout. A checked
    /// pool fills the bytes in the first `populated` slots, and in the shared slot.
    ///
    /// # Errors
    ///
    /// [`Fault::FreedTwice`] if the bytes were already freed. Then the call does nothing.
    ///
    /// # Safety
    ///
    /// [`allocate`](PerCpuPool::allocate) of this pool once returned the address. No thread uses
    /// the bytes any more. If the bytes were already freed, [`trim`](PerCpuPool::trim) was not
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

    /// Returns the section by which operations on values of this pool run.
    pub fn section(&self) -> &W::Section {
        &self.shared.section
    }

    /// Returns the number of values in this pool.
    pub fn live(&self) -> usize {
        self.shared.with(|state| state.chunks().map(|chunk| chunk.live).sum())
    }

    /// Returns the number of bytes of address space that the pool has mapped.
    pub fn mapped(&self) -> usize {
        self.shared.with(|state| state.chunks().map(|chunk| chunk.layout.size()).sum())
    }

    /// Gives the memory that holds no value back to the machine. The result is the number of bytes
    /// of address space that the call unmapped. [`mapped`](PerCpuPool::mapped) falls by this
    /// number.
    ///
    /// Memory comes in chunks of one stride for each index, natively 64 KiB. A chunk without a
    /// value is unmapped. In a chunk with values, pages that hold no value in any slot are
    /// discarded. Such pages stay mapped, and do not count in the result. (A pool with huge pages
    /// keeps them.) New values go first to chunks that hold other values, so that some chunks
    /// become free. Without this call, a pool returns no memory while it lives.
    ///
    /// Values without an explicit pool come from [`PerCpuPool::global`]. Domains and their locals
    /// use the pool of [`Domains`](crate::domain::Domains::pool). This method trims both kinds of
    /// pool.
    ///
    /// **Cost**: each unmapped chunk costs a lock and a system call. Each discarded range of pages
    /// costs a lock, a walk over the other chunks, and a system call for each index. The system
    /// calls are made without the lock, so other threads can create and drop values meanwhile.
    /// Such a thread may map a new chunk, because it does not find room that is being discarded.
    ///
    /// **Signals**: the call is async-signal-safe in an unchecked pool. **Fork**: a child that is
    /// forked meanwhile can continue. It may lose the memory of one chunk for each thread that was
    /// trimming. **Checked pools**: a value that is still watched after it was dropped keeps its
    /// chunk, so call [`faults`](PerCpuPool::faults) first.
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
        // No more than there are now: otherwise this need not end beside threads that map more.
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

    /// Returns the reason why slots are not placed on their node, or lack huge pages that were
    /// requested. Returns `None` if all memory that is mapped now is as requested.
    pub fn lacking(&self) -> Option<Lacking> {
        self.shared.with(|state| state.chunks().find_map(|chunk| chunk.lacking.clone()))
    }

    /// Returns the faults that the checked mode has found since the last call. An unchecked pool
    /// has no faults. Items that were freed before the call are no longer watched.
    pub fn faults(&self) -> Vec<Fault> {
        let strides = self.shared.strides();
        self.shared
            .with(|state| Some(state.checks.as_mut()?.finish(&mut state.rooms, strides)))
            .unwrap_or_default()
    }

    /// Closes the pool, whose values should all have been dropped. Remaining values keep their
    /// memory.
    ///
    /// # Errors
    ///
    /// Returns all faults that the checked mode found, and the number of remaining values. An
    /// unchecked pool also reports the remaining values.
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

impl_debug!([W: World] PerCpuPool<W> as it {
    section: it.shared.section, indexes: it.shared.indexes, options: it.shared.options, ..
});

#[cfg(test)]
mod tests {
    use coreline_world::Restartable;

    use super::granules::tests::looked;
    use super::*;

    /// Chunks that are full except for holes of 3 granules, none of which is aligned as an item of
    /// 3 granules is. None of them is looked at for such an item.
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

    /// Items that are made and dropped in rounds are found in the same number of steps in each
    /// round.
    #[test]
    fn each_round_looks_at_as_many_words_as_the_one_before() {
        let pool = PerCpuPool::<Native>::new(PoolOptions::new()).unwrap();
        let sizes = [8, 24, 36, 40, 72, 136, 1024].into_iter().cycle().take(4_000);
        let layouts: Vec<_> = sizes.map(|size| Layout::from_size_align(size, 4).unwrap()).collect();
        let rounds: [_; 5] = core::array::from_fn(|_| {
            let round = || {
                let allocate = |layout: &Layout| pool.allocate(*layout).unwrap();
                let items: Vec<_> = layouts.iter().map(allocate).collect();
                for (item, layout) in items.into_iter().zip(&layouts) {
                    // SAFETY: just allocated, and used by nothing.
                    unsafe { pool.free(item, *layout, 0).unwrap() };
                }
                pool.mapped()
            };
            looked(round)
        });
        let [_, second, rest @ ..] = rounds;
        assert_eq!(rest, [second; 3], "bytes, and words");
    }

    /// Chunks that are full except for holes of 3 granules: a trim looks at their classes, and not
    /// at their maps.
    #[test]
    fn chunks_are_not_looked_at_for_pages_that_they_have_not() {
        let pool = PerCpuPool::<Native>::new(PoolOptions::new()).unwrap();
        let layout = Layout::from_size_align(40, 8).unwrap();
        for _ in 0..8 * Native::STRIDE / 64 {
            pool.allocate(layout).unwrap();
        }
        // The one that was mapped last goes to the list where it belongs.
        assert_eq!(pool.trim(), 0);
        let (bytes, words) = looked(|| pool.trim());
        assert_eq!((bytes, words), (0, 0));
    }

    #[test]
    fn a_pool_with_huge_pages_is_aligned_to_them() {
        for _ in 0..4 {
            let pool = PerCpuPool::<Native>::new(PoolOptions::new().huge_pages(true)).unwrap();
            let first = pool.allocate(Layout::new::<u64>()).unwrap();
            assert!(first.addr().get().is_multiple_of(2 << 20), "{first:?}");
        }
    }

    /// A search looks at four chunks that have no place for an item of this alignment, and no more.
    #[test]
    fn a_search_tries_four_chunks_of_a_class() {
        let layout = |align| Layout::from_size_align(64, align).unwrap();
        for (useless, found) in [(4, true), (5, false)] {
            let pool = PerCpuPool::<Native>::new(PoolOptions::new()).unwrap();
            let chunk = |_| {
                let items = Native::STRIDE / 64;
                (0..items).map(|_| pool.allocate(layout(64)).unwrap()).collect::<Vec<_>>()
            };
            let chunks: Vec<_> = (0..=useless).map(chunk).collect();
            let mapped = pool.mapped();
            // The list has the chunk first that had an item freed last. The chunk that was mapped
            // last is in another list, and does not count.
            for (number, items) in chunks.iter().enumerate() {
                let at = items[4 + usize::from(number > 0)];
                // SAFETY: allocated above, and used by nothing.
                unsafe { pool.free(at, layout(64), 0).unwrap() };
            }
            let at = pool.allocate(layout(256)).unwrap();
            assert_eq!((at == chunks[0][4], pool.mapped() == mapped), (found, found), "{useless}");
        }
    }
}
