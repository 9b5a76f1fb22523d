//! Bags and lossy buffers between threads that move, in handlers that interrupt their operations,
//! and in children that are forked in the midst of them.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::{mem, process, thread};

use coreline::CpuSet;
use coreline::percpu::{LossyBuffer, PerCpuBag};
use coreline_world::{Native, Threads};

use crate::filter::in_a_child;
use crate::fork::in_children;
use crate::os::{on_signal, run_on};
use crate::{IN_HANDLER, IN_HANDLERS};

const VALUES: usize = 64;

/// Takes all values out, and checks that there are so many or up to `missing` less, each once.
fn all_are_there(bag: &PerCpuBag<usize>, missing: usize) {
    let mut seen = [false; VALUES];
    let mut found = 0;
    while let Some(value) = bag.pop() {
        assert!(!mem::replace(&mut seen[value], true), "{value} is there twice");
        found += 1;
    }
    assert!((VALUES - missing..=VALUES).contains(&found), "{found} of {VALUES}");
    assert!(bag.is_empty());
    // Each stack is one that operations can use.
    (0..VALUES).for_each(|value| bag.push(value).expect("there is room"));
}

/// Puts a value back. The stack that has room for it may be that of a thread that is preempted.
fn put_back(bag: &PerCpuBag<usize>, mut value: usize) {
    while let Err(back) = bag.push(value) {
        value = back;
        thread::yield_now();
    }
}

fn full() -> PerCpuBag<usize> {
    let bag = PerCpuBag::new(VALUES).unwrap();
    (0..VALUES).for_each(|value| bag.push(value).unwrap());
    bag
}

/// Runs this thread on another CPU that it may use, if there is one.
fn move_to(cpus: &CpuSet, number: usize) {
    let Some(cpu) = cpus.iter().nth(number % cpus.len()) else { return };
    run_on(cpu.index());
}

#[test]
fn threads_that_move_lose_no_value() {
    let bag = full();
    let cpus = Native::allowed();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (bag, cpus) = (&bag, &cpus);
            scope.spawn(move || {
                for round in 0..2_000 {
                    if round % 5 == 0 {
                        move_to(cpus, thread + round);
                    }
                    let values = [bag.pop(), bag.pop()];
                    values.into_iter().flatten().for_each(|value| put_back(bag, value));
                }
            });
        }
    });
    all_are_there(&bag, 0);
}

#[test]
fn a_child_finds_each_value_once_where_other_threads_used_a_bag() {
    let bag = full();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Relaxed: carries nothing but itself.
                while !over.load(Ordering::Relaxed) {
                    if let Some(value) = bag.pop() {
                        put_back(&bag, value);
                    }
                }
            });
        }
        // Each of two threads may have one in its hand.
        in_children(&over, || {
            all_are_there(&bag, 2);
            all_are_there(&bag, 2);
        });
    });
}

/// Values go round: a thread takes them out of a bag into a buffer, and another one drains them
/// into the bag.
#[test]
fn a_child_finds_each_value_once_where_other_threads_used_a_buffer() {
    let (bag, buffer) = (full(), LossyBuffer::new(VALUES / 4).unwrap());
    let over = AtomicBool::new(false);
    // Relaxed: carries nothing but itself.
    let going = || !over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            while going() {
                if let Some(value) = bag.pop().and_then(|value| buffer.push(value).err()) {
                    put_back(&bag, value);
                }
            }
        });
        scope.spawn(|| {
            while going() {
                buffer.drain(|value| put_back(&bag, value)).expect("no other thread drains");
            }
        });
        in_children(&over, || {
            // Also if another thread was draining, and was in the midst of a push.
            for missing in [2, 0] {
                buffer.drain(|value| put_back(&bag, value)).expect("the other thread is no more");
                all_are_there(&bag, missing);
            }
            let kept = (0..VALUES).filter(|&value| buffer.push(value).is_ok()).count();
            assert!(kept >= VALUES / 4, "{kept}");
            assert_eq!((buffer.len(), buffer.drain(drop)), (kept, Ok(kept)));
        });
    });
}

