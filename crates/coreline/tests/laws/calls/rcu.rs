//! The laws of collectors: what a section may have found is freed after the section ends, once, and
//! grace periods end.

use std::sync::Arc;
use std::sync::atomic::{self, AtomicU32};
use std::time::Duration;

use coreline::rcu::{Collector, CollectorOptions, Rcu};
use coreline_sim::Sim;
use coreline_world::model::{Model, Plant};
use coreline_world::{
    Cell, Clock, Integer, JoinHandle, Native, Ordering, Placement, Testbed, Threads, Time, Word,
};

use crate::page::Page;
use crate::worlds::{
    self, BEFORE_REFUSED, Effort, FEW, MANY, NATIVE, ONE_REFUSED, PREEMPTED, RACE, TORN, crew,
};

/// A page, and a count of those that were dropped.
struct Counted<W: Testbed> {
    page: Page<W>,
    dropped: Arc<W::U32>,
}

impl<W: Testbed> Drop for Counted<W> {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Release);
    }
}

/// A page that counts drops.
fn counted<W: Testbed>(number: u32, dropped: &Arc<W::U32>) -> Counted<W> {
    Counted { page: Page::new_in(number), dropped: Arc::clone(dropped) }
}

fn collector<W: Testbed>(batch: usize) -> Arc<Collector<W>> {
    Arc::new(Collector::new_in(CollectorOptions::new().batch(batch)).expect("memory"))
}

/// Threads read in all ways while the value is replaced, by the first thread and by them. All but
/// the last value are dropped at the end, and each one once.
fn replaces<W: Testbed>(effort: Effort, stores: u32, batch: usize) {
    let dropped = Arc::new(W::U32::new_in(0));
    let collector = collector::<W>(batch);
    let value = Arc::new(Rcu::with_collector(&collector, counted::<W>(0, &dropped)));
    let readers = effort.crew::<W, _, _>(|number| {
        let (value, collector) = (Arc::clone(&value), Arc::clone(&collector));
        let once = move |round: u32| {
            // In the model, threads differ.
            match (number + round) % 4 {
                0 => _ = value.read().page.look(),
                1 => {
                    // Nested, and ended in the order in which they began.
                    let outer = collector.enter();
                    let first = value.load(&outer);
                    let inner = collector.enter();
                    let second = value.load(&inner);
                    assert!(first.page.look() <= second.page.look(), "it went back");
                    drop(outer);
                    second.page.look();
                }
                2 => {
                    let owned = collector.enter_owned();
                    value.load(&owned).page.look();
                }
                _ => _ = value.read().page.look(),
            }
        };
        move || (0..effort.rounds).for_each(once)
    });
    for number in 1..=stores {
        if number % 2 == 0 {
            value.update(|old| {
                assert_eq!(old.page.look(), number - 1);
                counted::<W>(number, &dropped)
            });
        } else {
            value.store(counted::<W>(number, &dropped));
        }
    }
    collector.barrier().expect("heavy fences");
    // Acquire: pairs with the Release of the drop.
    assert_eq!(dropped.load(Ordering::Acquire), stores);
    readers.into_iter().for_each(JoinHandle::join);
    assert_eq!((value.read().page.look(), collector.pending()), (stores, 0));
    drop(Arc::into_inner(value).expect("the readers have ended").into_inner());
    assert_eq!(dropped.load(Ordering::Acquire), stores + 1);
}

