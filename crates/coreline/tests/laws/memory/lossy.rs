//! The laws of lossy buffers: each value that is pushed is drained once, is in the buffer, or was
//! given back and counted; and the values of each CPU come in the order in which they were pushed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coreline::percpu::{Draining, LossyBuffer};
use coreline_sim::{Faults, Sim};
use coreline_world::model::{Model, Plant};
use coreline_world::{Integer, JoinHandle, Native, Testbed, Word, World};

use crate::worlds::{self, Effort, FEW, MANY, MODEL, NATIVE, PREEMPTED, RACE};

/// What a law needs of a buffer.
trait Lossy: Send + Sync + 'static {
    fn make(capacity: usize) -> Self;
    fn push(&self, value: u32) -> Result<(), u32>;
    fn drain(&self) -> Result<Vec<u32>, Draining>;
    fn lost(&self) -> u64;
}

impl<W: World> Lossy for LossyBuffer<u32, W> {
    fn make(capacity: usize) -> Self {
        LossyBuffer::new_in(capacity).unwrap()
    }

    fn push(&self, value: u32) -> Result<(), u32> {
        LossyBuffer::push(self, value)
    }

    fn drain(&self) -> Result<Vec<u32>, Draining> {
        let mut values = Vec::new();
        let drained = LossyBuffer::drain(self, |value| values.push(value))?;
        assert_eq!(drained, values.len());
        Ok(values)
    }

    fn lost(&self) -> u64 {
        LossyBuffer::lost(self)
    }
}

/// Threads that each stay on a CPU push, and the first thread drains.
fn each_value_is_drained_once<W: Testbed, B: Lossy>(effort: Effort, capacity: usize) {
    let (buffer, begun) = (Arc::new(B::make(capacity)), Arc::new(W::U32::new_in(0)));
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|thread| {
            let (buffer, begun) = (Arc::clone(&buffer), Arc::clone(&begun));
            let push = move || {
                let values = (0..effort.rounds).map(|round| thread * effort.rounds + round);
                let push = |value| {
                    let lost = buffer.push(value).err();
                    // Relaxed, here and below: it orders nothing. It makes loom try this thread
                    // first, which loads what it stores: loom would forget an earlier look of the
                    // thread that drains.
                    begun.store(1, Ordering::Relaxed);
                    lost
                };
                values.filter_map(push).collect::<Vec<_>>()
            };
            W::spawn(place(thread), push).unwrap()
        })
        .collect();
    begun.wait_until(Ordering::Relaxed, |begun| begun == 1);
    let mut drained = Vec::new();
    for _ in 0..if W::RUNS { effort.rounds / 4 } else { 1 } {
        drained.extend(buffer.drain().expect("no other thread drains"));
        W::relax();
    }
    let mut lost = Vec::new();
    threads.into_iter().for_each(|thread| lost.extend(thread.join()));
    drained.extend(buffer.drain().expect("no other thread drains"));
    assert_eq!(buffer.drain(), Ok(Vec::new()), "all were taken");
    assert_eq!(buffer.lost(), lost.len() as u64, "the number of those that were lost");
    for thread in 0..effort.threads {
        let of_thread = drained.iter().filter(|&value| value / effort.rounds == thread);
        assert!(of_thread.is_sorted(), "in another order: {drained:?}");
    }
    let mut all = [lost, drained].concat();
    all.sort_unstable();
    let made: Vec<u32> = (0..effort.threads * effort.rounds).collect();
    assert!(all == made, "something is missing or doubled");
    // One CPU's ring takes what it has room for, and no more.
    let push = move || {
        let kept = (0..).take_while(|&value| buffer.push(value).is_ok());
        let kept = kept.take(2 * capacity + 2).count();
        (kept, buffer.drain().map(|values| values.len()))
    };
    let room = capacity.next_power_of_two();
    assert_eq!(W::spawn(place(0), push).unwrap().join(), (room, Ok(room)));
}

#[test]
fn each_value_is_drained_once_natively() {
    for capacity in [0, 1, 2, 3, 64, 1 << 15] {
        each_value_is_drained_once::<Native, LossyBuffer<u32>>(NATIVE, capacity);
    }
}

