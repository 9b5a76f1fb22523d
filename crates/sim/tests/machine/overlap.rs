//! Overlap of the independent accesses of one thread: what it gains, and what orders.

use std::sync::Arc;
use std::time::Duration;

use coreline_sim::{Machine, Overlap, Sim, Spec};
use coreline_world::{Clock, Fences, Integer, JoinHandle, Line, Ordering, Word, Words, Work};

use crate::common::{U64, machine, on};

type Link = <Sim as Words>::Ptr<Node>;

/// A pointer to another node and a number in a line, and room, so that no pointer leads near a
/// third node.
#[repr(C, align(1024))]
struct Node {
    next: Link,
    number: U64,
}

const NODES: usize = 64;

/// The nodes of a list, each of which leads to the next, in an order that no prefetcher foresees.
/// They are another core's, which has written them.
struct List(Vec<Node>);

impl List {
    fn new() -> List {
        let next = || Link::new_in(core::ptr::null_mut());
        let node = |_| Node { next: next(), number: U64::new_in(0) };
        List((0..NODES).map(node).collect())
    }

    /// Writes the links.
    fn link(&self) {
        for (at, node) in self.0.iter().enumerate() {
            // 29 has no divisor in common with the number of nodes: a ring of all.
            let next = &self.0[(at + 29) % NODES];
            node.next.store(core::ptr::from_ref(next).cast_mut(), Ordering::Relaxed);
        }
    }
}

/// What a reader does with the nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Visit {
    /// Follows the links.
    Chase,
    /// Loads each link, without following it.
    Scan(Ordering),
    /// The same, with a full fence after each.
    Fenced,
    /// The same, with a computation of a nanosecond after each.
    Computing,
    /// Adds to each number.
    Add(Ordering),
    /// Tries in vain to exchange each number, with this order of a failure.
    Fail(Ordering),
    /// Stores each number, and waits for the last one's end.
    Store,
    /// Loads the link and the number of each.
    Both,
}

/// Nanoseconds that a visit takes, and the sum of the addresses that it has seen.
fn visit(machine: Machine, visit: Visit) -> (u64, usize) {
    let writer = machine.spec().topology().cpu_count() as u32 - 1;
    let run = machine.run(move || {
        let list = Arc::new(List::new());
        let theirs = Arc::clone(&list);
        on(writer, move || theirs.link()).join();
        on(0, move || {
            let first = &list.0[0];
            // Each before the one that leads to it, so none is where a loaded link leads.
            let nodes = (0..NODES).rev().map(|at| &list.0[at * 29 % NODES]);
            let start = Sim::now();
            let mut seen = 0;
            match visit {
                Visit::Chase => {
                    let mut node = core::ptr::from_ref(first);
                    for _ in 0..NODES {
                        // SAFETY: the ring's nodes live as long as the list.
                        node = unsafe { (*node).next.load(Ordering::Relaxed) };
                        seen += node.addr() % (1 << 20);
                    }
                }
                Visit::Scan(order) => {
                    nodes.for_each(|node| seen += node.next.load(order).addr() % (1 << 20));
                }
                Visit::Fenced => nodes.for_each(|node| {
                    seen += node.next.load(Ordering::Relaxed).addr() % (1 << 20);
                    Sim::fence(Ordering::SeqCst);
                }),
                Visit::Computing => nodes.for_each(|node| {
                    seen += node.next.load(Ordering::Relaxed).addr() % (1 << 20);
                    Sim::work(Duration::from_nanos(1));
                }),
                Visit::Add(order) => nodes.for_each(|node| _ = node.number.fetch_add(1, order)),
                Visit::Fail(order) => nodes.for_each(|node| {
                    _ = node.number.compare_exchange(1, 2, Ordering::Acquire, order);
                }),
                Visit::Store => nodes.for_each(|node| node.number.store(1, Ordering::Relaxed)),
                Visit::Both => nodes.for_each(|node| {
                    seen += node.next.load(Ordering::Relaxed).addr() % (1 << 20);
                    seen += node.number.load(Ordering::Relaxed) as usize;
                }),
            }
            if visit == Visit::Store {
                Sim::fence(Ordering::SeqCst);
            }
            ((Sim::now() - start).as_nanos() as u64, seen)
        })
        .join()
    });
    run.unwrap().value
}

