//! What only the real machine has: signals, forks, and the switch that turns sections off.
#![cfg(target_os = "linux")]

mod domain;
#[path = "../../../world/tests/filter/mod.rs"]
mod filter;
mod fork;
mod refused;
mod refused_later;
mod signals;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Notices allocations in a signal handler, where there must be none.
struct Watching;

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

static IN_HANDLERS: AtomicU64 = AtomicU64::new(0);

impl Watching {
    fn watch() {
        // Relaxed: a count, read after the threads were joined.
        IN_HANDLERS.fetch_add(u64::from(IN_HANDLER.get()), Ordering::Relaxed);
    }
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Watching::watch();
        // SAFETY: the caller promises a layout with a size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        Watching::watch();
        // SAFETY: `alloc` had the memory from the same allocator, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// The choice between sections and atomics is made once per process, so this is a process more.
#[test]
fn all_of_it_holds_on_atomics() {
    const NAME: &str = "all_of_it_holds_on_atomics";
    if env::var("CORELINE_RSEQ").is_ok_and(|set| set == "off") {
        return;
    }
    let again = Command::new(env::current_exe().unwrap())
        .args(["--skip", NAME])
        .env("CORELINE_RSEQ", "off")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && !text.contains(" 0 passed"), "{text}");
}