#[test]
fn each_value_is_drained_once_when_simulated() {
    for (machine, effort, capacities) in
        [("host-2c", FEW, &[1, 2, 8, 100][..]), ("epyc-9654-2s", MANY, &[2])]
    {
        let law = move || {
            for &capacity in capacities {
                each_value_is_drained_once::<Sim, LossyBuffer<u32, Sim>>(effort, capacity);
            }
        };
        let seeds = if effort.threads > 9 { 2 } else { 6 };
        worlds::simulate_seeds("lossy::many", machine, Faults::NONE, seeds, law).unwrap();
        worlds::simulate_seeds("lossy::preempted", machine, PREEMPTED, seeds, law).unwrap();
    }
}

#[test]
fn each_value_is_drained_once_under_schedules() {
    let effort = Effort { rounds: 8, ..FEW };
    let law = move || each_value_is_drained_once::<Sim, LossyBuffer<u32, Sim>>(effort, 2);
    worlds::search("lossy::schedules", "host-2c", worlds::schedules(60), law).unwrap();
}

/// Threads on one CPU meet at a ring; one thread goes round the ring while another drains.
fn in_the_model(effort: Effort) -> impl Fn() + Send + Sync {
    move || each_value_is_drained_once::<Model, LossyBuffer<u32, Model>>(effort, 1)
}

const TWO_ON_ONE_CPU: Effort = Effort { cpus: 1, ..MODEL };
const ROUND: Effort = Effort { threads: 1, rounds: 3, cpus: 1 };

#[test]
fn each_value_is_drained_once_in_every_interleaving() {
    worlds::check(in_the_model(TWO_ON_ONE_CPU));
    worlds::check(in_the_model(ROUND));
}

#[test]
fn rings_that_publish_nothing_are_caught() {
    worlds::assert_caught(Plant::RELAXED_STORES, RACE, in_the_model(ROUND));
    worlds::assert_caught(Plant::RELAXED_LOADS, RACE, in_the_model(ROUND));
    // What the last push to a ring wrote, another thread writes over.
    let rounds = Effort { rounds: 2, ..TWO_ON_ONE_CPU };
    assert!(worlds::is_caught(Plant::RELAXED_RMWS, in_the_model(rounds)));
}

/// A buffer with a mistake: `M` says which.
struct Broken<const M: u32>(LossyBuffer<u32>, AtomicU64);

const FORGETS: u32 = 0;
const DOUBLES: u32 = 1;
const REORDERS: u32 = 2;
const DOES_NOT_COUNT: u32 = 3;
const OVERFLOWS: u32 = 4;

impl<const M: u32> Lossy for Broken<M> {
    fn make(capacity: usize) -> Self {
        let capacity = if M == OVERFLOWS { 2 * capacity } else { capacity };
        Broken(LossyBuffer::new(capacity).unwrap(), AtomicU64::new(0))
    }

    fn push(&self, value: u32) -> Result<(), u32> {
        // Relaxed: a count.
        if M == FORGETS && self.1.fetch_add(1, Ordering::Relaxed) == 9 {
            return Ok(());
        }
        self.0.push(value)
    }

    fn drain(&self) -> Result<Vec<u32>, Draining> {
        let mut values = Lossy::drain(&self.0)?;
        if M == REORDERS {
            values.reverse();
        }
        if M == DOUBLES {
            let last = values.last().copied();
            values.extend(last);
        }
        Ok(values)
    }

    fn lost(&self) -> u64 {
        if M == DOES_NOT_COUNT { 0 } else { self.0.lost() }
    }
}

#[test]
fn buffers_that_forget_double_or_reorder_values_are_caught() {
    fn caught<const M: u32>() -> String {
        let effort = Effort { threads: 2, rounds: 100, cpus: 2 };
        worlds::panic_of(|| each_value_is_drained_once::<Native, Broken<M>>(effort, 8))
    }
    assert!(caught::<FORGETS>().contains("missing or doubled"));
    assert!(caught::<DOUBLES>().contains("missing or doubled"));
    assert!(caught::<REORDERS>().contains("in another order"));
    assert!(caught::<DOES_NOT_COUNT>().contains("those that were lost"));
    assert!(caught::<OVERFLOWS>().contains("left: (16, Ok(16))"));
}