/// The same by hand: a writer unlinks a cell, waits, and writes to it.
fn synchronizes<W: Testbed>(effort: Effort, rounds: u32) {
    type Shared<W> = (Collector<W>, <W as coreline_world::Words>::Ptr<Cell<u64, W>>);
    let cell = |value| Box::into_raw(Box::new(Cell::<u64, W>::new_in(value)));
    let collector = Collector::<W>::new_in(CollectorOptions::new()).expect("memory");
    let shared: Arc<Shared<W>> = Arc::new((collector, W::Ptr::new_in(cell(0))));
    let readers = effort.crew::<W, _, _>(|_| {
        let shared = Arc::clone(&shared);
        let once = move |_| {
            let section = shared.0.enter();
            // Acquire: pairs with the Release of the exchange: the cell is whole.
            let found = shared.1.load(Ordering::Acquire);
            // SAFETY: not written before the section ends: that is what is tested.
            let value = unsafe { (*found).with(|at| at.read_volatile()) };
            assert_ne!(value, u64::MAX, "written while a section read it");
            drop(section);
        };
        move || (0..effort.rounds).for_each(once)
    });
    let mut unlinked = Vec::new();
    for number in 1..=rounds {
        // Release: pairs with the Acquire of readers. Acquire: the cell of the round before.
        let old = shared.1.swap(cell(u64::from(number)), Ordering::AcqRel);
        shared.0.synchronize().expect("heavy fences");
        // SAFETY: no section that is in progress has found it.
        unsafe { (*old).with_mut(|at| at.write_volatile(u64::MAX)) };
        // Freed later: a model that finds a mistake would look at what is gone.
        unlinked.push(old);
    }
    readers.into_iter().for_each(JoinHandle::join);
    unlinked.push(shared.1.load(Ordering::Relaxed));
    // SAFETY: from boxes, each once, and there is no reader.
    unlinked.into_iter().for_each(|cell| drop(unsafe { Box::from_raw(cell) }));
}

const ONE_READER: Effort = Effort { threads: 1, rounds: 1, cpus: 2 };

#[test]
fn replaced_values_are_dropped_once_in_every_interleaving() {
    worlds::fewest_planted(Plant::NONE, || replaces::<Model>(ONE_READER, 1, 1));
}

#[test]
fn no_section_reads_what_is_written_after_a_grace_period_in_every_interleaving() {
    worlds::few(|| synchronizes::<Model>(ONE_READER, 1));
}

#[test]
fn a_missing_fence_is_caught() {
    for plant in [Plant::NO_LIGHT_FENCES, Plant::NO_HEAVY_FENCES] {
        worlds::assert_caught(plant, RACE, || synchronizes::<Model>(ONE_READER, 1));
    }
}

#[test]
fn a_relaxed_publication_is_caught() {
    for plant in [Plant::RELAXED_LOADS, Plant::RELAXED_RMWS] {
        let law = || replaces::<Model>(ONE_READER, 1, 1);
        assert!(worlds::is_caught(plant, law), "{plant:?}");
    }
}

#[test]
fn replaced_values_are_dropped_once_in_simulation() {
    for faults in [PREEMPTED, TORN] {
        let law = || replaces::<Sim>(FEW, 40, 4);
        worlds::simulate("rcu::replaces", "host-2c", faults, law).unwrap();
    }
    let law = || replaces::<Sim>(MANY, 3, 2);
    worlds::simulate_seeds("rcu::replaces_many", "epyc-9654-2s", TORN, 1, law).unwrap();
}

#[test]
fn no_section_reads_what_is_written_after_a_grace_period_in_simulation() {
    for faults in [PREEMPTED, TORN] {
        let law = || synchronizes::<Sim>(FEW, 20);
        worlds::simulate("rcu::synchronizes", "host-2c", faults, law).unwrap();
    }
}

#[test]
fn laws_hold_under_schedules_that_look_for_mistakes() {
    let law = || replaces::<Sim>(Effort { threads: 3, rounds: 4, cpus: 2 }, 4, 2);
    worlds::search("rcu::search", "host-2c", worlds::schedules(60), law).unwrap();
    let law = || synchronizes::<Sim>(Effort { threads: 3, rounds: 4, cpus: 2 }, 4);
    worlds::search("rcu::search_by_hand", "host-2c", worlds::schedules(60), law).unwrap();
}

#[test]
fn replaced_values_are_dropped_once_natively() {
    replaces::<Native>(NATIVE, 3_000, 16);
}

#[test]
fn no_section_reads_what_is_written_after_a_grace_period_natively() {
    synchronizes::<Native>(NATIVE, 300);
}

