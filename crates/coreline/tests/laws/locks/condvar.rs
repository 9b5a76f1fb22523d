//! The law of condition variables: a thread that waits for a condition learns of its change.

use std::sync::Arc;
use std::time::Duration;

use coreline::Mutex;
use coreline::lock::{Condvar, Near, TimedOut};
use coreline_sim::{Faults, Sim};
use coreline_world::model::{Model, Plant};
use coreline_world::{JoinHandle, Native, Testbed};

use crate::worlds::{self, Effort, crew};

/// A queue with room for one, between makers and takers.
struct Slot<W: Testbed> {
    full: Mutex<Option<u32>, Near, W>,
    filled: Condvar<W>,
    emptied: Condvar<W>,
}

/// Makers hand numbers to takers; each number arrives once. A lost notification leaves both sides
/// asleep.
fn hand_over<W: Testbed>(effort: Effort) {
    let slot = Arc::new(Slot::<W> {
        full: Mutex::new_in(None),
        filled: Condvar::new_in(),
        emptied: Condvar::new_in(),
    });
    let rounds = effort.rounds;
    let threads = effort.crew::<W, _, _>(|number| {
        let slot = Arc::clone(&slot);
        let make = move |slot: &Slot<W>, round| {
            let mut full = slot.full.lock();
            slot.emptied.wait_while(&mut full, |full| full.is_some());
            *full = Some(round);
            slot.filled.notify_one();
            0
        };
        let take = move |slot: &Slot<W>| {
            let mut full = slot.full.lock();
            slot.filled.wait_while(&mut full, |full| full.is_none());
            let taken = full.take().expect("waited for");
            drop(full);
            slot.emptied.notify_one();
            u64::from(taken)
        };
        move || {
            let one =
                |round| if number.is_multiple_of(2) { make(&slot, round) } else { take(&slot) };
            (1..=rounds).map(one).sum::<u64>()
        }
    });
    let sum: u64 = threads.into_iter().map(JoinHandle::join).sum();
    let each = u64::from(rounds * (rounds + 1) / 2);
    assert_eq!(sum, u64::from(effort.threads / 2) * each);
}

#[test]
fn what_is_handed_over_arrives_natively() {
    hand_over::<Native>(Effort { threads: 2, rounds: 2000, cpus: 2 });
    hand_over::<Native>(Effort { threads: 16, rounds: 200, cpus: 2 });
}

#[test]
fn what_is_handed_over_arrives_in_simulation() {
    for faults in [Faults::NONE, worlds::TORN, worlds::PREEMPTED] {
        let law = || hand_over::<Sim>(Effort { threads: 4, rounds: 20, cpus: 2 });
        worlds::simulate("condvar::hand_over", "host-2c", faults, law).unwrap();
    }
    let law = || hand_over::<Sim>(Effort { threads: 64, rounds: 4, cpus: 64 });
    worlds::simulate("condvar::hand_over", "epyc-9654-2s", Faults::NONE, law).unwrap();
}

#[test]
fn what_is_handed_over_arrives_in_every_interleaving() {
    let law = || hand_over::<Model>(Effort { threads: 2, rounds: 1, cpus: 2 });
    worlds::few_planted(Plant::EXCHANGES, law);
}

/// All that wait are told at once, and one that waits in vain gives up.
fn all_are_told<W: Testbed>(waiters: u32) {
    let shared = Arc::new((Mutex::<bool, Near, W>::new_in(false), Condvar::<W>::new_in()));
    let threads = crew::<W, _, _>(waiters, |_| {
        let shared = Arc::clone(&shared);
        move || {
            let mut told = shared.0.lock();
            shared.1.wait_while(&mut told, |told| !*told);
        }
    });
    *shared.0.lock() = true;
    shared.1.notify_all();
    threads.into_iter().for_each(JoinHandle::join);
    let mut told = shared.0.lock();
    let waited = shared.1.wait_for(&mut told, Duration::from_micros(50));
    assert_eq!((waited, *told), (TimedOut(true), true), "no thread notifies");
    drop(told);
    assert!(!shared.0.is_locked());
}

#[test]
fn all_are_told_at_once() {
    all_are_told::<Native>(8);
    let law = || all_are_told::<Sim>(48);
    worlds::simulate("condvar::all", "epyc-9654-2s", Faults::NONE, law).unwrap();
    worlds::few_planted(Plant::EXCHANGES, || all_are_told::<Model>(1));
}
