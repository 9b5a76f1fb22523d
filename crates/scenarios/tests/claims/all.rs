//! What holds of every scenario.

use coreline_scenarios::config::Config;
use coreline_scenarios::figure::Made;
use coreline_scenarios::point::{Chosen, Setup};
use coreline_scenarios::{ALL, RunError, Scenario, shuffle};
use coreline_sim::Machine;
use coreline_topology::CpuId;
use coreline_world::{JoinHandle, Native, Place, Placement, Threads};
use rand_pcg::Pcg64;

/// Whatever a scenario's data name is there.
#[test]
fn what_data_name_is_declared() {
    for scenario in ALL {
        let beside = scenario.figures.iter().filter_map(|figure| match figure.made {
            Made::Over(_, variant) | Made::Under(_, variant) => Some(variant),
            _ => None,
        });
        for name in beside {
            assert!(scenario.variant(name).is_some(), "{} has no {name}", scenario.name);
        }
        for param in scenario.params {
            for text in param.usual.iter().chain(param.quick).filter(|text| **text != "all") {
                assert!(param.parse(text).is_some(), "{}: {text}", param.name);
            }
        }
    }
}

/// The first quick point of each variant of a world.
fn quick(natively: bool, cpus: &[CpuId]) -> Vec<Setup> {
    let config = Config::of_unknown(cpus.to_vec());
    let of = |scenario: &'static Scenario| {
        let variants = scenario.variants(natively);
        let points = scenario.points(&config, &variants, &Chosen::new(), (true, natively));
        points.ok().unwrap().into_iter().take(variants.len())
    };
    let setup = |point| Setup { point, cpus: cpus.to_vec(), seed: 1 };
    ALL.into_iter().flat_map(of).map(setup).collect()
}

const ROUNDS: usize = 20;

#[test]
fn every_variant_runs_natively_with_the_same_code() {
    // Two CPUs where this process may use two: some call from one to the other.
    let usable = |cpu: &CpuId| {
        let thread = Native::spawn(Placement::On(*cpu), || ());
        thread.map(JoinHandle::join).is_ok()
    };
    let topology = Native::topology();
    let cpus: Vec<_> = topology.cpus().map(|cpu| cpu.id).filter(usable).take(2).collect();
    for setup in quick(true, &cpus) {
        if (setup.scenario.variant(setup.variant).unwrap().lacks)().is_some() {
            continue;
        }
        // The kernel may take a CPU for longer than a window, in which nothing is counted then:
        // `run` discards such a round, or takes the median of it and others. A program that
        // counts nothing does so in every round.
        let counts_something = (0..ROUNDS).any(|_| {
            let numbers = match (setup.scenario.native)(&setup) {
                Err(RunError::Lack(_)) if cpus.len() == 1 => return true,
                came => came.unwrap(),
            };
            assert!(numbers.iter().all(|it| it.is_finite() && *it >= 0.0), "{}", setup.point);
            numbers.iter().any(|it| *it > 0.0)
        });
        assert!(counts_something, "{}: 0 in {ROUNDS} rounds", setup.point);
    }
}

#[test]
fn a_cpu_that_is_not_there_is_a_lack_and_every_thread_ends() {
    for setup in quick(false, &[0, 1, 120].map(CpuId::new)) {
        let (program, run) = (setup.point.to_string(), setup.scenario.simulated);
        let machine = Machine::preset("ivybridge-ex-4s").unwrap().step_limit(5_000_000);
        let value = machine.run(move || run(&setup)).unwrap().value;
        assert!(!matches!(value, Ok(_) | Err(RunError::Check(_))), "{program}: {value:?}");
    }
}

#[test]
fn an_order_is_a_permutation_and_depends_on_the_seed() {
    let draw = |seed: u128| {
        let mut order: Vec<usize> = (0..384).collect();
        shuffle(&mut order, &mut Pcg64::new(seed, 0));
        order
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
    let mut sorted = draw(7);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..384).collect::<Vec<_>>());
}
