//! How many values stay alive while a thread replaces a value a million times beside a reader that
//! is stuck, and how many after that reader has gone and a thousand more were replaced.
//!
//! `cargo run --release -p coreline-rivals --example stalled`

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use coreline::rcu::{Collector, CollectorOptions, Rcu};
use crossbeam_epoch::{self as epoch, Atomic, Owned};
use haphazard::HazardPointer;
use seize::Guard as _;

const REPLACEMENTS: u64 = 1_000_000;
const MORE: u64 = 1_000;

/// Counts those that are alive.
struct Alive(Arc<AtomicU64>);

impl Alive {
    fn new(count: &Arc<AtomicU64>) -> Self {
        // Relaxed, here and below: a count.
        count.fetch_add(1, Ordering::Relaxed);
        Alive(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Replaces while `stuck` reads, and then without it.
fn measure<S>(name: &str, stuck: S, alive: &AtomicU64, mut replace: impl FnMut()) {
    (0..REPLACEMENTS).for_each(|_| replace());
    let beside = alive.load(Ordering::Relaxed);
    drop(stuck);
    (0..MORE).for_each(|_| replace());
    println!("{name:<32} {beside:>9} {:>9}", alive.load(Ordering::Relaxed));
}

fn ours(name: &str, options: CollectorOptions) -> Result<(), Box<dyn std::error::Error>> {
    let count = Arc::default();
    let collector = Arc::new(Collector::with_options(options)?);
    let value = Rcu::with_collector(&collector, Alive::new(&count));
    measure(name, value.read(), &count, || value.store(Alive::new(&count)));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:<32} {:>9} {:>9}", "values alive", "stuck", "later");
    let never = CollectorOptions::new().limit(1 << 16, Duration::ZERO);
    ours("coreline Rcu", CollectorOptions::new())?;
    ours("coreline Rcu, without patience", never)?;

    let count = Arc::default();
    let value = Atomic::new(Alive::new(&count));
    // On another thread's participant: a guard of this one would count as nested.
    let collector = epoch::Collector::new();
    let [reader, writer] = [collector.register(), collector.register()];
    measure("crossbeam-epoch", reader.pin(), &count, || {
        let guard = writer.pin();
        let old = value.swap(Owned::new(Alive::new(&count)), Ordering::AcqRel, &guard);
        // SAFETY: unlinked by this thread.
        unsafe { guard.defer_destroy(old) };
    });

    let count = Arc::default();
    let collector = seize::Collector::new();
    let value = AtomicPtr::new(Box::into_raw(Box::new(Alive::new(&count))));
    let guard = collector.enter_owned();
    guard.protect(&value, Ordering::Acquire);
    measure("seize", guard, &count, || {
        let old = value.swap(Box::into_raw(Box::new(Alive::new(&count))), Ordering::AcqRel);
        // SAFETY: from a box, and unlinked by this thread.
        unsafe { collector.retire(old, seize::reclaim::boxed) };
    });

    let count = Arc::default();
    let value = haphazard::AtomicPtr::from(Box::new(Alive::new(&count)));
    let mut pointer = HazardPointer::new();
    value.safe_load(&mut pointer);
    measure("haphazard", pointer, &count, || {
        let old = value.swap(Box::new(Alive::new(&count))).expect("never null");
        // SAFETY: from a box, and unlinked by this thread.
        unsafe { old.retire() };
    });
    Ok(())
}
