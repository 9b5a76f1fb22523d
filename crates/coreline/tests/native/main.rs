//! What only the real machine has: signals, forks, and the switch that turns sections off.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

mod bags;
mod crowd;
mod domain;
mod filter;
mod fork;
mod hidden;
mod object;
mod os;
mod priorities;
mod rcu;
mod refused;
mod refused_later;
mod signals;
mod trim;
// musl unloads nothing, nor does a program without a dynamic linker load anything.
#[cfg(not(target_feature = "crt-static"))]
mod unload;
mod workers;

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

/// What all tests that run the others again have in their names.
const AGAIN: &str = "all_of_it_holds";

/// Runs all tests again with this in the environment: the choice between sections and atomics, and
/// that of the C library to register threads, are made once per process.
fn run_again(name: &str, value: &str) {
    if env::var("CORELINE_RSEQ").is_ok_and(|set| set == "off") {
        return;
    }
    let again = Command::new(env::current_exe().unwrap())
        .args(["--skip", AGAIN])
        .env(name, value)
        .output()
        .unwrap();
    let [text, errors] = [&again.stdout, &again.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let passed = again.status.success() && !text.contains(" 0 passed");
    assert!(passed, "{}: {text}{errors}", again.status);
}

#[test]
fn all_of_it_holds_on_atomics() {
    run_again("CORELINE_RSEQ", "off");
}

#[test]
fn all_of_it_holds_where_the_c_library_registers_no_thread() {
    run_again("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
}
