//! What explains a cost: full statistics; and which request a contended line serves next.

use std::sync::Arc;
use std::time::Duration;

use coreline_sim::atomic::AtomicUsize;
use coreline_sim::measure::parallel;
use coreline_sim::sync::{self, Condvar, Mutex, RwLock};
use coreline_sim::{Arbitration, Details, Machine, Report, Sim, Statistics, hint, name};
use coreline_world::{Cell, Clock, Integer, JoinHandle, Line, Ordering, Threads, Word};

use crate::common::{U64, machine, on};

/// Two counters that share a line, and one that has its own.
#[repr(C, align(64))]
struct Counters {
    requests: U64,
    errors: U64,
    alone: Line<U64>,
}

fn count(seed: u64, statistics: Statistics) -> Report {
    let run = machine("epyc-9654-2s", seed).statistics(statistics).run(|| {
        let counters = Arc::new(Counters {
            requests: U64::new_in(0),
            errors: U64::new_in(0),
            alone: Line(U64::new_in(0)),
        });
        name(&counters.requests, "requests");
        name(&counters.errors, "errors");
        name(&counters.alone, "alone");
        let (left, right) = (Arc::clone(&counters), Arc::clone(&counters));
        let start = Sim::now() + Duration::from_micros(100);
        let together = move || Sim::sleep(start - Sim::now());
        let threads = [
            on(0, move || {
                together();
                (0..100).for_each(|_| _ = left.requests.fetch_add(1, Ordering::Relaxed));
                (0..100).for_each(|_| _ = left.alone.fetch_add(1, Ordering::Relaxed));
            }),
            on(8, move || {
                together();
                (0..100).for_each(|_| _ = right.errors.fetch_add(1, Ordering::Relaxed));
            }),
        ];
        threads.into_iter().for_each(JoinHandle::join);
    });
    run.unwrap().report
}

fn details(report: &Report) -> &Details {
    report.details.as_ref().expect("full statistics were asked for")
}

