//! The laws of [`Waiters`], in three worlds: no notification is lost, and no wait ends without one
//! before its deadline.

use std::sync::Arc;
use std::time::Duration;

use coreline_sim::{Faults, Machine, Replay, Schedule, Sim};
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{Integer, JoinHandle, Placement, Testbed};

use super::*;

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

/// Permits, which producers add and consumers take.
struct Permits<W: World> {
    lock: RawMutex<Fifo, W>,
    waiters: Waiters<W>,
    count: Cell<u64, W>,
    /// How many waits ended by a notification, and how many notifications found a waiter.
    ended: W::U32,
    found: W::U32,
}

impl<W: Testbed> Permits<W> {
    fn new() -> Arc<Self> {
        let zero = || W::U32::new_in(0);
        let (lock, waiters) = (RawMutex::new_in(), Waiters::new_in());
        Arc::new(Permits { lock, waiters, count: Cell::new_in(0), ended: zero(), found: zero() })
    }

    /// Changes the count under the lock. Returns whether it did.
    fn change(&self, change: impl Fn(&mut u64) -> bool) -> bool {
        // SAFETY: the caller holds the lock.
        self.count.with_mut(|count| change(unsafe { &mut *count }))
    }

    /// Takes a permit, and waits this long at a time if there is none.
    fn take(&self, patience: Option<Duration>) {
        self.lock.lock();
        while !self.change(|count| {
            *count > 0 && {
                *count -= 1;
                true
            }
        }) {
            let deadline = patience.map(|patience| W::now() + patience);
            let mutex = ptr::from_ref(&self.lock).addr();
            let notified = self.waiters.wait(mutex, deadline, |sleep| {
                // SAFETY: this thread holds the lock.
                unsafe { self.lock.unlock() };
                let notified = sleep();
                self.lock.lock();
                notified
            });
            // Relaxed: read when all threads have been joined.
            self.ended.fetch_add(u32::from(notified), Ordering::Relaxed);
            assert!(notified || patience.is_some(), "a wait ended by itself");
        }
        // SAFETY: this thread holds the lock.
        unsafe { self.lock.unlock() };
    }

    /// Adds permits, and notifies up to this many threads. Returns how many it found.
    fn add(&self, permits: u64, most: usize) -> usize {
        self.lock.lock();
        self.change(|count| {
            *count += permits;
            true
        });
        // SAFETY: this thread holds the lock.
        unsafe { self.lock.unlock() };
        let found = self.waiters.notify(most);
        // Relaxed: as in `take`.
        self.found.fetch_add(found as u32, Ordering::Relaxed);
        found
    }
}

/// Consumers, of which each takes this many permits, and one producer that adds them by turns one
/// by one, and one for each consumer. Every other consumer waits with a deadline, if it may.
fn permits<W: Testbed>(consumers: u32, rounds: u32, patient: bool) {
    let permits = Permits::<W>::new();
    let take = |number: u32| {
        let permits = Arc::clone(&permits);
        let patience = (!patient && number.is_multiple_of(2)).then_some(Duration::from_micros(5));
        let take = move || (0..rounds).for_each(|_| permits.take(patience));
        W::spawn(Placement::Anywhere, take).expect("a thread")
    };
    let threads: Vec<_> = (0..consumers).map(take).collect();
    for round in 0..rounds {
        if round.is_multiple_of(2) {
            permits.add(consumers.into(), usize::MAX);
        } else {
            (0..consumers).for_each(|_| _ = permits.add(1, 1));
        }
    }
    threads.into_iter().for_each(JoinHandle::join);
    let relaxed = Ordering::Relaxed;
    assert_eq!(permits.ended.load(relaxed), permits.found.load(relaxed), "found and ended");
    assert!(permits.waiters.first.load(relaxed).is_null(), "a waiter is left");
}

/// Threads wait again as soon as they are notified, until they are told to stop. None is notified
/// twice by one call. Returns the largest number that a call has notified.
fn told_together<W: Testbed>(waiters: u32, calls: u32) -> usize {
    let permits = Permits::<W>::new();
    let wait = |_| {
        let permits = Arc::clone(&permits);
        W::spawn(Placement::Anywhere, move || permits.take(None)).expect("a thread")
    };
    let threads: Vec<_> = (0..waiters).map(wait).collect();
    let most = (0..calls).map(|_| permits.add(0, usize::MAX)).max().unwrap_or(0);
    permits.add(waiters.into(), usize::MAX);
    threads.into_iter().for_each(JoinHandle::join);
    most
}

