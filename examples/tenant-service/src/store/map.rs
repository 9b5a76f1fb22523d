//! A concurrent map from tenants to atomics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;

use super::pool::{Pool, PooledLines};
use super::{COUNTERS, Served, Store, StoreError, Totals};

/// What one writes first: it finds a tenant by a look into a map, and all CPUs add to one line.
pub struct OnMap(DashMap<usize, Tenant>);

struct Tenant {
    counters: [AtomicU64; COUNTERS],
    pool: Arc<Pool>,
}

impl OnMap {
    fn with<R>(&self, tenant: usize, f: impl FnOnce(&Tenant) -> R) -> R {
        f(&self.0.get(&tenant).expect("there is such a tenant"))
    }
}

impl Store for OnMap {
    const NAME: &'static str = "dashmap";

    type Buffer = PooledLines;

    fn new(tenants: usize, buffers: usize) -> Result<Self, StoreError> {
        let tenant = |number| {
            let counters = [const { AtomicU64::new(0) }; COUNTERS];
            (number, Tenant { counters, pool: Pool::new(buffers) })
        };
        Ok(OnMap((0..tenants).map(tenant).collect()))
    }

    fn count(&self, tenant: usize, served: Served) {
        self.with(tenant, |it| {
            for (which, delta) in served.additions() {
                // Relaxed: a counter carries nothing but itself.
                it.counters[which].fetch_add(delta, Ordering::Relaxed);
            }
        });
    }

    fn totals(&self, tenant: usize) -> Totals {
        // Relaxed: a counter carries nothing but itself.
        let read = |it: &Tenant| it.counters.each_ref().map(|it| it.load(Ordering::Relaxed));
        self.with(tenant, read).into()
    }

    async fn lease(&self, tenant: usize) -> Result<PooledLines, StoreError> {
        // The map's lock must not be held while this waits.
        let pool = self.with(tenant, |it| Arc::clone(&it.pool));
        Ok(pool.lease().await)
    }

    fn leased(&self, tenant: usize) -> usize {
        self.with(tenant, |it| it.pool.leased())
    }
}
