//! Updates and reads a second of a value that threads replace while others read it.
//!
//! `cargo run --release -p coreline-rivals --example updates`
//!
//! The candidates take turns. Each figure is the median of the rounds; the last column is the
//! median of the quotients of the reference's updates and this candidate's, of the same round.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use coreline::mask::{PresenceOptions, Versioned};
use coreline::rcu::Rcu;

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(300);

/// Reads between two looks at whether the round is over.
const READS: u64 = 100;

trait Value: Sync {
    fn update(&self, number: u64);

    /// Reads until the round is over; returns how often.
    fn read(&self, over: &AtomicBool) -> u64;
}

fn reads(over: &AtomicBool, mut read: impl FnMut()) -> u64 {
    let mut count = 0;
    // Relaxed, also below: nothing else follows from it.
    while !over.load(Ordering::Relaxed) {
        (0..READS).for_each(|_| read());
        count += READS;
    }
    count
}

impl Value for Versioned<u64> {
    fn update(&self, number: u64) {
        self.update(number);
    }

    fn read(&self, over: &AtomicBool) -> u64 {
        let reader = self.reader();
        reads(over, || {
            black_box(*reader.enter().get());
        })
    }
}

impl Value for Rcu<u64> {
    fn update(&self, number: u64) {
        self.store(number);
    }

    fn read(&self, over: &AtomicBool) -> u64 {
        reads(over, || {
            black_box(*self.read());
        })
    }
}

impl Value for ArcSwap<u64> {
    fn update(&self, number: u64) {
        self.store(Arc::new(number));
    }

    fn read(&self, over: &AtomicBool) -> u64 {
        reads(over, || {
            black_box(**self.load());
        })
    }
}

impl Value for RwLock<Arc<u64>> {
    fn update(&self, number: u64) {
        *self.write().expect("no thread panics") = Arc::new(number);
    }

    fn read(&self, over: &AtomicBool) -> u64 {
        reads(over, || {
            black_box(**self.read().expect("no thread panics"));
        })
    }
}

/// Updates and reads a second.
fn round(value: &dyn Value, updaters: usize, readers: usize) -> [f64; 2] {
    let over = AtomicBool::new(false);
    let [updates, reads] = [const { AtomicU64::new(0) }; 2];
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..updaters {
            scope.spawn(|| {
                let mut count = 0;
                while !over.load(Ordering::Relaxed) {
                    value.update(count);
                    count += 1;
                }
                updates.fetch_add(count, Ordering::Relaxed);
            });
        }
        for _ in 0..readers {
            scope.spawn(|| reads.fetch_add(value.read(&over), Ordering::Relaxed));
        }
        thread::sleep(ROUND);
        over.store(true, Ordering::Relaxed);
    });
    let spent = begun.elapsed().as_secs_f64();
    [updates, reads].map(|count| count.into_inner() as f64 / spent)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let each = PresenceOptions::new().fence_every(Duration::ZERO);
    let all: [(&str, Box<dyn Value>); 5] = [
        ("arc-swap", Box::new(ArcSwap::from_pointee(0))),
        ("coreline Versioned", Box::new(Versioned::new(0))),
        ("coreline Versioned, fence each", Box::new(Versioned::new_in(0, each))),
        ("coreline Rcu", Box::new(Rcu::new(0)?)),
        ("std RwLock<Arc<T>>", Box::new(RwLock::new(Arc::new(0)))),
    ];
    for (updaters, readers) in [(1, 0), (1, 1), (1, 8), (2, 8), (16, 8)] {
        let rounds: Vec<Vec<[f64; 2]>> = (0..ROUNDS)
            .map(|_| all.iter().map(|(_, value)| round(&**value, updaters, readers)).collect())
            .collect();
        println!("\nupdaters: {updaters}, readers: {readers}");
        println!("{:<32} {:>12} {:>14} {:>8}", "", "updates/s", "reads/s", "fewer");
        for (index, (name, _)) in all.iter().enumerate() {
            let of = |at: usize| median(rounds.iter().map(|round| round[index][at]).collect());
            let fewer = median(rounds.iter().map(|round| round[0][0] / round[index][0]).collect());
            println!("{name:<32} {:>12.0} {:>14.0} {fewer:>8.2}", of(0), of(1));
        }
    }
    Ok(())
}
