//! [`Lease`]: an ID that belongs to its holder until it is dropped.
//!
//! # Indexes of their own
//!
//! Leased IDs are above the IDs that rows show. No section ever uses a leased ID. So a lease is
//! exclusive across preemption and migration, even without sections. Leased IDs are bounded by the
//! number of concurrent leases, not by the number of CPUs.

use core::{mem, ptr};

use coreline_topology::Cid;
use coreline_world::{Native, Ordering, Slot, Word, World};

use super::errors::{ForeignLocal, LeaseError};
use super::leased_id::LeasedId;
use super::local::{DomainLocal, Exclusive, LocalError};
use super::magazines::{Leasing, Magazine, waits};
use super::{Domain, Shared};
use crate::cid::{Bitmap, Recent, References};
use crate::heap;
use crate::percpu::{Init, PoolError};
use crate::queue::{Queue, Served};

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
        let no_memory = |error| LocalError::from(PoolError::Map(error));
        let taken = Bitmap::try_new_in(self.core.common.leases()).map_err(no_memory)?;
        let made = heap::boxed(Leasing::new_in(taken, magazines)).map_err(no_memory)?;
        let made = Box::into_raw(made);
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

    /// A number from the calling CPU's magazine, or else from anywhere.
    #[inline]
    fn take(&self) -> Result<LeasedId<W>, LeaseError> {
        let cpu = W::cpu_hint();
        if let Some(leasing) = self.leasing()
            && let Some(magazine) = leasing.magazine_at(&self.core, cpu)
        {
            let first = &magazine.rounds[0];
            if let Some(number) = Magazine::<W>::take_round(first) {
                return Ok(LeasedId::new((number, Some(first))));
            }
            if let Some(taken) = magazine.take() {
                return Ok(LeasedId::new(taken));
            }
        }
        self.take_elsewhere()
    }

    /// A number, if the fast path found none in this CPU's magazine.
    #[cold]
    #[inline(never)]
    pub(super) fn take_elsewhere(&self) -> Result<LeasedId<W>, LeaseError> {
        let made = self.leasing();
        // The first lease takes four locks. Each would block signals with two system calls.
        let _held = made.is_none().then(W::hold);
        let leasing = made.map_or_else(|| self.make_leasing(), Ok)?;
        let core = &*self.core;
        let at = core.place(W::cpu_hint().index());
        // SAFETY: an ID that operations may use has its slots.
        let magazine = at.and_then(|place| Some(unsafe { leasing.magazine(core.use_at(place)?) }));
        if let Some(taken) = magazine.and_then(Magazine::take) {
            return Ok(LeasedId::new(taken));
        }
        let exhausted = || LeaseError::Exhausted { most: core.common.leases() };
        leasing.take(core, at)?.map(LeasedId::new).ok_or_else(exhausted)
    }

    /// Takes back a number, or gives it to the first thread that waits for one.
    #[inline]
    pub(super) fn put_back(&self, held: LeasedId<W>) {
        // SAFETY: this domain's.
        let Some(round) = (unsafe { held.round() }) else {
            return self.put_back_without_round(held);
        };
        // Release: pairs with the Acquire in `Magazine::take_round`: the next holder sees what was
        // done under the number.
        round.store(waits(held.number), Ordering::Release);
        // Partner: the heavy fence of one that waits; see `crate::queue`.
        W::fence_light();
        if self.leasing().is_some_and(|leasing| leasing.wanted().is_some()) {
            self.give_from(round);
        }
    }

    /// Gives the number that was just returned to this round to a waiting thread, unless another
    /// thread has it.
    #[cold]
    #[inline(never)]
    fn give_from(&self, round: &W::U32) {
        while let Some(queue) = self.leasing().and_then(Leasing::wanted)
            && let Some(number) = Magazine::<W>::take_round(round)
        {
            if give(queue, LeasedId::new((number, Some(round)))).is_ok() {
                return;
            }
            // Release: pairs with the Acquire in `Magazine::take_round`.
            round.store(waits(number), Ordering::Release);
            // Partner: as in `put_back`.
            W::fence_light();
        }
    }

    /// Takes back a number without a round.
    #[cold]
    #[inline(never)]
    fn put_back_without_round(&self, mut held: LeasedId<W>) {
        while let Some(leasing) = self.leasing() {
            if leasing.wanted().is_some_and(|queue| give(queue, held).is_ok()) {
                return;
            }
            leasing.put_back(&self.core, held.number);
            // Partner: the heavy fence of one that waits; see `crate::queue`.
            W::fence_light();
            if leasing.wanted().is_none() {
                return;
            }
            // The calling thread may be making a slot of this domain, under its lock. One that
            // waits needs the lock for its look, and finds the number then.
            match self.take_elsewhere() {
                // SAFETY: this domain's.
                Ok(found) => match unsafe { found.round() } {
                    Some(_) => return self.give_or_put_back(found),
                    None => held = found,
                },
                Err(_) => return,
            }
        }
    }

    /// Gives a number to the first waiting thread; else takes it back.
    pub(super) fn give_or_put_back(&self, held: LeasedId<W>) {
        let queue = self.leasing().and_then(Leasing::wanted);
        if queue.is_none_or(|queue| give(queue, held).is_err()) {
            self.put_back(held);
        }
    }
}

/// Gives a number to the first waiting thread.
///
/// # Errors
///
/// If no thread waits, returns the number.
fn give<W: World>(queue: &Queue<(), LeasedId<W>, W>, held: LeasedId<W>) -> Result<(), LeasedId<W>> {
    let mut given = false;
    queue.serve(|()| match mem::replace(&mut given, true) {
        false => Served::Given(held),
        true => Served::Enough,
    });
    if given { Ok(()) } else { Err(held) }
}