#[test]
fn full_statistics_find_the_line_that_two_counters_share() {
    let report = count(3, Statistics::Full);
    let details = details(&report);
    let named = |names: &[&str]| {
        details.lines.iter().find(|line| line.names == names).expect("a line of these names")
    };
    let (shared, alone) = (named(&["requests", "errors"]), named(&["alone"]));
    assert_eq!(&details.lines[0], shared, "it is the hottest");
    assert_eq!(shared.cost.transfers.total(), 200);
    // Some 15 in a row find it where they are.
    assert!(shared.cost.transfers.same_node > 8, "{shared:?}");
    assert!(shared.cost.time_ns > 5 * alone.cost.time_ns, "{shared:?}");
    assert_eq!((alone.cost.transfers.total(), alone.cost.transfers.misses()), (100, 1));
    let words: Vec<_> =
        shared.words.iter().map(|word| (word.offset, word.names.concat())).collect();
    assert_eq!(words, [(0, "requests".to_owned()), (8, "errors".to_owned())]);
    let [requests, errors] = &shared.words[..] else { unreachable!() };
    assert!(errors.site.line > requests.site.line);
    assert!(requests.site.file.ends_with("tests/results/statistics.rs"), "{}", requests.site);
    assert!(!requests.site.file.starts_with('/'));
    let site = details.sites.iter().find(|site| site.site == errors.site).unwrap();
    assert_eq!(site.cost, errors.cost);

    let groups: Vec<_> =
        shared.falsely_shared.iter().map(|it| (it.words.concat(), it.cores)).collect();
    assert_eq!(groups, [("requests".to_owned(), 1), ("errors".to_owned(), 1)]);
    assert_eq!(alone.falsely_shared, []);

    let text = report.to_string();
    for part in [
        "false sharing on 1 line, ",
        "  requests (core 0 writes); errors (core 8 writes)\n",
        "requests, errors",
        "+8 errors",
        &errors.site.to_string(),
        "% miss",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_line_of_a_stack_says_so() {
    let run = machine("epyc-9654-2s", 1).statistics(Statistics::Full).run(|| {
        coreline_sim::thread::spawn(|| {
            let on_stack = U64::new_in(0);
            let on_heap = Box::new(U64::new_in(0));
            name(&on_stack, "on the stack");
            name(&*on_heap, "on the heap");
            parallel(2, 3, |_| {
                on_stack.fetch_add(1, Ordering::Relaxed);
                on_heap.fetch_add(1, Ordering::Relaxed);
            })
        })
        .join()
        .unwrap()
    });
    let report = run.unwrap().report;
    let lines = &details(&report).lines;
    let stack = |name: &str| lines.iter().find(|line| line.names == [name]).unwrap().stack;
    assert_eq!((stack("on the stack"), stack("on the heap")), (Some(1), None));
    assert!(report.to_string().contains(" on the stack (stack of thread 1)\n"), "{report}");
}

/// Four threads take two mutexes, two of them each: what the report says of false sharing.
fn two_locks(apart: bool, named: bool) -> String {
    let run = machine("epyc-9654-2s", 1).statistics(Statistics::Full).run(move || {
        // 16 bytes each: four to a line.
        let locks: Line<[Mutex<u64>; 8]> = Line::default();
        let lock = |number: usize| &locks[if apart { 4 * number } else { number }];
        if named {
            name(lock(0), "left");
            name(lock(1), "right");
        }
        parallel(4, 200, |number| *lock(number / 2).lock().unwrap() += 1);
    });
    let text = run.unwrap().report.to_string();
    let verdict = text.lines().skip_while(|line| !line.starts_with("false sharing"));
    verdict.take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

#[test]
fn two_locks_of_different_threads_on_one_line_are_told() {
    let text = two_locks(false, true);
    for part in [
        "\ncores use different words of one line; give each a line of its own\n",
        "  two locks of different threads on one line\n    left (2 cores write)\n",
        "\n    right (2 cores write)\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    // One without a name is told by where it was first taken.
    let text = two_locks(false, false);
    assert!(text.contains("  two locks of different threads on one line\n"), "{text}");
    for offset in [0, 16] {
        let lock =
            format!("    +{offset} lock first used at crates/sim/tests/results/statistics.rs:");
        assert!(text.contains(&lock), "{lock:?} is not in\n{text}");
    }
    assert_eq!(two_locks(true, false), "");
}

/// A ring of one producer and one consumer, each of which caches the other's index.
#[derive(Default)]
#[repr(C)]
struct Ring<P> {
    head: P,
    tail: P,
}

#[derive(Default)]
#[repr(C, align(64))]
struct Padded(AtomicUsize);

impl AsRef<AtomicUsize> for Padded {
    fn as_ref(&self) -> &AtomicUsize {
        &self.0
    }
}

#[derive(Default)]
struct Bare(AtomicUsize);

impl AsRef<AtomicUsize> for Bare {
    fn as_ref(&self) -> &AtomicUsize {
        &self.0
    }
}

fn ring<P: AsRef<AtomicUsize> + Default + Sync + 'static>() -> Report {
    const SLOTS: usize = 16;
    let run = machine("epyc-9654-2s", 1).statistics(Statistics::Full).run(|| {
        let ring = Box::new(Line(Ring::<P>::default()));
        let (head, tail) = (ring.head.as_ref(), ring.tail.as_ref());
        name(head, "head");
        name(tail, "tail");
        let cached = [const { std::sync::atomic::AtomicUsize::new(0) }; 2];
        parallel(2, 500, |thread| {
            // One adds to the tail while there is room, the other to the head while there is any.
            let (own, theirs, full) = [(tail, head, SLOTS), (head, tail, 0)][thread];
            let position = own.load(Ordering::Relaxed);
            let cached = &cached[thread];
            while position.abs_diff(cached.load(Ordering::Relaxed)) == full {
                cached.store(theirs.load(Ordering::Acquire), Ordering::Relaxed);
                hint::spin_loop();
            }
            own.store(position + 1, Ordering::Release);
        })
    });
    run.unwrap().report
}

#[test]
fn the_head_and_the_tail_of_a_ring_on_one_line_are_told() {
    let text = ring::<Bare>().to_string();
    let head = "head (core 1 writes, core 0 reads); tail (core 0 writes, core 1 reads)\n";
    assert!(text.contains(head), "{text}");
    let text = ring::<Padded>().to_string();
    assert!(!text.contains("false sharing"), "{text}");
}

/// As crossbeam-epoch's participants were: each owner writes its epoch, and all follow the links.
#[test]
fn an_epoch_beside_a_link_that_all_follow_is_told() {
    #[derive(Default)]
    #[repr(C, align(64))]
    struct Local {
        next: AtomicUsize,
        epoch: AtomicUsize,
    }
    let run = machine("epyc-9654-2s", 1).statistics(Statistics::Full).run(|| {
        let list: Box<[Local; 4]> = Box::default();
        name(&list[0].next, "next");
        name(&list[0].epoch, "epoch");
        parallel(4, 200, |thread| {
            list[thread].epoch.fetch_add(1, Ordering::SeqCst);
            list.iter().for_each(|local| {
                local.next.load(Ordering::Acquire);
                local.epoch.load(Ordering::Relaxed);
            });
        });
    });
    let text = run.unwrap().report.to_string();
    assert!(text.contains("false sharing on 4 lines"), "{text}");
    assert!(text.contains("  next (3 cores read); epoch (core 0 writes"), "{text}");
}

#[test]
fn lines_of_the_harness_are_not_the_hottest() {
    let run = machine("epyc-9654-2s", 1).statistics(Statistics::Full).run(|| {
        let word = Box::new(AtomicUsize::new(0));
        parallel(96, 1, |_| _ = word.fetch_add(1, Ordering::Relaxed));
    });
    let report = run.unwrap().report;
    let text = report.to_string();
    for harness in ["thread/scope.rs", "thread/mod.rs", "measure/roles.rs"] {
        assert!(!text.contains(harness), "{text}");
    }
    for part in ["lines of the harness (threads, scopes, measurements): ", "places of the harness"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let Details { lines, sites, .. } = details(&report);
    assert!(lines.iter().any(|line| line.of_harness && line.cost.transfers.total() > 90));
    assert!(sites.iter().any(|site| !site.of_harness) && sites.iter().any(|site| site.of_harness));
}

#[test]
fn statistics_change_no_result_and_agree_with_the_totals() {
    let (plain, full) = (count(5, Statistics::Totals), count(5, Statistics::Full));
    assert_eq!(plain.details, None);
    assert_eq!(full, count(5, Statistics::Full), "the same in every run");
    assert_eq!(plain, Report { details: None, ..full.clone() });
    let of_lines = |cost: fn(&coreline_sim::AccessCost) -> u64| -> u64 {
        details(&full).lines.iter().map(|line| cost(&line.cost)).sum()
    };
    assert_eq!(of_lines(|cost| cost.transfers.total()), full.transfers.total());
    assert_eq!(of_lines(|cost| cost.transfers.same_node), full.transfers.same_node);
}

#[test]
fn the_time_of_a_cpu_is_what_it_was_spent_on() {
    let run = machine("epyc-9654-2s", 7).statistics(Statistics::Full).run(|| {
        let flag = Arc::new(Line(U64::new_in(0)));
        let theirs = Arc::clone(&flag);
        let spinner = on(1, move || {
            theirs.wait_until(Ordering::Acquire, |value| value == 1);
        });
        on(2, || (0..100).for_each(|_| _ = Sim::now())).join();
        on(3, || {
            let block = Box::new(Cell::<[u8; 4096], Sim>::new_in([0; 4096]));
            block.with_mut(|_| ());
        })
        .join();
        flag.store(1, Ordering::Release);
        spinner.join();
    });
    let report = run.unwrap().report;
    let cpus = &details(&report).cpus;
    for time in cpus {
        let sum: u64 = time.by_name().iter().map(|(_, ns)| ns).sum();
        assert!(sum.abs_diff(report.time_ns) <= 2000, "{time:?} of {} ns", report.time_ns);
    }
    assert_eq!(cpus.len(), 384);
    assert!(cpus[1].spin_ns > 10_000 && cpus[1].spin_ns > report.time_ns / 2, "{:?}", cpus[1]);
    assert_eq!(cpus[2].compute_ns, 1900);
    // 64 lines from memory: the first alone, the others four at a time.
    assert!((1500..2500).contains(&cpus[3].miss_ns), "{:?}", cpus[3]);
    assert_eq!(cpus[300].idle_ns, report.time_ns);
}

/// How often each of three CPUs got at a word that all of them add to, when the first of them was
/// through: two under one cache, one in the other socket.
fn shares(arbitration: Arbitration) -> Vec<u64> {
    const CPUS: [u32; 3] = [0, 1, 96];
    let machine = Machine::preset("epyc-9654-2s").unwrap().arbitration(arbitration);
    let run = machine.run(|| {
        let (word, over) = (Arc::new(Line(U64::new_in(0))), Arc::new(Line(U64::new_in(0))));
        let threads = CPUS.map(|cpu| {
            let (word, over) = (Arc::clone(&word), Arc::clone(&over));
            on(cpu, move || {
                over.fetch_add(1, Ordering::Relaxed);
                over.wait_until(Ordering::Relaxed, |arrived| arrived >= 3);
                let mut count = 0;
                while word.fetch_add(1, Ordering::Relaxed) < 300 {
                    count += 1;
                }
                count
            })
        });
        threads.map(JoinHandle::join).to_vec()
    });
    run.unwrap().value
}

#[test]
fn the_nearest_first_starves_a_distant_core() {
    let (fifo, nearest) = (shares(Arbitration::Fifo), shares(Arbitration::Nearest));
    // As many turns for each; the line stays for longer where it came from farther away.
    assert!(fifo.iter().all(|&count| count > 40), "{fifo:?}");
    assert!(nearest[2] * 10 < nearest[0], "{nearest:?}");
}

#[test]
fn the_arbitration_is_in_the_replay_line() {
    let machine = Machine::preset("host-2c").unwrap().arbitration(Arbitration::Nearest);
    let failure = machine.run(|| panic!("broken")).unwrap_err();
    let line = failure.replay.to_string();
    assert!(line.contains(" arbitration=nearest "), "{line}");
    assert_eq!(line.parse(), Ok(failure.replay));
}

#[test]
fn hot_lines_of_locks_name_the_programs_lines() {
    let run = machine("epyc-9654-2s", 1).statistics(Statistics::Full).run(|| {
        let shared = sync::Arc::new((Mutex::new(0), RwLock::new(0), Condvar::new()));
        let threads = [1, 8, 96].map(|cpu| {
            let shared = sync::Arc::clone(&shared);
            on(cpu, move || {
                let (mutex, lock, condvar) = &*shared;
                for _ in 0..20 {
                    *mutex.lock().unwrap() += 1;
                    let before = *lock.read().unwrap();
                    *lock.write().unwrap() = before + 1;
                    drop(sync::Arc::clone(&shared));
                    condvar.notify_all();
                }
                let span = Duration::from_nanos(50);
                drop(condvar.wait_timeout(mutex.lock().unwrap(), span));
            })
        });
        threads.into_iter().for_each(JoinHandle::join);
    });
    let details = run.unwrap().report.details.unwrap();
    let ours = |site: &str| site.ends_with("tests/results/statistics.rs");
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        details.sites.iter().partition(|site| ours(&site.site.file));
    // What a destructor of a reference does has no place in the program.
    let drops = |site: &str| site.ends_with("sync/arc.rs");
    assert!(elsewhere.iter().all(|site| drops(&site.site.file)), "{elsewhere:#?}");
    assert!(elsewhere.len() <= 1 && here.len() >= 5, "{here:#?}");
}

#[test]
fn hot_lines_of_a_channel_name_the_programs_lines() {
    let run = machine("epyc-9654-2s", 1).statistics(Statistics::Full).run(|| {
        let (sender, receiver) = sync::mpsc::channel();
        let threads = [8, 96].map(|cpu| {
            let sender = sender.clone();
            on(cpu, move || {
                (0..20).for_each(|n| sender.send(n).unwrap());
                let copy = sender.clone();
                // Destructors have no place in the program.
                std::mem::forget((sender, copy));
            })
        });
        let mut count = 0;
        for _ in &receiver {
            count += 1;
            if count == 30 {
                break;
            }
        }
        threads.into_iter().for_each(JoinHandle::join);
        for _ in receiver.try_iter() {
            count += 1;
        }
        std::mem::forget((sender, receiver));
        count
    });
    let run = run.unwrap();
    assert_eq!(run.value, 40);
    let sites = run.report.details.unwrap().sites;
    let elsewhere: Vec<_> = sites
        .iter()
        .filter(|site| !site.site.file.ends_with("tests/results/statistics.rs"))
        .collect();
    assert!(elsewhere.is_empty() && sites.len() >= 5, "{elsewhere:#?}");
}

#[test]
fn lines_that_missed_once_do_not_fill_a_printed_report() {
    let run = machine("epyc-9654-2s", 1).statistics(Statistics::Full).run(|| {
        let cold: Vec<_> = (0..100).map(|_| Line(U64::new_in(0))).collect();
        let hot = Arc::new(Line(U64::new_in(0)));
        cold.iter().for_each(|word| word.store(1, Ordering::SeqCst));
        let theirs = Arc::clone(&hot);
        on(1, move || theirs.fetch_add(1, Ordering::Relaxed)).join();
        hot.fetch_add(1, Ordering::Relaxed);
    });
    let text = run.unwrap().report.to_string();
    let table = text.split("hottest places").next().unwrap();
    let rows: Vec<_> = table.lines().filter(|line| line.contains("0x")).collect();
    assert_eq!(rows.len(), 1, "{text}");
    assert!(table.contains("lines with one miss or none: 10"), "{text}");
}
