//! The cache beside a map behind a mutex, where one operation in a hundred is an insertion. The map
//! is less than a cache: it has no order of eviction, and a cache with a list behind that mutex
//! would take longer.
//!
//! ```sh
//! cargo run --release -p cache --example compare
//! ```

#![expect(clippy::print_stdout, reason = "it says what it found")]

use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use cache::Cache;

const ENTRIES: NonZeroU32 = NonZeroU32::new(1024).unwrap();

/// The ns that each thread needs for an operation: mostly hits, half of them of eight keys.
/// `operate` gets a key, and whether it is to insert it.
fn round(threads: usize, hits: u32, operate: impl Fn(u32, bool) + Sync) -> f64 {
    let (begin, end) = (&Barrier::new(threads + 1), &Barrier::new(threads + 1));
    let operate = &operate;
    let read = move |thread: u32| {
        begin.wait();
        for hit in 0..hits {
            let number = (thread.wrapping_mul(0x9e37_79b9) ^ hit).wrapping_mul(769);
            let key = number % if hit.is_multiple_of(2) { 8 } else { ENTRIES.get() };
            operate(black_box(key), hit.is_multiple_of(100));
        }
        end.wait();
    };
    thread::scope(|scope| {
        (0..threads as u32).for_each(|thread| _ = scope.spawn(move || read(thread)));
        begin.wait();
        let begun = Instant::now();
        end.wait();
        begun.elapsed().as_nanos() as f64 / f64::from(hits)
    })
}

/// The median times in ns: of the cache, of a map behind a mutex, and of 64 such maps.
fn compare(threads: usize, rounds: usize, hits: u32) -> Result<[f64; 3], Box<dyn Error>> {
    let cache = Cache::new(ENTRIES)?;
    let all = || (0..ENTRIES.get()).map(|key| (key, key));
    let maps: Vec<_> = (0..64).map(|_| Mutex::new(all().collect::<HashMap<_, _>>())).collect();
    all().for_each(|(key, value)| cache.insert(key, value));
    let cached = |key, inserts| match inserts {
        true => cache.insert(key, key),
        false => _ = black_box(cache.get(&key)),
    };
    let locked = |at: u32, key, inserts| {
        let mut map = maps[at as usize].lock().unwrap_or_else(PoisonError::into_inner);
        match inserts {
            true => _ = map.insert(key, key),
            false => _ = black_box(map.get(&key).copied()),
        }
    };
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        times[0].push(round(threads, hits, cached));
        times[1].push(round(threads, hits, |key, inserts| locked(0, key, inserts)));
        times[2].push(round(threads, hits, |key, inserts| locked(key % 64, key, inserts)));
    }
    Ok(times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    for threads in [1, 2] {
        let [cache, one, many] = compare(threads, 21, 200_000)?;
        println!(
            "{threads} threads: cache {cache:.1} ns, one mutex {one:.1} ns ({:.2}), 64 mutexes \
             {many:.1} ns ({:.2})",
            one / cache,
            many / cache
        );
    }
    Ok(())
}

#[test]
fn all_are_timed() {
    let times = compare(2, 3, 100).unwrap();
    assert!(times.iter().all(|time| time.is_finite() && *time > 0.0), "{times:?}");
}
