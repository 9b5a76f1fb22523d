//! Domains: tenants that have concurrency IDs of their own, and leases of such IDs.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use coreline::domain::{
    Domain, DomainOptions, Domains, DomainsError, DomainsOptions, Lease, LeaseError,
};
use coreline::mask::PresenceOptions;
use coreline::world::{Clock, Native, Time};

use crate::boundary::{Outcome, boundary};
use crate::code::coreline_code_t as Code;
use crate::handle::{self, create, destroy, opaque};
use crate::presence::{
    coreline_member_t, coreline_shootdown_f, coreline_shot_t, function, is_elsewhere, join, number,
};
use crate::with::with;

/// The settings that several domains share: the number of their leases, and the memory of their
/// words.
pub struct coreline_domains_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_domains_t, Domains, b"-domains");

/// A tenant, a session or a table, with concurrency IDs of its own.
///
/// A CPU gets an ID in a domain when it first uses a word of the domain, so a domain that two CPUs
/// use has the IDs 0 and 1, and memory only for these.
pub struct coreline_domain_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_domain_t, Tenant, b"-domain-");

/// A domain, as C knows it.
pub(crate) struct Tenant {
    pub(crate) domain: Domain,
    pub(crate) number: u64,
}

/// A domain without a presence.
pub const CORELINE_DOMAIN_DEFAULT: u32 = 0;
/// Shootdowns reach the members of the domain.
pub const CORELINE_DOMAIN_PRESENCE: u32 = 1;

const FLAGS: u32 = CORELINE_DOMAIN_DEFAULT | CORELINE_DOMAIN_PRESENCE;

/// The state of a domain, and its use of memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct coreline_usage_t {
    /// The number of members.
    pub users: usize,
    /// The number of IDs that CPUs have.
    pub ids: usize,
    /// The number of leases that were not returned.
    pub leased: usize,
    /// The number of bytes that only this domain uses.
    pub bytes: usize,
}

/// A concurrency ID that belongs to its holder, in memory of its user.
///
/// A function that leases an ID fills the structure in, and `coreline_domain_return` empties it.
/// `CORELINE_LEASE_INIT`, or zeros, is an empty lease. A lease may be moved and passed to another
/// thread, but only one copy of it may be returned.
#[repr(C)]
pub struct coreline_lease_t {
    /// Private: the number of the domain, or 0.
    pub domain: u64,
    /// The ID, while the lease lasts. No other lease and no CPU has it in the domain.
    pub id: u64,
    /// Private.
    pub place: [u64; 3],
}

const _: () = assert!(size_of::<Lease<'_>>() == 24 && align_of::<Lease<'_>>() == 8);

/// The domain's number in a lease. Two threads may return a lease by mistake: one of them finds it
/// empty.
fn domain_of<'a>(lease: NonNull<coreline_lease_t>) -> &'a AtomicU64 {
    // SAFETY: a lease, whose memory stays during the call, as the caller of the C function
    // promises.
    unsafe { AtomicU64::from_ptr(&raw mut (*lease.as_ptr()).domain) }
}

/// The ID of a lease of this domain.
pub(crate) fn leased_id(domain: u64, lease: NonNull<coreline_lease_t>) -> Result<usize, Code> {
    // Acquire: pairs with the Release in `keep`.
    if domain_of(lease).load(Ordering::Acquire) != domain {
        return Err(Code::CORELINE_ERROR_NOT_HELD);
    }
    // SAFETY: `keep` wrote it, and it changes only when the lease is returned.
    Ok(unsafe { (*lease.as_ptr()).id } as usize)
}

/// Keeps a lease for `coreline_domain_return`.
fn keep(tenant: &Tenant, lease: Lease<'_>, out: NonNull<coreline_lease_t>) {
    let id = lease.cid().index() as u64;
    // SAFETY: the call's own memory, as large and as aligned as the lease, as is asserted above.
    unsafe {
        (&raw mut (*out.as_ptr()).id).write(id);
        (&raw mut (*out.as_ptr()).place).cast::<Lease<'_>>().write(lease);
    }
    // Release: pairs with the Acquire in `leased_id` and `coreline_domain_return`.
    domain_of(out).store(tenant.number, Ordering::Release);
}

/// The result of a function that leases, where `exhausted` says that all are in use.
fn kept(
    tenant: &Tenant,
    lease: Result<Lease<'_>, LeaseError>,
    out: NonNull<coreline_lease_t>,
    exhausted: Code,
) -> Outcome {
    let lease = lease.map_err(|error| match error {
        LeaseError::Exhausted { .. } => exhausted,
        LeaseError::Lacking(_) => Code::CORELINE_ERROR_LACKING,
        _ => Code::CORELINE_ERROR_NO_MEMORY,
    })?;
    keep(tenant, lease, out);
    Ok(())
}

