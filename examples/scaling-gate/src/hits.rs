//! A counter.

use core::cell::Cell;

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::thread_local;

const SHARDS: usize = 512;

thread_local! {
    /// From the first `Hits` that the thread used. In others it may share its shard with a thread.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

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
    /// How many threads have a number from here.
    threads: AtomicUsize,
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
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Hits { shards, threads: AtomicUsize::new(0) }
    }

    /// Adds to the count.
    pub fn add(&self, hits: u64) {
        let shard = &self.shards[self.thread_number() % SHARDS];
        shard.count.fetch_add(hits, Ordering::Relaxed);
    }

    fn thread_number(&self) -> usize {
        NUMBER.get().unwrap_or_else(|| {
            let number = self.threads.fetch_add(1, Ordering::Relaxed);
            NUMBER.set(Some(number));
            number
        })
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
