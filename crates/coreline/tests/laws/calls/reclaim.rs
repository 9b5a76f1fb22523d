//! The law of reclaimers: a replaced value is dropped once no reader can hold it, on their thread,
//! though no update follows.

use std::sync::Arc;
use std::sync::atomic::{self, AtomicU32};
use std::thread;
use std::time::Duration;

use coreline::mask::{PresenceOptions, Versioned};
use coreline_sim::{Machine, Sim};
use coreline_world::model::{Model, Plant};
use coreline_world::{Integer, JoinHandle, Native, Ordering, Testbed, Threads, Word};

use crate::page::Page;
use crate::worlds::{self, PREEMPTED, crew, is_caught};

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

/// Readers read while the value is replaced. All but the last one are dropped at the end.
fn reclaims<W: Testbed>(threads: u32, rounds: u32, updates: u32) {
    let dropped = Arc::new(W::U32::new_in(0));
    let counted = |number| Counted { page: Page::new_in(number), dropped: Arc::clone(&dropped) };
    let options = PresenceOptions::new().seats(threads as usize);
    let value = Versioned::<Counted<W>, W>::new_in(counted(0), options);
    let reclaimer = value.reclaimer().unwrap();
    let readers = crew::<W, _, _>(threads, |_| {
        let reader = value.reader();
        move || {
            (0..rounds).for_each(|_| _ = reader.enter().get().page.look());
        }
    });
    (1..=updates).for_each(|number| value.update(counted(number)));
    // Acquire: pairs with the Release of the drop.
    dropped.wait_until(Ordering::Acquire, |dropped| dropped == updates);
    readers.into_iter().for_each(JoinHandle::join);
    drop(reclaimer);
    if !W::RUNS {
        // More steps are more interleavings.
        return;
    }
    assert_eq!(value.retired(), 0);
    value.update(counted(updates + 1));
    assert_eq!(dropped.load(Ordering::Acquire), updates + 1, "updates drop again");
}

#[test]
fn what_is_replaced_is_dropped_in_every_interleaving() {
    worlds::fewest_planted(Plant::NONE, || reclaims::<Model>(1, 1, 1));
}

#[test]
fn a_missing_fence_is_caught() {
    for plant in [Plant::NO_LIGHT_FENCES, Plant::NO_HEAVY_FENCES] {
        assert!(is_caught(plant, || reclaims::<Model>(1, 1, 1)));
    }
}

#[test]
fn what_is_replaced_is_dropped_in_simulation() {
    let law = || reclaims::<Sim>(3, 10, 20);
    worlds::simulate("reclaim::reclaims", "host-2c", PREEMPTED, law).unwrap();
}

#[test]
fn what_is_replaced_is_dropped_natively() {
    reclaims::<Native>(3, 2_000, 300);
}

/// Says on which thread it was dropped.
struct Telling(std::sync::mpsc::Sender<Option<String>>);

impl Drop for Telling {
    fn drop(&mut self) {
        self.0.send(thread::current().name().map(str::to_owned)).unwrap();
    }
}

#[test]
fn values_are_dropped_on_a_thread_of_their_own() {
    let (tell, told) = std::sync::mpsc::channel();
    let value = Versioned::new(Some(Telling(tell)));
    let reader = value.reader();
    let mut reading = reader.enter();
    assert!(reading.get().is_some());
    // Before there is a reclaimer: it begins with what is there.
    value.update(None);
    let reclaimer = value.reclaimer().unwrap();
    assert!(told.recv_timeout(Duration::from_millis(20)).is_err(), "a reader holds it");
    drop(reading);
    assert_eq!(told.recv().unwrap().as_deref(), Some("coreline-free"));
    drop(reclaimer);
}

#[test]
fn a_reader_that_stays_does_not_hold_up_the_end() {
    let value = Versioned::new(0);
    let reader = value.reader();
    let mut reading = reader.enter();
    assert_eq!(*reading.get(), 0);
    let reclaimer = value.reclaimer().unwrap();
    value.update(1);
    drop(reclaimer);
    assert_eq!(value.retired(), 1, "the reader holds it");
    drop(reading);
    value.update(2);
    assert_eq!(value.retired(), 0);
}

#[test]
fn a_reclaimer_drops_all_that_it_can_before_it_ends() {
    for _ in 0..100 {
        let value = Versioned::new(0);
        let reclaimer = value.reclaimer().unwrap();
        value.update(1);
        drop(reclaimer);
        assert_eq!(value.retired(), 0);
    }
}

/// The simulated steps while a reader holds a value for so long.
fn steps(held: Duration) -> u64 {
    let law = move || {
        let value = Versioned::<u32, Sim>::new_in(0, PresenceOptions::new().seats(1));
        let reader = value.reader();
        let mut reading = reader.enter();
        assert_eq!(*reading.get(), 0);
        let reclaimer = value.reclaimer().unwrap();
        value.update(1);
        Sim::sleep(held);
        drop(reading);
        Sim::sleep(Duration::from_millis(50));
        assert_eq!(value.retired(), 0);
        drop(reclaimer);
    };
    let run = Machine::preset("host-2c").expect("a preset").run(law).expect("it ends");
    run.report.steps
}

#[test]
fn a_reclaimer_sleeps_while_a_reader_holds_a_value() {
    let [short, long] = [100, 1_100].map(|ms| steps(Duration::from_millis(ms)));
    // One look in 10 ms, of some tens of steps.
    assert!(long - short < 20_000, "{short} steps, and {long}");
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
fn a_drop_that_panics_ends_no_other() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    let value = Versioned::new(Some(Panicking(&DROPPED)));
    let reclaimer = value.reclaimer().unwrap();
    for _ in 0..4 {
        value.update(Some(Panicking(&DROPPED)));
    }
    value.update(None);
    while DROPPED.load(atomic::Ordering::Relaxed) < 5 {
        thread::yield_now();
    }
    drop(reclaimer);
}

/// A value that keeps the thread by which it is dropped.
struct Owner(#[allow(dead_code, reason = "dropped with the value")] Option<Box<dyn Send + Sync>>);

#[test]
fn a_value_may_own_its_reclaimer() {
    let value = Versioned::new(Owner(None));
    let reclaimer = value.reclaimer().unwrap();
    value.update(Owner(Some(Box::new(reclaimer))));
    value.update(Owner(None));
    while value.retired() > 0 {
        thread::yield_now();
    }
}

/// Each of two values owns a reclaimer, and the other one's thread may drop it.
fn owners_of_reclaimers_are_dropped<W: Testbed>() {
    let value = Versioned::<Owner, W>::new_in(Owner(None), PresenceOptions::new());
    for _ in 0..2 {
        let reclaimer = value.reclaimer().unwrap();
        value.update(Owner(Some(Box::new(reclaimer))));
    }
    value.update(Owner(None));
    // To join both, another one is waited for, which ends when all is dropped.
    let last = value.reclaimer().unwrap();
    while value.retired() > 0 {
        W::yield_now();
    }
    drop(last);
}

#[test]
fn owners_of_reclaimers_are_dropped_in_simulation() {
    let law = owners_of_reclaimers_are_dropped::<Sim>;
    worlds::simulate("reclaim::owners", "host-2c", PREEMPTED, law).unwrap();
}
