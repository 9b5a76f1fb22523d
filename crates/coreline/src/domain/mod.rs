//! Domains: per-CPU memory for many tenants, sessions or tables, with concurrency IDs of their own.
//!
//! A domain is to a tenant what an address space is to a process in the kernel. A program that
//! serves ten thousand tenants on 384 CPUs needs per-CPU memory for each tenant, but cannot afford
//! 384 slots ten thousand times. A [`Domain`] has its own space of concurrency IDs
//! ([`cid`](crate::cid)), so a tenant that is busy on two CPUs has slots 0 and 1:
//!
//! | type | meaning | in the kernel |
//! |---|---|---|
//! | [`DomainLocal`] | a value for each ID, without atomic instructions | `alloc_percpu` |
//! | [`Member`], [`Inside`] | a user that a shootdown can reach | `mm_cpumask`, `switch_mm` |
//! | [`Lease`] | an ID held for longer than one operation | |
//! | [`InDomain`] | a future that enters whenever it is polled | |
//! | [`Usage`] | users, IDs, leases, bytes | |
//!
//! ```
//! use coreline::domain::Domain;
//! use coreline::percpu::Word64;
//!
//! let tenant = Domain::new()?;
//! let requests = tenant.local(|| Word64::new(0))?;
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             let mut member = tenant.join();
//!             let (_inside, _) = member.enter();
//!             (0..100).for_each(|_| requests.add(1));
//!         });
//!     }
//! });
//! assert_eq!(requests.sum(), 400);
//! assert_eq!(tenant.usage().users, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Tenants that come and go
//!
//! Creating a domain allocates its rows. Its first local also allocates per-CPU memory. Both take
//! process-wide locks. If tenants are created and dropped often, keep domains constructed in an
//! [`ObjectCache`](crate::object::ObjectCache), with their locals:
//!
//! ```
//! use coreline::domain::{Domain, DomainLocal};
//! use coreline::object::ObjectCache;
//! use coreline::percpu::Word64;
//!
//! struct Tenant {
//!     domain: Domain,
//!     requests: DomainLocal<Word64>,
//! }
//!
//! let tenants = ObjectCache::<Tenant>::builder("tenants")
//!     .check(|tenant| {
//!         tenant.domain.check_unused()?;
//!         if tenant.requests.sum() == 0 { Ok(()) } else { Err("requests are under way".into()) }
//!     })
//!     .build(|| {
//!         let domain = Domain::new()?;
//!         let requests = domain.local(|| Word64::new(0))?;
//!         Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Tenant { domain, requests })
//!     })?;
//! for _ in 0..100 {
//!     let tenant = tenants.get()?;
//!     tenant.requests.add(1);
//!     tenant.requests.add(1_u64.wrapping_neg());
//! }
//! assert_eq!(tenants.stats().constructed, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # IDs by use
//!
//! A process is not notified of thread switches. So a CPU gets an ID in a domain at its first
//! operation. It keeps the ID until it has executed no operation for
//! [`EXPIRY`](crate::cid::EXPIRY). Each CPU's row stores its ID. Each operation reads the row and
//! commits in one restartable section. The law holds for each commit, because a preempted thread
//! holds no ID. Use a [`Lease`] to hold an ID for longer.
//!
//! Operations need no [`Member`]. Under [`Recent`] and [`Clustered`](crate::cid::Clustered), the
//! number of members decides when a CPU gets a new ID. It gets one while fewer IDs were handed out
//! than there are members. Otherwise it gets the lowest free ID.
//!
//! # Law
//!
//! Operations on the locals of a domain are those of [`Slots`](crate::percpu::Slots), and no update
//! is lost. Two CPUs' sections never work under one ID. The CPU or lease that gets an ID next sees
//! everything that was done under this ID. No operation uses a slot that is not initialised. A
//! leased ID belongs to only one lease. After users have left and the expiry has passed, the IDs in
//! use become compact again. This happens when an operation takes a slow path, when members enter
//! again, or when [`Domain::expire`] is called. An operation that finds its CPU's ID does not read
//! the clock. So if none of these three events happens, idle CPUs keep their IDs.
//!
//! # Memory
//!
//! A domain uses a few hundred bytes and a pointer for each sixteen CPUs. It also uses a cache line
//! for each group of sixteen CPUs of which at least one was used. Each local uses a few words, and
//! a slot for each ID that was ever handed out. The slots of all domains for one ID are adjacent.
//! The lines of their rows are adjacent, too. So domains share pages. Slots stay until the local is
//! dropped. An ID that is reused keeps its slots. [`Usage::bytes`] counts all of this memory.
//!
//! # Signals
//!
//! Signal handlers may use operations on locals, but no other part of this module. **Fork**: if a
//! child was forked while another thread was giving a CPU its ID, or taking IDs back, the child may
//! have lost that ID until the domain ends. A CPU that finds no ID left uses the shared slot.
//! **Panics**: a panic in `init` leaves everything unchanged, except that values of other locals
//! that were made for the same ID leak.
//!
//! `init` runs under its domain's lock. So inside `init`, operations of the same domain that need
//! the lock return an error ([`LocalError::Nested`], [`LeaseError::Nested`]). `init` must not fork.
//! It must not wait for another domain whose `init` waits for this domain, because both would wait
//! forever. `local`, `lease` and `usage` can wait for an `init` in this way.
//!
//! # Bad input
//!
//! | input | result |
//! |---|---|
//! | a CPU that the layout does not have | its operations share one slot, with atomics |
//! | more users than CPUs | nothing: IDs are bounded by CPUs, too |
//! | a forgotten lease or member | its ID or its seat is lost, and the domain counts it |
//! | more leases than there are | [`LeaseError::Exhausted`], or waits: [`Domain::lease_wait`] |
//!
//! In the repository, `docs/domains.md` has drawings and measurements.
//!
//! # Source
//!
//! The sources are `mm_cid` and `switch_mm` of the kernel. Several domains per process, each with
//! its own IDs, are new in coreline. librseq's per-memory-space concurrency IDs have one space per
//! process.

