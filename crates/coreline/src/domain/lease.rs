//! [`Lease`]: an ID that is somebody's until it is dropped.
//!
//! # Indexes of their own
//!
//! Leased IDs lie behind those that rows show. No section ever works under one, so a lease is
//! exclusive across preemption and moves, also where there are no sections. They are bounded by the
//! leases that there are at once, and by no number of CPUs.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `taken` | by number: leased, or on a stack | who takes, under a lock; who returns |
//! | `stacks` | by ID of a CPU: leases that were returned there | sections |
//!
//! A lease goes from the stack of one CPU's ID to whoever leases next on that CPU, with its memory
//! in that CPU's caches: one pop and one push, without an atomic instruction. A lease whose memory
//! is another node's goes to no stack. Where nothing is free and stacks of other CPUs may have
//! some, all stacks are stopped and emptied.

use core::fmt;
use core::mem::{self, ManuallyDrop};
use core::num::NonZero;
use core::ptr::{self, NonNull};

use coreline_topology::Cid;
use coreline_world::restartable::{ArrayStack, Init};
use coreline_world::{Native, Ordering, Slot, Word, World};

use super::core::{Core, Guard};
use super::local::{DomainLocal, Exclusive, LocalError};
use super::{Domain, Shared};
use crate::cid::{Bitmap, Recent, References};

/// How many returned leases wait with each ID.
const KEPT: usize = 4;

/// There is no lease. Nothing was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// All are leased.
    #[error(
        "{leased} of {most} leases of this domain are out: drop some, and forget none; or ask for \
         more with `DomainsOptions::leases`"
    )]
    Exhausted {
        /// How many are out.
        leased: usize,
        /// How many there are.
        most: usize,
    },
    /// There is no memory for what the domain's first lease takes.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// It was asked for where a slot of the same domain is being made.
    #[error("a slot of this domain is being made, by the calling thread; lease before or after")]
    Nested,
}

/// A local is another domain's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this local is another domain's: take the lease from the domain that made the local")]
pub struct ForeignLocal;

/// What stands for a lease on a stack: its number, plus one.
struct Token;

fn token(number: u32) -> NonNull<Token> {
    NonNull::without_provenance(NonZero::<usize>::MIN.saturating_add(number as usize))
}

fn number(token: NonNull<Token>) -> u32 {
    token.addr().get() as u32 - 1
}

/// What a domain has from its first lease on.
pub(super) struct Leasing<P: References, W: World> {
    taken: Bitmap<W>,
    stacks: DomainLocal<ArrayStack<Token, KEPT, W>, P, W>,
}

impl<P: References, W: World> Leasing<P, W> {
    /// All bytes of it but those of the stacks, which are a local.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.taken.bytes()
    }

    /// How many leases are out. Stale when it is given.
    pub(super) fn leased(&self, most: usize) -> usize {
        let kept: usize = self.stacks.iter().map(ArrayStack::len).sum();
        (self.taken.count(0..most as u32) as usize).saturating_sub(kept)
    }

    /// One that is free, or waits on a stack; its slots are made. `None` if all are out.
    fn take(&self, core: &Core<P, W>) -> Result<Option<u32>, LeaseError> {
        let guard = core.lock().ok_or(LeaseError::Nested)?;
        Ok(self.take_free(core, &guard).or_else(|| {
            self.drain();
            // Nobody else takes what was freed: that takes the lock.
            self.take_free(core, &guard)
        }))
    }

    /// The lowest that is free, on the CPU's node if there is one; its slots are made.
    fn take_free(&self, core: &Core<P, W>, guard: &Guard<'_, W>) -> Option<u32> {
        let width = core.common.width();
        let here = core.place(W::cpu().index());
        for (extent, part) in core.common.parts_from(here) {
            let numbers = part.range.start - width..part.range.end - width;
            // Only holders of the lock insert, so it cannot be lost to somebody else.
            if let Some(number) = self.taken.insert_lowest(numbers) {
                let taken = Taken(&self.taken, number);
                core.make(extent, width + number, guard);
                return Some(ManuallyDrop::new(taken).1);
            }
        }
        None
    }

    /// Frees what waits on stacks. Where they cannot be stopped, it stays there.
    fn drain(&self) {
        let stacks = self.stacks.with_all_stopped(|stacks| {
            for stack in stacks {
                let mut tokens = [None; KEPT];
                let popped = stack.field(|stack| stack).pop_batch(&mut tokens);
                for token in tokens[..popped].iter().flatten() {
                    self.taken.remove(number(*token));
                }
            }
        });
        drop(stacks);
    }
}

/// Frees the number if nothing comes of it.
struct Taken<'a, W: World>(&'a Bitmap<W>, u32);

impl<W: World> Drop for Taken<'_, W> {
    fn drop(&mut self) {
        self.0.remove(self.1);
    }
}

