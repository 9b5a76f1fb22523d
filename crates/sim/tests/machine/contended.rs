//! Plain stores to words for which others wait in line: which accesses find the value before, what
//! an unlock costs, and that every run stays sequentially consistent.

use std::sync::Arc;
use std::time::Duration;

use coreline_sim::atomic::{AtomicBool, AtomicI8};
use coreline_sim::{Arbitration, Machine, Overlap, Sim, Spec};
use coreline_world::{
    Clock, Fences, Integer, JoinHandle, Line, Ordering, Parked, Sleep, Threads, Word, Words, Work,
};

use crate::common::{U32, machine, on};

type Ptr = <Sim as Words>::Ptr<u32>;

/// A lock that all waiters keep asking for is given back once, while all are in line for it.
/// Nanoseconds until that store is complete, and until the first waiter has the lock.
fn hand_off(waiters: u32, arbitration: Arbitration) -> (u64, u64) {
    let machine = machine("epyc-9654-2s", 1).arbitration(arbitration).step_limit(1_000_000);
    let run = machine.run(move || {
        let lock = Arc::new(Line(U32::new_in(1)));
        let waiting: Vec<_> = (1..=waiters)
            .map(|number| {
                let lock = Arc::clone(&lock);
                on(8 * number, move || {
                    while lock.swap(1, Ordering::Acquire) != 0 {}
                    let at = Sim::now();
                    lock.store(0, Ordering::Release);
                    at
                })
            })
            .collect();
        let holder = on(0, move || {
            Sim::sleep(Duration::from_micros(20));
            let start = Sim::now();
            lock.store(0, Ordering::Release);
            Sim::fence(Ordering::SeqCst);
            [start, Sim::now()]
        });
        let [start, through] = holder.join();
        let first = waiting.into_iter().map(JoinHandle::join).min();
        [through, first.unwrap()].map(|at| at.as_nanos().saturating_sub(start.as_nanos()))
    });
    let [through, first] = run.unwrap().value;
    (through, first)
}

#[test]
fn an_unlock_waits_behind_the_requests_in_line_and_the_lock_behind_the_unlock() {
    for arbitration in Arbitration::ALL {
        let mut last = (0, 0);
        for waiters in [1, 2, 4, 8] {
            let (through, first) = hand_off(waiters, arbitration);
            assert!(
                through > last.0 && first > last.1,
                "{waiters} waiters, {arbitration}: through after {through} ns, the lock taken \
                 after {first}; with half of them {last:?}"
            );
            assert!(first > through, "{waiters} waiters, {arbitration}: {first}, {through}");
            last = (through, first);
        }
        // Eight waiters: seven or all of them go first, and each takes the line for itself.
        let (one, _) = hand_off(1, arbitration);
        assert!(last.0 > 4 * one, "{last:?} ns with eight waiters, {one} with one");
    }
}

/// Eight CPUs update a word again and again while another stores to it, once. Returns what the
/// updates found, by CPU, and what is there at the end.
fn updates<W: Send + Sync + 'static, T: Send + 'static>(
    word: W,
    update: fn(&W) -> T,
    store: fn(&W),
    end: fn(&W) -> T,
) -> (Vec<Vec<T>>, T) {
    let run = machine("epyc-9654-2s", 1).step_limit(1_000_000).run(move || {
        let word = Arc::new(Line(word));
        let updaters: Vec<_> = (1..=8)
            .map(|number| {
                let word = Arc::clone(&word);
                on(8 * number, move || (0..400).map(|_| update(&word)).collect::<Vec<T>>())
            })
            .collect();
        let theirs = Arc::clone(&word);
        on(0, move || {
            Sim::sleep(Duration::from_micros(10));
            store(&theirs);
        })
        .join();
        let found = updaters.into_iter().map(JoinHandle::join).collect();
        (found, end(&word))
    });
    run.unwrap().value
}

#[test]
fn updates_in_line_are_done_to_the_value_before_and_overwritten() {
    /// More than the updates before it count.
    const STORED: u32 = 100_000;
    let (found, end) = updates(
        U32::new_in(0),
        |word| word.fetch_add(1, Ordering::Relaxed),
        |word| word.store(STORED, Ordering::Relaxed),
        |word| word.load(Ordering::Relaxed),
    );
    let mut all: Vec<_> = found.iter().flatten().copied().collect();
    all.sort_unstable();
    let before = all.iter().position(|&value| value >= STORED).unwrap();
    let after = all.len() - before;
    assert!(before > 8 && after > 8, "{before} before the store and {after} after");
    // None is lost or done twice on its side of the store, and those before leave nothing behind.
    let expected: Vec<_> = (0..before as u32).chain(STORED..STORED + after as u32).collect();
    assert_eq!(all, expected);
    assert_eq!(end, STORED + after as u32);
    assert!(found.iter().all(|cpu| cpu.is_sorted()), "{found:?}");
}

