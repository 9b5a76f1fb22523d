//! Plants: mistakes, such as missing orderings, that a test puts into an algorithm on purpose.

use std::cell::Cell;

use crate::Ordering;

/// A planted bug: a mistake that a [`Checker`](super::Checker) puts into the checked algorithm.
/// A test with a planted bug shows that the check would detect such a mistake.
///
/// Each function gets the ordering that the algorithm requested, and returns the ordering that loom
/// gets. Use one of the constants, or override its fields:
///
/// ```
/// use coreline_world::model::Plant;
///
/// /// As [`Plant::EXCHANGES`], without heavy fences.
/// const NO_HEAVY_FENCES: Plant = Plant { heavy_fences: false, ..Plant::EXCHANGES };
///
/// /// As [`Plant::EXCHANGES`], with relaxed loads.
/// const RELAXED_LOADS: Plant = Plant { load: Plant::RELAXED_LOADS.load, ..Plant::EXCHANGES };
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Plant {
    /// The ordering of a load, or of a failed compare-exchange.
    pub load: fn(Ordering) -> Ordering,
    /// The ordering of a store.
    pub store: fn(Ordering) -> Ordering,
    /// Whether each store is an exchange with an ignored result: see [`Plant::EXCHANGES`].
    pub exchanges: bool,
    /// The ordering of a read-modify-write.
    pub rmw: fn(Ordering) -> Ordering,
    /// The ordering of a fence. [`Ordering::Relaxed`] removes the fence.
    pub fence: fn(Ordering) -> Ordering,
    /// Whether light fences have an effect.
    pub light_fences: bool,
    /// Whether heavy fences have an effect.
    pub heavy_fences: bool,
    /// Returns whether the next heavy fence is refused, as a kernel may do. The model calls it once
    /// for each heavy fence.
    pub refuses: fn() -> bool,
}

impl Plant {
    /// The algorithm without a mistake.
    pub const NONE: Plant = Plant {
        load: |order| order,
        store: |order| order,
        exchanges: false,
        rmw: |order| order,
        fence: |order| order,
        light_fences: true,
        heavy_fences: true,
        refuses: || false,
    };

    /// The bug that every load is relaxed, so that acquire loads are missing.
    pub const RELAXED_LOADS: Plant = Plant { load: relaxed, ..Plant::NONE };

    /// The bug that every store is relaxed, so that release stores are missing.
    pub const RELAXED_STORES: Plant = Plant { store: relaxed, ..Plant::NONE };

    /// The bug that every read-modify-write is relaxed.
    pub const RELAXED_RMWS: Plant = Plant { rmw: relaxed, ..Plant::NONE };

    /// The bug that ordinary fences are missing.
    pub const NO_FENCES: Plant = Plant { fence: relaxed, ..Plant::NONE };

    /// The bug that the light fences of asymmetric pairs are missing.
    pub const NO_LIGHT_FENCES: Plant = Plant { light_fences: false, ..Plant::NONE };

    /// The bug that the heavy fences of asymmetric pairs are missing.
    pub const NO_HEAVY_FENCES: Plant = Plant { heavy_fences: false, ..Plant::NONE };

    /// A variant without a bug, in which every store is an exchange.
    ///
    /// In the order of all writes of a word, an exchange that has read the value before a store
    /// precedes that store. Loom does not enforce this. A thread may read the value of another
    /// thread's exchange instead of its own later store. So only this variant can check a law in
    /// which an owner stores to a word while other threads check, with exchanges, whether that word
    /// is free. The variant hides one kind of mistake, which is a store that should be a release
    /// but is not, after an earlier store that was a release.
    pub const EXCHANGES: Plant = Plant { exchanges: true, ..Plant::NONE };

    /// The plant of the check that the calling thread is in; [`Plant::NONE`] outside of a check.
    pub(super) fn current() -> Plant {
        CURRENT.get()
    }

    /// Makes it the current one of this host thread, until the returned guard drops.
    pub(super) fn put_in(self) -> Planted {
        Planted { before: CURRENT.replace(self) }
    }
}

impl Default for Plant {
    /// [`Plant::NONE`].
    fn default() -> Self {
        Plant::NONE
    }
}

fn relaxed(_: Ordering) -> Ordering {
    Ordering::Relaxed
}

thread_local! {
    /// The plant of the check that runs on this host thread. It is there for all threads of an
    /// execution, as loom runs them all as coroutines on the host thread that checks. Other host
    /// threads, on which a test harness runs other checks meanwhile, have plants of their own.
    static CURRENT: Cell<Plant> = const { Cell::new(Plant::NONE) };
}

/// A plant is the current one. The previous one comes back when this drops.
///
/// A guard, as a check may end by a panic, and a test may catch that. The host thread's next check
/// must not find a plant that it was not given.
#[must_use]
pub(super) struct Planted {
    before: Plant,
}

impl Drop for Planted {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}
