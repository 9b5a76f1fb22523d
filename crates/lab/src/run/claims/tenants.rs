//! What `tenants` claims on the machine of seed 000, all its hardware threads, 2 tasks each.
//!
//! | claim | band |
//! |---|---|
//! | `domain` takes at most 1,200 bytes for each tenant | request shares |
//! | `cpu-id` as a plain array takes at least 20 times that | request shares |
//! | `domain-clustered` fetches no slot from another node, in steady state | whole |
//! | an addition of `domain` takes at most 6 times that of `cpu-id` | whole |
//! | it takes at most 1.25 times that of `atomic` | whole |
//! | that of `sharded` takes at least 1.5 times that of `domain` | whole |
//!
//! All are as they were written down before the first run; the first two, the goals of the work on
//! seed 000, were missed at first: `docs/tenants.md` says why. Fewer tenants run than for
//! `coreline run`: memory and lines of two tenants have nothing to do with each other.

use coreline_sim::Spec;
use coreline_sim::claim::{Band, Figures};

use crate::run::plan::Tenants;
use crate::run::plan::tenants::{BYTES, OPERATION, PLAIN_ARRAY, REMOTE_SLOTS};
use crate::run::simulated;
use crate::scenario::Variant;
use crate::scenario::tenants::TenantsProgram;

fn spec() -> Spec {
    Spec::preset("epyc-9654-2s").unwrap()
}

/// The numbers of each variant.
fn figures<const N: usize>(band: &Band, tenants: u64, variants: [Variant; N]) -> [Vec<Figures>; N] {
    let config = "384-thread/24-L3";
    let program =
        |variant| TenantsProgram { config: config.to_owned(), tenants, tasks: 2, variant };
    let figures = simulated::figures::<Tenants>(band, &variants.map(program), |_| None);
    figures.unwrap_or_else(|error| panic!("{error}")).try_into().unwrap()
}

#[test]
fn a_domain_takes_a_small_part_of_an_array_by_cpu() {
    let [domain] = figures(&Band::quick(&spec(), 1), 1000, [Variant::Domain]);
    domain[BYTES].within(64.0..=1200.0).unwrap();
    domain[PLAIN_ARRAY].at_least(20.0, &domain[BYTES]).unwrap();
}

#[test]
fn slots_stay_in_their_node_and_additions_cost_what_was_expected() {
    let variants = [
        Variant::Domain,
        Variant::DomainClustered,
        Variant::CpuId,
        Variant::Sharded,
        Variant::Atomic,
    ];
    let [domain, clustered, cpu_id, sharded, atomic] =
        figures(&Band::whole(&spec(), 1), 100, variants);
    clustered[REMOTE_SLOTS].within(0.0..=0.0).unwrap();
    domain[OPERATION].at_most(6.0, &cpu_id[OPERATION]).unwrap();
    domain[OPERATION].at_most(1.25, &atomic[OPERATION]).unwrap();
    sharded[OPERATION].at_least(1.5, &domain[OPERATION]).unwrap();
}