/// A guard that a thread began and another one ends is a section until then.
fn guards_move<W: Testbed>() {
    let collector = collector::<W>(1);
    let dropped = Arc::new(W::U32::new_in(0));
    let value = Rcu::with_collector(&collector, counted::<W>(0, &dropped));
    let guard = collector.enter_owned();
    let found = std::ptr::from_ref(value.load(&guard)).addr();
    let reader = W::spawn(Placement::Anywhere, move || {
        // SAFETY: the guard, which is here now, keeps what it found.
        let value = unsafe { &*(std::ptr::with_exposed_provenance::<Counted<W>>(found)) };
        value.page.look();
        drop(guard);
    });
    value.store(counted::<W>(1, &dropped));
    collector.barrier().expect("heavy fences");
    assert_eq!(dropped.load(Ordering::Acquire), 1);
    reader.unwrap().join();
}

#[test]
fn a_guard_that_moves_to_another_thread_keeps_what_it_found_in_every_interleaving() {
    worlds::fewest_planted(Plant::NONE, guards_move::<Model>);
    assert!(worlds::is_caught(Plant::NO_LIGHT_FENCES, guards_move::<Model>));
}

#[test]
fn a_guard_that_moves_to_another_thread_keeps_what_it_found_in_simulation() {
    worlds::simulate("rcu::guards_move", "host-2c", PREEMPTED, guards_move::<Sim>).unwrap();
}

/// A time that has passed.
const PASSED: Time = Time::from_nanos(0);

/// Whether all that was retired before is freed now, without waiting.
fn is_free(collector: &Collector) -> bool {
    collector.barrier_by(PASSED).expect("heavy fences")
}

#[test]
fn a_grace_period_ends_although_sections_begin_all_the_time() {
    let collector = Collector::new().unwrap();
    collector.defer(|| ());
    let mut section = collector.enter();
    assert!(!is_free(&collector), "a section may have found it");
    // Each begins before the one before it ends: there is always one.
    let mut waits = 0;
    while collector.pending() > 0 {
        let next = collector.enter();
        drop(section);
        section = next;
        assert_eq!(collector.readers(), 1);
        _ = is_free(&collector);
        waits += 1;
        assert!(waits < 3, "a section that began later holds it back");
    }
    drop(section);
    assert_eq!(collector.readers(), 0);
}

#[test]
fn synchronize_gives_up_at_its_deadline_only_beside_a_section() {
    let collector = Collector::new().unwrap();
    assert_eq!(collector.synchronize_by(PASSED), Ok(true));
    let section = collector.enter();
    assert_eq!(collector.synchronize_by(PASSED), Ok(false));
    let later = Native::now() + Duration::from_millis(3);
    assert_eq!(collector.synchronize_by(later), Ok(false));
    assert!(Native::now() >= later);
    drop(section);
    assert_eq!(collector.synchronize_by(PASSED), Ok(true));
}

/// Retires so many numbers; returns how many of them wait then.
fn waiting_after(collector: &Collector, values: u32) -> usize {
    for value in 0..values {
        // SAFETY: from a box that no reader has seen.
        unsafe { collector.retire(Box::into_raw(Box::new(value))) };
    }
    collector.pending()
}

#[test]
fn without_readers_less_than_a_batch_waits_on_each_cpu() {
    let collector = Collector::new_in(CollectorOptions::new().batch(16)).unwrap();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let waiting = waiting_after(&collector, 1_000);
    assert!(waiting < 16 * cpus, "{waiting} of 1,000 wait");
}

/// A reader is stuck while values are retired: how many wait, and how long that took, in simulated
/// time.
fn beside_a_stuck_reader(limit: usize, patience: Duration, values: u32) -> (usize, Duration) {
    let law = move || {
        let options = CollectorOptions::new().batch(10).limit(limit, patience);
        let collector = Collector::<Sim>::new_in(options).unwrap();
        let stuck = collector.enter();
        let begun = Sim::now();
        for value in 0..values {
            // SAFETY: from a box that no reader has seen.
            unsafe { collector.retire(Box::into_raw(Box::new(value))) };
        }
        let (spent, waiting) = (Sim::now() - begun, collector.pending());
        drop(stuck);
        collector.barrier().unwrap();
        assert_eq!(collector.pending(), 0);
        (waiting, spent)
    };
    let machine = coreline_sim::Machine::preset("host-2c").expect("a preset");
    machine.run(law).expect("it ends").value
}

