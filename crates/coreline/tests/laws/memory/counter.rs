//! The laws of counters: once no thread adds any more, the sum is the sum of all additions; and a
//! cheap reading is never further off than it says.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use coreline::counter::{CounterVec, Nonzero};
use coreline::percpu::{PerCpuPool, PoolOptions};
use coreline::{CounterSet, IndexBy, PerCpuCounter};
use coreline_sim::{Faults, Machine, Sim};
use coreline_world::model::Model;
use coreline_world::{JoinHandle, Native, Placement, Testbed};

use crate::worlds::{self, Effort, FEW, MANY, MODEL, NATIVE, TORN};

/// How a counter is made for a law.
type Make<W> = fn(IndexBy) -> PerCpuCounter<W>;

fn plain<W: Testbed>(by: IndexBy) -> PerCpuCounter<W> {
    PerCpuCounter::new_in(by).unwrap()
}

fn batched<W: Testbed>(by: IndexBy) -> PerCpuCounter<W> {
    plain(by).batched(4)
}

/// Threads add, up and down; the sum is read meanwhile and at the end. The counter is compact when
/// they begin, so it gets its slots in the midst of it.
fn conservation<W: Testbed>(effort: Effort, by: IndexBy, make: Make<W>) {
    let counter = Arc::new(make(by));
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
    let sum = counter.read_exact();
    assert!((-pairs..=3 * pairs).contains(&sum), "{sum} while adding");
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(counter.read_exact(), 2 * pairs, "additions were lost or doubled");
    let reading = counter.read();
    let off = reading.value.abs_diff(2 * pairs);
    assert!(off <= reading.error, "{reading:?} is off by {off}");
    // In the model no CPU is sure to be the second.
    assert!(!W::RUNS || counter.is_spread(), "two CPUs, or many additions, and no slots");
}

#[test]
fn counter_conserves_natively() {
    conservation::<Native>(NATIVE, IndexBy::Cpu, plain);
    conservation::<Native>(NATIVE, IndexBy::Cpu, batched);
    if PerCpuCounter::<Native>::new_in(IndexBy::KernelCid).is_ok() {
        conservation::<Native>(NATIVE, IndexBy::KernelCid, plain);
        conservation::<Native>(NATIVE, IndexBy::KernelCid, batched);
    }
}

#[test]
fn counter_conserves_on_384_simulated_cpus() {
    let law = || conservation::<Sim>(MANY, IndexBy::Cpu, plain);
    worlds::simulate("counter", "epyc-9654-2s", Faults::default(), law).unwrap();
    let law = || conservation::<Sim>(MANY, IndexBy::KernelCid, batched);
    worlds::simulate("counter::by_cid", "epyc-9654-2s", Faults::default(), law).unwrap();
}

#[test]
fn counter_conserves_under_preemption_between_any_two_steps() {
    let law = || conservation::<Sim>(FEW, IndexBy::Cpu, plain);
    worlds::simulate("counter", "host-2c", TORN, law).unwrap();
    let law = || conservation::<Sim>(FEW, IndexBy::KernelCid, plain);
    worlds::simulate("counter::by_cid", "host-2c", TORN, law).unwrap();
    let law = || conservation::<Sim>(FEW, IndexBy::Cpu, batched);
    worlds::simulate("counter::batched", "host-2c", TORN, law).unwrap();
}

#[test]
fn counter_conserves_in_every_interleaving() {
    worlds::few(|| conservation::<Model>(MODEL, IndexBy::Cpu, plain));
}

