//! An allocator that counts what is allocated, once it is told to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Not from the beginning: under load, all CPUs would add to one word.
static COUNTS: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

/// Counts from now on.
pub(crate) fn count() {
    // Relaxed, here and below: numbers of which no other thread does anything.
    COUNTS.store(true, Ordering::Relaxed);
}

/// Bytes that are allocated now of what was allocated since [`count`], if all that was freed was of
/// those. Wraps.
pub(crate) fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

fn add(bytes: usize) {
    if COUNTS.load(Ordering::Relaxed) {
        BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: the system's, with all of its promises.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(layout.size().wrapping_neg());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) };
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size.wrapping_sub(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
