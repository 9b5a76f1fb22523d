//! Small programs of two threads whose accesses differ in how far they overlap: false sharing, spin
//! locks, a ring in bursts, a seqlock, and a hand-over between threads that sleep.

use core::time::Duration;
use std::sync::Arc;

use coreline_topology::CpuId;
use coreline_world::{Integer, Line, Ordering, Word};

use crate::bed::{Bed, Turns, sample};
use crate::mechanisms::{Figures, Length, Mechanism};

/// All of them.
pub(crate) fn all<W: Bed>() -> Vec<Mechanism> {
    let mut all: Vec<Mechanism> = Vec::new();
    for apart in [8, 64, 128] {
        for add in [true, false] {
            all.push(Box::new(move |cpus, length| sharing::<W>(cpus, length, apart, add)));
        }
    }
    for times in [(0, 0), (0, 100), (100, 100), (50, 500)] {
        for backs_off in [false, true] {
            all.push(Box::new(move |cpus, length| spin_lock::<W>(cpus, length, times, backs_off)));
        }
    }
    for burst in [1, 8, 64] {
        all.push(Box::new(move |cpus, length| ring::<W>(cpus, length, burst)));
    }
    for gap in [0, 100, 500] {
        all.push(Box::new(move |cpus, length| seqlock::<W>(cpus, length, gap)));
    }
    all.push(Box::new(hand_over::<W>));
    all
}

/// Four lines of words, of which a prefetcher fetches two at a time.
#[repr(C, align(256))]
struct Lines<W: Bed>([W::U64; 32]);

fn lines<W: Bed>() -> Lines<W> {
    Lines([(); 32].map(|()| W::U64::new_in(0)))
}

