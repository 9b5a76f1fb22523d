//! What is counted, that the check can fail, and what is claimed.

mod kernel;
mod pool;

use coreline_scenarios::idle::visited;
use coreline_scenarios::ipistorm::{CALL, KICKS, SCANS, SCENARIO};
use coreline_scenarios::point::Setup;
use coreline_scenarios::{RunError, figures};
use coreline_sim::claim::{Band, Figures};
use coreline_sim::{Machine, Sim};
use coreline_topology::{CpuId, Distance};

const X86: (&str, &str, u32) = ("epyc-7003-2s", "256-thread/16-L3", 256);
const ARM64: (&str, &str, u32) = ("arm64-2x64c", "128-core/64-L3", 128);

fn program((_, config, _): (&str, &str, u32), scan: &str, masked: u32, variant: &str) -> String {
    format!("ipistorm config={config} scan={scan} masked={masked} variant={variant} calls=300")
}

fn simulate(machine: (&str, &str, u32), scan: &str, masked: u32, variant: &str) -> Vec<f64> {
    let setup = Setup::new(&program(machine, scan, masked, variant), 0..machine.2);
    let run = move || (SCENARIO.simulated)(&setup);
    Machine::preset(machine.0).unwrap().run(run).unwrap().value.unwrap()
}

#[test]
fn a_notified_cpu_gets_no_interrupt_and_looks_for_no_work() {
    for machine in [X86, ARM64] {
        for variant in ["notify", "kernel-notify"] {
            let numbers = simulate(machine, "socket", 1500, variant);
            assert_eq!(numbers[KICKS..], [0.0, 0.0], "{variant}");
        }
        for variant in ["always-kick", "kernel-always-kick"] {
            let numbers = simulate(machine, "socket", 1500, variant);
            assert_eq!(numbers[KICKS..], [1000.0, 0.0], "{variant}");
        }
        let ours = simulate(machine, "socket", 1500, "resched");
        assert!((999.0..=1001.0).contains(&ours[SCANS]), "a look for each call: {ours:?}");
        let kernel = simulate(machine, "socket", 1500, "kernel-resched");
        // A call finds the CPU polling or in its scheduler: it sets the bit, or it interrupts.
        assert!((990.0..=1010.0).contains(&(kernel[KICKS] + kernel[SCANS])), "{kernel:?}");
        assert!(kernel[KICKS] > 300.0, "calls are sent while it looks for work: {kernel:?}");
    }
}

#[test]
fn a_look_for_work_goes_through_all_parts_of_the_machine() {
    let looks = |scan| {
        let setup = Setup::new(&program(X86, scan, 400, "kernel-resched"), 0..256);
        let run =
            move || visited(&<Sim as coreline_world::Place>::topology(), &setup, setup.cpus[16]);
        Machine::preset(X86.0).unwrap().run(run).unwrap().value
    };
    // Of its core 2, under its cache 16, on its socket 128, of all 256.
    let sizes = ["none", "cache", "socket", "all"].map(|scan| looks(scan).len());
    assert_eq!(sizes, [0, 2 + 16, 2 + 16 + 128, 2 + 16 + 128 + 256]);
    let topology = coreline_sim::Spec::preset(X86.0).unwrap().topology().clone();
    let near = |cpu: &CpuId| topology.distance(CpuId::new(16), *cpu) <= Some(Distance::SameCache);
    assert!(looks("cache").iter().all(near));
}

#[test]
fn more_cpus_than_there_are_is_a_lack() {
    let setup = Setup::new(&program(X86, "none", 0, "notify"), [0]);
    assert!(matches!((SCENARIO.native)(&setup), Err(RunError::Lack(_))));
}

/// Nanoseconds of a call over the band of a machine.
fn calls<const N: usize>(
    machine: (&str, &str, u32),
    scan: &str,
    masked: u32,
    variants: [&str; N],
) -> [Figures; N] {
    let program = program(machine, scan, masked, "{}");
    figures(Band::quick, machine.0, &program, "", variants).map(|mut it| it.swap_remove(CALL))
}

/// What is claimed of a kernel, by the time that interrupts are masked: here over the request
/// shares, and by hand over the whole band.
///
/// | claim | found, whole band |
/// |---|---|
/// | 1.5 us or more: `notify` beats `resched`, whatever is scanned | 0.84 of the time at most |
/// | the time of `notify` does not depend on it; that of `resched` grows with it | holds |
/// | 0.4 us: `always-kick` loses to `resched` | 1.06 at least |
/// | 5 us: `always-kick` beats `resched` | 0.60 at most |
#[test]
fn a_call_that_is_a_call_beats_one_that_is_taken_for_work() {
    const KERNEL: [&str; 3] = ["kernel-resched", "kernel-always-kick", "kernel-notify"];
    for machine in [X86, ARM64] {
        for scan in ["none", "all"] {
            let [resched_short, kick_short, _] = calls(machine, scan, 400, KERNEL);
            let [resched, _, notify] = calls(machine, scan, 1500, KERNEL);
            let [resched_long, kick_long, notify_long] = calls(machine, scan, 5000, KERNEL);
            notify.at_most(0.95, &resched).unwrap();
            notify_long.at_most(0.6, &resched_long).unwrap();
            resched_long.at_least(1.4, &resched).unwrap();
            assert!(notify.values().eq(notify_long.values()), "it masks nothing");
            kick_short.at_least(1.05, &resched_short).unwrap();
            kick_long.at_most(0.8, &resched_long).unwrap();
        }
    }
}

/// The library's own workers: what they look at is the only difference.
#[test]
fn workers_that_are_notified_beat_those_that_look_for_work() {
    for machine in [X86, ARM64] {
        let [resched, notify] = calls(machine, "all", 0, ["resched", "notify"]);
        notify.at_most(0.8, &resched).unwrap();
    }
}
