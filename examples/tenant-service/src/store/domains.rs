//! A `coreline` domain for each tenant.

use std::sync::Arc;

use coreline::domain::{
    Domain, DomainLocal, DomainOptions, Domains, DomainsOptions, Exclusive, OwnedLease,
};
use coreline::percpu::Word64;
use coreline::world::{Ordering, Time};

use super::{Buffer, COUNTERS, Lines, Served, Store, StoreError, Totals};

/// Counters by the concurrency ID that a CPU has in its tenant, and a buffer by lease. Two CPUs
/// share no line of either, and a tenant pays for the CPUs that work for it alone.
pub struct OnDomains(Vec<Tenant>);

struct Tenant {
    domain: Domain,
    counters: DomainLocal<[Word64; COUNTERS]>,
    buffers: Arc<DomainLocal<Exclusive<Lines>>>,
}

/// A lease, and what is leased by it.
pub struct LeasedLines {
    lease: OwnedLease,
    buffers: Arc<DomainLocal<Exclusive<Lines>>>,
}

impl Buffer for LeasedLines {
    fn lines(&mut self) -> &mut Lines {
        self.lease.get_mut(&self.buffers).expect("made together")
    }
}

impl OnDomains {
    /// As [`lease`](Store::lease), for a thread that may wait until then: asleep, in one queue with
    /// the tasks that wait.
    ///
    /// # Errors
    ///
    /// As [`lease`](Store::lease); and if all are taken still.
    pub fn lease_by(&self, tenant: usize, deadline: Time) -> Result<LeasedLines, StoreError> {
        let Tenant { domain, buffers, .. } = &self.0[tenant];
        let lease = domain.lease_by(deadline)?.into_owned();
        Ok(LeasedLines { lease, buffers: Arc::clone(buffers) })
    }
}

impl Store for OnDomains {
    const NAME: &'static str = "coreline";

    type Buffer = LeasedLines;

    fn new(tenants: usize, buffers: usize) -> Result<Self, StoreError> {
        let domains: Domains = Domains::new(DomainsOptions::new().leases(buffers))?;
        let tenant = |_| {
            let domain = domains.domain(DomainOptions::new());
            let counters = domain.local(|| [const { Word64::new(0) }; COUNTERS])?;
            let buffers = Arc::new(domain.local(|| Exclusive::new(Lines::default()))?);
            Ok(Tenant { domain, counters, buffers })
        };
        (0..tenants).map(tenant).collect::<Result<_, _>>().map(OnDomains)
    }

    fn count(&self, tenant: usize, served: Served) {
        let counters = &self.0[tenant].counters;
        served.additions().for_each(|(which, delta)| counters.field(|it| &it[which]).add(delta));
    }

    /// A lease has a slot of the counters, too, which its holder alone writes to: found once for
    /// all of them, and added to by plain loads and stores.
    fn count_with(&self, tenant: usize, buffer: &mut LeasedLines, served: Served) {
        let slot = buffer.lease.get(&self.0[tenant].counters).expect("made together");
        for (which, delta) in served.additions() {
            // Relaxed, both: a counter carries nothing but itself. What the last holder of this
            // lease stored is seen, as one is the other's after it.
            let sum = slot[which].load(Ordering::Relaxed).wrapping_add(delta);
            slot[which].store(sum, Ordering::Relaxed);
        }
    }

    fn totals(&self, tenant: usize) -> Totals {
        self.0[tenant].counters.sums().into()
    }

    async fn lease(&self, tenant: usize) -> Result<LeasedLines, StoreError> {
        let Tenant { domain, buffers, .. } = &self.0[tenant];
        // Owned, as the answer is sent after the handler has returned.
        let lease = domain.lease_async().await?.into_owned();
        Ok(LeasedLines { lease, buffers: Arc::clone(buffers) })
    }

    fn leased(&self, tenant: usize) -> usize {
        self.0[tenant].domain.usage().leased
    }

    fn bytes(&self, tenant: usize) -> Option<usize> {
        Some(self.0[tenant].domain.usage().bytes)
    }
}
