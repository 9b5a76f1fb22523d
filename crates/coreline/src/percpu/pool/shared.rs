//! [`Shared`]: what the handles of a pool and its items share.

use core::alloc::Layout;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::{self, NonNull};

use coreline_world::{Cell, World};

use super::checked::{Fault, Strides};
use super::chunk::{Chunk, NodeOf};
use super::granules::granules;
use super::state::State;
use super::{PoolError, PoolOptions};
use crate::percpu::lock::SlotLock;

/// The state that handles and items share.
pub(super) struct Shared<W: World> {
    pub(super) section: W::Section,
    pub(super) indexes: u32,
    node_of: Box<NodeOf>,
    pub(super) options: PoolOptions,
    lock: SlotLock<W>,
    state: Cell<State<W>, W>,
}

// Nothing under the lock panics half-way, and what is asked for nodes changes nothing.
impl<W: World> UnwindSafe for Shared<W> {}
impl<W: World> RefUnwindSafe for Shared<W> {}

impl<W: World> Shared<W> {
    /// Without memory yet.
    pub(super) fn new(
        (section, indexes): (W::Section, u32),
        node_of: Box<NodeOf>,
        options: PoolOptions,
    ) -> Self {
        Shared {
            section,
            indexes,
            node_of,
            options,
            lock: SlotLock::new_in(),
            state: Cell::new_in(State::new(options.checked)),
        }
    }

    pub(super) fn strides(&self) -> Strides {
        Strides { stride: W::STRIDE, indexes: self.indexes as usize }
    }

    /// Calls `f` with the state, under the lock.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State<W>) -> R) -> R {
        let _guard = self.lock.lock();
        self.state.with_mut(|state| {
            // SAFETY: the lock keeps all other threads away.
            let state = unsafe { &mut *state };
            state.settle();
            f(state)
        })
    }

    pub(super) fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, PoolError> {
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
    /// As for [`PerCpuPool::free`](super::PerCpuPool::free).
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