#[test]
fn a_commit_without_the_abort_check_is_caught() {
    let law = || conservation::<Sim>(FEW, IndexBy::Cpu, plain);
    let faults = Faults { missed_aborts: true, ..TORN };
    let failure = worlds::simulate("counter", "host-2c", faults, law).unwrap_err();
    assert!(failure.to_string().contains("additions were lost"), "{failure}");

    // The replay line of the failure brings it back.
    let again = worlds::replay(&failure.replay).run(law).unwrap_err();
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

/// Gives the counter its slots, as two CPUs that add would, or one that adds often.
fn spread<W: Testbed>(effort: Effort, counter: &Arc<PerCpuCounter<W>>) {
    let place = effort.places::<W>();
    for number in 0..2 {
        let theirs = Arc::clone(counter);
        W::spawn(place(number), move || theirs.add(0)).unwrap().join();
    }
    let most = if W::RUNS { 256 } else { 0 };
    (0..most).for_each(|_| counter.add(0));
}

/// Extreme additions, one after the other, and the reading after each. Returns the error of the
/// last, and the greatest that there can be.
fn extremes<W: Testbed>(effort: Effort, batch: u32) -> [u64; 2] {
    const DELTAS: [i64; 14] =
        [0, 1, -1, i64::MAX, 1, -2, i64::MIN, i64::MIN, -1, i64::MIN + 1, 63, -64, 1 << 32, 0];
    let counter = Arc::new(plain::<W>(IndexBy::Cpu).batched(batch));
    let mut exact = 0_i64;
    let mut check = || {
        for delta in DELTAS {
            counter.add(delta);
            exact = exact.wrapping_add(delta);
            assert_eq!(counter.read_exact(), exact, "after adding {delta}");
            let reading = counter.read();
            // Both wrap, so what is between them does.
            let off = reading.value.wrapping_sub(exact).unsigned_abs();
            assert!(off <= reading.error, "{reading:?} of {exact} with a batch of {batch}");
            assert!(reading.low() <= reading.value && reading.value <= reading.high());
            assert!(counter.is_spread() || reading.error == 0, "{reading:?} of one word");
        }
    };
    check();
    spread(effort, &counter);
    check();
    assert!(counter.is_spread());
    // Half the greatest rest for each slot, the shared one included.
    let slots = W::topology().cpu_limit() as u64 + 1;
    let most = (slots * (u64::from(batch).next_power_of_two() - 1)).div_ceil(2);
    [counter.read().error, most]
}

const BATCHES: [u32; 7] = [0, 1, 2, 3, 64, 1 << 31, u32::MAX];

#[test]
fn extreme_additions_wrap_natively() {
    for batch in BATCHES {
        let [error, most] = extremes::<Native>(NATIVE, batch);
        assert!(error <= most, "{error} is more than {most} with a batch of {batch}");
    }
}

#[test]
fn extreme_additions_wrap_when_simulated() {
    // Both CPUs have added.
    let law = || {
        for batch in BATCHES {
            let [error, most] = extremes::<Sim>(FEW, batch);
            assert_eq!(error, most, "with a batch of {batch}");
        }
    };
    worlds::simulate("counter::extremes", "host-2c", TORN, law).unwrap();
}

/// A counter is batched when it has slots, and then by another batch: what they have counts, and so
/// does what is added from then on.
fn batched_late<W: Testbed>(effort: Effort) {
    let mut counter = Arc::new(plain::<W>(IndexBy::Cpu));
    spread(effort, &counter);
    let mut exact = 0;
    for batch in [64, 1, 8] {
        for late in [false, true] {
            if late {
                counter = Arc::new(Arc::into_inner(counter).unwrap().batched(batch));
            }
            counter.add(70_001);
            exact += 70_001;
            let reading = counter.read();
            let off = reading.value.abs_diff(exact);
            assert!(off <= reading.error, "{reading:?} of {exact} with a batch of {batch}");
        }
    }
}

#[test]
fn a_counter_with_slots_can_be_batched_in_every_world() {
    batched_late::<Native>(NATIVE);
    let law = || batched_late::<Sim>(FEW);
    worlds::simulate("counter::batched_late", "host-2c", Faults::default(), law).unwrap();
    worlds::check(|| batched_late::<Model>(MODEL));
}

/// The error is not only enough, it is needed: with all rests at none, and with all at their most.
#[test]
fn readings_are_as_far_off_as_they_say_natively() {
    for start in [0, 63, -1] {
        let counter = Arc::new(plain::<Native>(IndexBy::Cpu).batched(64));
        spread(NATIVE, &counter);
        counter.add(start);
        let reading = counter.read();
        let off = reading.value.abs_diff(start);
        assert!(off <= reading.error, "{reading:?} of {start}");
        // One slot, or two with the shared one, or more if CPUs came that others are below: all of
        // them at rest 0 but for this thread's.
        assert!(start != 0 || off + 1 >= reading.error, "{reading:?} of {start} is too careful");
    }
}

#[test]
fn the_sum_wraps_and_goes_below_zero_natively() {
    let counter = PerCpuCounter::new().unwrap();
    counter.add(i64::MIN);
    counter.add(-1);
    assert_eq!(counter.read_exact(), i64::MAX);
}

/// Threads add to several counters at once, in slots that lie side by side.
fn set_conservation<W: Testbed>(effort: Effort, by: IndexBy) {
    const COUNTERS: usize = 3;
    let set = Arc::new(CounterSet::<COUNTERS, W>::new_in(by).unwrap());
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let set = Arc::clone(&set);
            let place = if number % 3 == 2 { Placement::Anywhere } else { place(number) };
            let add = move |_| {
                set.add(0, 1);
                set.add(1, -2);
            };
            W::spawn(place, move || (0..effort.rounds).for_each(add)).unwrap()
        })
        .collect();
    threads.into_iter().for_each(JoinHandle::join);
    let rounds = i64::from(effort.threads) * i64::from(effort.rounds);
    assert_eq!(set.read_exact(), [rounds, -2 * rounds, 0], "additions were lost or doubled");
    assert_eq!(set.check_zero(), Err(Nonzero { index: 0, value: rounds }));

    let spread = set.is_spread();
    assert_eq!(set.drain(), [rounds, -2 * rounds, 0]);
    assert_eq!((set.read_exact(), set.check_zero()), ([0; COUNTERS], Ok(())));
    set.add(2, 7);
    assert_eq!(set.read_exact(), [0, 0, 7], "after a drain");
    assert_eq!(set.check_zero(), Err(Nonzero { index: 2, value: 7 }));
    assert!(set.is_spread() >= spread, "a drain keeps the slots");
}

