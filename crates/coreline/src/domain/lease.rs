//! [`Lease`]: an ID that belongs to its holder until it is dropped.
//!
//! # Indexes of their own
//!
//! Leased IDs lie behind those that rows show. No section ever works under one, so a lease is
//! exclusive across preemption and moves, also where there are no sections. They are bounded by the
//! leases that there are at once, and by no number of CPUs.

use core::fmt;
use core::ptr;

use coreline_topology::Cid;
use coreline_world::{Native, Ordering, Slot, Word, World};

use super::errors::{ForeignLocal, LeaseError};
use super::local::{DomainLocal, Exclusive, LocalError};
use super::magazines::{Leasing, Magazine, Taken, waits};
use super::{Domain, Shared};
use crate::cid::{Bitmap, Recent, References};
use crate::percpu::Init;

impl<P: References, W: World> Shared<P, W> {
    pub(super) fn leasing(&self) -> Option<&Leasing<P, W>> {
        // Acquire: pairs with the Release in `make_leasing`.
        // SAFETY: null, or from `Box::into_raw` in `make_leasing`, and freed with this.
        unsafe { self.leasing.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn make_leasing(&self) -> Result<&Leasing<P, W>, LeaseError> {
        let init = Init::Function(Magazine::new_in);
        let magazines = DomainLocal::new_in(&self.core, init, 0).map_err(|error| match error {
            LocalError::Nested => LeaseError::Nested,
            other => other.into(),
        })?;
        let taken = Bitmap::new_in(self.core.common.leases());
        let made = Box::into_raw(Box::new(Leasing { taken, magazines }));
        // Release: pairs with the Acquire in `leasing`: a thread that sees the pointer sees what it
        // points to. Acquire: the same, where another thread was first.
        let (release, acquire) = (Ordering::Release, Ordering::Acquire);
        let raced = self.leasing.compare_exchange(ptr::null_mut(), made, release, acquire);
        let there = match raced {
            Ok(_) => made,
            Err(theirs) => {
                // SAFETY: from `Box::into_raw` in this call, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                theirs
            }
        };
        // SAFETY: from `Box::into_raw`, here or in another thread, and freed with this.
        Ok(unsafe { &*there })
    }

    /// A number, where the fast path found none in this CPU's magazine.
    #[cold]
    #[inline(never)]
    fn lease_elsewhere(&self) -> Result<Taken<'_, W>, LeaseError> {
        let leasing = self.leasing().map_or_else(|| self.make_leasing(), Ok)?;
        let core = &*self.core;
        let at = core.place(W::cpu_hint().index());
        // SAFETY: an ID that operations may use has its slots.
        let magazine = at.and_then(|place| Some(unsafe { leasing.magazine(core.use_at(place)?) }));
        if let Some(taken) = magazine.and_then(Magazine::take) {
            return Ok(taken);
        }
        let exhausted = || LeaseError::Exhausted { most: core.common.leases() };
        leasing.take(core, at)?.ok_or_else(exhausted)
    }

    /// Takes back a number without a round.
    #[cold]
    #[inline(never)]
    fn put_back(&self, number: u32) {
        if let Some(leasing) = self.leasing() {
            leasing.put_back(&self.core, number);
        }
    }
}

/// An ID of a domain that belongs to its holder until it is dropped, from
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
    round: Option<&'a W::U32>,
    number: u32,
}

impl<'a, P: References, W: World> Lease<'a, P, W> {
    #[inline]
    pub(super) fn new(domain: &'a Domain<P, W>) -> Result<Self, LeaseError> {
        let cpu = W::cpu_hint();
        let shared = domain.shared();
        if let Some(leasing) = shared.leasing()
            && let Some(magazine) = leasing.magazine_at(&shared.core, cpu)
        {
            let first = &magazine.rounds[0];
            if let Some(number) = Magazine::<W>::take_round(first) {
                return Ok(Lease { domain, round: Some(first), number });
            }
            if let Some((number, round)) = magazine.take() {
                return Ok(Lease { domain, round, number });
            }
        }
        let (number, round) = shared.lease_elsewhere()?;
        Ok(Lease { domain, round, number })
    }

    /// The domain.
    pub fn domain(&self) -> &'a Domain<P, W> {
        self.domain
    }

    /// The ID: no lease of the domain has the same at the same time. Above all that CPUs have.
    pub fn cid(&self) -> Cid {
        Cid::new(self.domain.core().common.width() + self.number)
    }

    /// The value of this ID, shared with threads that read all values.
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

    /// The value of this ID, which only the holder of this lease can reach.
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
}

impl<P: References, W: World> Drop for Lease<'_, P, W> {
    #[inline]
    fn drop(&mut self) {
        match self.round {
            // Release: pairs with the Acquire in `Magazine::take_round`: the next holder sees what
            // was done under the number.
            Some(round) => round.store(waits(self.number), Ordering::Release),
            None => self.domain.shared().put_back(self.number),
        }
    }
}

impl<P: References, W: World> fmt::Debug for Lease<'_, P, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("cid", &self.cid()).finish_non_exhaustive()
    }
}