#[test]
fn every_type_of_word_keeps_its_value() {
    // Whatever is swapped in was there before: the store's value comes in once, and is seen once.
    let (found, end) = updates(
        Ptr::new_in(&raw const OLD as *mut u32),
        |word| word.swap(&raw const OLD as *mut u32, Ordering::Relaxed).addr(),
        |word| word.store(&raw const NEW as *mut u32, Ordering::Relaxed),
        |word| word.load(Ordering::Relaxed).addr(),
    );
    let (old, new) = ((&raw const OLD).addr(), (&raw const NEW).addr());
    assert!(found.iter().flatten().all(|&at| at == old || at == new));
    assert_eq!(found.iter().flatten().filter(|&&at| at == new).count(), 1);
    assert_eq!(end, old);

    let (found, end) = updates(
        AtomicI8::new(-100),
        |word| word.fetch_sub(0, Ordering::Relaxed),
        |word| word.store(-1, Ordering::Relaxed),
        |word| word.load(Ordering::Relaxed),
    );
    assert!(found.iter().flatten().all(|&value| [-100, -1].contains(&value)));
    assert_eq!(end, -1);

    let (found, end) = updates(
        AtomicBool::new(true),
        |word| word.swap(true, Ordering::Relaxed),
        |word| word.store(false, Ordering::Relaxed),
        |word| word.load(Ordering::Relaxed),
    );
    assert_eq!(found.iter().flatten().filter(|&&value| !value).count(), 1);
    assert!(end);
}

/// A thread in line for a futex word when it is stored to would fall asleep on the value before,
/// after the wake-up: the kernel looks at the word and falls asleep in one step.
#[test]
fn no_wake_up_is_lost_on_a_word_whose_store_is_on_its_way() {
    for seed in 0..20 {
        let arbitration = Arbitration::ALL[seed as usize % 2];
        let machine = machine("epyc-9654-2s", seed).arbitration(arbitration);
        let run = machine.step_limit(1_000_000).run(move || {
            let word = Arc::new(Line(U32::new_in(1)));
            let updaters: Vec<_> = (1..=8)
                .map(|number| {
                    let word = Arc::clone(&word);
                    on(8 * number, move || {
                        (0..200).for_each(|_| _ = word.fetch_add(0, Ordering::Relaxed));
                    })
                })
                .collect();
            let theirs = Arc::clone(&word);
            let sleeper = on(80, move || {
                Sim::sleep(Duration::from_micros(20));
                Sim::work(Duration::from_nanos(500));
                Sim::park(&theirs, 1, None)
            });
            let waker = on(0, move || {
                Sim::sleep(Duration::from_micros(20));
                Sim::work(Duration::from_nanos(900));
                word.store(0, Ordering::Release);
                Sim::wake(&**word, 1)
            });
            let woken = waker.join();
            updaters.into_iter().for_each(JoinHandle::join);
            assert_eq!(sleeper.join() == Parked::Woken, woken == 1);
        });
        run.unwrap_or_else(|failure| panic!("seed {seed}, {arbitration}: {failure}"));
    }
}

/// Slices end, and ticks come due, while requests wait in line: an access is not interrupted.
#[test]
fn a_thread_in_line_keeps_its_cpu_until_it_was_served() {
    let mut spec = Spec::preset("epyc-9654-2s").unwrap();
    for cost in ["slice", "tick", "switch"] {
        spec.scale(cost, 1).unwrap();
    }
    let machine = Machine::new(spec).step_limit(2_000_000);
    let run = machine.run(|| {
        let word = Arc::new(Line(U32::new_in(0)));
        let threads: Vec<_> = (0..24)
            .map(|number| {
                let word = Arc::clone(&word);
                on(8 * (number % 12), move || {
                    (0..4000).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed));
                })
            })
            .collect();
        threads.into_iter().for_each(JoinHandle::join);
        word.load(Ordering::Relaxed)
    });
    let run = run.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(run.value, 24 * 4000);
    assert!(run.report.preemptions > 100, "{}", run.report.preemptions);
}