#[test]
fn a_call_notifies_no_thread_that_waits_again() {
    assert!(told_together::<Native>(4, 3_000) <= 4);
    for machine in ["host-2c", "x86-128c-8n"] {
        for seed in 0..20 {
            let faults = Faults { preempt_access: seed as u32 % 4 * 5, ..Faults::NONE };
            let line = Replay { faults, seed, ..Replay::new(machine, "waiters") };
            let machine = Machine::replay(&line).expect("a preset");
            let most = machine.run(|| told_together::<Sim>(4, 30)).expect("it ends").value;
            assert!(most <= 4, "{line}: {most} of 4");
        }
    }
}

/// A wait that unwinds leaves nothing behind, of which another thread would see a node that is
/// gone.
#[test]
fn a_wait_that_unwinds_leaves_the_list() {
    let waiters = Waiters::<Native>::new_in();
    let wait = || waiters.wait(1, None, |_| panic!("planted"));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).expect_err("it panics");
    assert_eq!(waiters.notify(1), 0);
}

/// In the order in which they came, whichever leaves between them.
#[test]
fn notifications_come_in_the_order_of_the_waiters() {
    let waiters = Waiters::<Native>::new_in();
    let nodes: Vec<_> = (0..5).map(|_| Node::<Native>::new(1)).collect();
    assert!(nodes.iter().all(|node| waiters.join(node)));
    assert!(waiters.leave(&nodes[0]) && waiters.leave(&nodes[2]));
    let ended = || nodes.iter().map(|node| node.ended.load(Ordering::Relaxed)).collect::<Vec<_>>();
    assert_eq!(waiters.notify(1), 1);
    assert_eq!(ended(), [LEFT, NOTIFIED, LEFT, WAITS, WAITS]);
    assert_eq!(waiters.notify(usize::MAX), 2);
    assert_eq!(ended(), [LEFT, NOTIFIED, LEFT, NOTIFIED, NOTIFIED]);
    assert!(!waiters.leave(&nodes[4]), "a wait that has ended");
}

#[test]
fn each_notification_ends_one_wait_natively() {
    for patient in [false, true] {
        permits::<Native>(3, 3_000, patient);
        permits::<Native>(16, 300, patient);
    }
}

#[test]
fn each_notification_ends_one_wait_in_simulation() {
    let torn = Faults { preempt: 5, migrate: 7, ..Faults::NONE };
    for faults in [Faults::NONE, torn, Faults { preempt_access: 5, ..Faults::NONE }] {
        for seed in 0..6 {
            let line = Replay { faults, seed, ..Replay::new("host-2c", "waiters") };
            let machine = Machine::replay(&line).expect("a preset");
            machine.run(move || permits::<Sim>(4, 30, seed % 2 == 0)).unwrap();
        }
    }
    let machine = Machine::preset("epyc-9654-2s").expect("a preset");
    machine.run(|| permits::<Sim>(96, 4, false)).unwrap();
}

#[test]
fn each_notification_ends_one_wait_under_schedules_that_look_for_mistakes() {
    for seed in 0..60 {
        let schedule = match seed % 2 {
            0 => Schedule::Random,
            _ => Schedule::Pct { depth: 1 + seed as u32 / 2 % 4, steps: 3000 },
        };
        let line = Replay { seed, schedule, races: true, ..Replay::new("host-2c", "waiters") };
        let machine = Machine::replay(&line).expect("a preset");
        machine.run(move || permits::<Sim>(3, 3, seed % 4 < 2)).unwrap();
    }
}

#[test]
fn each_notification_ends_one_wait_in_every_interleaving() {
    let checker = |bound| Checker::new().preemption_bound(bound).plant(Plant::EXCHANGES);
    for patient in [false, true] {
        checker(2).check(move || permits::<Model>(1, 2, patient));
        checker(1).check(move || permits::<Model>(2, 1, patient));
    }
}
