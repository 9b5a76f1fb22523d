//! A counter.

use crate::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 512;

/// A count that each thread changes in a shard of its own.
///
/// ```
/// let hits = scaling_gate::Hits::new();
/// hits.add(2);
/// hits.add(3);
/// assert_eq!(hits.total(), 5);
/// ```
pub struct Hits {
    shards: Box<[Shard]>,
}

/// Without the alignment, eight threads write to one cache line, and the gate fails.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    count: AtomicU64,
}

impl Hits {
    /// Creates a count of 0.
    pub fn new() -> Hits {
        Hits { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    /// Adds to the count.
    pub fn add(&self, hits: u64) {
        let shard = &self.shards[crate::thread_number() % SHARDS];
        shard.count.fetch_add(hits, Ordering::Relaxed);
    }

    /// Returns the sum over all threads.
    pub fn total(&self) -> u64 {
        self.shards.iter().map(|shard| shard.count.load(Ordering::Relaxed)).sum()
    }
}

impl Default for Hits {
    fn default() -> Hits {
        Hits::new()
    }
}
