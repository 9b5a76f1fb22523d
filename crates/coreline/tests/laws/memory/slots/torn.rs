//! Restartable operations while the machine preempts and moves threads between any two steps: the
//! laws hold, and without aborts each operation loses or doubles something.

use core::ptr::{self, NonNull};
use core::time::Duration;
use std::sync::Arc;

use coreline::percpu::ResizableStack;
use coreline::{IndexBy, PerCpu};
use coreline_sim::{Failure, Faults, Machine, Schedule, Sim, SimPtr, SimU32, SimU64, SimUsize};
use coreline_topology::CpuId;
use coreline_world::{JoinHandle, Ordering, Placement, Slot, Threads, Word};

use super::{LAWS, conservation, landing, operations, rows};
use crate::worlds::{self, TORN};

/// As [`TORN`], and the kernel aborts nothing.
const MISSED: Faults = Faults { missed_aborts: true, ..TORN };
const SEEDS: u64 = 8;

fn run<T: 'static>(faults: Faults, seed: u64, program: fn() -> T) -> Result<T, Box<Failure>> {
    let machine = machine("host-2c", seed).faults(faults);
    machine.program("a torn operation").run(program).map(|run| run.value)
}

fn machine(name: &str, seed: u64) -> Machine {
    Machine::preset(name).unwrap().seed(seed)
}

/// Starts a thread on a CPU, from inside a machine.
fn on<T: Send + 'static>(
    cpu: u32,
    f: impl FnOnce() -> T + Send + 'static,
) -> <Sim as Threads>::JoinHandle<T> {
    Sim::spawn(Placement::On(CpuId::new(cpu)), f).unwrap()
}

