//! [`CacheStats`]: what a cache did, and has.

use core::fmt;

/// What a cache did, and has. Stale when it is given; exact, but for what is under way, while no
/// thread uses the cache.
///
/// In a forked child, what other threads had under way at the time of the fork stays so: objects
/// that were on their way from or to a depot may be counted as idle or as live for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Objects that live.
    pub live: usize,
    /// Objects that wait, constructed.
    pub idle: usize,
    /// Objects that are put aside: see [`quarantine`](super::Builder::quarantine).
    pub quarantined: usize,
    /// How many objects came back in a state in which they could not live again.
    pub failed: u64,
    /// How many objects were destroyed instead of given back: by
    /// [`discard`](super::Object::discard), or [in a panic](super::Builder::discard_on_panic).
    pub discarded: u64,
    /// How often the constructor made an object.
    pub constructed: u64,
    /// How often the destructor ran.
    pub destroyed: u64,
    /// How many lives there were.
    pub gets: u64,
    /// How often an object came with a magazine from a depot.
    pub refills: u64,
    /// How often a magazine went to a depot.
    pub flushes: u64,
    /// Bytes of memory: of the cache, of objects and of stacks. What objects point to is not known.
    pub bytes: usize,
}

impl CacheStats {
    /// How many of the [`gets`](CacheStats::gets) found an object on the stack of their CPU.
    pub fn hits(&self) -> u64 {
        self.gets.saturating_sub(self.refills + self.constructed)
    }

    /// How often a CPU went to a depot.
    pub fn depot_trips(&self) -> u64 {
        self.refills + self.flushes
    }
}

impl fmt::Display for CacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} live, {} idle, {} put aside; {} constructed, {} destroyed; {} failed, {} \
             discarded; {} gets, {} of them from the CPU's stack; {} trips to depots; {} KiB",
            self.live,
            self.idle,
            self.quarantined,
            self.constructed,
            self.destroyed,
            self.failed,
            self.discarded,
            self.gets,
            self.hits(),
            self.depot_trips(),
            self.bytes / 1024
        )
    }
}