/// All threads push and drain: the drains exclude each other.
fn drains_exclude_each_other<W: Testbed>(effort: Effort) {
    let buffer = Arc::new(LossyBuffer::<u32, W>::new_in(64).unwrap());
    let inside = Arc::new(W::U32::new_in(0));
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|thread| {
            let (buffer, inside) = (Arc::clone(&buffer), Arc::clone(&inside));
            let work = move || {
                let (mut seen, mut lost) = (0, 0);
                for round in 0..effort.rounds {
                    lost += u64::from(buffer.push(round).is_err());
                    let drained = buffer.drain(|_| {
                        // Relaxed, both: of one word, which no two drains have at a time.
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two drain at once");
                        assert_eq!(buffer.drain(|_| unreachable!()), Err(Draining));
                        inside.fetch_sub(1, Ordering::Relaxed);
                    });
                    seen += drained.unwrap_or(0) as u64;
                }
                (seen, lost)
            };
            W::spawn(place(thread), work).unwrap()
        })
        .collect();
    let (mut seen, mut lost) = (0, 0);
    for thread in threads {
        let (theirs, theirs_lost) = thread.join();
        (seen, lost) = (seen + theirs, lost + theirs_lost);
    }
    seen += buffer.drain(drop).expect("no other thread drains") as u64;
    assert_eq!(seen + lost, u64::from(effort.threads * effort.rounds));
    assert_eq!((buffer.lost(), buffer.len()), (lost, 0));
}

#[test]
fn drains_exclude_each_other_in_every_world() {
    drains_exclude_each_other::<Native>(Effort { rounds: 2_000, ..NATIVE });
    let law = || drains_exclude_each_other::<Sim>(FEW);
    worlds::simulate("lossy::drains", "host-2c", PREEMPTED, law).unwrap();
    worlds::few(|| drains_exclude_each_other::<Model>(MODEL));
}

#[test]
fn drains_that_publish_nothing_are_caught() {
    let law = || drains_exclude_each_other::<Model>(TWO_ON_ONE_CPU);
    assert!(worlds::is_caught(Plant::RELAXED_RMWS, law));
}

/// Counts the values that are dropped, and panics in some.
struct Counted {
    dropped: Arc<AtomicU64>,
    panics: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "a value that cannot be dropped");
    }
}

#[test]
fn each_value_is_dropped_once_natively() {
    let dropped = Arc::new(AtomicU64::new(0));
    let buffer = LossyBuffer::new(8).unwrap();
    for number in 0..100 {
        let value = Counted { dropped: Arc::clone(&dropped), panics: false };
        drop(buffer.push(value));
        if number == 50 {
            buffer.drain(drop).unwrap();
        }
    }
    let count = || dropped.load(Ordering::Relaxed);
    assert_eq!(count() + buffer.len() as u64, 100);
    drop(buffer);
    assert_eq!(count(), 100);
}

#[test]
fn values_whose_drops_panic_leave_no_other_behind_natively() {
    let dropped = Arc::new(AtomicU64::new(0));
    let buffer = LossyBuffer::new(16).unwrap();
    for number in 0..9 {
        let value = Counted { dropped: Arc::clone(&dropped), panics: number % 3 == 0 };
        assert!(buffer.push(value).is_ok());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(buffer))).is_err());
    assert_eq!(dropped.load(Ordering::Relaxed), 9);
}

#[test]
fn a_drain_that_panics_leaves_the_other_values_natively() {
    let buffer = LossyBuffer::new(64).unwrap();
    (0..50).for_each(|value| buffer.push(value).unwrap());
    let mut seen = Vec::new();
    let drain = AssertUnwindSafe(|| {
        buffer.drain(|value| {
            assert!(seen.len() < 20, "enough");
            seen.push(value);
        })
    });
    assert!(catch_unwind(drain).is_err());
    // The one that the closure panicked with is gone.
    assert_eq!((seen.len(), buffer.len()), (20, 29));
    assert_eq!(buffer.drain(|value| seen.push(value)), Ok(29));
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((seen.len(), buffer.is_empty(), buffer.lost()), (49, true, 0));
}

#[test]
fn a_capacity_beyond_all_memory_is_refused_natively() {
    for capacity in [usize::MAX, 1 << 62] {
        let refused = LossyBuffer::<u64>::new(capacity).unwrap_err().to_string();
        assert!(refused.contains("ask for a smaller capacity"), "{refused}");
    }
    assert_eq!(LossyBuffer::<u64>::new(100).unwrap().capacity_of_cpu(), 128);
    for beyond in [usize::MAX, isize::MAX as usize + 1] {
        assert!(LossyBuffer::<()>::new(beyond).is_err());
    }
    let most = LossyBuffer::new(isize::MAX as usize / 2).unwrap();
    assert_eq!((most.push(()), most.len(), most.drain(|()| ())), (Ok(()), 1, Ok(1)));
}