mod core;
mod domains;
mod errors;
mod future;
mod lease;
mod leased_id;
mod local;
mod magazines;
mod member;
#[cfg(test)]
mod tests;
mod waiting;

use ::core::fmt;
use ::core::panic::{RefUnwindSafe, UnwindSafe};
use ::core::ptr;
use std::sync::Arc;

use coreline_world::{Lacking, Native, Ordering, Slot, Time, Word, World};

use crate::block_on::block_on;
use crate::cid::{Recent, References};
use crate::mask::{Entry, Presence, PresenceOptions, Shot};
use crate::percpu::{Init, PoolError};

use self::core::Core;
use domains::Common;
use magazines::Leasing;

pub use self::core::ByDomain;
pub use domains::{Domains, DomainsError, DomainsOptions};
pub use errors::{ForeignLocal, InUse, LeaseError};
pub use future::{DomainFuture, InDomain};
pub use lease::{Lease, OwnedLease};
pub use local::{DomainLocal, Exclusive, LocalError};
pub use member::{Entered, Inside, Member};
pub use waiting::LeaseFuture;

/// The error of a shootdown in a domain without a presence. The function ran in no member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this domain cannot reach its members; make it with `DomainOptions::presence`")]
pub struct NoPresence;

/// The options of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct DomainOptions {
    presence: Option<PresenceOptions>,
}

impl DomainOptions {
    /// Creates the default options, without a presence.
    pub const fn new() -> Self {
        DomainOptions { presence: None }
    }

    /// Adds a presence, which notifies members of changes. A presence uses a few kilobytes,
    /// depending on the number of its seats.
    pub const fn presence(mut self, options: PresenceOptions) -> Self {
        self.presence = Some(options);
        self
    }
}

impl_default!([] DomainOptions, new);

/// The contents and the memory use of a domain, from [`Domain::usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The number of members.
    pub users: usize,
    /// The number of IDs that CPUs have.
    pub ids: usize,
    /// The number of leases that are in use, or were forgotten.
    pub leased: usize,
    /// The number of bytes that only this domain uses, without the overhead of the allocator and of
    /// the pool's maps.
    pub bytes: usize,
}

/// A tenant, a session or a table: see the [module](self). The type is a handle, and its clones are
/// the same domain. The domain lives as long as a handle of it, one of its members or
/// one of its locals exists.
///
/// **Priorities**: see [`CidSpace`](crate::cid::CidSpace). Operations on locals never
/// wait.
///
/// **No memory**: the creation of a local or a lease returns an error. A domain, a member or a
/// waiter that cannot be created [ends the process](crate#without-memory).
///
/// **Signals, fork, panics**: see the [module](self).
pub struct Domain<P: References = Recent, W: World = Native> {
    shared: Arc<Shared<P, W>>,
}

