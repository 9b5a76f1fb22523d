//! Store buffers: what a plain store costs, and which accesses wait for it.

use std::sync::Arc;
use std::time::Duration;

use coreline_sim::atomic::AtomicU32;
use coreline_sim::{Class, Machine, Sim, Spec};
use coreline_world::{
    Clock, Fences, Integer, JoinHandle, Line, Ordering, Sleep, Threads, Word, Words, Work,
};

use crate::common::{U32, machine, on};

/// Nanoseconds of `f` on CPU 8, which is under another cache than CPU 0, after CPU 0 has taken a
/// line for each of `lines` words.
fn timed<T: Send + 'static>(
    lines: usize,
    f: impl FnOnce(&[Line<U32>]) -> T + Send + 'static,
) -> (T, u64) {
    let run = round().run(move || {
        let words: Arc<Vec<_>> = Arc::new((0..lines).map(|_| Line(U32::new_in(0))).collect());
        let theirs = Arc::clone(&words);
        on(0, move || take(&theirs)).join();
        on(8, move || {
            let start = Sim::now();
            let value = f(&words);
            // The second look at the clock is part of it, but not the first.
            (value, (Sim::now() - start).as_nanos() as u64 - CLOCK)
        })
        .join()
    });
    run.unwrap().value
}

/// Makes the CPU the owner of all the lines.
fn take(words: &[Line<U32>]) {
    for word in words {
        word.swap(1, Ordering::Relaxed);
    }
}

/// What a look at the clock takes.
const CLOCK: u64 = 20;

/// A machine of round costs.
fn round() -> Machine {
    let spec = Spec::preset("epyc-9654-2s").unwrap();
    let mut text = "name = \"round\"\nsummary = \"round costs\"\n[topology]\nsockets = 2\n\
                    nodes_per_socket = 1\ncaches_per_node = 2\ncores_per_cache = 8\n\
                    threads_per_core = 1\n"
        .to_owned();
    for (name, cost) in spec.sources() {
        let value = match name {
            "private_hit" | "store_issue" => "ns = 1.0".to_owned(),
            "clock" => format!("ns = {CLOCK}.0"),
            "locked" => "ns = 5.0".to_owned(),
            _ if Class::ALL.iter().any(|class| class.name() == name) => {
                "ping_pong_ns = 100.0".to_owned()
            }
            "store_queue" => "count = 4".to_owned(),
            _ if cost.is_count => format!("count = {}", cost.value),
            _ => format!("ns = {}", cost.value as f64 / 1000.0),
        };
        text += &format!("[cost.{name}]\n{value}\nsource = \"test\"\n");
    }
    Machine::new(Spec::parse("round", &text).unwrap())
}

/// A span of some misses and something exact: only misses have jitter, of a tenth.
fn assert_span(ns: u64, misses: u64, exact: u64) {
    let transfers = round().calibration().unwrap();
    let miss = transfers.iter().find(|it| it.class == Class::SameNode).unwrap().raw as f64 / 1e3;
    let spread = |jitter: f64| (misses as f64 * miss * jitter) as u64 + exact;
    let range = spread(0.9)..=spread(1.1);
    assert!(range.contains(&ns), "{ns} ns is not {misses} misses and {exact} ns");
}

#[test]
fn a_store_costs_its_issue_as_long_as_there_is_room() {
    for stores in 1..=4 {
        let (_, ns) = timed(4, move |words| {
            words[..stores].iter().for_each(|word| word.store(2, Ordering::Release));
        });
        assert_eq!(ns, stores as u64);
    }
}

#[test]
fn a_full_buffer_waits_for_its_head_and_drains_in_order() {
    // Four fill the buffer within 4 ns; each one more waits until another miss is complete.
    for more in 1..=3 {
        let (_, ns) = timed(7, move |words| {
            words[..4 + more].iter().for_each(|word| word.store(2, Ordering::Relaxed));
        });
        assert_span(ns, more as u64, 1);
    }
}

