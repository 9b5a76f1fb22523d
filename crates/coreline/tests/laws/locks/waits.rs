//! Threads that wait for a lock which is held for long: how long they spin, and what becomes of the
//! lock if they give up. Other laws have waits that end before a thread asks for the lock.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use coreline::lock::{BiasedRwLock, Near, ReadMostly, SpinningReaders};
use coreline::{IndexBy, Mutex, RwLock};
use coreline_sim::{Faults, Machine, Sim, Statistics};
use coreline_topology::CpuId;
use coreline_world::{Clock, JoinHandle, Placement, Threads, Work};

use crate::worlds;

/// The time for which each of two waiters spins, in microseconds. A thread holds the lock for 10
/// ms, and the second waiter comes after the first.
fn spun<L: Send + Sync + 'static>(
    new: fn() -> L,
    hold: fn(&L, &dyn Fn()),
    wait: fn(&L),
) -> [u64; 2] {
    let program = move || {
        let lock = Arc::new(new());
        let waiters = RefCell::new(Vec::new());
        hold(&lock, &|| {
            for cpu in [1, 2] {
                let theirs = Arc::clone(&lock);
                let on = Placement::On(CpuId::new(cpu));
                waiters.borrow_mut().push(Sim::spawn(on, move || wait(&theirs)).unwrap());
                Sim::work(Duration::from_millis(5));
            }
        });
        waiters.into_inner().into_iter().for_each(JoinHandle::join);
    };
    let machine = Machine::preset("x86-128c-8n").unwrap().statistics(Statistics::Full);
    let cpus = machine.run(program).unwrap().report.details.unwrap().cpus;
    [1, 2].map(|cpu: usize| cpus[cpu].spin_ns / 1000)
}

#[test]
fn waiters_spin_for_a_tenth_of_a_millisecond() {
    type Exclusive = Mutex<(), Near, Sim>;
    type Shared = RwLock<(), Near, SpinningReaders, Sim>;
    type Mostly = ReadMostly<(), Sim>;
    let hold: fn(&Exclusive, &dyn Fn()) = |lock, f| {
        let _held = lock.lock();
        f();
    };
    let write: fn(&Shared, &dyn Fn()) = |lock, f| {
        let _held = lock.write();
        f();
    };
    let read: fn(&Shared, &dyn Fn()) = |lock, f| {
        let _held = lock.read();
        f();
    };
    let close: fn(&Mostly, &dyn Fn()) = |lock, f| {
        let _held = lock.write().unwrap();
        f();
    };
    let count: fn(&Mostly, &dyn Fn()) = |lock, f| {
        let _held = lock.read();
        f();
    };
    type Biased = BiasedRwLock<(), Sim>;
    let bar: fn(&Biased, &dyn Fn()) = |lock, f| {
        let _held = lock.write();
        f();
    };
    let biased = || Biased::new_in(());
    let (exclusive, shared) = (|| Exclusive::new_in(()), || Shared::new_in(()));
    let mostly = || Mostly::new_in(IndexBy::Cpu, ()).unwrap();
    for (waiters, spun) in [
        ("of a mutex", spun(exclusive, hold, |lock| drop(lock.lock()))),
        ("that write after a writer", spun(shared, write, |lock| drop(lock.write()))),
        ("that read after a writer", spun(shared, write, |lock| drop(lock.read()))),
        ("that write after a reader", spun(shared, read, |lock| drop(lock.write()))),
        ("that read what is read mostly", spun(mostly, close, |lock| drop(lock.read()))),
        ("that write what may be biased", spun(biased, bar, |lock| drop(lock.write()))),
        ("that read it", spun(biased, bar, |lock| drop(lock.read()))),
        ("that write what is read mostly", spun(mostly, count, |lock| drop(lock.write().unwrap()))),
    ] {
        // A first waiter of a readers-writer lock spins for 20 us before it asks.
        let all = |spun: u64| (90..130).contains(&spun);
        assert!(spun.into_iter().all(all), "waiters {waiters} spin for {spun:?} us");
    }
}

/// The holder frees the lock so many nanoseconds after the deadline of the first waiter, which has
/// asked for the lock. No thread may be given a lock that it does not wait for.
fn free_at_a_deadline(after: u64) {
    let lock = Arc::new(Mutex::<(), Near, Sim>::new_in(()));
    let held = lock.lock();
    let deadline = Sim::now() + Duration::from_micros(40);
    let theirs = Arc::clone(&lock);
    let waits = move || drop(theirs.lock_by(deadline));
    let waiter = Sim::spawn(Placement::On(CpuId::new(1)), waits).unwrap();
    while Sim::now() < deadline {
        Sim::work(Duration::from_nanos(500));
    }
    Sim::work(Duration::from_nanos(after));
    drop(held);
    waiter.join();
    assert!(lock.try_lock().is_some(), "no thread has it, {after} ns after the deadline");
}

#[test]
fn a_first_waiter_that_gives_up_takes_its_request_back() {
    let law = || (0..20).for_each(|step| free_at_a_deadline(5 * step));
    let faults = Faults { preempt_access: 20, ..Faults::NONE };
    worlds::simulate_seeds("mutex::request", "host-2c", faults, 40, law).unwrap();
}
