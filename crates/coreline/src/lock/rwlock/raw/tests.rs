//! Limits, wake-ups without reason, and how long a writer waits.

use std::sync::Arc;

use coreline_sim::{Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::{Clock, JoinHandle, Placement, Threads, Work};

use super::super::super::wanted::{self, learns};
use super::*;

#[test]
fn more_readers_than_guards_can_be_are_no_reason_for_an_attempt_to_panic() {
    let lock = RawRwLock::<Near, SpinningReaders>::new_in();
    // As by this many guards that were forgotten.
    lock.state.store(MOST_READERS, Ordering::Relaxed);
    assert!(!lock.try_read() && !lock.try_write());
    assert!(!lock.try_read_recursive() && !lock.try_read_upgradable());
    assert_eq!(lock.state.load(Ordering::Relaxed), MOST_READERS, "nothing was left there");
    let read = std::panic::catch_unwind(|| lock.read());
    assert!(read.is_err(), "a wait for them would not end");
    assert_eq!(lock.state.load(Ordering::Relaxed), MOST_READERS);
}

/// Only the last reader to leave, and a lock that opens, wake the threads that sleep.
#[test]
fn a_thread_that_comes_in_vain_wakes_no_other_in_simulation() {
    let law = || {
        let lock = Arc::new(RawRwLock::<Near, SpinningReaders, Sim>::new_in());
        lock.write();
        let theirs = Arc::clone(&lock);
        let read = move || {
            theirs.read();
            // SAFETY: this thread reads.
            unsafe { theirs.unlock_read() };
        };
        let reader = Sim::spawn(Placement::On(CpuId::new(1)), read).unwrap();
        let sleeps = || lock.state.load(Ordering::Relaxed) & SLEEPS != 0;
        while !sleeps() {
            Sim::work(Duration::from_micros(10));
        }
        assert!(!lock.read_by(Sim::now()) && sleeps());
        // SAFETY: this thread writes.
        unsafe { lock.unlock_write() };
        reader.join();
    };
    Machine::preset("host-2c").unwrap().run(law).unwrap();
}

/// How long a writer waits at most, of two that are far from each other. Each takes the lock
/// again as soon as it has freed it.
fn longest_wait() -> Duration {
    let program = || {
        let lock = Arc::new(RawRwLock::<Near, SpinningReaders, Sim>::new_in());
        let takes = |cpu: u32| {
            let lock = Arc::clone(&lock);
            let turns = move || {
                let mut longest = Duration::ZERO;
                while Sim::now().as_nanos() < 2_000_000 {
                    let came = Sim::now();
                    lock.write();
                    longest = longest.max(Sim::now() - came);
                    Sim::work(Duration::from_nanos(100));
                    // SAFETY: this thread writes.
                    unsafe { lock.unlock_write() };
                }
                longest
            };
            Sim::spawn(Placement::On(CpuId::new(cpu)), turns).unwrap()
        };
        let [one, other] = [takes(0), takes(100)];
        one.join().max(other.join())
    };
    Machine::preset("x86-128c-8n").unwrap().run(program).unwrap().value
}

/// We measured 24 us, and 645 us if the waiter does not ask.
#[test]
fn a_first_waiter_asks_to_come_next() {
    let longest = longest_wait();
    assert!(longest < Duration::from_micros(35), "{longest:?}");
}

/// Without the limit it never asks, and with that of a waiter that spins, after less than 0.1 ms.
#[test]
fn a_first_waiter_that_sleeps_asks_after_a_millisecond() {
    let program = || {
        let lock = Arc::new(RawRwLock::<Near, SpinningReaders, Sim>::new_in());
        lock.write();
        let (theirs, there) = (Arc::clone(&lock), CpuId::new(1));
        // So that it soon sleeps: others want the CPU.
        wanted::prepare::<Sim>();
        assert!(learns::<Sim>(there, Sim::now(), Sim::now() + Duration::from_millis(10)));
        let write = move || {
            let came = Sim::now();
            theirs.write();
            // SAFETY: this thread writes.
            unsafe { theirs.unlock_write() };
            came
        };
        let writer = Sim::spawn(Placement::On(there), write).unwrap();
        let end = Sim::now() + Duration::from_millis(5);
        // Relaxed: a hint.
        while lock.state.load(Ordering::Relaxed) & WANTS == 0 && Sim::now() < end {
            Sim::work(Duration::from_micros(5));
        }
        let asked = Sim::now();
        // SAFETY: this thread writes.
        unsafe { lock.unlock_write() };
        asked - writer.join()
    };
    let after = Machine::preset("host-2c").unwrap().run(program).unwrap().value;
    let expected = PATIENCE_ASLEEP..PATIENCE_ASLEEP + Duration::from_micros(200);
    assert!(expected.contains(&after), "{after:?}");
}