/// Each thread counts in a word of its own, so many bytes from the other's.
fn sharing<W: Bed>(cpus: &[CpuId], Length(ops): Length, apart: usize, add: bool) -> Figures {
    let words = lines::<W>();
    let taken = sample::<W, _>(cpus, move |thread, _| {
        let word = &words.0[thread * apart / 8];
        for _ in 0..ops {
            // Relaxed, all: a count of one thread.
            if add {
                word.fetch_add(1, Ordering::Relaxed);
            } else {
                word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        }
    });
    let how = if add { "fetch_add" } else { "load and store" };
    let name = format!("counts {apart} bytes apart, {how}");
    (vec![(name, taken.wall as f64 / ops as f64)], taken.disturbed)
}

/// A test-and-set lock around one count and a computation. Between turns, a thread computes.
fn spin_lock<W: Bed>(
    cpus: &[CpuId],
    Length(ops): Length,
    (inside, outside): (u64, u64),
    backs_off: bool,
) -> Figures {
    let ops = ops / 4;
    let shared = (Line(W::U64::new_in(0)), lines::<W>());
    let [within, between] = [inside, outside].map(|ns| W::computing(Duration::from_nanos(ns)));
    let taken = sample::<W, _>(cpus, move |_, _| {
        let (lock, count) = (&shared.0, &shared.1.0[0]);
        let mut seed = 0;
        for _ in 0..ops {
            let mut pauses = 1;
            // Relaxed: the swap orders. Acquire: the partner is the Release of the unlock.
            while lock.load(Ordering::Relaxed) != 0 || lock.swap(1, Ordering::Acquire) != 0 {
                for _ in 0..pauses {
                    W::relax();
                }
                pauses = if backs_off { 64.min(2 * pauses) } else { 1 };
            }
            // Relaxed: the lock orders.
            let found = count.load(Ordering::Relaxed);
            count.store(found + 1, Ordering::Relaxed);
            seed = within(seed ^ found);
            // Release: the partner is the Acquire of the next turn.
            lock.store(0, Ordering::Release);
            seed = between(seed);
        }
        seed
    });
    let how = if backs_off { "backs off" } else { "plain" };
    let name = format!("spin lock, {inside} ns inside and {outside} outside, {how}");
    (vec![(name, taken.wall as f64 / ops as f64)], taken.disturbed)
}

/// Slots of a ring.
const SLOTS: u64 = 256;

/// A ring of one producer and one consumer.
struct Ring<W: Bed> {
    /// How many items were published, and how many were taken, on lines that no prefetcher fetches
    /// together.
    counts: [Lines<W>; 2],
    slots: Vec<W::U64>,
}

/// A producer publishes items in bursts of this size, and a consumer takes a burst at a time.
fn ring<W: Bed>(cpus: &[CpuId], Length(ops): Length, burst: u64) -> Figures {
    let bursts = ops.div_ceil(burst);
    let slots = (0..SLOTS).map(|_| W::U64::new_in(0)).collect();
    let ring = Ring::<W> { counts: [lines::<W>(), lines::<W>()], slots };
    let taken = sample::<W, _>(cpus, move |thread, timed| {
        let [published, taken] = ring.counts.each_ref().map(|count| &count.0[0]);
        let slot = |item: u64| &ring.slots[(item % SLOTS) as usize];
        let first = if timed { bursts } else { 0 };
        let mut sum = 0_u64;
        for at in (first..first + bursts).map(|number| number * burst) {
            if thread == 0 {
                // Acquire: the partner is the Release of `taken`, so the slots were read.
                while at + burst - taken.load(Ordering::Acquire) > SLOTS {
                    W::relax();
                }
                // Relaxed: the Release below publishes them.
                (at..at + burst).for_each(|item| slot(item).store(item, Ordering::Relaxed));
                // Release: the partner is the Acquire of the consumer.
                published.store(at + burst, Ordering::Release);
            } else {
                // Acquire: the partner is the Release of `published`.
                while published.load(Ordering::Acquire) < at + burst {
                    W::relax();
                }
                // Relaxed: the Acquire above orders.
                sum += (at..at + burst).map(|item| slot(item).load(Ordering::Relaxed)).sum::<u64>();
                // Release: the partner is the Acquire of the producer, which may write them again.
                taken.store(at + burst, Ordering::Release);
            }
        }
        sum
    });
    let per = taken.wall as f64 / (bursts * burst) as f64;
    (vec![(format!("ring, an item in bursts of {burst}"), per)], taken.disturbed)
}

/// A writer of four words under a sequence on the same line, which computes for `gap` ns between
/// writes, and a reader that reads without a pause while it writes.
fn seqlock<W: Bed>(cpus: &[CpuId], Length(ops): Length, gap: u64) -> Figures {
    let ops = ops / 4;
    let words = Arc::new(lines::<W>());
    let compute = W::computing(Duration::from_nanos(gap));
    let taken = sample::<W, (u64, u64)>(cpus, move |thread, _| {
        let (start, [sequence, data @ ..]) = (W::now(), words.0.first_chunk::<5>().unwrap());
        let mut sum = 0;
        for at in 0..ops {
            if thread == 0 {
                // Acquire: no word is written before the sequence is odd.
                sequence.fetch_add(1, Ordering::Acquire);
                // Relaxed: the two additions order.
                data.iter().for_each(|word| word.store(at, Ordering::Relaxed));
                // Release: the partner is the Acquire of the reader.
                sequence.fetch_add(1, Ordering::Release);
                sum = compute(sum);
                continue;
            }
            loop {
                // Acquire: the partner is the Release of the writer.
                let before = sequence.load(Ordering::Acquire);
                // Acquire: not after the second look at the sequence.
                let found = data.each_ref().map(|word| word.load(Ordering::Acquire));
                // Relaxed: after the words, by their Acquire.
                if before.is_multiple_of(2) && sequence.load(Ordering::Relaxed) == before {
                    sum ^= found.iter().fold(0, |all, word| all ^ word);
                    break;
                }
                W::relax();
            }
        }
        ((W::now() - start).as_nanos() as u64, sum)
    });
    let [write, read] = [0, 1].map(|thread| taken.each[thread].0 as f64 / ops as f64);
    let figures = vec![
        (format!("seqlock, {gap} ns between writes, a write"), write),
        (format!("seqlock, {gap} ns between writes, a read"), read),
    ];
    (figures, taken.disturbed)
}

/// Threads that sleep hand a turn to each other under a mutex with a condition variable.
fn hand_over<W: Bed>(cpus: &[CpuId], Length(ops): Length) -> Figures {
    let rounds = ops / 100;
    let turns = W::Turns::default();
    let taken = sample::<W, _>(cpus, move |thread, _| {
        (0..rounds).for_each(|_| turns.take(thread as u64));
    });
    let one_way = taken.wall as f64 / (2 * rounds) as f64;
    (vec![("hand-over by condition variable".to_owned(), one_way)], taken.disturbed)
}
