//! The laws of the primitives, one harness for each family, in all three worlds.
//!
//! A harness is a generic program that panics when the law is broken. [`worlds`] runs it: natively
//! as a stress test, on simulated machines with many seeds and faults, and in the model checker in
//! every interleaving. One binary holds all of it: the world is a type parameter.

mod beyond_seats;
mod budget;
mod call;
mod call_breaks;
mod call_users;
mod cid;
mod condvar;
mod counter;
mod domain;
mod domain_breaks;
mod drain;
mod lease_magazines;
mod lease_queue;
mod lease_rates;
mod leases;
mod left;
mod lock;
mod made;
mod mask;
mod object;
mod osq;
mod percpu;
mod pool;
mod presence;
mod read_mostly;
mod readings;
mod reads;
mod refused;
mod rwlock;
mod schedules;
mod seats;
mod slots;
mod wide;
mod worlds;

use coreline::IndexBy;
use coreline_world::{Native, Restartable};

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

/// The choice between sections and atomics is made once per process, so this runs in another one.
#[test]
fn what_holds_natively_holds_on_atomics() {
    let (section, _) = Native::section(IndexBy::Cpu).expect("CPUs have numbers");
    if !Native::runs_sections(&section) {
        return;
    }
    let again = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["natively", "--skip", "on_atomics"])
        .env("CORELINE_RSEQ", "off")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && !text.contains(" 0 passed"), "{text}");
}
