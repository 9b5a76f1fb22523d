//! What the tests of the machine share.

use coreline_sim::{Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::{Placement, Threads, Words};

pub(crate) type U32 = <Sim as Words>::U32;
pub(crate) type U64 = <Sim as Words>::U64;

pub(crate) fn machine(name: &str, seed: u64) -> Machine {
    Machine::preset(name).unwrap().seed(seed)
}

/// Starts a thread on a CPU, from inside a machine.
pub(crate) fn on<T: Send + 'static>(
    cpu: u32,
    f: impl FnOnce() -> T + Send + 'static,
) -> <Sim as Threads>::JoinHandle<T> {
    Sim::spawn(Placement::On(CpuId::new(cpu)), f).unwrap()
}
