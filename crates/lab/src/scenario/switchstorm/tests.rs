//! The storm itself: that it wakes as it says, that its check can fail.

use coreline_sim::{Machine, Sim};
use coreline_world::{Native, Place};

use super::*;

fn params(variant: Variant, wake: Wake) -> SwitchstormParams {
    SwitchstormParams {
        cpus: (0..15).map(CpuId::new).collect(),
        variant,
        wake,
        period: Duration::from_micros(10),
        path: Duration::from_nanos(1500),
        flush: Duration::from_micros(50),
        rounds: 20,
        seed: 1,
    }
}

const VARIANTS: [Variant; 5] =
    [Variant::AlwaysSet, Variant::TestFirst, Variant::Lazy, Variant::Refcounted, Variant::TwoLevel];

fn machine() -> Machine {
    Machine::preset("ivybridge-ex-4s").unwrap().step_limit(5_000_000)
}

fn simulated(params: SwitchstormParams) -> Storms {
    machine().run(move || switchstorm::<Sim>(&params)).unwrap().value.unwrap()
}

#[test]
fn every_running_cpu_is_in_the_mask_whatever_is_flushed() {
    for wake in [Wake::Barrier, Wake::Independent] {
        for variant in VARIANTS {
            let storms = simulated(params(variant, wake));
            assert!(storms.op_ns > 0.0 && storms.rate > 0.0, "{variant}: {storms:?}");
        }
    }
}

#[test]
fn it_runs_natively_with_the_same_code() {
    for variant in VARIANTS {
        let cpus = vec![Native::cpu()];
        let storms =
            switchstorm::<Native>(&SwitchstormParams { cpus, ..params(variant, Wake::Barrier) });
        assert!(storms.unwrap().path_share > 0.0, "{variant}");
    }
}

#[test]
fn a_barrier_wakes_all_within_two_microseconds() {
    let cpus: Vec<_> = (0..120).map(CpuId::new).collect();
    let storms = simulated(SwitchstormParams { cpus, ..params(Variant::TestFirst, Wake::Barrier) });
    assert!((100.0..2000.0).contains(&storms.spread_ns), "{storms:?}");
}

#[test]
fn what_is_set_and_not_cleared_is_only_read() {
    let never = Duration::ZERO;
    let of = |variant| {
        simulated(SwitchstormParams { flush: never, ..params(variant, Wake::Barrier) }).op_ns
    };
    // A hit in the core's own cache, of which there are two for the mask of two levels.
    for variant in [Variant::TestFirst, Variant::Lazy, Variant::TwoLevel] {
        assert!(of(variant) < 10.0, "{variant}: {}", of(variant));
    }
    assert!(of(Variant::AlwaysSet) > 100.0);
    assert!(of(Variant::Refcounted) > 100.0);
}

/// A policy that forgets to set what it found clear.
struct Forgetful(TestFirst<Sim>);

impl Policy<Sim> for Forgetful {
    type Mask = <TestFirst<Sim> as Policy<Sim>>::Mask;

    fn new(cpus: &[CpuId]) -> Result<Self, RunError> {
        let policy = TestFirst::new(cpus)?;
        cpus.iter().for_each(|&cpu| policy.mask().set(cpu));
        Ok(Forgetful(policy))
    }

    fn mask(&self) -> &Self::Mask {
        self.0.mask()
    }

    fn switch_in(&self, cpu: CpuId) {
        self.0.mask().test(cpu);
    }
}

#[test]
fn a_running_cpu_that_no_flush_would_reach_is_found() {
    let params = params(Variant::TestFirst, Wake::Independent);
    let run = machine().run(move || storm::<Sim, Forgetful>(&params, Duration::ZERO));
    let error = run.unwrap().value.unwrap_err().to_string();
    assert!(error.contains("bit is clear"), "{error}");
}

#[test]
fn a_cpu_that_is_not_there_is_a_lack_and_every_thread_ends() {
    let cpus = vec![CpuId::new(0), CpuId::new(1), CpuId::new(120)];
    for variant in VARIANTS {
        let params = SwitchstormParams { cpus: cpus.clone(), ..params(variant, Wake::Barrier) };
        let run = machine().run(move || switchstorm::<Sim>(&params));
        assert!(!matches!(run.unwrap().value, Ok(_) | Err(RunError::Check(_))), "{variant}");
    }
}
