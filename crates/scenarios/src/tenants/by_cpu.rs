//! A slot for each CPU number.

use coreline::percpu::PerCpu;
use coreline_world::{IndexBy, Testbed};

use super::{Counters, RunError, WORDS, line_of, words};

/// A value for each tenant.
pub(super) struct ByCpu<W: Testbed>(Vec<PerCpu<[W::U64; WORDS], W>>);

impl<W: Testbed> Counters<W> for ByCpu<W> {
    type Handle = ();

    fn new_in(tenants: usize, _: usize) -> Result<Self, RunError> {
        let counters = || PerCpu::new_in(IndexBy::Cpu, words::<W>);
        let all: Result<Vec<_>, _> = (0..tenants).map(|_| counters()).collect();
        all.map(ByCpu).map_err(|error| RunError::Lack(error.to_string()))
    }

    fn handle(&self, _: usize) {}

    fn poll(&self, tenant: usize, (): &mut ()) {
        (0..WORDS).for_each(|which| self.0[tenant].field(|slot| &slot[which]).add(1));
    }

    fn sum(&self, tenant: usize, which: usize) -> u64 {
        self.0[tenant].field(|slot| &slot[which]).sum()
    }

    /// Slots are there up to the highest CPU that was used.
    fn footprint(&self) -> [f64; 2] {
        let slots: usize = self.0.iter().map(|counters| counters.populated()).sum();
        let shared = self.0.len();
        let values = shared * size_of::<PerCpu<[W::U64; WORDS], W>>();
        let bytes = values + (slots + shared) * size_of::<[W::U64; WORDS]>();
        [bytes as f64, slots as f64]
    }

    fn lines(&self) -> Vec<usize> {
        self.0.iter().flat_map(|counters| counters.iter().map(line_of)).collect()
    }
}
