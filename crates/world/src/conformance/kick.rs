//! Laws of kicks.

use coreline_topology::CpuId;

use super::rounds;
use crate::Testbed;

/// Checks kicks of the caller's CPU, of another CPU, and of a CPU that the machine does not have. A
/// world that cannot kick returns an error each time.
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

/// Checks that [`need_resched`](crate::Kick::need_resched) returns false for a preemptible thread.
/// Such a thread has already been preempted, or no other thread wants its CPU.
pub fn a_preemptible_thread_need_not_yield<W: Testbed>() {
    for _ in 0..rounds::<W>() {
        assert!(!W::need_resched());
    }
}