/// The methods that both kinds of lease have.
macro_rules! lease {
    ($Lease:ident <$($Arg:tt),*>) => {
        impl<P: References, W: World> $Lease<$($Arg),*> {
            /// Returns the ID. No other lease of the domain has the same ID at the same time. The
            /// ID is larger than every ID that a CPU can have.
            pub fn cid(&self) -> Cid {
                self.domain.leased_cid(self.held)
            }

            /// Returns a shared reference to the value of this ID. Other threads may read the
            /// value, too, when they read all values.
            ///
            /// # Errors
            ///
            /// [`ForeignLocal`] if the local belongs to another domain.
            pub fn get<'l, T: Slot>(
                &'l self,
                local: &'l DomainLocal<T, P, W>,
            ) -> Result<&'l T, ForeignLocal> {
                self.domain.leased_value(self.held, local)
            }

            /// Returns the value of this ID, which only the holder of this lease can access.
            ///
            /// # Errors
            ///
            /// The same errors as for [`get`](Self::get).
            pub fn get_mut<'l, T: Send + 'static>(
                &'l mut self,
                local: &'l DomainLocal<Exclusive<T>, P, W>,
            ) -> Result<&'l mut T, ForeignLocal> {
                let value = self.get(local)?.get();
                // SAFETY: no other lease has this ID, this one is borrowed, and so is the local,
                // whose owner could reach the value, too.
                Ok(unsafe { &mut *value })
            }
        }

        impl<P: References, W: World> Drop for $Lease<$($Arg),*> {
            #[inline]
            fn drop(&mut self) {
                self.domain.shared().put_back(self.held);
            }
        }

        impl_debug!([P: References, W: World] $Lease<$($Arg),*> as it { cid: it.cid(), .. });
    };
}

/// The exclusive use of one of a domain's IDs until the lease is dropped.
/// [`Domain::lease`](super::Domain::lease) returns it. The holder may send the lease to another
/// thread, and may hold it while other threads run on this CPU or across an `await`.
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
/// The next holder of the same ID sees everything that was written under this lease.
///
/// If a lease is forgotten, or its thread ends without dropping it, its ID is lost until the domain
/// ends. [`Usage::leased`](super::Usage::leased) counts such IDs. **Signals**: signal handlers must
/// not use leases. **Fork**: in the child, leases of the parent's other threads count as forgotten.
/// The child keeps the leases of the forking thread.
pub struct Lease<'a, P: References = Recent, W: World = Native> {
    domain: &'a Domain<P, W>,
    held: LeasedId<W>,
}

impl<'a, P: References, W: World> Lease<'a, P, W> {
    #[inline]
    pub(super) fn new(domain: &'a Domain<P, W>) -> Result<Self, LeaseError> {
        Ok(Lease { domain, held: domain.shared().take()? })
    }

    /// A lease for a caller that can wait: `None` if others wait, or all leases are out.
    pub(super) fn unless_others_wait(domain: &'a Domain<P, W>) -> Result<Option<Self>, LeaseError> {
        if domain.shared().leasing().is_some_and(|leasing| leasing.wanted().is_some()) {
            return Ok(None);
        }
        match Self::new(domain) {
            Err(LeaseError::Exhausted { .. }) => Ok(None),
            lease => lease.map(Some),
        }
    }

    pub(super) fn of(domain: &'a Domain<P, W>, held: LeasedId<W>) -> Self {
        Lease { domain, held }
    }

    /// Converts the lease into an [`OwnedLease`], which keeps a handle of the domain and borrows
    /// nothing. Use it in tasks.
    pub fn into_owned(self) -> OwnedLease<P, W> {
        let (domain, held) = (self.domain.clone(), self.held);
        mem::forget(self);
        OwnedLease { domain, held }
    }

    /// Returns the domain.
    pub fn domain(&self) -> &'a Domain<P, W> {
        self.domain
    }
}

lease!(Lease<'_, P, W>);

/// A [`Lease`] that borrows nothing, from [`Lease::into_owned`]. Use it in tasks that hold it
/// across an `await`, and in unscoped threads. An owned lease keeps the domain alive.
///
/// ```
/// use coreline::domain::{Domain, Exclusive};
///
/// let tenant = Domain::new()?;
/// let buffers = tenant.local(|| Exclusive::new(Vec::new()))?;
/// let mut lease = tenant.lease()?.into_owned();
/// let work = move || lease.get_mut(&buffers).map(|buffer| buffer.push(1));
/// std::thread::spawn(work).join().unwrap()?;
/// assert_eq!(tenant.usage().leased, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// **Forgotten leases, signals, fork**: see [`Lease`].
pub struct OwnedLease<P: References = Recent, W: World = Native> {
    domain: Domain<P, W>,
    held: LeasedId<W>,
}

impl<P: References, W: World> OwnedLease<P, W> {
    /// Returns the domain.
    pub fn domain(&self) -> &Domain<P, W> {
        &self.domain
    }
}

lease!(OwnedLease<P, W>);

impl<P: References, W: World> Domain<P, W> {
    fn leased_cid(&self, held: LeasedId<W>) -> Cid {
        Cid::new(self.core().common.width() + held.number)
    }

    fn leased_value<'l, T: Slot>(
        &self,
        held: LeasedId<W>,
        local: &'l DomainLocal<T, P, W>,
    ) -> Result<&'l T, ForeignLocal> {
        if !ptr::eq(&raw const **local.core(), &raw const **self.core()) {
            return Err(ForeignLocal);
        }
        Ok(local.get(self.leased_cid(held).index()).expect("a leased ID has its slots"))
    }
}