#[test]
fn beside_a_stuck_reader_each_batch_over_the_limit_waits_as_long_as_the_options_say() {
    let ms = Duration::from_millis;
    let (waiting, spent) = beside_a_stuck_reader(1_000, ms(1), 1_000);
    assert!(waiting == 1_000 && spent < ms(1), "{waiting} wait after {spent:?}");
    // 50 batches more.
    let (waiting, spent) = beside_a_stuck_reader(1_000, ms(1), 1_500);
    assert!(
        waiting == 1_500 && spent >= ms(50) && spent < ms(60),
        "{waiting} wait after {spent:?}"
    );
}

/// With unlimited patience, the limit is one: a thread that retires stops until the reader goes.
#[test]
fn a_strict_limit_is_kept_beside_a_reader_that_stays_for_long() {
    let law = || {
        let options = CollectorOptions::new().batch(10).limit(100, Duration::MAX);
        let collector = Arc::new(Collector::<Sim>::new_in(options).unwrap());
        let stuck = collector.enter_owned();
        let theirs = Arc::clone(&collector);
        let writer = Sim::spawn(Placement::Anywhere, move || {
            for value in 0..1_000 {
                // SAFETY: from a box that no reader has seen.
                unsafe { theirs.retire(Box::into_raw(Box::new(value))) };
            }
        });
        for _ in 0..20 {
            Sim::sleep(Duration::from_millis(5));
            assert_eq!(collector.pending(), 110, "the limit, and the batch that exceeds it");
        }
        drop(stuck);
        writer.unwrap().join();
        assert!(collector.pending() < 20);
    };
    worlds::simulate("rcu::strict", "host-2c", PREEMPTED, law).unwrap();
}

/// Barriers that gave up beside a reader left each value on its own.
#[test]
fn a_full_batch_frees_more_values_than_it_adds_although_batches_are_small() {
    let law = || {
        let collector = collector::<Sim>(16);
        let section = collector.enter();
        for _ in 0..320 {
            collector.defer(|| ());
            assert_eq!(collector.barrier_by(Sim::now()), Ok(false));
        }
        drop(section);
        (0..64).for_each(|_| collector.defer(|| ()));
        assert!(collector.pending() <= 320 + 64 - 4 * 32, "{} wait", collector.pending());
    };
    coreline_sim::Machine::preset("host-2c").expect("a preset").run(law).expect("it ends");
}

#[test]
fn a_barrier_ends_although_each_function_defers_another() {
    fn chain(collector: &Arc<Collector>, ran: &Arc<AtomicU32>) {
        let (theirs, count) = (Arc::clone(collector), Arc::clone(ran));
        collector.defer(move || {
            // Relaxed: there is one thread.
            if count.fetch_add(1, atomic::Ordering::Relaxed) < 1_000 {
                chain(&theirs, &count);
            }
        });
    }
    let (collector, ran) = (collector::<Native>(1), Arc::new(AtomicU32::new(0)));
    chain(&collector, &ran);
    let before = ran.load(atomic::Ordering::Relaxed);
    collector.barrier().unwrap();
    assert_eq!(ran.load(atomic::Ordering::Relaxed), before + 1);
}

#[test]
fn a_barrier_looks_at_its_deadline_after_each_batch() {
    let collector = collector::<Native>(1);
    let section = collector.enter();
    (0..4).for_each(|_| collector.defer(|| ()));
    drop(section);
    for left in [3, 2, 1] {
        assert_eq!((is_free(&collector), collector.pending()), (false, left));
    }
    assert!(is_free(&collector));
}

