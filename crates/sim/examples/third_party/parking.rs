//! A lock that parks in a global table, written anew from the documentation of parking_lot: one
//! byte with a locked and a parked bit; a few spins, then turns of yielding, then a place in the
//! queue of the bucket that the lock's address hashes to. An unlock wakes the first in the queue
//! and leaves the lock free for any thread; about every half millisecond it hands the lock over.
//!
//! Simpler than the original: the bucket's lock is the simulated std mutex instead of a queue of
//! its own, the queue is a ring instead of a list through its waiters, and no two locks share a
//! bucket.

use std::collections::VecDeque;

use coreline_sim::atomic::{AtomicU8, AtomicU32, Ordering};
use coreline_sim::sync::{Arc, Mutex};
use coreline_sim::thread::{self, Thread};
use coreline_sim::time::{Duration, Instant};
use coreline_sim::{hint, locks};

const LOCKED: u8 = 1;
const PARKED: u8 = 2;

/// What a waiter's word says: it waits, is woken to try again, or has been handed the lock.
const WAITING: u32 = 0;
const WOKEN: u32 = 1;
const HANDED: u32 = 2;

struct Waiter {
    word: AtomicU32,
    thread: Thread,
}

/// A bucket of the table, a line or more of its own.
#[derive(Default)]
#[repr(align(64))]
struct Bucket(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    waiters: VecDeque<Arc<Waiter>>,
    /// When the lock is handed over the next time, since the machine's start.
    fair_at: Option<Instant>,
    dice: u64,
}

impl Queue {
    /// Whether it is time to hand over; then draws the next time, within a millisecond.
    fn is_fair(&mut self) -> bool {
        let now = Instant::now();
        if self.fair_at.is_some_and(|at| now < at) {
            return false;
        }
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let first = self.fair_at.is_none();
        self.fair_at = Some(now + Duration::from_nanos((self.dice >> 33) % 1_000_000));
        !first
    }
}

/// The table that all locks of the program share.
pub(crate) struct Table(Vec<Bucket>);

impl Table {
    /// Three buckets for each thread, rounded up to a power of two.
    pub(crate) fn new(threads: usize) -> Table {
        Table((0..(3 * threads).next_power_of_two()).map(|_| Bucket::default()).collect())
    }
}

/// The lock.
pub(crate) struct ParkingLock {
    state: AtomicU8,
    table: Arc<Table>,
    bucket: usize,
}

impl ParkingLock {
    /// The program's lock of this number, which has a bucket to itself: the queues here do not say
    /// whose waiters they hold.
    pub(crate) fn new(table: Arc<Table>, number: usize) -> ParkingLock {
        assert!(number < table.0.len(), "fewer locks than buckets");
        ParkingLock { state: AtomicU8::new(0), table, bucket: number }
    }

    fn take(&self, seen: u8, state: u8) -> Result<u8, u8> {
        self.state.compare_exchange_weak(seen, state, Ordering::Acquire, Ordering::Relaxed)
    }

    pub(crate) fn lock(&self) {
        if self.take(0, LOCKED).is_err() {
            locks::waiting(self);
            self.lock_contended();
        }
        locks::acquired(self);
    }

    fn lock_contended(&self) {
        let mut turns = 0;
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & LOCKED == 0 {
                match self.take(state, state | LOCKED) {
                    Ok(_) => return,
                    Err(other) => state = other,
                }
                continue;
            }
            if state & PARKED == 0 {
                if turns < 10 {
                    turns += 1;
                    match turns {
                        1..=3 => (0..1 << turns).for_each(|_| hint::spin_loop()),
                        _ => thread::yield_now(),
                    }
                    state = self.state.load(Ordering::Relaxed);
                    continue;
                }
                let mark = state | PARKED;
                let marked =
                    self.state.compare_exchange(state, mark, Ordering::Relaxed, Ordering::Relaxed);
                if let Err(other) = marked {
                    state = other;
                    continue;
                }
            }
            if self.park() == HANDED {
                return;
            }
            turns = 0;
            state = self.state.load(Ordering::Relaxed);
        }
    }

    /// Waits in the queue, if the lock is still held and marked. Returns why the wait ended.
    fn park(&self) -> u32 {
        let mut queue = self.table.0[self.bucket].0.lock().unwrap();
        if self.state.load(Ordering::Relaxed) != LOCKED | PARKED {
            return WOKEN;
        }
        let waiter = Waiter { word: AtomicU32::new(WAITING), thread: thread::current() };
        let waiter = Arc::new(waiter);
        queue.waiters.push_back(Arc::clone(&waiter));
        drop(queue);
        loop {
            match waiter.word.load(Ordering::Acquire) {
                WAITING => thread::park(),
                why => return why,
            }
        }
    }

    pub(crate) fn unlock(&self) {
        locks::released(self);
        let free = self.state.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed);
        if free.is_err() {
            self.unlock_contended();
        }
    }

    fn unlock_contended(&self) {
        let mut queue = self.table.0[self.bucket].0.lock().unwrap();
        let Some(waiter) = queue.waiters.pop_front() else {
            self.state.store(0, Ordering::Release);
            return;
        };
        let more = if queue.waiters.is_empty() { 0 } else { PARKED };
        let why = if queue.is_fair() {
            self.state.store(LOCKED | more, Ordering::Release);
            HANDED
        } else {
            self.state.store(more, Ordering::Release);
            WOKEN
        };
        waiter.word.store(why, Ordering::Release);
        drop(queue);
        waiter.thread.unpark();
    }
}
