//! A global allocator that counts with per-CPU words, as its users will write it: the words are
//! made in the allocator, at the first allocation that is counted.
//!
//! The self-test of rseq starts threads. Were they to allocate, they would count with words that
//! are not there yet, as their maker waits for the self-test.
#![cfg(target_os = "linux")]

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::thread;

use coreline::percpu::Word64;
use coreline::{IndexBy, PerCpu};
#[cfg(not(feature = "portable"))]
use coreline_world::native::{self, NoSections};

struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: OnceLock<PerCpu<Word64>> = OnceLock::new();

thread_local! {
    /// Whether the thread is counting, which allocates itself.
    static COUNTING: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: carries nothing but itself.
        if COUNTS.load(Ordering::Relaxed) && !COUNTING.replace(true) {
            ALLOCATIONS.get_or_init(|| PerCpu::words(IndexBy::Cpu).unwrap()).add(1);
            COUNTING.set(false);
        }
        // SAFETY: the caller promises a layout with a size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `alloc` had the memory from the same allocator, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_first_words_can_be_made_in_an_allocator() {
    // Without an end the test would hang: a signal ends it with a failure.
    // SAFETY: sets a timer of this process, which has this one test.
    unsafe { libc::alarm(60) };
    COUNTS.store(true, Ordering::Relaxed);
    let boxes: Vec<Box<u64>> = thread::spawn(|| (0..1_000).map(Box::new).collect()).join().unwrap();
    COUNTS.store(false, Ordering::Relaxed);
    assert_eq!(boxes.len(), 1_000);
    assert!(ALLOCATIONS.get().unwrap().sum() >= 1_000);
    // And the self-test had its answer.
    #[cfg(not(feature = "portable"))]
    {
        let sections = native::probe().sections;
        assert!(!matches!(sections, Err(NoSections::SelfTest(_))), "{sections:?}");
    }
}
