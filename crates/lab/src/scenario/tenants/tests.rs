//! The scenario runs in both worlds, its check can fail, and some facts hold of any run.

use coreline_sim::{Failure, Machine, Run, Sim, Statistics};
use coreline_world::{Native, Place};

use super::*;

const VARIANTS: [Variant; 5] =
    [Variant::Domain, Variant::DomainClustered, Variant::CpuId, Variant::Sharded, Variant::Atomic];

fn params(variant: Variant) -> TenantsParams {
    TenantsParams {
        cpus: (0..60).map(CpuId::new).collect(),
        variant,
        tenants: 30,
        tasks: 2,
        seed: 1,
    }
}

type Outcome = Result<Run<Result<Costs, RunError>>, Box<Failure>>;

fn simulate(run: impl FnOnce() -> Result<Costs, RunError> + Send + 'static) -> Outcome {
    let machine = Machine::preset("ivybridge-ex-4s").unwrap().step_limit(5_000_000);
    machine.statistics(Statistics::Full).run(run)
}

fn simulated(variant: Variant) -> Costs {
    simulate(move || tenants::<Sim>(&params(variant))).unwrap().value.unwrap()
}

#[test]
fn what_is_by_cpu_comes_from_nowhere_else_and_takes_the_most() {
    let [domain, clustered, cpu_id, sharded, atomic] = VARIANTS.map(simulated);
    for costs in [&domain, &clustered, &cpu_id] {
        let slots = costs.remote.unwrap().slots;
        assert!(slots < atomic.remote.unwrap().slots / 10.0, "{costs:?}");
        assert!(costs.op_ns < sharded.op_ns, "{costs:?} {sharded:?}");
    }
    for costs in [&domain, &clustered, &sharded, &atomic] {
        assert!(costs.footprint.bytes < cpu_id.footprint.bytes, "{costs:?}");
    }
    assert_eq!(clustered.remote.unwrap().slots, 0.0);
    // IDs are no more than CPUs that a task of the tenant was on: where it began, and those few
    // where it moved to.
    for costs in [&domain, &clustered] {
        assert!((1.0..4.0).contains(&costs.footprint.slots), "{costs:?}");
        assert!(costs.id_changes > 0.0 && costs.id_changes < 10.0, "{costs:?}");
    }
    for (costs, slots) in [(&sharded, 1.0), (&atomic, 1.0)] {
        assert_eq!((costs.footprint.slots, costs.id_changes), (slots, 0.0));
    }
    assert_eq!(atomic.footprint.bytes, 64.0);
}

#[test]
fn it_runs_natively_with_the_same_code() {
    for variant in VARIANTS {
        let cpus = vec![Native::cpu()];
        let costs = tenants::<Native>(&TenantsParams { cpus, ..params(variant) }).unwrap();
        assert!(costs.op_ns > 0.0 && costs.footprint.bytes >= 64.0, "{costs:?}");
        assert_eq!(costs.remote, None);
    }
}

/// Counters that lose an addition now and then.
struct Leaky<W: Testbed>(Atomic<W>);

impl<W: Testbed> Counters<W> for Leaky<W> {
    type Handle = u32;

    fn new_in(tenants: usize, cpus: usize) -> Result<Self, RunError> {
        Atomic::new_in(tenants, cpus).map(Leaky)
    }

    fn handle(&self, _: usize) -> Result<u32, RunError> {
        Ok(0)
    }

    fn poll(&self, tenant: usize, polls: &mut u32) {
        *polls += 1;
        if (tenant, *polls) != (29, 7) {
            self.0.poll(tenant, &mut ());
        }
    }

    fn sum(&self, tenant: usize, which: usize) -> u64 {
        self.0.sum(tenant, which)
    }

    fn footprint(&self) -> Footprint {
        self.0.footprint()
    }

    fn lines(&self) -> Vec<usize> {
        self.0.lines()
    }
}

#[test]
fn an_addition_that_is_lost_is_found() {
    let lossy = || run::<Sim, Leaky<Sim>>(&params(Variant::Atomic));
    let RunError::Check(found) = simulate(lossy).unwrap().value.unwrap_err() else { panic!() };
    // Two tasks lose one each, of 24 rounds.
    assert_eq!(found, "tenant 29 counts 46 in word 5, not 48");
}

#[test]
fn what_cannot_be_is_a_lack_and_every_thread_ends() {
    let absent =
        TenantsParams { cpus: [0, 1, 120].map(CpuId::new).into(), ..params(Variant::Atomic) };
    for params in [absent, params(Variant::Lazy)] {
        let value = simulate(move || tenants::<Sim>(&params)).unwrap().value;
        assert!(!matches!(value, Ok(_) | Err(RunError::Check(_))), "{value:?}");
    }
}
