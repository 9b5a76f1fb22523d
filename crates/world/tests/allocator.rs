//! A global allocator that asks where its thread runs and which one it is, as one with memory for
//! each CPU does at every allocation: also at those that the world makes itself to find out.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use coreline_world::{Clock, Native, Parked, Place, Signals, Sleep, Time};

struct Asking;

thread_local! {
    /// Whether the calling thread's allocations ask.
    static ASKS: Cell<bool> = const { Cell::new(false) };
}

/// The highest number of a CPU that was the answer.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

fn ask() {
    let _ = (Native::thread_id(), Native::now());
    // Relaxed: the test joins the thread that asks.
    HIGHEST.fetch_max(Native::cpu().get(), Ordering::Relaxed);
    let word = AtomicU32::new(0);
    // A sleep may end for no reason.
    while Native::park(&word, 0, Some(Time::from_nanos(0))) == Parked::Woken {}
    Native::wake(&raw const word, 1);
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Asking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if ASKS.get() {
            ask();
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
static ALLOCATOR: Asking = Asking;

#[test]
fn an_allocator_may_ask_where_its_thread_runs() {
    let (done, is_done) = mpsc::channel();
    let thread = thread::spawn(move || {
        ASKS.set(true);
        let cpu = *Box::new(Native::cpu());
        ASKS.set(false);
        done.send(cpu).unwrap();
    });
    // Without an end the test would hang.
    let cpu = is_done.recv_timeout(Duration::from_secs(60)).expect("it waits for itself");
    thread.join().unwrap();
    let limit = Native::topology().cpu_limit();
    // Relaxed: the thread that asked was joined.
    assert!(cpu.index() < limit && (HIGHEST.load(Ordering::Relaxed) as usize) < limit);
}
