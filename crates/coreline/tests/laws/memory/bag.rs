//! The laws of bags: each value that is put in is taken out once, is in there, or was given back.

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coreline::percpu::PerCpuBag;
use coreline_sim::{Faults, Sim};
use coreline_world::model::{Model, Plant};
use coreline_world::{
    Integer, JoinHandle, Native, Place, Placement, Testbed, Threads, Word, World,
};

use crate::worlds::{self, Effort, FEW, MANY, MODEL, NATIVE, Numbers, PREEMPTED, RACE};

/// What a law needs of a bag.
trait Bag: Send + Sync + 'static {
    fn make(capacity: usize) -> Self;
    fn push(&self, value: u32) -> Result<(), u32>;
    fn pop(&self) -> Option<u32>;
    fn len(&self) -> usize;
}

impl<W: World> Bag for PerCpuBag<u32, W> {
    fn make(capacity: usize) -> Self {
        PerCpuBag::new_in(capacity).unwrap()
    }

    fn push(&self, value: u32) -> Result<(), u32> {
        PerCpuBag::push(self, value)
    }

    fn pop(&self) -> Option<u32> {
        PerCpuBag::pop(self)
    }

    fn len(&self) -> usize {
        PerCpuBag::len(self)
    }
}

/// All threads put values in and take values out. What each of them has in the end and what is left
/// are the values that there were, each once.
fn each_value_is_in_one_hand<W: Testbed, B: Bag>(effort: Effort, capacity: usize) {
    let bag = Arc::new(B::make(capacity));
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|thread| {
            let bag = Arc::clone(&bag);
            let work = move || {
                let mut numbers = Numbers(u64::from(thread));
                let mut hand: Vec<_> =
                    (0..effort.rounds).map(|round| thread * effort.rounds + round).collect();
                for _ in 0..effort.rounds {
                    let value = hand.pop().expect("as many as rounds, or more");
                    hand.extend(bag.push(value).err());
                    assert!(bag.len() <= capacity, "more than there is room for");
                    for _ in 0..numbers.below(3) {
                        hand.extend(bag.pop());
                    }
                    if hand.is_empty() {
                        break;
                    }
                }
                hand
            };
            W::spawn(place(thread), work).unwrap()
        })
        .collect();
    let mut hands: Vec<u32> = bag.pop().into_iter().collect();
    threads.into_iter().for_each(|thread| hands.extend(thread.join()));
    // No other thread is in an operation: what is not found is not there.
    let left = bag.len();
    assert!(left <= capacity, "{left} of {capacity}");
    let before = hands.len();
    hands.extend(std::iter::from_fn(|| bag.pop()).take(2 * left + 1));
    assert_eq!(hands.len() - before, left, "the number of those that were left");
    hands.sort_unstable();
    let all: Vec<u32> = (0..effort.threads * effort.rounds).collect();
    assert!(hands == all, "something was lost or doubled");
    // Also from one CPU the bag takes all that it has room for, and no more.
    let taken = (0..).take_while(|&value| bag.push(value).is_ok()).take(capacity + 1).count();
    assert_eq!(taken, capacity);
    assert_eq!((bag.push(77), bag.len()), (Err(77), capacity));
    assert_eq!(std::iter::from_fn(|| bag.pop()).take(capacity + 1).count(), capacity);
}

#[test]
fn each_value_is_in_one_hand_natively() {
    for capacity in [0, 1, 2, 3, 64, 1000] {
        each_value_is_in_one_hand::<Native, PerCpuBag<u32>>(NATIVE, capacity);
    }
}

#[test]
fn each_value_is_in_one_hand_when_simulated() {
    for (machine, effort, capacities) in [
        ("host-2c", FEW, &[0, 1, 2, 7, 100][..]),
        ("epyc-9654-2s", Effort { rounds: 2, ..MANY }, &[500]),
    ] {
        let law = move || {
            for &capacity in capacities {
                each_value_is_in_one_hand::<Sim, PerCpuBag<u32, Sim>>(effort, capacity);
            }
        };
        let seeds = if effort.threads > 9 { 2 } else { 6 };
        worlds::simulate_seeds("bag::many", machine, Faults::NONE, seeds, law).unwrap();
        worlds::simulate_seeds("bag::preempted", machine, PREEMPTED, seeds, law).unwrap();
    }
}

#[test]
fn each_value_is_in_one_hand_under_schedules() {
    let effort = Effort { rounds: 8, ..FEW };
    let law = move || each_value_is_in_one_hand::<Sim, PerCpuBag<u32, Sim>>(effort, 3);
    worlds::search("bag::schedules", "host-2c", worlds::schedules(60), law).unwrap();
}

