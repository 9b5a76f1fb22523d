//! The law of a collector's barrier, beside another one.

use std::sync::Arc;

use coreline::rcu::{Collector, CollectorOptions};
use coreline_sim::Sim;
use coreline_world::model::{Model, Plant};
use coreline_world::{Cell, JoinHandle, Native, Placement, Testbed};

use crate::worlds::{self, PREEMPTED, RACE};

/// Two threads wait for a function that was deferred before. One of them runs it, and what it wrote
/// is there when either of the two returns.
fn barriers<W: Testbed>() {
    let options = CollectorOptions::new().batch(2);
    let collector = Arc::new(Collector::<W>::new_in(options).expect("memory"));
    let written = Arc::new(Cell::<u64, W>::new_in(0));
    let theirs = Arc::clone(&written);
    // SAFETY: no thread looks before the function has run: that is what is tested.
    collector.defer(move || theirs.with_mut(|at| unsafe { *at += 1 }));
    let wait = move |collector: &Collector<W>| {
        collector.barrier().expect("heavy fences");
        // SAFETY: the function has run, and no other follows: that is what is tested.
        assert_eq!(written.with(|at| unsafe { *at }), 1, "the function did not run");
    };
    let (here, there) = (wait.clone(), Arc::clone(&collector));
    let other = W::spawn(Placement::Anywhere, move || wait(&there)).unwrap();
    here(&collector);
    other.join();
    assert_eq!(collector.pending(), 0);
}

#[test]
fn a_barrier_waits_for_what_another_thread_runs_in_every_interleaving() {
    // A holder of the lock of the grace periods stores to its word, beside threads that look at it.
    worlds::fewest_planted(Plant::EXCHANGES, barriers::<Model>);
    worlds::assert_caught(Plant::RELAXED_STORES, RACE, barriers::<Model>);
}

#[test]
fn a_barrier_waits_for_what_another_thread_runs_in_simulation() {
    worlds::simulate("rcu::barriers", "host-2c", PREEMPTED, barriers::<Sim>).unwrap();
    worlds::search("rcu::barriers_search", "host-2c", worlds::schedules(60), barriers::<Sim>)
        .unwrap();
}

#[test]
fn a_barrier_waits_for_what_another_thread_runs_natively() {
    (0..200).for_each(|_| barriers::<Native>());
}
