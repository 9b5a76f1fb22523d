//! The storm itself: that it wakes as it says, that its check can fail, and what is claimed of it.

use core::time::Duration;

use coreline_scenarios::figure::Made;
use coreline_scenarios::point::Setup;
use coreline_scenarios::switchstorm::policy::{Dense, Mask};
use coreline_scenarios::switchstorm::{OP, RATE, SCENARIO, SPREAD, storm};
use coreline_scenarios::{RunError, figures};
use coreline_sim::claim::{Band, Figures};
use coreline_sim::{Machine, Sim, Spec, Statistics};
use coreline_topology::CpuId;

use crate::band::{BOTH, first_come};

const VARIANTS: [&str; 5] = ["always-set", "test-first", "lazy", "refcounted", "two-level"];

fn setup(variant: &str, wake: &str, flush: u32, cpus: u32) -> Setup {
    let program = format!(
        "switchstorm config=x wake={wake} period=10 path=1500 flush={flush} variant={variant} \
         rounds=20"
    );
    Setup::new(&program, 0..cpus)
}

fn machine() -> Machine {
    Machine::preset("ivybridge-ex-4s").unwrap().step_limit(5_000_000)
}

fn simulated(setup: Setup) -> Vec<f64> {
    machine().run(move || (SCENARIO.simulated)(&setup)).unwrap().value.unwrap()
}

#[test]
fn every_running_cpu_is_in_the_mask_whatever_is_flushed() {
    for wake in ["barrier", "independent"] {
        for variant in VARIANTS {
            let numbers = simulated(setup(variant, wake, 50, 15));
            assert!(numbers[OP] > 0.0 && numbers[RATE] > 0.0, "{variant}: {numbers:?}");
        }
    }
}

#[test]
fn a_barrier_wakes_all_within_two_microseconds() {
    let numbers = simulated(setup("test-first", "barrier", 50, 120));
    assert!((100.0..2000.0).contains(&numbers[SPREAD]), "{numbers:?}");
}

#[test]
fn what_is_set_and_not_cleared_is_only_read() {
    let of = |variant| simulated(setup(variant, "barrier", 0, 15))[OP];
    // A hit in the core's own cache, of which there are two for the mask of two levels.
    for variant in ["test-first", "lazy", "two-level"] {
        assert!(of(variant) < 10.0, "{variant}: {}", of(variant));
    }
    assert!(of("always-set") > 100.0);
    assert!(of("refcounted") > 100.0);
}

/// A mask that forgets to set what was cleared.
struct Forgetful(Dense<Sim>);

impl Mask for Forgetful {
    fn new(cpus: &[CpuId]) -> Result<Self, RunError> {
        let mask = Dense::new(cpus)?;
        cpus.iter().for_each(|&cpu| mask.set(cpu));
        Ok(Forgetful(mask))
    }

    fn test(&self, cpu: CpuId) -> bool {
        self.0.test(cpu)
    }

    fn set(&self, _: CpuId) {}

    fn clear(&self, cpu: CpuId) {
        self.0.clear(cpu);
    }
}

#[test]
fn a_running_cpu_that_no_flush_would_reach_is_found() {
    let setup = setup("test-first", "independent", 50, 15);
    let run = machine().run(move || storm::<Sim, Forgetful, true, false>(&setup, Duration::ZERO));
    let error = run.unwrap().value.unwrap_err().to_string();
    assert!(error.contains("are clear and should be set"), "{error}");
}

#[test]
fn the_clock_is_that_of_the_machine_file() {
    let cycles = SCENARIO.figures.iter().find(|it| it.metric.name == "op_cycles").unwrap();
    let Made::Scaled(OP, clock_ghz) = cycles.made else { panic!("of no operation") };
    let ghz = |name| clock_ghz(&Spec::preset(name).unwrap());
    assert_eq!((ghz("ivybridge-ex-4s"), ghz("epyc-9654-2s")), (Some(2.8), Some(3.7)));
}

#[test]
fn the_rank_is_among_all_lines_that_caches_gave_each_other() {
    let of = |variant| {
        let program = format!(
            "switchstorm config=x wake=barrier period=5 path=100 flush=0 variant={variant} \
             rounds=40"
        );
        let setup = Setup::new(&program, (0..60).step_by(5));
        let machine = machine().statistics(Statistics::Full);
        let mut numbers = Vec::new();
        let run = machine.run(move || (SCENARIO.simulated)(&setup).unwrap()).unwrap();
        (SCENARIO.report)(&run.report, &mut numbers);
        [numbers[0], numbers[1]]
    };
    for variant in ["always-set", "refcounted"] {
        let [rank, share] = of(variant);
        assert!(rank <= 2.0 && share > 20.0, "{variant}: {rank} {share}");
    }
    for variant in ["test-first", "two-level"] {
        let [rank, share] = of(variant);
        assert!(rank > 2.0 && 0.0 < share && share < 5.0, "{variant}: {rank} {share}");
    }
}

/// What is claimed of 120 threads at a barrier on `ivybridge-ex-4s`:
///
/// | claim | band |
/// |---|---|
/// | `always-set`'s operation takes 10 times that of `test-first` at least | whole |
/// | `refcounted`'s takes half of `always-set`'s at least: as hot | whole |
/// | `two-level`'s takes three quarters of `test-first`'s at most: one line per L3 | whole |
/// | `two-level`'s takes half of it at most | whole, in the order of arrival only |
/// | without flushes, `test-first`'s is a cache hit | request shares alone |
///
/// Nearest first, `two-level` takes 0.42 to 0.56 of `test-first` over the request shares.
///
/// The first is the goal of the published change. Less is run than for `coreline run --band`: 60
/// rounds instead of 200.
fn operations<const N: usize>(
    band: fn(&Spec, u64) -> Band,
    flush: u32,
    variants: [&str; N],
) -> [Figures; N] {
    let program = format!(
        "switchstorm config=120-thread/4-L3 wake=barrier period=25 path=1500 flush={flush} \
         variant={{}} rounds=60"
    );
    figures(band, "ivybridge-ex-4s", &program, "", variants).map(|mut numbers| numbers.remove(OP))
}

#[test]
fn a_locked_set_takes_ten_times_as_long_as_a_test_before_it() {
    let variants = ["always-set", "test-first", "refcounted", "two-level"];
    for band in BOTH {
        let [always_set, test_first, refcounted, two_level] = operations(band, 1000, variants);
        always_set.at_least(10.0, &test_first).unwrap();
        refcounted.at_least(0.5, &always_set).unwrap();
        two_level.at_most(0.75, &test_first).unwrap();
    }
}

#[test]
fn first_come_a_bit_for_each_cache_takes_half_of_a_test_at_most() {
    let [test_first, two_level] = operations(first_come, 1000, ["test-first", "two-level"]);
    two_level.at_most(0.5, &test_first).unwrap();
}

#[test]
fn without_flushes_a_test_is_a_hit() {
    let [test_first] = operations(Band::quick, 0, ["test-first"]);
    // The machine's private hit, 1.4 ns.
    test_first.within(1.0..=2.0).unwrap();
}
