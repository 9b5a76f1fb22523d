//! Atomics for each tenant and each of as many shards as there are CPUs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use crossbeam_utils::CachePadded;

use super::pool::{Pool, PooledLines};
use super::{COUNTERS, Served, Store, StoreError, Totals};

/// What one writes when that is too slow: a thread adds to the shard of its number. Fast, and each
/// tenant pays for all CPUs.
pub struct OnShards(Vec<Tenant>);

type Shard = CachePadded<[AtomicU64; COUNTERS]>;

struct Tenant {
    /// As many as a power of two.
    shards: Box<[Shard]>,
    pool: Arc<Pool>,
}

/// The calling thread's number.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: each number is given once, and nothing else is handed on.
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

impl Store for OnShards {
    const NAME: &'static str = "sharded";

    type Buffer = PooledLines;

    fn new(tenants: usize, buffers: usize) -> Result<Self, StoreError> {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let shard = |_| CachePadded::new([const { AtomicU64::new(0) }; COUNTERS]);
        let tenant = |_| {
            let shards = (0..cpus.next_power_of_two()).map(shard).collect();
            Tenant { shards, pool: Pool::new(buffers) }
        };
        Ok(OnShards((0..tenants).map(tenant).collect()))
    }

    fn count(&self, tenant: usize, served: Served) {
        let shards = &self.0[tenant].shards;
        let shard = &shards[thread_number() & (shards.len() - 1)];
        for (which, delta) in served.additions() {
            // Relaxed: a counter carries nothing but itself.
            shard[which].fetch_add(delta, Ordering::Relaxed);
        }
    }

    fn totals(&self, tenant: usize) -> Totals {
        // Relaxed: a counter carries nothing but itself.
        let sum = |which: usize| {
            let of = |shard: &Shard| shard[which].load(Ordering::Relaxed);
            self.0[tenant].shards.iter().map(of).fold(0, u64::wrapping_add)
        };
        std::array::from_fn::<u64, COUNTERS, _>(sum).into()
    }

    async fn lease(&self, tenant: usize) -> Result<PooledLines, StoreError> {
        Ok(Arc::clone(&self.0[tenant].pool).lease().await)
    }

    fn leased(&self, tenant: usize) -> usize {
        self.0[tenant].pool.leased()
    }
}