#[test]
fn an_update_and_a_fence_and_a_strong_store_wait_for_the_buffer() {
    let (_, ns) = timed(2, |words| {
        words[0].store(2, Ordering::Relaxed);
        words[1].fetch_add(1, Ordering::Relaxed)
    });
    assert_span(ns, 2, 5);
    let (_, ns) = timed(3, |words| {
        words[..3].iter().for_each(|word| word.store(2, Ordering::Relaxed));
        Sim::fence(Ordering::SeqCst);
    });
    assert_span(ns, 3, 5);
    let (_, ns) = timed(1, |words| words[0].store(2, Ordering::SeqCst));
    assert_span(ns, 1, 5);
    // Also an update of a line that is there.
    let (ns, _) = timed(2, |words| {
        words[1].fetch_add(1, Ordering::Relaxed);
        let start = Sim::now();
        words[0].store(2, Ordering::Relaxed);
        words[1].fetch_add(1, Ordering::Relaxed);
        (Sim::now() - start).as_nanos() as u64 - CLOCK
    });
    assert_span(ns, 1, 1 + 5);
    // So does that of the mirror of std.
    let mirrored = |order| {
        timed(1, move |_| {
            let word = Line(AtomicU32::new(0));
            word.fetch_add(1, Ordering::Relaxed);
            let start = Sim::now();
            word.store(2, order);
            (Sim::now() - start).as_nanos() as u64 - CLOCK
        })
        .0
    };
    assert_eq!([Ordering::Release, Ordering::SeqCst].map(mirrored), [1, 1 + 5]);
    // Weaker fences wait for nothing.
    let (_, ns) = timed(1, |words| {
        words[0].store(2, Ordering::Relaxed);
        Sim::fence(Ordering::AcqRel);
    });
    assert_eq!(ns, 1);
}

#[test]
fn a_load_of_the_own_store_is_served_from_the_buffer() {
    let (value, ns) = timed(1, |words| {
        words[0].store(2, Ordering::Relaxed);
        words[0].load(Ordering::Relaxed)
    });
    assert_eq!((value, ns), (2, 2));
}

#[test]
fn a_store_behind_another_is_done_when_that_is() {
    // The second line is the CPU's own, but order is kept: the fence waits for one miss.
    let (_, ns) = timed(2, |words| {
        words[1].fetch_add(1, Ordering::Relaxed);
        let start = Sim::now();
        words[0].store(2, Ordering::Relaxed);
        words[1].store(2, Ordering::Relaxed);
        let issued = (Sim::now() - start).as_nanos() as u64;
        assert_eq!(issued - CLOCK, 2);
        Sim::fence(Ordering::SeqCst);
    });
    // The second look at the clock passes while the line is on its way.
    assert_span(ns, 2, 5 + 5 + CLOCK);
}

/// CPU 8 stores to a word at a known time, CPU 0 waits for that as `wait` does. Returns how long
/// after the store began it goes on.
fn seen_after(request_percent: u32, wait: fn(&U32)) -> u64 {
    let run = round().request_percent(request_percent).run(move || {
        let word = Arc::new(Line(U32::new_in(0)));
        let theirs = Arc::clone(&word);
        let waiter = on(0, move || {
            wait(&theirs);
            Sim::now()
        });
        let writer = on(8, move || {
            Sim::sleep(Duration::from_micros(100));
            let start = Sim::now();
            word.store(1, Ordering::Release);
            start
        });
        let start = writer.join();
        (waiter.join() - start).as_nanos() as u64
    });
    run.unwrap().value
}

#[test]
fn no_cpu_sees_a_store_before_its_line_has_moved() {
    for request_percent in [0, 30, 100] {
        // The store's own transaction, then the reader's, and its look at the clock.
        let parked = seen_after(request_percent, |word| {
            word.wait_until(Ordering::Acquire, |value| value == 1);
        });
        if request_percent == Machine::REQUEST_PERCENT {
            assert_span(parked, 2, CLOCK);
        }
        // A polling thread may be about to look, at most a pause late.
        let polled = seen_after(request_percent, |word| {
            while word.load(Ordering::Acquire) == 0 {
                Sim::relax();
            }
        });
        let late = polled.abs_diff(parked);
        assert!(late <= parked / 5 + 11, "{polled} ns, and {parked} ns parked");
    }
}