static BAG: OnceLock<PerCpuBag<usize>> = OnceLock::new();
static PARENT: AtomicU32 = AtomicU32::new(0);
static FORKED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// One more than the value that the thread's handler has; 0: it has none.
    static KEPT: AtomicUsize = const { AtomicUsize::new(0) };
}

/// Forks, and uses the bag in both processes, as the code does that it interrupts.
extern "C" fn fork_and_use(_signal: c_int) {
    let nested = IN_HANDLER.replace(true);
    // The bare call: what the C library does at a fork is not for handlers.
    // SAFETY: without flags it is a fork, whose child has all memory of its own.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: ends a child that waits for good.
        unsafe { libc::alarm(10) };
    }
    let bag = BAG.get().expect("before all signals");
    // By turns, so that the stack is another one when the operation goes on that is interrupted.
    KEPT.with(|kept| {
        // Relaxed, all: the thread's own.
        let left = match kept.swap(0, Ordering::Relaxed) {
            0 => bag.pop(),
            // All stacks may be busy: the handler's thread was interrupted in one.
            value => bag.push(value - 1).err(),
        };
        kept.store(left.map_or(0, |value| value + 1), Ordering::Relaxed);
    });
    if child != 0 {
        // Relaxed: a count.
        FORKED.fetch_add(1, Ordering::Relaxed);
    }
    IN_HANDLER.set(nested);
}

/// Puts back what the thread's handler has.
fn put_back_kept(bag: &PerCpuBag<usize>) {
    // Relaxed: the thread's own.
    let kept = KEPT.with(|kept| kept.swap(0, Ordering::Relaxed));
    if kept != 0 {
        put_back(bag, kept - 1);
    }
}

/// In a child, the handler goes on first, and then the operation that it interrupted.
#[test]
fn handlers_that_fork_lose_and_double_no_value_of_a_bag() {
    in_a_child("bags::handlers_that_fork_lose_and_double_no_value_of_a_bag", || {
        // Relaxed: before all threads.
        PARENT.store(process::id(), Ordering::Relaxed);
        let bag = BAG.get_or_init(full);
        let over = AtomicBool::new(false);
        let is_child = || process::id() != PARENT.load(Ordering::Relaxed);
        thread::scope(|scope| {
            let mut ids = Vec::new();
            for _ in 0..2 {
                let (tell, told) = mpsc::channel();
                let over = &over;
                scope.spawn(move || {
                    // SAFETY: asks for the calling thread.
                    tell.send(unsafe { libc::pthread_self() }).unwrap();
                    // Relaxed: carries nothing but itself.
                    while !over.load(Ordering::Relaxed) {
                        for _ in 0..20 {
                            if let Some(value) = bag.pop() {
                                put_back(bag, value);
                            }
                        }
                        if is_child() {
                            put_back_kept(bag);
                            // The other thread may have had two: its own, and its handler's.
                            all_are_there(bag, 2);
                            all_are_there(bag, 0);
                            // SAFETY: ends the child.
                            unsafe { libc::_exit(0) };
                        }
                    }
                    put_back_kept(bag);
                });
                ids.push(told.recv().unwrap());
            }
            on_signal(libc::SIGUSR1, fork_and_use);
            let mut ended = [0; 300];
            for (round, status) in (0_u32..).zip(&mut ended) {
                // SAFETY: the thread runs until it is told that it is over.
                unsafe { libc::pthread_kill(ids[round as usize % 2], libc::SIGUSR1) };
                // Relaxed: a count.
                while FORKED.load(Ordering::Relaxed) <= round {
                    thread::yield_now();
                }
                // SAFETY: waits for any child.
                unsafe { libc::wait(status) };
            }
            // Relaxed: carries nothing but itself.
            over.store(true, Ordering::Relaxed);
            assert_eq!(ended, [0; 300], "how the children ended");
        });
        all_are_there(bag, 0);
        // Relaxed: a count.
        assert_eq!(IN_HANDLERS.load(Ordering::Relaxed), 0, "a handler allocated");
    });
}
