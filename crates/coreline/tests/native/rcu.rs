//! Sections in signal handlers, and collectors in forked children.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::{ptr, thread};

use coreline::rcu::{Collector, CollectorOptions, Rcu};
use coreline_world::Time;

use crate::fork::in_children;
use crate::os;

/// A time that has passed.
const PASSED: Time = Time::from_nanos(0);

/// What a handler reads, and how often it did.
static VALUE: AtomicPtr<Rcu<[u64; 2]>> = AtomicPtr::new(ptr::null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_signal: c_int) {
    // SAFETY: outlives the thread that signals are sent to. Acquire pairs with the release that
    // published it.
    let value = unsafe { &*VALUE.load(Ordering::Acquire) };
    let [first, second] = *value.read();
    assert_eq!(first, second);
    // Relaxed: a count.
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn handlers_read_beside_sections_that_they_interrupt() {
    let mut value = Rcu::new([0; 2]).unwrap();
    // Release pairs with the handler's acquire.
    VALUE.store(&raw mut value, Ordering::Release);
    os::on_signal(libc::SIGUSR2, on_signal);
    let (value, over) = (&value, AtomicBool::new(false));
    thread::scope(|scope| {
        let (register, registered) = std::sync::mpsc::channel();
        let going = || !over.load(Ordering::Relaxed);
        scope.spawn(move || {
            // SAFETY: asks for a number.
            register.send(unsafe { libc::gettid() }).unwrap();
            while going() {
                let [first, second] = *value.read();
                assert_eq!(first, second);
            }
        });
        let victim: libc::pid_t = registered.recv().unwrap();
        for number in 1..=2_000 {
            value.store([number; 2]);
            // SAFETY: the thread runs until it is told to stop, so its number is its own.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), victim, libc::SIGUSR2) };
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(HANDLED.load(Ordering::Relaxed) > 0, "no signal was handled");
    assert_eq!(value.collector().readers(), 0, "a section was lost");
    value.collector().barrier().unwrap();
    assert_eq!(value.collector().pending(), 0);
}

/// Other threads read and retire all the time. A child that says that it has no section goes on.
#[test]
fn a_child_frees_what_it_retires_after_it_has_taken_over() {
    let options = CollectorOptions::new().batch(8);
    let collector = Arc::new(Collector::with_options(options).unwrap());
    let over = AtomicBool::new(false);
    // Relaxed: carries nothing but itself.
    let going = || !over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while going() {
                    let section = collector.enter();
                    collector.defer(|| ());
                    drop(section);
                }
            });
        }
        scope.spawn(|| {
            while going() {
                collector.barrier().unwrap();
            }
        });
        in_children(&over, || {
            // SAFETY: the only thread of the child, which has no section.
            unsafe { collector.after_fork() };
            assert_eq!(collector.readers(), 0);
            let ran = Arc::new(AtomicU64::new(0));
            for _ in 0..100 {
                let theirs = Arc::clone(&ran);
                // Relaxed: there is one thread.
                collector.defer(move || _ = theirs.fetch_add(1, Ordering::Relaxed));
            }
            collector.barrier().unwrap();
            assert_eq!((ran.load(Ordering::Relaxed), collector.pending()), (100, 0));
            let section = collector.enter();
            assert_eq!(collector.synchronize_by(PASSED), Ok(false), "its own section counts");
            drop(section);
        });
    });
}

#[test]
fn without_taking_over_sections_of_the_parent_hold_what_a_child_retires() {
    let collector = Arc::new(Collector::new().unwrap());
    let (enter, entered) = std::sync::mpsc::channel();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let theirs = &collector;
    thread::scope(|scope| {
        scope.spawn(move || {
            let section = theirs.enter();
            enter.send(()).unwrap();
            left.recv().unwrap_err();
            drop(section);
        });
        entered.recv().unwrap();
        crate::fork::in_child(|| {
            assert_eq!(collector.synchronize_by(PASSED), Ok(false));
            // SAFETY: the only thread of the child, which has no section.
            unsafe { collector.after_fork() };
            assert_eq!(collector.synchronize_by(PASSED), Ok(true));
        });
        drop(leave);
    });
}

/// Other threads hold each lock for a part of the time. A child that has not taken over drops what
/// it has, and waits for none of them.
#[test]
fn a_child_drops_a_collector_that_other_threads_were_using() {
    let options = CollectorOptions::new().batch(8);
    let collector = Collector::with_options(options).unwrap();
    let over = AtomicBool::new(false);
    // Relaxed: carries nothing but itself.
    let going = || !over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while going() {
                    let number = Box::new(7_u64);
                    collector.defer(move || assert_eq!(*number, 7, "freed before"));
                }
            });
        }
        scope.spawn(|| {
            while going() {
                collector.barrier().unwrap();
                _ = collector.pending();
            }
        });
        in_children(&over, || {
            // SAFETY: the child's copy, which nothing uses after this.
            drop(unsafe { ptr::read(&raw const collector) });
        });
    });
}