static OLD: u32 = 0;
static NEW: u32 = 1;

/// What a thread does to one of two words.
#[derive(Debug, Clone, Copy)]
enum Step {
    Load,
    Store(u32),
    Swap(u32),
    Add(u32),
}

/// Whether some order of all threads' steps, each thread's in its own order, gives what they found
/// (0 for a store) and what is there at the end.
fn has_order(
    programs: &[Vec<(usize, Step)>],
    found: &[Vec<u32>],
    done: &mut Vec<usize>,
    words: [u32; 2],
    end: [u32; 2],
) -> bool {
    if (0..programs.len()).all(|thread| done[thread] == programs[thread].len()) {
        return words == end;
    }
    (0..programs.len()).any(|thread| {
        let Some(&(word, step)) = programs[thread].get(done[thread]) else {
            return false;
        };
        let (was, mut words) = (words[word], words);
        let (finds, leaves) = match step {
            Step::Load => (was, was),
            Step::Store(value) => (0, value),
            Step::Swap(value) => (was, value),
            Step::Add(value) => (was, was + value),
        };
        words[word] = leaves;
        if finds != found[thread][done[thread]] {
            return false;
        }
        done[thread] += 1;
        let has = has_order(programs, found, done, words, end);
        done[thread] -= 1;
        has
    })
}

/// Two words of one line or of two.
#[repr(C, align(64))]
struct Pair {
    first: U32,
    near: U32,
    far: Line<U32>,
}

/// Random programs of loads, stores and updates to words that all fight for.
#[test]
fn whatever_is_found_has_an_order() {
    whatever_is_found(Overlap::Serial);
}

#[test]
fn whatever_is_found_has_an_order_where_accesses_overlap() {
    whatever_is_found(Overlap::Independent);
}

fn whatever_is_found(overlap: Overlap) {
    for seed in 0..600_u64 {
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |bound: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % bound
        };
        let near = below(2) == 0;
        let programs: Vec<Vec<_>> = (0..4_u32)
            .map(|thread| {
                let step = |number: u32| {
                    // No value is stored twice, and sums tell what was added.
                    let value = 1 << (thread * 5 + number);
                    let step = match below(5) {
                        0 => Step::Load,
                        1 => Step::Swap(value),
                        2 => Step::Add(value),
                        _ => Step::Store(value),
                    };
                    (below(2) as usize, step)
                };
                (0..5).map(step).collect()
            })
            .collect();
        let arbitration = Arbitration::ALL[seed as usize % 2];
        let (theirs, waits) = (programs.clone(), [(); 4].map(|()| below(100)));
        let machine = machine("epyc-9654-2s", seed).arbitration(arbitration).overlap(overlap);
        let run = machine.step_limit(1_000_000).run(move || {
            let words = Arc::new(Pair {
                first: U32::new_in(0),
                near: U32::new_in(0),
                far: Line(U32::new_in(0)),
            });
            let missing = Arc::new(Line(U32::new_in(4)));
            let threads: Vec<_> = (theirs.into_iter().zip(waits).zip([0, 1, 8, 96]))
                .map(|((program, wait), cpu)| {
                    let (words, missing) = (Arc::clone(&words), Arc::clone(&missing));
                    let body = move || {
                        missing.fetch_sub(1, Ordering::Relaxed);
                        missing.wait_until(Ordering::Relaxed, |missing| missing == 0);
                        Sim::work(Duration::from_nanos(wait));
                        let step = |(word, step)| {
                            let word = match word {
                                0 => &words.first,
                                _ if near => &words.near,
                                _ => &words.far,
                            };
                            match step {
                                Step::Load => word.load(Ordering::Acquire),
                                Step::Store(value) => {
                                    word.store(value, Ordering::Release);
                                    0
                                }
                                Step::Swap(value) => word.swap(value, Ordering::AcqRel),
                                Step::Add(value) => word.fetch_add(value, Ordering::AcqRel),
                            }
                        };
                        program.into_iter().map(step).collect::<Vec<u32>>()
                    };
                    on(cpu, body)
                })
                .collect();
            let found: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
            let second = if near { &words.near } else { &words.far };
            (found, [&words.first, second].map(|word| word.load(Ordering::Relaxed)))
        });
        let (found, end) = run.unwrap().value;
        assert!(
            has_order(&programs, &found, &mut vec![0; 4], [0, 0], end),
            "seed {seed}: {programs:?}\nfound {found:?}, at the end {end:?}"
        );
    }
}
