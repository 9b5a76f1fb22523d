//! Locks that guard the global allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;
use std::{env, hint, thread};

use coreline::lock::{self, Mutex, RwLock};

const THREADS: u64 = 4;
const ROUNDS: u64 = 5_000;

/// Which locks guard the allocator.
static GUARDS: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const ONE: u8 = 1;
/// One is waited for while the other is held.
const TWO: u8 = 2;
/// One, for writing; threads also read.
const WRITES: u8 = 3;

static OUTER: Mutex<u64> = Mutex::new(0);
static INNER: RwLock<u64> = RwLock::new(0);

struct Guarded;

impl Guarded {
    fn guarded<R>(run: impl FnOnce() -> R) -> R {
        let guards = GUARDS.load(Ordering::Relaxed);
        if guards == NONE {
            return run();
        }
        if guards == WRITES {
            let mut inner = INNER.write();
            *inner += 1;
            (0..500).for_each(|_| hint::spin_loop());
            return run();
        }
        let mut outer = OUTER.lock();
        *outer += 1;
        (0..500).for_each(|_| hint::spin_loop());
        if guards == TWO {
            // Others take it without the first one, below.
            *INNER.write() += 1;
        }
        run()
    }
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Guarded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises a layout with a size.
        Guarded::guarded(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `alloc` had the memory from the same allocator, with this layout.
        Guarded::guarded(|| unsafe { System.dealloc(at, layout) });
    }
}

#[global_allocator]
static ALLOCATOR: Guarded = Guarded;

/// Runs the test of this name again in a process in which no thread has waited for a lock yet.
fn in_a_process(name: &str, run: impl Fn()) {
    const CHILD: &str = "CORELINE_TEST_CHILD";
    if env::var_os(CHILD).is_some() {
        return run();
    }
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", name])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let [text, errors] = [&child.stdout, &child.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let passed = child.status.success() && text.contains("1 passed");
    assert!(passed, "{}: {text}{errors}", child.status);
}

fn allocate(guards: u8) {
    GUARDS.store(guards, Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    hint::black_box(vec![round; 10]);
                    if guards != ONE {
                        let _read = INNER.read();
                        (0..500).for_each(|_| hint::spin_loop());
                    }
                }
            });
        }
    });
    GUARDS.store(NONE, Ordering::Relaxed);
    let calls = 2 * THREADS * ROUNDS;
    assert!(guards == WRITES || *OUTER.lock() >= calls);
    assert!(guards == ONE || *INNER.read() >= calls);
}

#[test]
fn the_first_wait_of_a_process_may_be_in_its_allocator() {
    in_a_process("the_first_wait_of_a_process_may_be_in_its_allocator", || allocate(ONE));
}

/// A writer that has closed the lock waits for a reader, without a place in a queue.
#[test]
fn the_first_wait_of_a_process_may_be_for_the_readers_of_its_allocator() {
    let name = "the_first_wait_of_a_process_may_be_for_the_readers_of_its_allocator";
    in_a_process(name, || {
        let held = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !held.load(Ordering::Acquire) {
                    hint::spin_loop();
                }
                hint::black_box(vec![0; 10]);
            });
            let read = INNER.read();
            GUARDS.store(WRITES, Ordering::Relaxed);
            held.store(true, Ordering::Release);
            while INNER.try_read().is_some() {
                hint::spin_loop();
            }
            thread::sleep(Duration::from_millis(20));
            drop(read);
        });
        allocate(WRITES);
    });
}

#[test]
fn an_allocator_waits_for_a_lock_while_it_holds_another() {
    in_a_process("an_allocator_waits_for_a_lock_while_it_holds_another", || {
        lock::prepare();
        // The first wait of the process is for the inner one, by a thread that holds the outer one.
        let held = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !held.load(Ordering::Acquire) {
                    hint::spin_loop();
                }
                hint::black_box(vec![0; 10]);
            });
            let write = INNER.write();
            GUARDS.store(TWO, Ordering::Relaxed);
            held.store(true, Ordering::Release);
            while !OUTER.is_locked() {
                hint::spin_loop();
            }
            thread::sleep(Duration::from_millis(20));
            drop(write);
        });
        allocate(TWO);
    });
}