#[test]
fn a_batch_may_be_larger_than_memory() {
    let collector = collector::<Native>(usize::MAX);
    (0..1_000).for_each(|_| collector.defer(|| ()));
    assert_eq!(collector.pending(), 1_000);
    collector.barrier().unwrap();
    assert_eq!(collector.pending(), 0);
}

/// Panics when it is dropped.
struct Panicking(&'static AtomicU32);

impl Drop for Panicking {
    fn drop(&mut self) {
        self.0.fetch_add(1, atomic::Ordering::Relaxed);
        panic!("a value that cannot be dropped");
    }
}

#[test]
fn a_panic_ends_no_other_drop_and_reaches_the_caller() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    let collector = Collector::new().unwrap();
    let retire = |values| {
        for _ in 0..values {
            // SAFETY: from a box that no reader has seen.
            unsafe { collector.retire(Box::into_raw(Box::new(Panicking(&DROPPED)))) };
        }
    };
    retire(3);
    let panic = worlds::panic_of(|| collector.barrier().unwrap());
    assert_eq!(panic, "a value that cannot be dropped");
    assert_eq!((DROPPED.load(atomic::Ordering::Relaxed), collector.pending()), (3, 0));
    retire(2);
    assert_eq!(worlds::panic_of(|| drop(collector)), panic);
    assert_eq!(DROPPED.load(atomic::Ordering::Relaxed), 5);
}

#[test]
fn a_value_is_dropped_although_the_last_handle_of_its_collector_panics() {
    let value = Arc::new(());
    let cell = Rcu::new(Arc::clone(&value)).unwrap();
    cell.collector().defer(|| panic!("a function that fails"));
    assert_eq!(worlds::panic_of(|| drop(cell.into_inner())), "a function that fails");
    assert_eq!(Arc::strong_count(&value), 1);
}

/// A list whose nodes retire the next one when they are dropped.
struct Chain {
    rest: u32,
    collector: Arc<Collector>,
}

impl Drop for Chain {
    fn drop(&mut self) {
        if self.rest > 0 {
            let next = Chain { rest: self.rest - 1, collector: Arc::clone(&self.collector) };
            // SAFETY: from a box that no reader has seen.
            unsafe { self.collector.retire(Box::into_raw(Box::new(next))) };
        }
    }
}

#[test]
fn values_that_retire_others_do_not_end_the_stack() {
    let collector = collector::<Native>(1);
    drop(Chain { rest: 100_000, collector: Arc::clone(&collector) });
    while collector.pending() > 0 {
        collector.barrier().unwrap();
    }
    assert_eq!(Arc::strong_count(&collector), 1, "each was dropped");
}

#[test]
fn a_collector_that_is_dropped_frees_what_waits() {
    let dropped = Arc::new(AtomicU32::new(0));
    let collector = Collector::new().unwrap();
    let theirs = Arc::clone(&dropped);
    collector.defer(move || _ = theirs.fetch_add(1, atomic::Ordering::Relaxed));
    // A section that never ends.
    std::mem::forget(collector.enter());
    assert!(!is_free(&collector));
    drop(collector);
    assert_eq!(dropped.load(atomic::Ordering::Relaxed), 1);
}

#[test]
#[should_panic(expected = "the guard is of another collector")]
fn a_guard_of_another_collector_is_refused() {
    let (first, second) = (Rcu::new(1).unwrap(), Rcu::new(2).unwrap());
    let guard = second.collector().enter();
    first.load(&guard);
}

#[test]
fn a_value_is_dropped_by_a_reclaimer_though_no_other_follows() {
    reclaims::<Native>(2, 200, 64);
}