#[test]
fn the_laws_hold_under_preemption_between_any_two_steps() {
    // A thread that is moved adds where it was moved to.
    let laws =
        LAWS.iter().filter(|(name, _)| !name.starts_with("an_addition_lands_in_the_slot_of"));
    for &(name, law) in laws {
        let torn = worlds::simulate_seeds(name, "host-2c", TORN, SEEDS, law);
        torn.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// The laws of conservation need the aborts.
#[test]
fn the_laws_notice_missed_aborts() {
    let conserve = [
        "no_addition_is_lost",
        "no_addition_is_lost_when_indexes_move",
        "no_addition_is_lost_when_kicked_cpus_exchange_indexes",
        "a_condition_on_a_sum_is_never_broken",
        "a_store_if_equal_is_never_lost",
        "no_value_is_lost_or_doubled",
        "no_value_is_lost_or_doubled_by_a_resize",
        "no_pointer_is_lost_or_doubled",
        "words_side_by_side_are_apart",
        "a_stopped_word_is_its_stoppers",
        "a_stopped_stack_is_its_stoppers",
        "a_stopped_resizable_stack_is_its_stoppers",
        "a_stopped_pointer_is_its_stoppers",
        "a_stopped_slot_of_several_is_its_stoppers",
    ];
    let known = |name| LAWS.iter().any(|(law, _)| *law == name);
    assert!(conserve.into_iter().all(known));
    for &(name, law) in LAWS {
        let broken = (0..SEEDS).filter(|&seed| run(MISSED, seed, law).is_err()).count();
        assert!(broken > 0 || !conserve.contains(&name), "{name} hold without aborts");
    }
}

#[test]
fn the_laws_hold_under_all_faults_at_once() {
    let faults = Faults {
        preempt: 9,
        preempt_access: 11,
        migrate: 13,
        signal: 15,
        delay: 17,
        offline: 2000,
        ..Faults::NONE
    };
    // Those of a bound thread's own slot are not among them: no CPU is for ever.
    let laws: [(&str, fn()); 4] = [
        ("additions", landing::no_addition_is_lost::<Sim>),
        ("conditions", operations::a_condition_on_a_sum_is_never_broken::<Sim>),
        ("values", conservation::no_value_is_lost_or_doubled::<Sim>),
        ("stopped stacks", conservation::a_stopped_stack_is_its_stoppers::<Sim>),
    ];
    for (name, law) in laws {
        for seed in 0..4 {
            let machine = machine("host-2c", seed).faults(faults).program(name);
            machine.run(law).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

#[test]
fn the_laws_hold_under_every_schedule() {
    let laws: [(&str, fn()); 4] = [
        ("additions", landing::no_addition_is_lost::<Sim>),
        ("values", conservation::no_value_is_lost_or_doubled::<Sim>),
        ("resized", conservation::no_value_is_lost_or_doubled_by_a_resize::<Sim>),
        ("stopped words", conservation::a_stopped_word_is_its_stoppers::<Sim>),
    ];
    for schedule in [Schedule::Random, Schedule::Pct { depth: 4, steps: 20_000 }] {
        for (name, law) in laws {
            for (seed, faults) in [(0, "none"), (1, "preempt:7,migrate:9,signal:20,delay:30")] {
                let faults = faults.parse().unwrap();
                let machine = machine("host-2c", seed).faults(faults).program(name);
                let run = machine.schedule(schedule.clone()).run(law);
                run.unwrap_or_else(|failure| panic!("{failure}"));
            }
        }
    }
}

/// One thread pushes batches, so long that it is inside of a section most of the time (longer than
/// the store buffer, so that the section waits for lines); another
/// stops the slots over and over, and takes what is there. Each value is taken once.
fn a_stop_takes_each_value_once() {
    type Values = ResizableStack<u8, 500, Sim>;
    const VALUES: usize = 4_000;
    let stacks = slots(|| Values::with_capacity_in(500));
    let value = |number: usize| NonNull::new(ptr::without_provenance_mut(number + 1)).unwrap();
    let over = Arc::new(SimU32::new_in(0));
    let (theirs, pushed_all) = (Arc::clone(&stacks), Arc::clone(&over));
    let pusher = Sim::spawn(Placement::On(CpuId::new(1)), move || {
        let mut pushed = 0;
        while pushed < VALUES {
            let batch: Vec<_> = (pushed..VALUES.min(pushed + 200)).map(value).collect();
            let count = theirs.field(|stack| stack).push_batch(&batch);
            // As many as the shared slot and this CPU's hold wait for the other thread. Not at the
            // shared slot's lock, which is not fair: the other thread might never get it.
            if count == 0 {
                Sim::sleep(Duration::from_nanos(500));
            }
            pushed += count;
        }
        pushed_all.store(1, Ordering::Release);
    });
    let mut taken = Vec::new();
    for round in 0.. {
        let last = over.load(Ordering::Acquire) == 1;
        // Long enough for the other thread to come back to its own slot; not always as long.
        Sim::sleep(Duration::from_nanos(2_000 + round * 7 % 500));
        let stopped = stacks.with_all_stopped(|slots| {
            for slot in slots {
                let mut into = [None; 500];
                let count = slot.field(|stack| stack).pop_batch(&mut into);
                taken.extend(into[..count].iter().map(|value| value.unwrap().addr().get() - 1));
            }
        });
        stopped.unwrap();
        if last {
            break;
        }
    }
    pusher.unwrap().join();
    taken.sort_unstable();
    assert!(taken.iter().copied().eq(0..VALUES), "a value was lost, or taken twice");
}

/// A program that is right, and in some run wrong where fences restart nothing.
fn needs_its_fence(program: fn()) {
    // Delays, so that a section can outlast the thread that fences it.
    let late = Faults { delay: 100, ..Faults::NONE };
    for seed in 0..SEEDS {
        run(late, seed, program).unwrap();
    }
    let faults = Faults { missed_fences: true, ..late };
    let broken = (0..SEEDS).filter(|&seed| run(faults, seed, program).is_err());
    assert!(broken.count() > 0, "no fence restarts a section, and nothing is lost");
}

#[test]
fn a_stop_needs_its_fence() {
    needs_its_fence(a_stop_takes_each_value_once);
}

#[test]
fn a_move_of_an_index_needs_its_fence() {
    needs_its_fence(rows::no_addition_is_lost_when_indexes_move::<Sim>);
}

#[test]
fn a_move_between_two_cpus_needs_their_kicks() {
    needs_its_fence(rows::no_addition_is_lost_when_kicked_cpus_exchange_indexes::<Sim>);
}

const THREADS: usize = 4;
const EACH: usize = 12;
const ALL: usize = THREADS * EACH;
const BATCH: usize = 3;

type Stack = ResizableStack<u8, ALL, Sim>;

fn slots<T: Slot>(init: fn() -> T) -> Arc<PerCpu<T, Sim>> {
    Arc::new(PerCpu::new_in(IndexBy::Cpu, init).unwrap())
}

/// What threads that share a CPU return, one behind the other.
fn crew<T: Send + 'static, F: FnOnce() -> Vec<T> + Send + 'static>(
    member: impl Fn(usize) -> F,
) -> Vec<T> {
    let threads: Vec<_> = (0..THREADS).map(|number| on(0, member(number))).collect();
    threads.into_iter().flat_map(JoinHandle::join).collect()
}

/// The things that this thread has to begin with.
fn own(member: usize) -> core::ops::Range<usize> {
    member * EACH..(member + 1) * EACH
}

/// Whether everything is there, once.
fn is_all(mut found: Vec<usize>) -> bool {
    found.sort_unstable();
    found.into_iter().eq(0..ALL)
}

fn value(number: usize) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(number + 1)).unwrap()
}

fn number(value: NonNull<u8>) -> usize {
    value.addr().get() - 1
}

/// All that a thread on the first CPU finds until there is no more, or more than there can be.
fn drain<T: Send + 'static>(pop: impl FnMut() -> Option<T> + Send + 'static) -> Vec<T> {
    on(0, move || core::iter::from_fn(pop).take(ALL + 1).collect()).join()
}

fn stacks() -> Arc<PerCpu<Stack, Sim>> {
    slots(|| Stack::with_capacity_in(ALL))
}

fn pushes() -> bool {
    let stack = stacks();
    crew(|member| {
        let stack = Arc::clone(&stack);
        move || own(member).map(|it| stack.field(|stack| stack).push(value(it))).collect()
    });
    is_all(drain(move || stack.field(|stack| stack).pop().map(number)))
}

fn pops() -> bool {
    let stack = stacks();
    fill(&stack);
    is_all(crew(|_| {
        let stack = Arc::clone(&stack);
        let pop = move || stack.field(|stack| stack).pop().map(number);
        move || core::iter::from_fn(pop).take(ALL).collect()
    }))
}

fn push_batches() -> bool {
    let stack = stacks();
    crew(|member| {
        let stack = Arc::clone(&stack);
        let push = move |some: &[_]| stack.field(|stack| stack).push_batch(some);
        move || own(member).map(value).collect::<Vec<_>>().chunks(BATCH).map(push).collect()
    });
    is_all(drain(move || stack.field(|stack| stack).pop().map(number)))
}

fn pop_batches() -> bool {
    let stack = stacks();
    fill(&stack);
    is_all(crew(|_| {
        let stack = Arc::clone(&stack);
        let pop = move |_| {
            let mut into = [None; BATCH];
            let count = stack.field(|stack| stack).pop_batch(&mut into);
            into.into_iter().take(count).flatten().map(number)
        };
        move || (0..ALL).flat_map(pop).collect()
    }))
}

/// Puts all values on the first CPU's stack.
fn fill(stack: &Arc<PerCpu<Stack, Sim>>) {
    let stack = Arc::clone(stack);
    let push = move |all: &[_]| stack.field(|stack| stack).push_batch(all);
    on(0, move || push(&(0..ALL).map(value).collect::<Vec<_>>())).join();
}

/// Each thread sets capacities of its own, and each is returned once, or is the last.
fn resizes() -> bool {
    let stack = stacks();
    let mut found = crew(|member| {
        let stack = Arc::clone(&stack);
        move || own(member).map(|it| stack.field(|stack| stack).resize(it)).collect()
    });
    found.push(on(0, move || stack.field(|stack| stack).resize(ALL)).join());
    found.retain(|&capacity| capacity != ALL);
    is_all(found)
}

fn pointer_exchanges() -> bool {
    let words = slots(|| SimPtr::new_in(ptr::null_mut()));
    let exchange = |words: &Arc<PerCpu<SimPtr<u8>, Sim>>, new: *mut u8| {
        NonNull::new(words.field(|word| word).exchange(new)).map(number)
    };
    let mut found = crew(|member| {
        let words = Arc::clone(&words);
        move || own(member).filter_map(|it| exchange(&words, value(it).as_ptr())).collect()
    });
    found.extend(on(0, move || exchange(&words, ptr::null_mut())).join());
    is_all(found)
}

fn pointer_stores_if_equal() -> bool {
    let words = slots(|| SimPtr::new_in(ptr::null_mut()));
    let stored = crew(|_| {
        let words = Arc::clone(&words);
        let store = move |_| {
            let field = words.field(|word| word);
            let expected: *mut u8 = field.load();
            field.store_if_equal(expected, expected.wrapping_add(1)).is_ok()
        };
        move || (0..EACH).map(store).collect()
    });
    let last = on(0, move || words.field(|word| word).load().addr()).join();
    last == stored.into_iter().filter(|&stored| stored).count()
}

/// Programs on words that hold an integer.
macro_rules! on_words {
    (
        $word:ty, $value:ty, $additions:ident, $additions_if:ident, $stores:ident,
        $exchanges:ident
    ) => {
        fn $additions() -> bool {
            let words = slots(|| <$word>::new_in(0));
            crew(|_| {
                let words = Arc::clone(&words);
                move || (0..EACH).map(|_| words.add(1)).collect()
            });
            words.sum() == ALL as $value
        }

        fn $additions_if() -> bool {
            let words = slots(|| <$word>::new_in(0));
            let added = crew(|_| {
                let words = Arc::clone(&words);
                let add = move |_| words.field(|word| word).add_if(1, !15).is_ok();
                move || (0..EACH).map(add).collect()
            });
            words.sum() == 15 && added.into_iter().filter(|&added| added).count() == 15
        }

        fn $stores() -> bool {
            let words = slots(|| <$word>::new_in(0));
            let stored = crew(|_| {
                let words = Arc::clone(&words);
                let store = move |_| {
                    let field = words.field(|word| word);
                    let expected = field.load();
                    field.store_if_equal(expected, expected + 1).is_ok()
                };
                move || (0..EACH).map(store).collect()
            });
            words.sum() == stored.into_iter().filter(|&stored| stored).count() as $value
        }

        /// Each thread writes values of its own, and each is returned once, or is the last.
        fn $exchanges() -> bool {
            let words = slots(|| <$word>::new_in(ALL as $value));
            let mut found = crew(|member| {
                let words = Arc::clone(&words);
                let exchange = move |it| words.field(|word| word).exchange(it as $value) as usize;
                move || own(member).map(exchange).collect()
            });
            found.extend(words.iter().map(|word| word.load(Ordering::Relaxed) as usize));
            found.retain(|&found| found != ALL);
            is_all(found)
        }
    };
}

on_words!(SimU64, u64, additions, additions_if, stores_if_equal, exchanges);
on_words!(SimU32, u32, additions_32, additions_if_32, stores_if_equal_32, exchanges_32);
on_words!(SimUsize, usize, size_additions, size_additions_if, size_stores_if_equal, size_exchanges);

/// A program that uses one operation, and says whether nothing was lost or doubled.
type Program = (&'static str, fn() -> bool);

#[test]
fn each_operation_that_writes_needs_its_aborts() {
    let operations: &[Program] = &[
        ("add", additions),
        ("add of 32 bits", additions_32),
        ("add of a size", size_additions),
        ("add_if", additions_if),
        ("add_if of 32 bits", additions_if_32),
        ("add_if of a size", size_additions_if),
        ("store_if_equal", stores_if_equal),
        ("store_if_equal of 32 bits", stores_if_equal_32),
        ("store_if_equal of a size", size_stores_if_equal),
        ("store_if_equal of a pointer", pointer_stores_if_equal),
        ("exchange", exchanges),
        ("exchange of 32 bits", exchanges_32),
        ("exchange of a size", size_exchanges),
        ("exchange of a pointer", pointer_exchanges),
        ("stack_push", pushes),
        ("stack_pop", pops),
        ("stack_push_batch", push_batches),
        ("stack_pop_batch", pop_batches),
        ("stack_resize", resizes),
    ];
    for &(name, conserves) in operations {
        for seed in 0..SEEDS {
            assert_eq!(run(TORN, seed, conserves), Ok(true), "{name}, seed {seed}");
        }
        let broken = |&seed: &u64| run(MISSED, seed, conserves) != Ok(true);
        let broken = (0..SEEDS).filter(broken).count();
        assert!(broken > 0, "{name} loses nothing without aborts");
    }
}
