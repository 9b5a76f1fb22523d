//! Whether the cache is one, and whether its hits scale.

use std::collections::VecDeque;

use coreline_sim::claim::Band;
use coreline_sim::measure::{Parallel, compare, parallel, scaling};
use coreline_sim::{Spec, sync::Arc, thread};

use super::*;

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

fn cache<V: Send + Sync>(capacity: u32) -> Cache<u32, V> {
    Cache::new(NonZeroU32::new(capacity).unwrap()).unwrap()
}

/// One thread's cache evicts in exactly the order of use, because its log is drained before it is
/// full.
#[coreline_sim::test(machine = "host-2c", seeds = 4)]
fn one_thread_finds_what_a_list_would_have() {
    const CAPACITY: usize = 5;
    let cache = cache(CAPACITY as u32);
    let mut model = VecDeque::new();
    let mut number = 1_u32;
    for round in 0..2000 {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (key, action) = (number >> 24 & 7, number >> 28);
        let at = model.iter().position(|(it, _)| *it == key);
        match action {
            0 => {
                assert_eq!(cache.remove(&key), at.is_some(), "in round {round}");
                at.map(|at| model.remove(at));
            }
            1..8 => {
                cache.insert(key, round);
                at.map(|at| model.remove(at));
                model.push_front((key, round));
                model.truncate(CAPACITY);
            }
            _ => {
                let found = at.and_then(|at| model.remove(at));
                assert_eq!(cache.get(&key), found.map(|it| it.1), "in round {round}");
                found.into_iter().for_each(|it| model.push_front(it));
            }
        }
    }
    assert_eq!(cache.stats()[2], 0, "no read was lost");
}

/// Threads insert, remove and read few keys in a cache that has room for half of them. A value
/// that is found is one of its key.
fn values_belong_to_their_keys() {
    let cache = Arc::new(cache(8));
    let threads: Vec<_> = (0..6)
        .map(|thread| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                for round in 0..60 {
                    let key = (thread * 7 + round * 5) % 16;
                    match round % 4 {
                        0 => cache.insert(key, key * 1000 + thread),
                        3 if thread == 0 => _ = cache.remove(&key),
                        _ => _ = cache.read(&key, |value| assert_eq!(value / 1000, key)),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // The table has what the order has.
    let order = cache.order.lock();
    let all: Vec<_> = cache.buckets.iter().flat_map(|bucket| bucket.read().clone()).collect();
    assert!(all.len() <= 8 && all.len() == order.entries.iter().flatten().count());
    for entry in all {
        let known = order.entries[entry.slot as usize].as_ref().unwrap();
        assert!(std::sync::Arc::ptr_eq(known, &entry), "slot {}", entry.slot);
    }
}

#[coreline_sim::test(machine = "desktop-12c", seeds = 8, faults = "preempt:16")]
fn values_belong_to_their_keys_under_preemption() {
    values_belong_to_their_keys();
}

#[coreline_sim::test(machine = "host-2c", seeds = 16, schedule = "random")]
fn values_belong_to_their_keys_in_unlikely_orders() {
    values_belong_to_their_keys();
}

/// Entries that other CPUs read stay in the cache while keys that are read once go through it.
#[coreline_sim::test(machine = "desktop-12c", seeds = 4)]
fn a_scan_evicts_no_key_that_all_threads_read() {
    let cache = Arc::new(cache(64));
    (0..8).for_each(|key| cache.insert(key, key));
    for scan in 0..40 {
        let readers = (0..4).map(|_| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || (0..8).for_each(|key| assert_eq!(cache.get(&key), Some(key))))
        });
        readers.collect::<Vec<_>>().into_iter().for_each(|reader| reader.join().unwrap());
        (0..32).for_each(|key| cache.insert(1000 + scan * 32 + key, 0));
    }
}

/// Entries of the caches that are measured.
const ENTRIES: u32 = 1024;

/// How a hit is noted.
#[derive(Clone, Copy)]
enum Note {
    /// In the log.
    Log,
    /// In the list itself, behind its lock, as a cache without a log does.
    List,
}

/// Threads that find keys, half of them a few hot ones, in this many caches with a share of the
/// keys each. A log takes longer to be steady: in the first rounds, each CPU gets its memory.
fn hits(threads: usize, note: Note, shards: usize) -> Parallel {
    let caches: Vec<_> = (0..shards).map(|_| cache(ENTRIES)).collect();
    (0..ENTRIES).for_each(|key| caches[key as usize % shards].insert(key, key));
    let read = |thread: usize, round: u32| {
        let number = (thread as u32 * 31 + round) * 769;
        let key = if round.is_multiple_of(2) { number % 8 } else { number % ENTRIES };
        let cache = &caches[key as usize % shards];
        let found = match note {
            Note::Log => cache.get(&key),
            Note::List => {
                cache.counts.add(0, 1);
                let section = cache.collector.enter();
                let held = cache.bucket(&key).load(&section);
                held.iter().find(|it| it.key == key).map(|it| {
                    cache.order.lock().lru.touch(it.slot);
                    it.value
                })
            }
        };
        assert_eq!(found, Some(key));
    };
    let rounds = match note {
        Note::Log => 100,
        Note::List => 20,
    };
    parallel(threads, rounds, |thread| (0..4).for_each(|round| read(thread, round)))
}

/// The tables of README.md: `cargo test --release -p cache scale -- --nocapture`.
#[test]
fn hits_scale_and_those_of_a_shared_list_do_not() {
    let band = Band::quick(&Spec::preset("epyc-9654-2s").unwrap(), 1);
    let threads = [1, 24, 384];
    let curve = |name, note, shards| {
        scaling(&band, name, &threads, move |threads| hits(threads, note, shards)).unwrap()
    };
    let log = curve("a log for each CPU", Note::Log, 1);
    let list = curve("one list", Note::List, 1);
    let lists = curve("64 lists", Note::List, 64);
    println!("{log}\n{list}\n{lists}\n{}", compare(&log, &lists));
    assert_eq!((log.scales_to(), list.scales_to()), (384, 1));
    assert!(lists.scales_to() < 384, "{lists}");
}
