//! Locks, with waiters that sleep, give up and are woken.

use core::cell::UnsafeCell;
use std::thread;
use std::time::Duration;

use coreline::lock::{
    Condvar, Fifo, Near, Order, Osq, RawMutex, RawRwLock, ReadMostly, RwLockWriteGuard,
    SleepingReaders, TicketLock,
};
use coreline::{Mutex, RwLock};
use coreline_world::Native;

const THREADS: usize = 3;
const TURNS: usize = 4;

/// So many turns on each of some threads.
fn contend(turn: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..TURNS).for_each(|_| turn()));
        }
    });
}

#[test]
fn a_mutex_has_one_holder() {
    let lock = Mutex::new(Vec::new());
    contend(|| {
        let mut held = lock.lock();
        assert!(lock.is_locked() && lock.try_lock().is_none());
        // The others sleep meanwhile.
        thread::sleep(Duration::from_micros(300));
        held.push(1);
    });
    let held = lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_lock_for(Duration::from_millis(1)).is_none()));
    });
    drop(held);
    assert_eq!(lock.into_inner().len(), THREADS * TURNS);
}

#[test]
fn a_notified_waiter_sees_why() {
    let (queue, arrived) = (Mutex::new(Vec::new()), Condvar::new());
    thread::scope(|scope| {
        let take = || {
            let mut queue = queue.lock();
            arrived.wait_while(&mut queue, |queue| queue.is_empty());
            queue.pop().unwrap()
        };
        let takers = [scope.spawn(take), scope.spawn(take)];
        for value in 1..=2 {
            queue.lock().push(Box::new(value));
            arrived.notify_all();
        }
        assert_eq!(takers.map(|taker| *taker.join().unwrap()).iter().sum::<u32>(), 3);
    });
    let mut empty = queue.lock();
    assert!(arrived.wait_for(&mut empty, Duration::from_millis(1)).0);
}

#[test]
fn a_writer_is_alone_among_readers() {
    fn check<R: coreline::lock::Readers>(lock: &RwLock<Box<usize>, Near, R>) {
        contend(|| {
            let before = **lock.read();
            let mut written = lock.write();
            assert!(lock.try_read().is_none());
            **written += 1;
            let read = RwLockWriteGuard::downgrade(written);
            thread::sleep(Duration::from_micros(300));
            assert!(**read > before);
        });
        assert_eq!(**lock.read(), THREADS * TURNS);
    }
    check(&RwLock::new(Box::new(0)));
    check::<SleepingReaders>(&RwLock::new_in(Box::new(0)));
}

#[test]
fn a_lock_that_is_read_mostly_is_written_in_between() {
    let lock = ReadMostly::new(Box::new(0)).unwrap();
    contend(|| {
        let before = **lock.read();
        **lock.write().unwrap() += 1;
        assert!(**lock.read() > before);
    });
    assert_eq!(**lock.read(), THREADS * TURNS);
}

/// What a lock guards that has no data of its own.
struct Guarded(UnsafeCell<Box<usize>>);

// SAFETY: each test looks at it under its lock alone.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new() -> Self {
        Guarded(UnsafeCell::new(Box::new(0)))
    }

    /// # Safety
    ///
    /// The caller holds the lock.
    unsafe fn add(&self) {
        // SAFETY: the caller's promise.
        unsafe { **self.0.get() += 1 };
    }
}

#[test]
fn turns_in_a_queue_come_one_by_one() {
    fn check<O: Order>() {
        let (queue, guarded) = (Osq::<O, Native>::new_in(), Guarded::new());
        contend(|| {
            let turn = queue.lock();
            assert!(queue.try_lock().is_none());
            thread::yield_now();
            // SAFETY: this thread has its turn.
            unsafe { guarded.add() };
            drop(turn);
        });
        assert_eq!(*guarded.0.into_inner(), THREADS * TURNS);
    }
    check::<Fifo>();
    check::<Near>();
}

#[test]
fn tickets_are_served_in_order() {
    let lock = TicketLock::new(Box::new(0));
    contend(|| **lock.lock() += 1);
    assert_eq!(**lock.lock(), THREADS * TURNS);
}

#[test]
fn locks_without_data_guard_what_lies_elsewhere() {
    let (mutex, guarded) = (<RawMutex>::new(), Guarded::new());
    contend(|| {
        mutex.lock();
        // SAFETY: locked just now, and freed once.
        unsafe {
            guarded.add();
            mutex.unlock();
        }
    });
    let lock = <RawRwLock>::new();
    contend(|| {
        lock.write();
        // SAFETY: locked just now, and freed once.
        unsafe {
            guarded.add();
            lock.unlock_write();
        }
        lock.read();
        // SAFETY: locked just now, and freed once.
        unsafe { lock.unlock_read() };
    });
    assert_eq!(*guarded.0.into_inner(), 2 * THREADS * TURNS);
}
