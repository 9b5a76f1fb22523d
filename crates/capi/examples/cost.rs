//! What the C calls cost beside the Rust functions that they call, in ns per operation.
//!
//! `cargo run --release -p coreline-capi --example cost`. The two sides of a row are measured in
//! turn, and the medians of 201 samples of each are printed.

#![allow(clippy::print_stdout, reason = "a program talks to its user")]

use std::ffi::c_int;
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

use coreline::PerCpuCounter;
use coreline::lock::RawMutex;

// The library's functions, with the types that their callers in C see.
#[allow(clashing_extern_declarations, reason = "a handle is an address here")]
unsafe extern "C" {
    fn coreline_counter_create(pool: *const u8, batch: u32, out: *mut *mut u8) -> c_int;
    fn coreline_counter_add(counter: *const u8, delta: i64) -> c_int;
    fn coreline_mutex_lock(mutex: *mut RawMutex) -> c_int;
    fn coreline_mutex_unlock(mutex: *mut RawMutex) -> c_int;
}

// Links the library.
use coreline_capi as _;

const SAMPLES: usize = 201;
const TIMES: u32 = 100_000;

/// The time of one operation.
fn sample(operation: &dyn Fn(u32)) -> f64 {
    let start = Instant::now();
    operation(TIMES);
    start.elapsed().as_nanos() as f64 / f64::from(TIMES)
}

fn row(name: &str, in_rust: &dyn Fn(u32), in_c: &dyn Fn(u32)) {
    let (mut ours, mut theirs): (Vec<_>, Vec<_>) =
        (0..SAMPLES).map(|_| (sample(in_rust), sample(in_c))).unzip();
    for samples in [&mut ours, &mut theirs] {
        samples.sort_by(f64::total_cmp);
    }
    println!("{name:<24}{:>8.2}{:>8.2}", ours[SAMPLES / 2], theirs[SAMPLES / 2]);
}

fn main() {
    println!("{:<24}{:>8}{:>8}", "ns per operation", "Rust", "C call");
    let counter = PerCpuCounter::new().expect("a counter");
    let mut handle = null_mut();
    // SAFETY: null is the process's pool, and `handle` takes the result.
    assert_eq!(unsafe { coreline_counter_create(null_mut(), 0, &raw mut handle) }, 0);
    // SAFETY: a handle that was created above.
    let add = || assert_eq!(unsafe { coreline_counter_add(black_box(handle), 1) }, 0);
    row("counter: add", &|times| (0..times).for_each(|_| black_box(&counter).add(1)), &|times| {
        (0..times).for_each(|_| add())
    });
    let mutex = RawMutex::new();
    let raw = (&raw const mutex).cast_mut();
    row(
        "mutex: lock and unlock",
        &|times| {
            (0..times).for_each(|_| {
                black_box(&mutex).lock();
                // SAFETY: locked just now.
                unsafe { mutex.unlock() };
            });
        },
        &|times| {
            (0..times).for_each(|_| {
                // SAFETY: the lock lives, and is locked before it is unlocked.
                let codes = unsafe {
                    [coreline_mutex_lock(black_box(raw)), coreline_mutex_unlock(black_box(raw))]
                };
                assert_eq!(codes, [0, 0]);
            });
        },
    );
}
