//! Locks, with waiters that sleep, give up and are woken.

use core::cell::UnsafeCell;
use std::thread;
use std::time::{Duration, Instant};

use coreline::lock::{
    BiasedRwLock, Condvar, Fifo, MappedMutexGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard,
    MutexGuard, Near, Order, Osq, RawMutex, RawRwLock, ReadMostly, RwLockReadGuard,
    RwLockWriteGuard, SleepingReaders, TicketLock,
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
fn data_of_each_lock_may_be_unsized() {
    let mutex: &Mutex<[u32]> = &Mutex::new([1, 2]);
    mutex.lock()[0] += 1;
    let rwlock: Box<RwLock<dyn Fn(u32) -> u32>> = Box::new(RwLock::new(|number| number + 1));
    let ticket: &TicketLock<[u8]> = &TicketLock::new(*b"two");
    let mostly: Box<ReadMostly<[u32]>> = Box::new(ReadMostly::new([4]).unwrap());
    mostly.write().unwrap()[0] += 1;
    let biased: Box<BiasedRwLock<dyn std::fmt::Debug>> = Box::new(BiasedRwLock::new(7));
    assert_eq!(&*ticket.lock(), b"two");
    assert_eq!((&*mutex.lock(), rwlock.read()(2)), (&[2, 2][..], 3));
    assert_eq!((&*mostly.read(), format!("{:?}", &*biased.read())), (&[5][..], "7".to_owned()));
    assert_eq!(format!("{mutex:?} {biased:?}"), "Mutex { data: [2, 2] } BiasedRwLock { data: 7 }");
}

#[test]
fn guards_are_mapped_to_parts() {
    let lock = Mutex::new((1, [2, 3]));
    let part: MappedMutexGuard<'_, [u32]> = MutexGuard::map(lock.lock(), |data| &mut data.1[..]);
    let mut last = MappedMutexGuard::map(part, |part| &mut part[1]);
    *last = 4;
    assert!(lock.try_lock().is_none() && *last == 4);
    drop(last);
    let whole = MutexGuard::try_map(lock.lock(), |data| data.1.get_mut(2)).expect_err("no part");
    assert_eq!((whole.0, whole.1), (1, [2, 4]));
    MutexGuard::unlock_fair(whole);
    let panics = || drop(MutexGuard::map(lock.lock(), |_| -> &mut u32 { panic!("planted") }));
    std::panic::catch_unwind(panics).unwrap_err();
    assert!(!lock.is_locked(), "a panic frees the lock");

    let lock = RwLock::new((1, 2));
    let read: MappedRwLockReadGuard<'_, u32> = RwLockReadGuard::map(lock.read(), |data| &data.0);
    assert!(lock.try_write().is_none() && lock.try_read().is_some());
    drop(read);
    let mut write: MappedRwLockWriteGuard<'_, u32> =
        RwLockWriteGuard::map(lock.write(), |data| &mut data.1);
    *write += 1;
    assert!(lock.try_read().is_none());
    drop(write);
    assert_eq!(*lock.try_write().unwrap(), (1, 3));
}

#[test]
fn deadlines_are_instants_of_std() {
    let lock = Mutex::new(());
    let held = lock.lock();
    let begun = Instant::now();
    let soon = begun + Duration::from_millis(2);
    assert!(lock.lock_by(soon.into()).is_none());
    assert!(Instant::now() >= soon);
    assert!(lock.lock_by(begun.into()).is_none(), "a time that has passed");
    drop(held);
    assert!(lock.lock_by(soon.into()).is_some());
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
