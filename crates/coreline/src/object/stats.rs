//! [`CacheStats`]: counts of a cache's operations and objects.

use core::fmt;

/// Counts of a cache's operations and objects. They may be out of date when they are returned.
/// While no thread uses the cache they are exact, except for operations in progress.
///
/// In a forked child, operations of other threads that were in progress at the fork never end.
/// Objects that were moving from or to a depot may be counted as idle or as live forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// The number of live objects.
    pub live: usize,
    /// The number of idle objects, which stay constructed.
    pub idle: usize,
    /// The number of quarantined objects: see [`quarantine`](super::Builder::quarantine).
    pub quarantined: usize,
    /// The number of returned objects for which [`check`](super::Builder::check) failed or
    /// panicked.
    pub failed: u64,
    /// The number of objects that were destroyed instead of returned, by
    /// [`discard`](super::Object::discard) or [in a panic](super::Builder::discard_on_panic).
    pub discarded: u64,
    /// The number of objects that the constructor created.
    pub constructed: u64,
    /// The number of calls of the destructor.
    pub destroyed: u64,
    /// The number of lives that have begun, including those that have ended.
    pub gets: u64,
    /// The number of gets that fetched a magazine from a depot.
    pub refills: u64,
    /// The number of magazines that were moved to a depot.
    pub flushes: u64,
    /// The number of bytes that the cache, its objects and its stacks use, without the memory to
    /// which objects point.
    pub bytes: usize,
}

impl CacheStats {
    /// Returns the number of [`gets`](CacheStats::gets) that found an object on the stack of their
    /// CPU.
    pub fn hits(&self) -> u64 {
        self.gets.saturating_sub(self.refills + self.constructed)
    }

    /// Returns the number of visits to a depot.
    pub fn depot_trips(&self) -> u64 {
        self.refills + self.flushes
    }
}

impl fmt::Display for CacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} live, {} idle, {} quarantined; {} constructed, {} destroyed; {} failed, {} \
             discarded; {} gets, {} of them from the CPU's stack; {} visits to depots; {} KiB",
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
