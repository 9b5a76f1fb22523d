//! Errors of leases, and of reusing a domain for another tenant.

use coreline_world::Lacking;

use super::local::LocalError;

/// The reason why the caller cannot get a lease. No lease was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// All leases were in use at one moment of the call.
    #[error(
        "all {most} leases of this domain are in use; drop one (a forgotten lease is lost), or \
         ask for more with `DomainsOptions::leases`"
    )]
    Exhausted {
        /// The number of leases that the domain has.
        most: usize,
    },
    /// A wait for a lease needs a fence of the process's other threads, but the kernel refuses it.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// There is no memory for the allocations of the domain's first lease.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The calling thread is initialising a slot of the same domain.
    #[error(
        "the calling thread is making a slot of this domain; take the lease before or after it \
         makes the slot"
    )]
    Nested,
}

/// The error for a local that belongs to another domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this local belongs to another domain; take the lease from the domain that made the local")]
pub struct ForeignLocal;

/// The error for a domain that is still in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the domain is in use by {users} members and {leased} leases; drop these first")]
pub struct InUse {
    /// The number of members.
    pub users: usize,
    /// The number of leases that are in use, or were forgotten.
    pub leased: usize,
}