impl From<DomainsError> for Code {
    fn from(error: DomainsError) -> Self {
        match error {
            DomainsError::TooManyLeases { .. } => Code::CORELINE_ERROR_ARGUMENT,
            _ => Code::CORELINE_ERROR_LACKING,
        }
    }
}

/// Creates the settings and the memory that several domains share.
///
/// `leases` is the minimum number of leases of each domain, up to 65536. Most programs need no such
/// object, because `coreline_domain_create` accepts null. Domains that are created with null have
/// 64 leases each. If there is no memory for the object, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there are too many leases, or `out` is
/// not aligned), `CORELINE_ERROR_LACKING` (the machine has too many CPUs, or no CPU numbers),
/// `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domains_create(
    leases: usize,
    out: *mut *mut coreline_domains_t,
) -> Code {
    with!([out out] { create(Domains::new(DomainsOptions::new().leases(leases))?, out) })
}

/// Destroys the settings and the memory that several domains share.
///
/// Remaining domains continue to work.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: no other thread may use the object during the call or after it. Signals: no signal
/// handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domains_destroy(domains: *mut coreline_domains_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { destroy(domains) }
}

/// Creates a domain, without users.
///
/// `domains` may be null, which means the object that the domains of the process share. `flags` is
/// `CORELINE_DOMAIN_DEFAULT`, or `CORELINE_DOMAIN_PRESENCE`. With a presence, shootdowns reach the
/// members of the domain, and the domain takes some kilobytes more. If there is no memory for the
/// domain, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (unknown flags, or `out` is not
/// aligned), `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_LACKING` (the machine has too many CPUs, or
/// no CPU numbers), `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domain_create(
    domains: *const coreline_domains_t,
    flags: u32,
    out: *mut *mut coreline_domain_t,
) -> Code {
    with!([out out] {
        if flags & !FLAGS != 0 {
            return Err(Code::CORELINE_ERROR_ARGUMENT);
        }
        let mut options = DomainOptions::new();
        if flags & CORELINE_DOMAIN_PRESENCE != 0 {
            options = options.presence(PresenceOptions::new());
        }
        let domain = if domains.is_null() {
            Domains::global()?.domain(options)
        } else {
            // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
            unsafe { handle::get(domains) }?.domain(options)
        };
        create(Tenant { domain, number: number() }, out)
    })
}

/// Destroys a domain.
///
/// All members should be destroyed before, and all leases returned. Otherwise the call returns
/// `CORELINE_ERROR_FAULTS`, but still destroys the domain. Remaining leases cannot be returned.
/// Remaining members and words continue to work.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_FAULTS`.
///
/// Threads: no other thread may use the domain during the call or after it. Signals: no signal
/// handler may call it. Fork: safe in a forked child. Members and leases of other threads remain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domain_destroy(domain: *mut coreline_domain_t) -> Code {
    boundary(|| {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation. Leases that are
        // left, which refer to the domain, are not used any more: no other domain has its number.
        let tenant = unsafe { handle::take(domain) }?;
        tenant.domain.check_unused().map_err(|_| Code::CORELINE_ERROR_FAULTS)
    })
}

/// Creates a member that is outside of its domain.
///
/// `coreline_member_enter` then enters the domain, and `coreline_member_destroy` ends the
/// membership. A CPU gets a new ID while fewer IDs were handed out than there are members.
/// Otherwise it gets the lowest free ID. A thread that only uses words of the domain needs no
/// member. If there is no memory for more members, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domain_join(
    domain: *const coreline_domain_t,
    out: *mut *mut coreline_member_t,
) -> Code {
    with!([handle domain, out out] { join(domain.domain.join(), domain.number, out) })
}

/// Runs a function in each member that is inside a domain, and waits.
///
/// It does what `coreline_presence_shootdown` does, for a domain with a presence.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`shot` is not aligned, or the domain
/// has no presence), `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_DEADLOCK` (the caller is inside, and
/// must call `coreline_member_shootdown` instead), `CORELINE_ERROR_PANIC` (the kernel refuses
/// `membarrier`: some members may have run the function, and others may use their old data until
/// the next shootdown).
///
/// Threads: any number of threads may call it at the same time, and wait for each other. Signals:
/// no signal handler may call it. Fork: in a child, it waits forever if another thread was inside
/// or in a shootdown at the time of the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domain_shootdown(
    domain: *const coreline_domain_t,
    function: coreline_shootdown_f,
    context: *mut c_void,
    shot: *mut coreline_shot_t,
) -> Code {
    with!([handle domain, out shot] {
        let function = self::function(function, context)?;
        is_elsewhere(domain.number, None)?;
        let found = domain.domain.shootdown(function).map_err(|_| Code::CORELINE_ERROR_ARGUMENT)?;
        shot.write(found.into());
    })
}