/// The parts that handles share.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | `leasing` | what leases take; null before the first | the first lease, once |
struct Shared<P: References, W: World> {
    /// Locals share this, too. The locals in `leasing` must not keep it alive.
    core: Arc<Core<P, W>>,
    presence: Option<Presence<W>>,
    leasing: W::Ptr<Leasing<P, W>>,
}

const _: () = {
    assert!(size_of::<Shared<Recent, Native>>() == 24);
    assert!(align_of::<Shared<Recent, Native>>() == 8);
};

// What can panic is what makes a slot: that did nothing, and the next operation tries again.
impl<P: References, W: World> UnwindSafe for Domain<P, W> {}
impl<P: References, W: World> RefUnwindSafe for Domain<P, W> {}

impl Domain {
    /// Creates a domain of this process, without users and without a presence.
    ///
    /// # Errors
    ///
    /// The same errors as for [`Domains::global`].
    pub fn new() -> Result<Self, DomainsError> {
        Ok(Domains::global()?.domain(DomainOptions::new()))
    }
}

impl<P: References, W: World> Domain<P, W> {
    fn of(common: &Arc<Common<P, W>>, options: DomainOptions) -> Self {
        let shared = Shared {
            core: Arc::new(Core::new_in(common)),
            presence: options.presence.map(Presence::new_in),
            leasing: W::Ptr::new_in(ptr::null_mut()),
        };
        Domain { shared: Arc::new(shared) }
    }

    fn shared(&self) -> &Shared<P, W> {
        &self.shared
    }

    fn core(&self) -> &Arc<Core<P, W>> {
        &self.shared.core
    }

    fn presence(&self) -> Option<&Presence<W>> {
        self.shared.presence.as_ref()
    }