/// How many times faster a visit is where accesses overlap.
fn gain(preset: &str, what: Visit) -> f64 {
    let [serial, overlapped] =
        Overlap::ALL.map(|overlap| visit(machine(preset, 3).overlap(overlap), what));
    assert_eq!(serial.1, overlapped.1, "{what:?} sees other values");
    serial.0 as f64 / overlapped.0 as f64
}

#[test]
fn a_scan_has_as_many_misses_under_way_as_fill_buffers_and_a_chase_has_one() {
    for (preset, buffers) in [("epyc-9654-2s", 24.0), ("sapphire-rapids-2s", 16.0)] {
        let scan = gain(preset, Visit::Scan(Ordering::Relaxed));
        assert!((0.5 * buffers..=buffers).contains(&scan), "{preset}: {scan}");
        let chase = gain(preset, Visit::Chase);
        assert!((0.97..=1.03).contains(&chase), "{preset}: {chase}");
    }
    let text = include_str!("../../machines/host-2c-xeon.toml");
    let one = text.replace("count = 16", "count = 1").replace("-xeon\"", "-mine\"");
    let machine = |overlap| Machine::new(Spec::parse("one", &one).unwrap()).overlap(overlap);
    let [serial, overlapped] =
        Overlap::ALL.map(|overlap| visit(machine(overlap), Visit::Scan(Ordering::Relaxed)).0);
    assert!(overlapped * 100 >= serial * 97, "one buffer overlaps: {overlapped}, {serial}");
}

#[test]
fn what_orders_waits_for_all_accesses() {
    let preset = "epyc-9654-2s";
    for what in [Visit::Fenced, Visit::Computing] {
        let gain = gain(preset, what);
        assert!((0.97..=1.05).contains(&gain), "{what:?}: {gain}");
    }
}

#[test]
fn an_acquire_waits_on_a_weakly_ordered_machine_alone() {
    for (preset, order, overlaps) in [
        ("epyc-9654-2s", Ordering::Acquire, true),
        ("kunpeng920-96c-4n", Ordering::Acquire, false),
        ("kunpeng920-96c-4n", Ordering::Relaxed, true),
    ] {
        for what in [Visit::Scan(order), Visit::Add(order), Visit::Fail(order)] {
            let gain = gain(preset, what);
            let expected = if overlaps { 4.0..=24.0 } else { 0.97..=1.05 };
            assert!(expected.contains(&gain), "{preset}, {what:?}: {gain}");
        }
    }
}

/// Accesses to a line that is under way share its buffer and its arrival.
#[test]
fn a_second_word_of_a_line_comes_with_it() {
    let of = |what| visit(machine("epyc-9654-2s", 3).overlap(Overlap::Independent), what).0;
    let [one, both] = [Visit::Scan(Ordering::Relaxed), Visit::Both].map(of);
    assert!(both <= one + one / 8, "{one} ns for one word of each line, {both} for two");
}

/// A thread does not read on without an end while a line is under way.
#[test]
fn a_bounded_number_of_loads_waits_for_a_line() {
    let reads = 4_000_u64;
    let run = machine("epyc-9654-2s", 1).overlap(Overlap::Independent).run(move || {
        let list = Arc::new(List::new());
        let theirs = Arc::clone(&list);
        on(383, move || theirs.link()).join();
        let start = Sim::now();
        (0..reads).for_each(|_| _ = list.0[0].number.load(Ordering::Relaxed));
        (Sim::now() - start).as_nanos() as u64
    });
    // The miss takes 150 ns at least, and hides 64 loads of 0.09 ns.
    let hits = reads * 85 / 1000;
    assert!(run.unwrap().value >= 140 + hits - 10, "{} ns", hits);
}

/// Stores leave their buffer one after the other in both: nothing to gain, and nothing to lose.
#[test]
fn a_burst_of_stores_takes_as_long() {
    let gain = gain("epyc-9654-2s", Visit::Store);
    assert!((0.97..=1.03).contains(&gain), "{gain}");
}