/// With one place all threads meet at a stack, with two they go on to another CPU's.
fn in_the_model(capacity: usize) -> impl Fn() + Send + Sync {
    move || each_value_is_in_one_hand::<Model, PerCpuBag<u32, Model>>(MODEL, capacity)
}

#[test]
fn each_value_is_in_one_hand_in_every_interleaving() {
    worlds::check(in_the_model(1));
    worlds::check(in_the_model(2));
}

#[test]
fn a_stack_that_publishes_nothing_is_caught() {
    worlds::assert_caught(Plant::RELAXED_STORES, RACE, in_the_model(1));
    worlds::assert_caught(Plant::RELAXED_RMWS, RACE, in_the_model(1));
}

/// A bag with a mistake: `M` says which.
struct Broken<const M: u32>(PerCpuBag<u32>, AtomicU64);

const LOSES: u32 = 0;
const DOUBLES: u32 = 1;
const OVERFLOWS: u32 = 2;
const FORGETS_ROOM: u32 = 3;

impl<const M: u32> Broken<M> {
    fn is_tenth(&self) -> bool {
        // Relaxed: a count.
        self.1.fetch_add(1, Ordering::Relaxed) % 10 == 9
    }
}

impl<const M: u32> Bag for Broken<M> {
    fn make(capacity: usize) -> Self {
        let capacity = match M {
            OVERFLOWS => capacity + 1,
            FORGETS_ROOM => capacity - 1,
            _ => capacity,
        };
        Broken(PerCpuBag::new(capacity).unwrap(), AtomicU64::new(0))
    }

    fn push(&self, value: u32) -> Result<(), u32> {
        if M == LOSES && self.is_tenth() { Ok(()) } else { self.0.push(value) }
    }

    fn pop(&self) -> Option<u32> {
        let value = self.0.pop()?;
        if M == DOUBLES && self.is_tenth() {
            _ = self.0.push(value);
        }
        Some(value)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[test]
fn bags_that_lose_or_double_values_or_have_other_bounds_are_caught() {
    fn caught<const M: u32>() -> String {
        let effort = Effort { threads: 2, rounds: 100, cpus: 2 };
        worlds::panic_of(|| each_value_is_in_one_hand::<Native, Broken<M>>(effort, 8))
    }
    assert!(caught::<LOSES>().contains("lost or doubled"));
    let message = caught::<DOUBLES>();
    assert!(message.contains("lost or doubled") || message.contains("that were left"), "{message}");
    let message = caught::<OVERFLOWS>();
    assert!(message.contains("room for") || message.contains("of 8"), "{message}");
    assert!(caught::<FORGETS_ROOM>().contains("left: 7"));
}

/// Counts the values that are dropped, and panics in some.
struct Counted<W: World> {
    dropped: Arc<W::U64>,
    panics: bool,
}

impl<W: World> Drop for Counted<W> {
    fn drop(&mut self) {
        // Relaxed: a count, read when no thread drops any more.
        self.dropped.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "a value that cannot be dropped");
    }
}

/// All that threads which have ended left in a bag is dropped with it, each once.
fn each_value_is_dropped_once<W: Testbed>(effort: Effort) {
    let dropped = Arc::new(W::U64::new_in(0));
    let made = u64::from(effort.threads * effort.rounds);
    let bag = PerCpuBag::<Counted<W>, W>::new_in(made as usize / 2).unwrap();
    let bag = Arc::new(bag);
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|thread| {
            let (bag, dropped) = (Arc::clone(&bag), Arc::clone(&dropped));
            let work = move || {
                for round in 0..effort.rounds {
                    let value = Counted { dropped: Arc::clone(&dropped), panics: false };
                    // What is not kept is dropped.
                    drop(bag.push(value));
                    if round % 8 == thread % 8 {
                        drop(bag.pop());
                    }
                }
            };
            W::spawn(place(thread), work).unwrap()
        })
        .collect();
    threads.into_iter().for_each(JoinHandle::join);
    // Relaxed: the threads were joined.
    let dropped = || dropped.load(Ordering::Relaxed);
    assert_eq!(dropped() + bag.len() as u64, made);
    drop(Arc::into_inner(bag));
    assert_eq!(dropped(), made);
}

#[test]
fn each_value_is_dropped_once_in_every_world() {
    each_value_is_dropped_once::<Native>(Effort { rounds: 1_000, ..NATIVE });
    let law = || each_value_is_dropped_once::<Sim>(FEW);
    worlds::simulate("bag::dropped", "host-2c", PREEMPTED, law).unwrap();
    worlds::few(|| each_value_is_dropped_once::<Model>(MODEL));
}

