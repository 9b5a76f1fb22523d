//! A slot for each concurrency ID of a tenant's domain.

use coreline::cid::References;
use coreline::domain::{Domain, DomainLocal, DomainOptions, Domains, DomainsOptions, Member};
use coreline::percpu::Indexing;
use coreline_topology::CpuId;
use coreline_world::Testbed;

use super::{Counters, RunError, WORDS, line_of, words};

/// A domain for each tenant.
pub(super) struct InDomain<P: References, W: Testbed>(Vec<Tenant<P, W>>);

struct Tenant<P: References, W: Testbed> {
    domain: Domain<P, W>,
    counters: DomainLocal<[W::U64; WORDS], P, W>,
}

fn lack(error: impl ToString) -> RunError {
    RunError::Lack(error.to_string())
}

impl<P: References, W: Testbed> Counters<W> for InDomain<P, W> {
    type Handle = Member<P, W>;

    fn new_in(tenants: usize, _: usize) -> Result<Self, RunError> {
        let domains = Domains::<P, W>::new_in(DomainsOptions::new()).map_err(lack)?;
        let tenant = |_| {
            let domain = domains.domain(DomainOptions::new());
            let counters = domain.local(words::<W>).map_err(lack)?;
            Ok(Tenant { domain, counters })
        };
        (0..tenants).map(tenant).collect::<Result<_, _>>().map(InDomain)
    }

    fn handle(&self, tenant: usize) -> Member<P, W> {
        self.0[tenant].domain.join()
    }

    fn poll(&self, tenant: usize, member: &mut Member<P, W>) {
        let (_inside, _) = member.enter();
        let counters = &self.0[tenant].counters;
        (0..WORDS).for_each(|which| counters.field(|slot| &slot[which]).add(1));
    }

    fn id_at(&self, tenant: usize, cpu: CpuId) -> Option<u32> {
        let counters = &self.0[tenant].counters;
        let index = counters.indexing().rows()?.index_at(cpu.index())?;
        ((index as usize) < counters.indexes()).then_some(index)
    }

    fn sum(&self, tenant: usize, which: usize) -> u64 {
        self.0[tenant].counters.field(|slot| &slot[which]).sum()
    }

    fn footprint(&self) -> [f64; 2] {
        let of = |tenant: &Tenant<P, W>| {
            let slots = tenant.counters.indexing().initialised().count();
            (tenant.domain.usage().bytes as f64, slots as f64)
        };
        let (bytes, slots) = self.0.iter().map(of).unzip::<f64, f64, Vec<_>, Vec<_>>();
        [bytes, slots].map(|of| of.iter().sum())
    }

    fn lines(&self) -> Vec<usize> {
        self.0.iter().flat_map(|tenant| tenant.counters.iter().map(line_of)).collect()
    }
}