/// Leases an ID of a domain, and waits while all are in use.
///
/// The call fills in `lease`, whose member `id` is the ID. The ID belongs to the holder until
/// `coreline_domain_return`, even if the thread moves to another CPU or waits. Threads that wait
/// get IDs in FIFO order. The next holder of the ID sees everything that was written under this
/// lease. The first lease of a domain allocates memory.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`lease` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NO_MEMORY`, `CORELINE_ERROR_LACKING` (the kernel
/// refuses `membarrier`, which a wait needs).
///
/// Threads: any number of threads may call it at the same time. A thread that ends does not return
/// its leases. Signals: no signal handler may call it. Fork: a child keeps the leases of the
/// forking thread. Those of other threads are never returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domain_lease(
    domain: *const coreline_domain_t,
    lease: *mut coreline_lease_t,
) -> Code {
    with!([handle domain, place lease] {
        kept(domain, domain.domain.lease_wait(), lease, Code::CORELINE_BUSY)
    })
}

/// Leases an ID of a domain, if one is free now.
///
/// The call returns `CORELINE_BUSY`, and leaves `lease` as it is, if all are in use. It may get an
/// ID before threads that wait for one.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`lease` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child keeps the leases of the forking thread. Those of other threads are never
/// returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domain_try_lease(
    domain: *const coreline_domain_t,
    lease: *mut coreline_lease_t,
) -> Code {
    with!([handle domain, place lease] {
        kept(domain, domain.domain.lease(), lease, Code::CORELINE_BUSY)
    })
}

/// Leases an ID of a domain, or gives up at a deadline.
///
/// `deadline` is a time of `coreline_now`. The call returns `CORELINE_TIMED_OUT`, and leaves
/// `lease` as it is, if the deadline passes first.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`lease` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NO_MEMORY`, `CORELINE_ERROR_LACKING` (the kernel
/// refuses `membarrier`, which a wait needs).
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child keeps the leases of the forking thread. Those of other threads are never
/// returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domain_lease_by(
    domain: *const coreline_domain_t,
    lease: *mut coreline_lease_t,
    deadline: u64,
) -> Code {
    with!([handle domain, place lease] {
        let got = domain.domain.lease_by(Time::from_nanos(deadline));
        kept(domain, got, lease, Code::CORELINE_TIMED_OUT)
    })
}

/// Returns a lease to its domain.
///
/// The call empties `lease`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`lease` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NOT_HELD` (`lease` is empty, or belongs to another
/// domain).
///
/// Threads: any thread may return a lease. Signals: no signal handler may call it. Fork: a child
/// may return the leases of the forking thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domain_return(
    domain: *const coreline_domain_t,
    lease: *mut coreline_lease_t,
) -> Code {
    with!([handle domain, place lease] {
        // Acquire: pairs with the Release in `keep`. Relaxed: without success nothing is read.
        let (done, failed) = (Ordering::Acquire, Ordering::Relaxed);
        if domain_of(lease).compare_exchange(domain.number, 0, done, failed).is_err() {
            return Err(Code::CORELINE_ERROR_NOT_HELD);
        }
        // SAFETY: `keep` wrote it, and only this call has emptied it. Its domain lives: the handle
        // is that of the domain with this number.
        drop(unsafe { (&raw const (*lease.as_ptr()).place).cast::<Lease<'_>>().read() });
    })
}

/// Takes back the IDs of CPUs that have not used a domain for a while.
///
/// Uses of the domain and each 64th entry of a member do the same. So only domains that become idle
/// need the call. It does nothing until 100 ms have passed since the last scan.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_LACKING` (CPUs keep
/// their IDs, because the kernel cannot fence restartable sequences).
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has its own copy of the domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domain_expire(domain: *const coreline_domain_t) -> Code {
    with!([handle domain] { Ok(domain.domain.expire(Native::now())?) })
}

/// Reports the contents and the memory use of a domain.
///
/// The call writes four numbers to `out`: the members of the domain (`users`), the IDs that CPUs
/// have (`ids`), the leases that were not returned (`leased`), and the bytes that only this domain
/// uses (`bytes`).
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. The result is not a snapshot.
/// Signals: no signal handler may call it. Fork: a child has its own copy of the domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_domain_usage(
    domain: *const coreline_domain_t,
    out: *mut coreline_usage_t,
) -> Code {
    with!([handle domain, out out] {
        let usage = domain.domain.usage();
        let (users, ids, leased, bytes) = (usage.users, usage.ids, usage.leased, usage.bytes);
        out.write(coreline_usage_t { users, ids, leased, bytes });
    })
}
