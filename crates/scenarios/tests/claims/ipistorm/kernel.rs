//! That the check of a kernel's calls can fail.

use std::sync::Arc;

use coreline_scenarios::ipistorm::kernel::{Called, storm_of};
use coreline_scenarios::point::Setup;
use coreline_sim::Machine;

#[test]
fn a_call_that_no_caller_sent_is_found() {
    let program = "ipistorm config=x scan=none masked=400 variant=kernel-notify calls=10";
    let found = Machine::preset("host-2c").unwrap().run(move || {
        let setup = Setup::new(program, 0..2);
        let (from, to) = (setup.cpus[0], setup.cpus[1]);
        let callee = Arc::new(Called::new(&setup, to));
        callee.plant();
        storm_of(&callee, &setup, (from, to))
    });
    let found = found.unwrap().value.unwrap_err().to_string();
    assert_eq!(found, "after call 1, 2 calls have run, not 1");
}