/// More than a slot has room for.
#[test]
fn counters_of_any_number_get_slots_natively() {
    for len in [0, 1, 32, 33, 10_000] {
        let counters = CounterVec::new(len).unwrap();
        assert_eq!(
            (counters.len(), counters.is_empty(), counters.check_zero()),
            (len, len == 0, Ok(()))
        );
        let values: Vec<i64> = (0..len as i64).map(|index| 300 * (index % 7 - 3)).collect();
        for (index, value) in values.iter().enumerate() {
            (0..300).for_each(|_| counters.add(index, value / 300));
            assert!(counters.is_spread(index), "{index} of {len}");
        }
        assert_eq!(counters.read_exact(), values);
        let first = Nonzero { index: 0, value: -900 };
        assert_eq!(counters.check_zero().err(), (len > 0).then_some(first));
        assert_eq!((counters.drain(), counters.check_zero()), (values, Ok(())));
        if len > 0 {
            counters.add(len - 1, 1);
            assert_eq!(counters.read_one(len - 1), 1);
            assert_eq!(counters.check_zero(), Err(Nonzero { index: len - 1, value: 1 }));
        }
        let beyond = || counters.add(len, 1);
        let message = worlds::panic_of(AssertUnwindSafe(beyond));
        assert!(message.contains("out of range"), "{message}");
    }
}

/// What an addition returns is as near as it says.
fn additions_return_about_the_sum<W: Testbed>() {
    for make in [plain::<W>, batched::<W>] {
        let counter = make(IndexBy::Cpu);
        for round in 1..=600 {
            let now = counter.add_and_read(3);
            assert!((now.low()..=now.high()).contains(&(3 * round)), "{now:?} of {}", 3 * round);
        }
        assert_eq!(counter.set(-5), 1800);
        let now = counter.add_and_read(2);
        assert!((now.low()..=now.high()).contains(&-3), "{now:?}");
        assert_eq!((counter.set(7), counter.read_exact()), (-3, 7));
    }
}

#[test]
fn additions_return_about_the_sum_natively() {
    additions_return_about_the_sum::<Native>();
}

#[test]
fn additions_return_about_the_sum_when_simulated() {
    let law = additions_return_about_the_sum::<Sim>;
    worlds::simulate("counter::returns", "host-2c", TORN, law).unwrap();
}

#[test]
fn sets_conserve_natively() {
    set_conservation::<Native>(NATIVE, IndexBy::Cpu);
    if CounterSet::<1>::new_in(IndexBy::KernelCid).is_ok() {
        set_conservation::<Native>(NATIVE, IndexBy::KernelCid);
    }
}

#[test]
fn sets_conserve_when_simulated() {
    let law = || set_conservation::<Sim>(MANY, IndexBy::Cpu);
    worlds::simulate("counter::set", "epyc-9654-2s", Faults::default(), law).unwrap();
    let law = || set_conservation::<Sim>(FEW, IndexBy::KernelCid);
    worlds::simulate("counter::set_by_cid", "host-2c", TORN, law).unwrap();
}

#[test]
fn sets_conserve_in_every_interleaving() {
    worlds::few(|| set_conservation::<Model>(MODEL, IndexBy::Cpu));
}

/// `N` counters in one pool of their own: the last of them, and the one behind it.
fn set_of<const N: usize>(spreads: bool) {
    let pool = PerCpuPool::new(PoolOptions::new()).unwrap();
    let set = CounterSet::<N>::from_pool(&pool);
    // More than make slots.
    for round in 0..300 {
        (0..N).step_by(N / 2 + 1).for_each(|index| set.add(index, round));
    }
    assert_eq!(set.is_spread(), spreads);
    let expected = |index: usize| if index.is_multiple_of(N / 2 + 1) { 44_850 } else { 0 };
    assert!(set.read_exact().into_iter().enumerate().all(|(at, sum)| sum == expected(at)));
    let before = set.read_exact();
    for index in [N, N + 1, usize::MAX] {
        let behind = catch_unwind(AssertUnwindSafe(|| set.add(index, 1)));
        assert!(behind.is_err(), "added to counter {index} of {N}");
    }
    assert_eq!(set.read_exact(), before, "a panic leaves the others alone");
    drop(set);
    assert_eq!(pool.close(), Ok(()));
}

#[test]
fn sets_of_any_size_count_natively() {
    set_of::<0>(false);
    set_of::<1>(true);
    set_of::<2>(true);
    set_of::<512>(true);
    // As many as fit into a slot: more do not compile.
    set_of::<8192>(true);
}
