//! The storm: that it runs in both worlds, that its checks can fail, that it measures what it says.

use coreline::cid::CidError;
use coreline_sim::{Failure, Machine, Run, Sim};
use coreline_topology::{Cid, CpuSet};
use coreline_world::{Native, Place, Time};

use super::ids::Ids;
use super::storm::storm;
use super::*;

fn params(variant: Variant, place: Placing) -> ThreadstormParams {
    ThreadstormParams {
        cpus: (0..15).map(CpuId::new).collect(),
        variant,
        size: Size { pools: 3, threads: 4 },
        place,
        rest: Duration::from_micros(30),
        path: Duration::from_nanos(1500),
        rounds: 6,
        seed: 1,
    }
}

const VARIANTS: [Variant; 5] =
    [Variant::NoIds, Variant::FirstFit, Variant::Recent, Variant::Owned, Variant::Clustered];
const PLACES: [Placing; 2] = [Placing::Roaming, Placing::Pinned];

type Outcome = Result<Run<Result<Storms, RunError>>, Box<Failure>>;

fn machine() -> Machine {
    Machine::preset("ivybridge-ex-4s").unwrap().step_limit(20_000_000)
}

fn run(params: ThreadstormParams) -> Outcome {
    machine().run(move || threadstorm::<Sim>(&params))
}

fn costs(params: ThreadstormParams) -> Costs {
    run(params).unwrap().value.unwrap().costs.unwrap()
}

#[test]
fn no_two_running_threads_have_one_id_and_all_leave() {
    for place in PLACES {
        for variant in VARIANTS {
            // More threads than CPUs: they wait for each other, and `owned` changes its mode.
            for pools in [2, 9] {
                let size = Size { pools, threads: 4 };
                let storms = run(ThreadstormParams { size, ..params(variant, place) })
                    .unwrap()
                    .value
                    .unwrap();
                let costs = storms.costs.unwrap();
                // Two switch-ins of each created thread, and those of the creators.
                let created = u64::from(pools) * 4 * u64::from(6 + WARM_UP);
                let least = 2 * created + u64::from(pools);
                assert!(costs.switches >= least, "{variant} {place}: {costs:?}");
                assert!(storms.rate > 0.0 && costs.share < 100.0, "{variant} {place}: {storms:?}");
            }
        }
    }
}

#[test]
fn it_runs_natively_with_the_same_code() {
    let natively = [Variant::KernelCid].into_iter().chain(VARIANTS);
    for variant in natively {
        let params =
            ThreadstormParams { cpus: vec![Native::cpu()], ..params(variant, Placing::Pinned) };
        let storms = threadstorm::<Native>(&params).unwrap();
        assert!(storms.rate > 0.0, "{variant}: {storms:?}");
        assert_eq!(storms.costs.is_none(), variant == Variant::KernelCid);
    }
}

#[test]
fn what_is_measured_of_no_ids_is_nothing() {
    for place in PLACES {
        let none = costs(params(Variant::NoIds, place));
        assert!(none.thread_ns < 1.0, "{none:?}");
        let recent = costs(params(Variant::Recent, place));
        assert!(recent.thread_ns > 100.0, "{recent:?}");
    }
}

#[test]
fn pinned_threads_never_migrate() {
    for variant in [Variant::Recent, Variant::Owned] {
        let [roaming, pinned] = PLACES.map(|place| costs(params(variant, place)).migrate_ns);
        assert!(roaming > 0.0 && pinned == 0.0, "{variant}: {roaming} {pinned}");
    }
}

/// A source of IDs that makes a mistake.
struct Mistaken<const KIND: u32>;

/// Every task gets the same ID.
const ONE_ID: u32 = 0;
/// No task leaves.
const STAYS: u32 = 1;

impl<const KIND: u32> Ids<Sim> for Mistaken<KIND> {
    type Task = ();

    fn new() -> Result<Self, CidError> {
        Ok(Mistaken)
    }

    fn enter(&self, _: &CpuSet) -> Result<(), CidError> {
        Ok(())
    }

    fn leave(&self, (): ()) {}

    fn switch_in(&self, _: Time, _: CpuId, (): &()) -> Result<Option<Cid>, CidError> {
        Ok((KIND == ONE_ID).then(|| Cid::new(0)))
    }

    fn switch_out(&self, _: Time, _: CpuId, (): &()) {}

    fn migrate(&self, _: Time, (): &(), _: CpuId, _: CpuId) -> Result<(), CidError> {
        Ok(())
    }

    fn expire(&self, _: Time) {}

    fn users(&self) -> usize {
        if KIND == STAYS { 7 } else { 0 }
    }
}

fn mistake<const KIND: u32>() -> String {
    let params = params(Variant::Recent, Placing::Roaming);
    let run = machine().run(move || storm::<Sim, Mistaken<KIND>>(&params)).unwrap();
    match run.value.unwrap_err() {
        RunError::Check(what) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn mistakes_are_found() {
    assert!(mistake::<ONE_ID>().contains("two running threads"));
    assert!(mistake::<STAYS>().contains("7 threads are left"));
}

#[test]
fn what_cannot_be_is_a_lack_and_every_thread_ends() {
    let cpus = vec![CpuId::new(0), CpuId::new(1), CpuId::new(120)];
    for variant in VARIANTS {
        for place in PLACES {
            let value = run(ThreadstormParams { cpus: cpus.clone(), ..params(variant, place) })
                .unwrap()
                .value;
            assert!(!matches!(value, Ok(_) | Err(RunError::Check(_))), "{variant}: {value:?}");
        }
    }
    let value = run(params(Variant::Lazy, Placing::Roaming)).unwrap().value;
    assert!(matches!(value, Err(RunError::Lack(_))), "{value:?}");
}
