//! Why the caller cannot have a lease or its value, and why a domain cannot be given to another
//! tenant.

use coreline_world::Lacking;

use super::local::LocalError;

/// There is no lease. Nothing was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// At one moment of the call all leases were out.
    #[error(
        "all {most} leases of this domain are in use: drop one (a forgotten one never comes back), \
         or ask for more with `DomainsOptions::leases`"
    )]
    Exhausted {
        /// How many there are.
        most: usize,
    },
    /// A wait for a lease needs a fence of the process's other threads, which the kernel refuses.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// There is no memory for what the domain's first lease allocates.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The calling thread is making a slot of the same domain.
    #[error(
        "the calling thread is making a slot of this domain; take the lease before or after that"
    )]
    Nested,
}

/// The local belongs to another domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this local belongs to another domain; take the lease from the domain that made the local")]
pub struct ForeignLocal;

/// The domain is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the domain is in use by {users} members and {leased} leases: drop these first")]
pub struct InUse {
    /// How many members it has.
    pub users: usize,
    /// How many leases are out, or were forgotten.
    pub leased: usize,
}
