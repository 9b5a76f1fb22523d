//! Why a lease, or the value of one, cannot be had; and why a domain cannot be another tenant's.

use coreline_world::Lacking;

use super::local::LocalError;

/// There is no lease. Nothing was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// At one moment of the call all were leased.
    #[error(
        "all {most} leases of this domain are in use: drop one (a forgotten one never comes back), \
         or ask for more with `DomainsOptions::leases`"
    )]
    Exhausted {
        /// How many there are.
        most: usize,
    },
    /// To wait for a lease, the process's other threads must be fenced, which the kernel refuses.
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

/// A local is another domain's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this local is another domain's: take the lease from the domain that made the local")]
pub struct ForeignLocal;

/// A domain is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the domain is in use by {users} members and {leased} leases: drop these first")]
pub struct InUse {
    /// Members.
    pub users: usize,
    /// Leases that are out, or were forgotten.
    pub leased: usize,
}
