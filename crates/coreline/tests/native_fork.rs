//! A child that is forked while another thread does something for the first time.
//!
//! What is done once for a process is tried in many: in children that have done nothing yet.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

#[path = "native/os.rs"]
mod os;

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use core::{hint, ptr};
use std::thread;

use coreline::percpu::Word64;
use coreline::{IndexBy, PerCpu};
use coreline_world::native::{self, NoSections, SelfTestError};
use coreline_world::{Fences, Native, Place, Work, WorldStatic};
use os::in_a_fork;

/// How often a race is tried.
const TRIES: u32 = 8;

/// In a process that has done nothing yet, forks children that run `check`, for as long as another
/// thread runs `first`. Returns how many children there were.
fn beside(first: impl FnOnce() + Send, check: impl Fn()) -> u8 {
    in_a_fork(|| {
        let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
        // Relaxed, all: the flags carry nothing but themselves.
        thread::scope(|scope| {
            scope.spawn(|| {
                begun.store(true, Ordering::Relaxed);
                first();
                over.store(true, Ordering::Relaxed);
            });
            while !begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            let mut forks = 0;
            while forks == 0 || forks < 16 && !over.load(Ordering::Relaxed) {
                in_a_fork(|| {
                    check();
                    0
                });
                forks += 1;
            }
            forks
        })
    })
}

/// Runs the test of this name again as a process of its own, in which no other test has done
/// anything; true in that process.
fn is_alone(test: &str) -> bool {
    if !os::is_again() {
        os::pass(&mut os::again(test));
    }
    os::is_again()
}

#[test]
fn a_child_reads_the_tree_that_another_thread_was_reading() {
    if is_alone("a_child_reads_the_tree_that_another_thread_was_reading") {
        let read = || assert!(Native::topology().cpu_count() > 0);
        assert!((0..TRIES).map(|_| beside(read, read)).sum::<u8>() > 0);
    }
}

#[test]
fn a_child_makes_the_choice_that_another_thread_was_making() {
    if is_alone("a_child_makes_the_choice_that_another_thread_was_making") {
        let words = || PerCpu::<Word64>::words(IndexBy::Cpu).unwrap();
        let first = || words().add(1);
        let check = || {
            let words = words();
            words.add(2);
            assert_eq!(words.sum(), 2);
            // It does not wait for the other thread's answer, which never comes.
            let sections = native::probe().sections;
            let no_answer = Err(NoSections::SelfTest(SelfTestError::NoAnswer));
            assert_ne!(sections, no_answer);
        };
        assert!((0..TRIES).map(|_| beside(first, check)).sum::<u8>() > 0);
    }
}

#[test]
fn a_child_makes_statics_while_another_thread_was_making_some() {
    if is_alone("a_child_makes_statics_while_another_thread_was_making_some") {
        let two = || {
            let key: &WorldStatic = Box::leak(Box::new(WorldStatic::new("of a test")));
            let sum = key.with::<Native, u32, _>(|| 1, |first| *first)
                + key.with::<Native, u8, _>(|| 2, |second| u32::from(*second));
            assert_eq!(sum, 3);
        };
        let many = || (0..200_000).for_each(|_| two());
        assert!((0..TRIES).map(|_| beside(many, two)).sum::<u8>() > 0);
    }
}

/// A mapping below the program, in so many parts that a fork takes long to come to the program's
/// own memory.
fn slow_down_forks() {
    // A process may have 65,530 by default.
    const PAGES: usize = 60_000;
    let page = 4096;
    let below = ptr::without_provenance_mut(1 << 32);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, for which the address is a wish; nothing uses it.
    unsafe {
        let at = libc::mmap(below, PAGES * page, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        for number in (0..PAGES).step_by(2) {
            libc::mprotect(at.byte_add(number * page), page, libc::PROT_READ);
        }
    }
}

/// The kernel copies a registration at the beginning of a fork, and memory later: a child can know
/// of a registration that it does not have. Each try begins its fork later in the first fence.
#[test]
fn a_child_fences_that_was_forked_beside_a_first_fence() {
    if !is_alone("a_child_fences_that_was_forked_beside_a_first_fence") {
        return;
    }
    slow_down_forks();
    let try_once = |number: u32| {
        in_a_fork(|| {
            let go = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    // Relaxed, both: carries nothing but itself.
                    while !go.load(Ordering::Relaxed) {
                        hint::spin_loop();
                    }
                    Native::fence_all();
                });
                go.store(true, Ordering::Relaxed);
                Native::work(Duration::from_millis(2) * number);
                in_a_fork(|| {
                    assert_eq!(Native::try_fence_all(), Ok(()));
                    let sections = native::probe().sections.is_ok();
                    let fenced = Native::fence_restartable().is_ok();
                    u8::from(sections && native::probe().restartable_fence && !fenced)
                })
            })
        })
    };
    let failed: Vec<u8> = (0..2 * TRIES).map(try_once).collect();
    assert_eq!(
        failed,
        [0; 2 * TRIES as usize],
        "children whose sections cannot be fenced have a 1"
    );
}
