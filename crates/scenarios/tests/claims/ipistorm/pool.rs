//! That the check of calls to workers can fail.

use coreline::Workers;
use coreline_scenarios::ipistorm::pool::call;
use coreline_sim::{Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::{Word, Words};

#[test]
fn a_call_that_no_caller_sent_is_found() {
    let found = Machine::preset("host-2c").unwrap().run(|| {
        let to = CpuId::new(1);
        let cpus = [to].into_iter().collect();
        let workers = Workers::<Sim>::builder_in().cpus(cpus).start().unwrap();
        call(&workers, to, 10, &<Sim as Words>::U64::new_in(1))
    });
    let found = found.unwrap().value.unwrap_err().to_string();
    assert_eq!(found, "102 calls have run after call 1, not 101");
}