    /// Creates a `T` for each ID. `init` creates each `T` when a CPU first gets the ID. The call
    /// runs `init` for all IDs that CPUs have already had.
    ///
    /// # Errors
    ///
    /// [`LocalError`] if `T` is too large, if there is no memory, or if the caller is an `init` of
    /// this domain.
    pub fn local<T: Slot, F: Fn() -> T + Send + Sync + 'static>(
        &self,
        init: F,
    ) -> Result<DomainLocal<T, P, W>, LocalError> {
        let init = Init::try_closure(init).map_err(PoolError::Map)?;
        DomainLocal::new_in(self.core(), init, size_of::<F>())
    }

    /// Adds a user, with a seat if the domain has a presence.
    pub fn join(&self) -> Member<P, W> {
        Member::new(self.clone())
    }

    /// Creates a member that [joins](Domain::join) and [enters](Member::enter) the domain, and
    /// stays for as long as the guard lives. Each call costs an allocation and a few writes to
    /// shared lines. If a thread enters often, keep a [`Member`].
    pub fn enter(&self) -> (Entered<P, W>, Entry) {
        Entered::new(self.join())
    }

    /// Runs `f` in every member that is inside the domain, and returns when each member has run `f`
    /// or left: see [`Presence::shootdown`]. Do not call it inside the domain. A member that is
    /// inside calls [`Inside::shootdown`] instead.
    ///
    /// # Errors
    ///
    /// [`NoPresence`] if the domain has no presence.
    pub fn shootdown(&self, f: impl Fn() + Sync) -> Result<Shot, NoPresence> {
        Ok(self.presence().ok_or(NoPresence)?.shootdown(f))
    }

    /// Leases an ID, which belongs to the caller until the lease is dropped.
    ///
    /// If a free ID was last leased on the calling CPU, a lease costs an atomic exchange, and its
    /// return costs a store. While four leases of that CPU are in use, each further lease costs two
    /// exchanges. Up to four such IDs are kept per CPU. Otherwise, a lease takes the domain's lock,
    /// plus the time to initialise its slots. A domain with more leases than leasing CPUs seldom
    /// takes the lock. With fewer leases, CPUs take IDs from each other under the lock. Request
    /// more with [`DomainsOptions::leases`].
    ///
    /// # Errors
    ///
    /// [`LeaseError::Exhausted`] if all IDs are leased.
    #[inline]
    pub fn lease(&self) -> Result<Lease<'_, P, W>, LeaseError> {
        Lease::new(self)
    }

    /// Leases an ID, like [`lease`](Domain::lease), but sleeps while all IDs are leased. Waiting
    /// callers get leases in FIFO order. A concurrent [`lease`](Domain::lease), which does not
    /// wait, may overtake them.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] for the same reasons as [`lease`](Domain::lease), except
    /// [`Exhausted`](LeaseError::Exhausted).
    pub fn lease_wait(&self) -> Result<Lease<'_, P, W>, LeaseError> {
        self.lease_within(None)
    }

    /// Leases an ID, like [`lease_wait`](Domain::lease_wait), but waits at most until `deadline`.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Exhausted`] if the deadline passes before a lease is free.
    pub fn lease_by(&self, deadline: Time) -> Result<Lease<'_, P, W>, LeaseError> {
        self.lease_within(Some(deadline))
    }

    fn lease_within(&self, deadline: Option<Time>) -> Result<Lease<'_, P, W>, LeaseError> {
        if let Some(lease) = Lease::unless_others_wait(self)? {
            return Ok(lease);
        }
        let exhausted = LeaseError::Exhausted { most: self.core().common.leases() };
        block_on::<W, _>(self.lease_async(), deadline).unwrap_or(Err(exhausted))
    }

    /// Returns a future that leases an ID, like [`lease_wait`](Domain::lease_wait), for any
    /// executor.
    ///
    /// ```
    /// use coreline::domain::{Domain, Exclusive};
    ///
    /// async fn serve(tenant: &Domain) -> Result<(), Box<dyn std::error::Error>> {
    ///     let buffers = tenant.local(|| Exclusive::new(Vec::new()))?;
    ///     let mut lease = tenant.lease_async().await?;
    ///     lease.get_mut(&buffers)?.push(1);
    ///     Ok(())
    /// }
    /// # let tenant = Domain::new()?;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(serve(&tenant))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lease_async(&self) -> LeaseFuture<'_, P, W> {
        LeaseFuture::new(self)
    }

    /// Takes back the IDs of CPUs that have executed no operation of the domain for
    /// [`EXPIRY`](crate::cid::EXPIRY): see [`CidSpace::expire_unused`](crate::CidSpace). Operations
    /// that take a slow path also call it, and so does each 64th entry of a [`Member`]. So a
    /// program needs to call it only for domains that become idle, and for domains that no member
    /// enters. The call does nothing until [`SCAN_DELAY`](crate::cid::SCAN_DELAY) has passed since
    /// the last scan.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if sections cannot be fenced. Then CPUs keep their IDs.
    pub fn expire(&self, now: Time) -> Result<(), Lacking> {
        self.core().expire(now)
    }

    /// Checks that no part of the domain is in use, so that another tenant can use the domain. An
    /// [`ObjectCache`](crate::object::ObjectCache) of domains can run this check when a domain is
    /// returned. CPUs may still have IDs, and keep these IDs for the next tenant.
    ///
    /// # Errors
    ///
    /// [`InUse`] if the domain has members, or leases are in use.
    pub fn check_unused(&self) -> Result<(), InUse> {
        let (users, leased) = (self.core().engine.base().users() as usize, self.leased());
        if users + leased == 0 { Ok(()) } else { Err(InUse { users, leased }) }
    }

    fn leased(&self) -> usize {
        self.shared.leasing().map_or(0, |leasing| leasing.leased(self.core().common.leases()))
    }

    /// Returns the current contents and memory use of the domain. The result may be out of date
    /// when the call returns. The call waits while slots are initialised.
    pub fn usage(&self) -> Usage {
        let core = &**self.core();
        let (leasing, base) = (self.shared.leasing(), core.engine.base());
        /// An allocation with two counts.
        const COUNTS: usize = 2 * size_of::<usize>();
        let own = 2 * COUNTS + size_of::<Shared<P, W>>() + size_of::<Core<P, W>>();
        let presence = self.presence().map_or(0, Presence::bytes);
        Usage {
            users: base.users() as usize,
            ids: base.taken() as usize,
            leased: self.leased(),
            bytes: own + core.bytes() + presence + leasing.map_or(0, Leasing::bytes),
        }
    }
}

impl<P: References, W: World> Clone for Domain<P, W> {
    fn clone(&self) -> Self {
        Domain { shared: Arc::clone(&self.shared) }
    }
}

impl<P: References, W: World> Drop for Shared<P, W> {
    fn drop(&mut self) {
        // Relaxed: no other thread has it.
        let leasing = self.leasing.load(Ordering::Relaxed);
        if !leasing.is_null() {
            // SAFETY: from `Box::into_raw`, and no lease is left, as each borrows a handle.
            drop(unsafe { Box::from_raw(leasing) });
        }
    }
}

impl<P: References, W: World> fmt::Debug for Domain<P, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = self.core().engine.base();
        f.debug_struct("Domain")
            .field("policy", &P::NAME)
            .field("users", &base.users())
            .field("ids", &base.taken())
            .finish_non_exhaustive()
    }
}
