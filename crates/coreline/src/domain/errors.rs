//! Why a lease, or the value of one, cannot be had; and why a domain cannot be another tenant's.

use coreline_world::Lacking;

use super::local::LocalError;

/// There is no lease. Nothing was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// At one moment of the call all were leased.
    #[error(
        "all leases of this domain were out, of which there are {most}: drop some, and forget \
         none; or ask for more with `DomainsOptions::leases`"
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
    #[error("a slot of this domain is being made, by the calling thread; lease before or after")]
    Nested,
}

/// A local is another domain's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this local is another domain's: take the lease from the domain that made the local")]
pub struct ForeignLocal;

/// A domain is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the domain has {users} members and {leased} leases that are out")]
pub struct InUse {
    /// Members.
    pub users: usize,
    /// Leases that are out, or were forgotten.
    pub leased: usize,
}
