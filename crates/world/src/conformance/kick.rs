//! Laws of kicks.

use coreline_topology::CpuId;

use super::rounds;
use crate::Testbed;

/// Any CPU may be kicked: the caller's, another one, and one that the machine does not have. A
/// world that cannot do it says so each time.
pub fn every_cpu_can_be_kicked<W: Testbed>() {
    let machine = W::topology();
    let cpus = machine.cpus().map(|cpu| cpu.id).take(4);
    for cpu in cpus.chain([W::cpu(), CpuId::new(u32::MAX)]) {
        match W::kick(cpu) {
            Ok(()) => {}
            Err(lacking) => assert_eq!(lacking.world, W::NAME),
        }
    }
}

/// A thread that can be preempted need not ask whether it should be: it has been, or nothing wants
/// its CPU.
pub fn a_preemptible_thread_need_not_yield<W: Testbed>() {
    for _ in 0..rounds::<W>() {
        assert!(!W::need_resched());
    }
}
