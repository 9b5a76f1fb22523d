//! The storm: that its checks can fail, that it measures what it says, and what is claimed of it.

use coreline::cid::CidError;
use coreline_scenarios::point::Setup;
use coreline_scenarios::threadstorm::ids::Ids;
use coreline_scenarios::threadstorm::storm::storm;
use coreline_scenarios::threadstorm::{
    CREATIONS, MIGRATE, PER_THREAD, SCENARIO, SHARE, SWITCHES, WARM_UP,
};
use coreline_scenarios::{RunError, figures};
use coreline_sim::{Machine, Sim};
use coreline_topology::{Cid, CpuId, CpuSet};
use coreline_world::Time;

use crate::band::BOTH;

const VARIANTS: [&str; 5] = ["none", "first-fit", "recent", "owned", "clustered"];

fn setup(variant: &str, place: &str, pools: u32) -> Setup {
    let program = format!(
        "threadstorm config=x size={pools}x4 place={place} rest=30 path=1500 variant={variant} \
         rounds=6"
    );
    Setup::new(&program, 0..15)
}

fn simulate(
    setup: Setup,
    run: fn(&Setup) -> Result<Vec<f64>, RunError>,
) -> Result<Vec<f64>, RunError> {
    let machine = Machine::preset("ivybridge-ex-4s").unwrap().step_limit(20_000_000);
    machine.run(move || run(&setup)).unwrap().value
}

fn simulated(variant: &str, place: &str, pools: u32) -> Vec<f64> {
    simulate(setup(variant, place, pools), SCENARIO.simulated).unwrap()
}

#[test]
fn no_two_running_threads_have_one_id_and_all_leave() {
    for place in ["roaming", "pinned"] {
        for variant in VARIANTS {
            // More threads than CPUs: they wait for each other, and `owned` changes its mode.
            for pools in [2, 9] {
                let numbers = simulated(variant, place, pools);
                // Two switch-ins of each created thread, and those of the creators.
                let created = pools * 4 * (6 + WARM_UP);
                let least = f64::from(2 * created + pools);
                assert!(numbers[SWITCHES] >= least, "{variant} {place}: {numbers:?}");
                assert!(numbers[CREATIONS] > 0.0 && numbers[SHARE] < 100.0, "{numbers:?}");
            }
        }
    }
}

#[test]
fn what_is_measured_of_no_ids_is_nothing() {
    for place in ["roaming", "pinned"] {
        let [none, recent] = ["none", "recent"].map(|it| simulated(it, place, 3)[PER_THREAD]);
        assert!(none < 1.0 && recent > 100.0, "{none} {recent}");
    }
}

#[test]
fn pinned_threads_never_migrate() {
    for variant in ["recent", "owned"] {
        let [roaming, pinned] =
            ["roaming", "pinned"].map(|place| simulated(variant, place, 3)[MIGRATE]);
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

    fn switch_in(&self, _: Time, _: CpuId, (): &()) -> Result<Option<Cid>, CidError> {
        Ok((KIND == ONE_ID).then(|| Cid::new(0)))
    }

    fn users(&self) -> usize {
        if KIND == STAYS { 7 } else { 0 }
    }
}

fn mistake<const KIND: u32>() -> String {
    match simulate(setup("recent", "roaming", 3), storm::<Sim, Mistaken<KIND>>).unwrap_err() {
        RunError::Check(what) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn mistakes_are_found() {
    assert!(mistake::<ONE_ID>().contains("two running threads"));
    assert!(mistake::<STAYS>().contains("7 threads are left"));
}

/// What is claimed of 8 pools of 8 roaming threads on `epyc-9654-2s`, over the whole band, under
/// both arbitrations:
///
/// | claim | found |
/// |---|---|
/// | an arrival from another CPU costs `owned` at most a quarter of `recent`'s | holds |
/// | creations under `recent` are at least 80 % of those without IDs | holds |
/// | `recent` costs a thread at most 1.1 times `first-fit` | **does not**: 1.07 to 1.48, 16 seeds |
///
/// All were made before the scenario first ran; the first two are tested. Rounds are those of the
/// quick form. What each came to is in `docs/appendix/threadstorm.md`.
#[test]
fn owned_ids_move_for_next_to_nothing_and_recent_ones_leave_four_fifths_of_the_creations() {
    let program = "threadstorm config=384-thread/24-L3 size=8x8 place=roaming rest=30 path=1500 \
                   variant={} rounds=8";
    for band in BOTH {
        let [none, recent, owned] =
            figures(band, "epyc-9654-2s", program, "", ["none", "recent", "owned"]);
        owned[MIGRATE].at_most(0.25, &recent[MIGRATE]).unwrap();
        recent[CREATIONS].at_least(0.8, &none[CREATIONS]).unwrap();
    }
}