/// Hits follow each other sooner than one takes, unless the address is loaded.
#[test]
fn independent_hits_take_their_throughput() {
    let taken = |overlap, follows: bool| {
        let run = machine("host-2c-xeon", 1).overlap(overlap).run(move || {
            let list = List::new();
            list.link();
            // All stores are complete.
            Sim::fence(Ordering::SeqCst);
            let start = Sim::now();
            for _ in 0..20 {
                let mut node = &list.0[0];
                for at in 0..NODES {
                    let next = node.next.load(Ordering::Relaxed);
                    // SAFETY: the ring's nodes live as long as the list.
                    node = if follows { unsafe { &*next } } else { &list.0[at] };
                }
            }
            (Sim::now() - start).as_nanos() as u64
        });
        run.unwrap().value
    };
    let [serial, overlapped] = Overlap::ALL.map(|overlap| taken(overlap, false));
    // 1.5 ns of a hit, and 0.1 from one to the next.
    assert!(overlapped * 10 < serial, "{serial}, {overlapped}");
    let [serial, overlapped] = Overlap::ALL.map(|overlap| taken(overlap, true));
    assert!(overlapped * 100 >= serial * 98, "{serial}, {overlapped}");
}

/// No other CPU sees what a thread did behind an access that is under way: a message that is sent
/// behind a miss arrives after that is complete.
#[test]
fn a_store_behind_a_miss_is_seen_after_it() {
    let sent = |misses: usize| {
        let run = machine("epyc-9654-2s", 2).overlap(Overlap::Independent).run(move || {
            let list = Arc::new(List::new());
            let flag = Arc::new(Line(U64::new_in(0)));
            let theirs = Arc::clone(&list);
            on(383, move || theirs.link()).join();
            let seen = Arc::clone(&flag);
            let reader = on(8, move || {
                seen.wait_until(Ordering::Acquire, |flag| flag == 2);
                Sim::now()
            });
            on(0, move || {
                // The flag's line is this core's but for the reader's copy.
                flag.store(1, Ordering::Relaxed);
                Sim::work(Duration::from_micros(10));
                let start = Sim::now();
                let mut node = core::ptr::from_ref(&list.0[0]);
                for _ in 0..misses {
                    // SAFETY: the ring's nodes live as long as the list.
                    node = unsafe { (*node).next.load(Ordering::Relaxed) };
                }
                flag.store(2, Ordering::Release);
                (reader.join() - start).as_nanos() as u64
            })
            .join()
        });
        run.unwrap().value
    };
    let [none, four] = [0, 4].map(sent);
    // Four ways between sockets of 200 ns at least.
    assert!(four >= none + 600, "{none} ns without a miss before the store, {four} behind four");
}

/// The same line gives the same run.
#[test]
fn a_run_repeats() {
    let run = |overlap| {
        let machine = machine("epyc-9654-2s", 9).overlap(overlap);
        let line = machine.replay_line().to_string();
        assert_eq!(line.contains(" overlap=independent "), overlap == Overlap::Independent);
        let run = Machine::replay(&line.parse().unwrap()).unwrap().run(|| {
            let sums = Arc::new([(); 8].map(|()| Line(U64::new_in(0))));
            let threads: Vec<_> = (0..24)
                .map(|n: u32| {
                    let sums = Arc::clone(&sums);
                    on(n * 4, move || {
                        for round in 0..50 {
                            let at = (round + n as usize) % 8;
                            sums[at].fetch_add(1, Ordering::AcqRel);
                            let next = (at + 3) % 8;
                            sums[next].load(Ordering::Acquire);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(JoinHandle::join);
            sums.iter().map(|sum| sum.load(Ordering::Relaxed)).sum::<u64>()
        });
        let run = run.unwrap();
        assert_eq!(run.value, 24 * 50);
        run.report
    };
    assert_eq!(run(Overlap::Independent), run(Overlap::Independent));
    assert!(run(Overlap::Independent).time_ns < run(Overlap::Serial).time_ns);
}
