//! The law of counters: once nobody adds any more, the sum is the sum of all additions.

use std::sync::Arc;

use coreline::{IndexBy, PerCpuCounter};
use coreline_sim::{Faults, Machine, Sim};
use coreline_world::model::Model;
use coreline_world::{JoinHandle, Native, Placement, World};

use crate::worlds::{self, Effort, FEW, MANY, MODEL, NATIVE};

/// Threads add, up and down; the sum is read meanwhile and at the end.
fn conservation<W: World>(effort: Effort, by: IndexBy) {
    let counter = Arc::new(PerCpuCounter::<W>::new_in(by).unwrap());
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let counter = Arc::clone(&counter);
            // One in three roams, if the world moves threads at all.
            let place = match number % 3 {
                2 => Placement::Anywhere,
                _ => place(number),
            };
            W::spawn(place, move || {
                for _ in 0..effort.rounds {
                    counter.add(3);
                    counter.add(-1);
                }
            })
            .unwrap()
        })
        .collect();
    // Each addition is in or out of a sum that is taken meanwhile: none of those up and all of
    // those down at the least, the other way round at the most.
    let pairs = i64::from(effort.threads) * i64::from(effort.rounds);
    let sum = counter.sum();
    assert!((-pairs..=3 * pairs).contains(&sum), "{sum} while adding");
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(counter.sum(), 2 * pairs, "additions were lost or doubled");
}

#[test]
fn counter_conserves_natively() {
    conservation::<Native>(NATIVE, IndexBy::Cpu);
}

#[test]
fn counter_conserves_on_384_simulated_cpus() {
    let law = || conservation::<Sim>(MANY, IndexBy::Cpu);
    worlds::simulate("counter", "epyc-9654-2s", Faults::default(), law).unwrap();
}

/// Preempted before every fifth step and moved before every seventh, on average.
const TORN: Faults = Faults { preempt: 5, migrate: 7, missed_aborts: false };

#[test]
fn counter_conserves_under_preemption_between_any_two_steps() {
    let law = || conservation::<Sim>(FEW, IndexBy::Cpu);
    worlds::simulate("counter", "host-2c", TORN, law).unwrap();
}

#[test]
fn counter_conserves_in_every_interleaving() {
    worlds::check(|| conservation::<Model>(MODEL, IndexBy::Cpu));
}

#[test]
fn a_commit_without_the_abort_check_is_caught() {
    let law = || conservation::<Sim>(FEW, IndexBy::Cpu);
    let faults = Faults { missed_aborts: true, ..TORN };
    let failure = worlds::simulate("counter", "host-2c", faults, law).unwrap_err();
    assert!(failure.to_string().contains("additions were lost"), "{failure}");

    // The replay line of the failure brings it back.
    let again = Machine::replay(&failure.replay).unwrap().run(law).unwrap_err();
    assert_eq!(again, failure);
}

#[test]
fn a_machine_without_concurrency_ids_says_so() {
    let error = Machine::preset("host-2c")
        .unwrap()
        .run(|| PerCpuCounter::<Sim>::new_in(IndexBy::KernelCid).map(|_| ()).unwrap_err())
        .unwrap()
        .value;
    assert!(error.to_string().contains("kernel concurrency ID"), "{error}");
}

#[test]
fn the_sum_wraps_and_goes_below_zero() {
    let counter = PerCpuCounter::new().unwrap();
    counter.add(i64::MIN);
    counter.add(-1);
    assert_eq!(counter.sum(), i64::MAX);
}
