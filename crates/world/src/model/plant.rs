//! Plants: missing orderings, put into an algorithm on purpose.

use crate::Ordering;

/// Weakens the orderings that an algorithm asks for, so that a test can show that it would be
/// caught if they were missing.
///
/// Each function gets the ordering that the algorithm named and returns the one that loom is given.
/// All leave it alone unless overridden.
pub trait Plant: 'static {
    /// The ordering of a load, a failed compare-exchange included.
    fn load(order: Ordering) -> Ordering {
        order
    }

    /// The ordering of a store.
    fn store(order: Ordering) -> Ordering {
        order
    }

    /// Whether each store is an exchange whose result is dropped: see [`Exchanges`].
    const EXCHANGES: bool = false;

    /// The ordering of a read-modify-write.
    fn rmw(order: Ordering) -> Ordering {
        order
    }

    /// The ordering of a fence; [`Ordering::Relaxed`] takes the fence away.
    fn fence(order: Ordering) -> Ordering {
        order
    }

    /// Whether there are light fences.
    const LIGHT: bool = true;

    /// Whether there are heavy fences.
    const HEAVY: bool = true;

    /// Whether the next heavy fence is refused, as a kernel may. Asked once for each.
    fn refuses() -> bool {
        false
    }
}

/// Plants nothing.
#[derive(Debug, Clone, Copy)]
pub struct Faithful;

impl Plant for Faithful {}

/// Every load is relaxed: acquire loads are missing.
#[derive(Debug, Clone, Copy)]
pub struct RelaxedLoads;

impl Plant for RelaxedLoads {
    fn load(_: Ordering) -> Ordering {
        Ordering::Relaxed
    }
}

/// Every store is relaxed: release stores are missing.
#[derive(Debug, Clone, Copy)]
pub struct RelaxedStores;

impl Plant for RelaxedStores {
    fn store(_: Ordering) -> Ordering {
        Ordering::Relaxed
    }
}

/// Plants nothing, but has stores be exchanges.
///
/// An exchange that has read what was there before a store comes before that store, in the order of
/// all writes of the word. Loom does not know that: a thread may find what another one's exchange
/// put there in place of what it stored itself later. So a law in which a place is stored to by its
/// owner, while others look by exchanges whether it is free, can be checked with this one only.
/// What that hides is a store that should be a release and is not, where an earlier one was.
#[derive(Debug, Clone, Copy)]
pub struct Exchanges;

impl Plant for Exchanges {
    const EXCHANGES: bool = true;
}

/// Every read-modify-write is relaxed.
#[derive(Debug, Clone, Copy)]
pub struct RelaxedRmws;

impl Plant for RelaxedRmws {
    fn rmw(_: Ordering) -> Ordering {
        Ordering::Relaxed
    }
}

/// Ordinary fences are missing.
#[derive(Debug, Clone, Copy)]
pub struct NoFences;

impl Plant for NoFences {
    fn fence(_: Ordering) -> Ordering {
        Ordering::Relaxed
    }
}

/// The light fences of asymmetric pairs are missing.
#[derive(Debug, Clone, Copy)]
pub struct NoLightFences;

impl Plant for NoLightFences {
    const LIGHT: bool = false;
}

/// The heavy fences of asymmetric pairs are missing.
#[derive(Debug, Clone, Copy)]
pub struct NoHeavyFences;

impl Plant for NoHeavyFences {
    const HEAVY: bool = false;
}