impl<P: References, W: World> Shared<P, W> {
    pub(super) fn leasing(&self) -> Option<&Leasing<P, W>> {
        // Acquire: pairs with the Release in `make_leasing`.
        // SAFETY: null, or from `Box::into_raw` there, and freed with this.
        unsafe { self.leasing.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn make_leasing(&self) -> Result<&Leasing<P, W>, LeaseError> {
        let init = Init::Function(ArrayStack::new_in);
        let stacks = DomainLocal::new_in(&self.core, init, 0).map_err(|error| match error {
            LocalError::Nested => LeaseError::Nested,
            other => other.into(),
        })?;
        let taken = Bitmap::new_in(self.core.common.leases());
        let made = Box::into_raw(Box::new(Leasing { taken, stacks }));
        // Release: pairs with the Acquire in `leasing`; so does that on failure.
        let (release, acquire) = (Ordering::Release, Ordering::Acquire);
        let raced = self.leasing.compare_exchange(ptr::null_mut(), made, release, acquire);
        let there = match raced {
            Ok(_) => made,
            Err(theirs) => {
                // SAFETY: from `Box::into_raw` above, and nobody else knows it.
                drop(unsafe { Box::from_raw(made) });
                theirs
            }
        };
        // SAFETY: as in `leasing`.
        Ok(unsafe { &*there })
    }

    /// Another lease, since there is none on this CPU's stack.
    #[cold]
    #[inline(never)]
    fn lease_elsewhere(&self) -> Result<(&Leasing<P, W>, u32), LeaseError> {
        let leasing = self.leasing().map_or_else(|| self.make_leasing(), Ok)?;
        let most = self.core.common.leases();
        let number = leasing.take(&self.core)?;
        let exhausted = || LeaseError::Exhausted { leased: leasing.leased(most), most };
        Ok((leasing, number.ok_or_else(exhausted)?))
    }
}

/// An ID of a domain that is somebody's until it is dropped, from
/// [`Domain::lease`](super::Domain::lease). It may be sent to another thread, held while others run
/// on this CPU, and across an `await`.
///
/// ```
/// use coreline::domain::{Domain, Exclusive};
///
/// let tenant = Domain::new()?;
/// let buffers = tenant.local(|| Exclusive::new(Vec::new()))?;
/// let mut lease = tenant.lease()?;
/// lease.get_mut(&buffers)?.push(1);
/// drop(lease);
/// # let mut buffers = buffers;
/// let all: usize = buffers.iter_mut().map(|buffer| buffer.get_mut().len()).sum();
/// assert_eq!(all, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What was written under a lease is seen under the next one of the same ID.
///
/// A lease that is forgotten, or whose thread ends without dropping it, takes its ID along until
/// the domain ends; [`Usage::leased`](super::Usage::leased) counts it. **Signals**: not in
/// handlers. **Fork**: in the child, leases of the parent's other threads are as forgotten; its own
/// is its own.
pub struct Lease<'a, P: References = Recent, W: World = Native> {
    domain: &'a Domain<P, W>,
    leasing: &'a Leasing<P, W>,
    number: u32,
}

impl<'a, P: References, W: World> Lease<'a, P, W> {
    #[inline]
    pub(super) fn new(domain: &'a Domain<P, W>) -> Result<Self, LeaseError> {
        if let Some(leasing) = domain.shared().leasing()
            && let Some(token) = leasing.stacks.field(|stack| stack).pop()
        {
            return Ok(Lease { domain, leasing, number: number(token) });
        }
        let (leasing, number) = domain.shared().lease_elsewhere()?;
        Ok(Lease { domain, leasing, number })
    }

    /// The domain.
    pub fn domain(&self) -> &'a Domain<P, W> {
        self.domain
    }

    /// The ID: no lease of the domain has the same at the same time. Above all that CPUs have.
    pub fn cid(&self) -> Cid {
        Cid::new(self.domain.core().common.width() + self.number)
    }

    /// The value of this ID, shared with who reads all of them.
    ///
    /// # Errors
    ///
    /// [`ForeignLocal`] if the local is another domain's.
    pub fn get<'l, T: Slot>(
        &'l self,
        local: &'l DomainLocal<T, P, W>,
    ) -> Result<&'l T, ForeignLocal> {
        if !ptr::eq(&raw const **local.core(), &raw const **self.domain.core()) {
            return Err(ForeignLocal);
        }
        Ok(local.get(self.cid().index()).expect("a leased ID has its slots"))
    }

    /// The value of this ID, which nobody else can reach as long as this is held.
    ///
    /// # Errors
    ///
    /// As [`get`](Lease::get).
    pub fn get_mut<'l, T: Send + 'static>(
        &'l mut self,
        local: &'l DomainLocal<Exclusive<T>, P, W>,
    ) -> Result<&'l mut T, ForeignLocal> {
        let value = self.get(local)?.get();
        // SAFETY: no other lease has this ID, this one is borrowed, and so is the local, whose
        // owner could reach the value, too.
        Ok(unsafe { &mut *value })
    }

    /// Whether the lease's memory is that of the CPU's node, or of no node.
    fn is_near(&self) -> bool {
        let common = &self.domain.core().common;
        if !P::CLUSTERED || common.parts().nth(1).is_none() {
            return true;
        }
        let here = self.domain.core().place(W::cpu().index());
        let near = common.parts_from(here).next().map(|(_, part)| part.range.clone());
        near.is_some_and(|range| range.contains(&self.cid().get()))
    }
}

impl<P: References, W: World> Drop for Lease<'_, P, W> {
    #[inline]
    fn drop(&mut self) {
        let Leasing { taken, stacks } = self.leasing;
        // It is free also if the push makes a slot, and that panics.
        let taken = Taken(taken, self.number);
        if self.is_near() && stacks.field(|stack| stack).push(token(self.number)).is_ok() {
            mem::forget(taken);
        }
    }
}

impl<P: References, W: World> fmt::Debug for Lease<'_, P, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("cid", &self.cid()).finish_non_exhaustive()
    }
}