#[test]
fn a_value_whose_drop_panics_leaves_no_other_behind_natively() {
    let dropped = Arc::new(AtomicU64::new(0));
    let bag = PerCpuBag::<Counted<Native>>::new(9).unwrap();
    for number in 0..9 {
        let value = Counted { dropped: Arc::clone(&dropped), panics: number % 3 == 0 };
        assert!(bag.push(value).is_ok());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(bag))).is_err());
    assert_eq!(dropped.load(Ordering::Relaxed), 9);
}

#[test]
fn a_drain_that_panics_leaves_the_other_values_natively() {
    let bag = PerCpuBag::new(100).unwrap();
    (0..50).for_each(|value| bag.push(value).unwrap());
    let mut seen = Vec::new();
    let drain = AssertUnwindSafe(|| {
        bag.drain(|value| {
            assert!(seen.len() < 20, "enough");
            seen.push(value);
        })
    });
    assert!(catch_unwind(drain).is_err());
    // The one that the closure panicked with is gone.
    assert_eq!((seen.len(), bag.len()), (20, 29));
    assert_eq!(bag.drain(|value| seen.push(value)), 29);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((seen.len(), bag.is_empty()), (49, true));
}

#[test]
fn a_drain_sees_each_value_though_its_closure_pushes_natively() {
    let pushes = || {
        let bag = PerCpuBag::new(64).unwrap();
        (0..4).for_each(|value| bag.push(value).unwrap());
        let mut seen = Vec::new();
        let drained = bag.drain(|value| {
            seen.push(value);
            bag.push(value).unwrap();
        });
        seen.sort_unstable();
        assert_eq!((seen, drained, bag.len()), (vec![0, 1, 2, 3], 4, 4));
    };
    // On one CPU: a value that goes to a later stack is seen again.
    Native::spawn(Placement::On(Native::cpu()), pushes).unwrap().join();
}

/// A thread of each CPU in turn puts values in, and the first thread takes them out.
fn values_of_ended_threads_are_reached<W: Testbed>(effort: Effort) {
    let bag = Arc::new(PerCpuBag::<u32, W>::new_in(2 * effort.threads as usize).unwrap());
    let place = effort.places::<W>();
    for thread in 0..effort.threads {
        let bag = Arc::clone(&bag);
        W::spawn(place(thread), move || bag.push(thread).unwrap()).unwrap().join();
    }
    let reached = Arc::clone(&bag);
    let pop = move || std::iter::from_fn(|| reached.pop()).collect::<Vec<_>>();
    let mut values = W::spawn(Placement::Anywhere, pop).unwrap().join();
    values.sort_unstable();
    assert_eq!(values, (0..effort.threads).collect::<Vec<_>>());
}

#[test]
fn values_of_ended_threads_are_reached_in_every_world() {
    values_of_ended_threads_are_reached::<Native>(NATIVE);
    let law = || values_of_ended_threads_are_reached::<Sim>(MANY);
    worlds::simulate_seeds("bag::ended", "epyc-9654-2s", Faults::NONE, 1, law).unwrap();
    worlds::few(|| values_of_ended_threads_are_reached::<Model>(MODEL));
}

#[test]
fn values_without_a_size_and_large_ones_are_kept_natively() {
    let bag = PerCpuBag::new(usize::MAX / 2).unwrap();
    assert_eq!((bag.push(()), bag.pop(), bag.pop()), (Ok(()), Some(()), None));
    #[derive(PartialEq, Debug)]
    #[repr(align(256))]
    struct Large([u8; 300]);
    let bag = PerCpuBag::new(3).unwrap();
    (0..3).for_each(|number| bag.push(Large([number; 300])).unwrap());
    assert_eq!(bag.push(Large([3; 300])), Err(Large([3; 300])));
    let mut sums: Vec<_> = iter::from_fn(|| bag.pop()).map(|it| (it.0[0], it.0[299])).collect();
    sums.sort_unstable();
    assert_eq!(sums, [(0, 0), (1, 1), (2, 2)]);
}

#[test]
fn a_capacity_beyond_all_memory_is_refused_natively() {
    let refused = PerCpuBag::<u64>::new(usize::MAX).unwrap_err().to_string();
    assert!(refused.contains("ask for a smaller capacity"), "{refused}");
    // No values need no memory.
    let units = PerCpuBag::<()>::new(1 << 20).unwrap();
    assert_eq!((units.push(()), units.pop(), units.pop()), (Ok(()), Some(()), None));
    let none = PerCpuBag::<String>::new(0).unwrap();
    assert_eq!(none.push("back".into()), Err("back".into()));
    assert_eq!((none.capacity(), none.capacity_of_cpu()), (0, 0));
}