/// Readers read while values are retired, one of which is the last. A reclaimer frees all.
fn reclaims<W: Testbed>(threads: u32, stores: u32, batch: usize) {
    let dropped = Arc::new(W::U32::new_in(0));
    let collector = collector::<W>(batch);
    let reclaimer = collector.reclaimer().unwrap();
    let value = Arc::new(Rcu::with_collector(&collector, counted::<W>(0, &dropped)));
    let readers = crew::<W, _, _>(threads, |_| {
        let value = Arc::clone(&value);
        move || {
            (0..50).for_each(|_| _ = value.read().page.look());
        }
    });
    (1..=stores).for_each(|number| value.store(counted::<W>(number, &dropped)));
    // Acquire: pairs with the Release of the drop.
    dropped.wait_until(Ordering::Acquire, |dropped| dropped == stores);
    readers.into_iter().for_each(JoinHandle::join);
    drop(reclaimer);
    assert_eq!(collector.pending(), 0);
    // As before, without the thread.
    value.store(counted::<W>(stores + 1, &dropped));
    collector.barrier().expect("heavy fences");
    assert_eq!(dropped.load(Ordering::Acquire), stores + 1);
}

#[test]
fn a_value_is_dropped_by_a_reclaimer_in_simulation() {
    let law = || reclaims::<Sim>(2, 100, 64);
    worlds::simulate("rcu::reclaims", "host-2c", PREEMPTED, law).unwrap();
    // Each value is a batch, and most find the reclaimer at work.
    let law = || reclaims::<Sim>(2, 100, 1);
    worlds::simulate("rcu::reclaims_each", "host-2c", PREEMPTED, law).unwrap();
}

/// Several threads retire, defer and wait, beside each other. Everything runs once.
fn all_retire<W: Testbed>(effort: Effort) {
    let ran = Arc::new(W::U32::new_in(0));
    let collector = collector::<W>(4);
    let threads = effort.crew::<W, _, _>(|number| {
        let (collector, ran) = (Arc::clone(&collector), Arc::clone(&ran));
        move || {
            for round in 0..effort.rounds {
                let theirs = Arc::clone(&ran);
                let section = collector.enter();
                // Relaxed: a count, which `barrier` or the joins publish.
                collector.defer(move || _ = theirs.fetch_add(1, Ordering::Relaxed));
                drop(section);
                if (number + round).is_multiple_of(7) {
                    collector.barrier().expect("heavy fences");
                }
            }
        }
    });
    threads.into_iter().for_each(JoinHandle::join);
    collector.barrier().expect("heavy fences");
    assert_eq!(ran.load(Ordering::Relaxed), effort.threads * effort.rounds);
    assert_eq!(collector.pending(), 0);
}

#[test]
fn functions_of_several_threads_run_once_in_simulation() {
    worlds::simulate("rcu::all_retire", "host-2c", PREEMPTED, || all_retire::<Sim>(FEW)).unwrap();
}

#[test]
fn functions_of_several_threads_run_once_natively() {
    all_retire::<Native>(NATIVE);
}

#[test]
fn a_barrier_waits_for_what_another_thread_runs() {
    let collector = collector::<Native>(8);
    let (tell, told) = std::sync::mpsc::channel();
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    collector.defer(move || {
        tell.send(()).unwrap();
        wait.recv().unwrap_err();
    });
    std::thread::scope(|scope| {
        scope.spawn(|| collector.barrier().unwrap());
        told.recv().unwrap();
        assert_eq!(collector.pending(), 0);
        assert!(!is_free(&collector), "the function runs");
        drop(go_on);
        collector.barrier().unwrap();
    });
}

/// A heavy fence is refused, as in a process with a later filter: nothing is freed too early or
/// lost.
fn a_fence_is_refused(before: u32) {
    let collector = Collector::<Model>::new_in(CollectorOptions::new().batch(1)).expect("memory");
    let ran = Arc::new(<Model as coreline_world::Words>::U32::new_in(0));
    let theirs = Arc::clone(&ran);
    BEFORE_REFUSED.set(Some(before));
    collector.defer(move || theirs.store(1, Ordering::Relaxed));
    let waited = [collector.synchronize().is_err(), collector.synchronize().is_err()];
    BEFORE_REFUSED.set(None);
    assert!(waited.iter().filter(|refused| **refused).count() <= 1);
    collector.barrier().expect("fences again");
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}

#[test]
fn a_refused_fence_leaves_all_for_later() {
    for before in 0..6 {
        worlds::check_planted(ONE_REFUSED, move || a_fence_is_refused(before));
    }
}
