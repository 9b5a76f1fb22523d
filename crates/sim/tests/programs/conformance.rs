//! The simulated machine is a world: it passes every law, on the small and on the large machine.

use coreline_sim::Sim;

use crate::common;

/// Runs a law on a machine, with several seeds.
fn on(machine: &str, law: fn()) {
    for seed in 0..4 {
        let machine = common::machine(machine, seed);
        if let Err(failure) = machine.program("a conformance law").run(law) {
            panic!("{failure}");
        }
    }
}

mod on_two_cpus {
    coreline_world::conformance_tests!(super::Sim, |law| super::on("host-2c", law));
}

mod on_384_cpus {
    coreline_world::conformance_tests!(super::Sim, |law| super::on("epyc-9654-2s", law));
}

#[test]
fn constants_make_fresh_words() {
    on("host-2c", coreline_world::conformance::words::constants_make_fresh_words::<Sim>);
}