#[test]
fn the_next_thread_of_a_cpu_finds_the_buffer_empty() {
    let mut spec = round().spec().clone();
    spec.scale("switch", 1).unwrap();
    let run = Machine::new(spec).run(|| {
        let words: Arc<Vec<_>> = Arc::new((0..4).map(|_| Line(U32::new_in(0))).collect());
        let theirs = Arc::clone(&words);
        on(0, move || take(&theirs)).join();
        let storing = on(8, move || {
            // Until the other thread is there.
            Sim::work(Duration::from_micros(200));
            let start = Sim::now();
            words.iter().for_each(|word| word.store(2, Ordering::Relaxed));
            Sim::sleep(Duration::from_micros(1));
            start
        });
        Sim::sleep(Duration::from_micros(50));
        let next = on(8, Sim::now);
        (next.join() - storing.join()).as_nanos() as u64
    });
    let switch = 15;
    assert_span(run.unwrap().value, 4, switch + CLOCK);
}

#[test]
fn a_thread_that_sleeps_or_ends_leaves_no_store_behind() {
    let run = round().run(|| {
        let words: Arc<Vec<_>> = Arc::new((0..4).map(|_| Line(U32::new_in(0))).collect());
        let (first, second) = (Arc::clone(&words), Arc::clone(&words));
        on(0, move || take(&first)).join();
        // Two threads of one CPU: the second finds the buffer of the first empty.
        let storing = on(8, move || {
            words.iter().for_each(|word| word.store(2, Ordering::Relaxed));
        });
        storing.join();
        on(8, move || {
            let start = Sim::now();
            let sum: u32 = second.iter().map(|word| word.load(Ordering::Relaxed)).sum();
            (sum, (Sim::now() - start).as_nanos() as u64 - CLOCK)
        })
        .join()
    });
    // Four hits: the lines are there.
    assert_eq!(run.unwrap().value, (8, 4));
}

/// All plain stores of eight CPUs to one line, while a ninth reads another word of it, end; and the
/// sum of what was stored is what it would be without buffers.
#[test]
fn stores_of_many_cpus_to_one_line_all_get_through() {
    #[repr(align(64))]
    struct Shared([U32; 9]);
    let run = round().step_limit(1_000_000).run(|| {
        let shared = Arc::new(Shared(core::array::from_fn(|_| U32::new_in(0))));
        let threads: Vec<_> = (0..9)
            .map(|cpu| {
                let shared = Arc::clone(&shared);
                on(cpu, move || {
                    for value in 1..=100 {
                        if cpu == 8 {
                            shared.0[8].load(Ordering::Relaxed);
                        } else {
                            shared.0[cpu as usize].store(value, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(JoinHandle::join);
        shared.0.iter().map(|word| word.load(Ordering::Relaxed)).sum::<u32>()
    });
    assert_eq!(run.unwrap().value, 800);
}

/// Both threads store to a word of their own and then read the other's: with the values of stores
/// there at once, never do both miss the other's.
#[test]
fn runs_are_sequentially_consistent() {
    for seed in 0..50 {
        let run = machine("epyc-9654-2s", seed).run(|| {
            let words = Arc::new([Line(U32::new_in(0)), Line(U32::new_in(0))]);
            let threads = [0, 1].map(|me: usize| {
                let words = Arc::clone(&words);
                on(me as u32 * 8, move || {
                    words[me].store(1, Ordering::Relaxed);
                    words[1 - me].load(Ordering::Relaxed)
                })
            });
            threads.map(JoinHandle::join)
        });
        assert_ne!(run.unwrap().value, [0, 0], "seed {seed}");
    }
}

#[test]
fn a_parked_thread_sees_the_store_before_the_wake() {
    let run = round().run(|| {
        let word = Arc::new(Line(U32::new_in(0)));
        let theirs = Arc::clone(&word);
        let sleeper = on(0, move || {
            while theirs.load(Ordering::Acquire) == 0 {
                Sim::park(&theirs, 0, None);
            }
        });
        on(8, move || {
            Sim::sleep(Duration::from_micros(100));
            word.store(1, Ordering::Release);
            Sim::wake(&**word, 1)
        })
        .join();
        sleeper.join();
    });
    run.unwrap();
}
