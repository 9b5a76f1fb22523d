//! What accesses cost where the small machine and the plain cases do not tell, and how much memory
//! there is.

use std::sync::Arc;

use coreline_sim::{Class, FailureKind, Machine, Report, Sim, Statistics, name, thread};
use coreline_world::{Cell, Clock, Integer, JoinHandle, Line, Ordering, Threads, Word};

use crate::common::{U32, U64, machine, on};

/// The CPUs add to one word 200 times each, from one moment on. Returns the nanoseconds of the
/// slowest.
fn add_together(machine: Machine, cpus: &'static [u32]) -> (u64, Report) {
    let run = machine.run(|| {
        let (word, arrived) = (Arc::new(Line(U64::new_in(0))), Arc::new(Line(U32::new_in(0))));
        let count = cpus.len() as u32;
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                let (word, arrived) = (Arc::clone(&word), Arc::clone(&arrived));
                on(cpu, move || {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    arrived.wait_until(Ordering::Relaxed, |arrived| arrived == count);
                    let start = Sim::now();
                    for _ in 0..200 {
                        word.fetch_add(1, Ordering::Relaxed);
                    }
                    (Sim::now() - start).as_nanos() as u64
                })
            })
            .collect();
        threads.into_iter().map(JoinHandle::join).max().unwrap()
    });
    let run = run.unwrap();
    (run.value, run.report)
}

#[test]
fn a_line_on_its_way_to_a_core_serves_neither_of_its_threads() {
    // Two cores of two threads each take the line from each other. When it reaches a core, the
    // other core has asked for it already: one thread's request brought it, and the other's comes
    // with it, no more.
    // A core that goes on with the line for longer would blur the count.
    let machine = machine("epyc-9654-2s", 5).request_percent(0);
    let (ns, report) = add_together(machine, &[0, 192, 8, 200]);
    let transfers = report.transfers;
    assert!(transfers.private <= transfers.same_node * 3 / 2, "{transfers:?}");
    // A transfer's response, and a locked operation, are what the ping-pong figure consists of.
    assert!(ns >= transfers.same_node * 110 * 9 / 10, "{ns} ns, {transfers:?}");
}

#[test]
fn a_pass_starts_over_at_each_page_wherever_it_began() {
    /// A block from the middle of one page to the middle of the next. An `Arc`'s counts stand
    /// before it, so it begins and ends within a line.
    #[repr(C)]
    struct Pages {
        _before: [u8; 2048],
        block: Cell<[u8; 3072], Sim>,
    }

    let run = machine("epyc-9654-2s", 5).run(|| {
        let pages = Arc::new(Pages { _before: [0; 2048], block: Cell::new_in([0; 3072]) });
        let theirs = Arc::clone(&pages);
        on(0, move || theirs.block.with_mut(|_| ())).join();
        on(8, move || {
            let start = Sim::now();
            pages.block.with_mut(|_| ());
            (Sim::now() - start).as_nanos() as u64
        })
        .join()
    });
    // 49 lines: two whole misses, and behind them 31 and 16, four at a time. With one whole miss it
    // would be one miss less.
    let transfers = machine("epyc-9654-2s", 5).calibration().unwrap();
    let miss = transfers.iter().find(|it| it.class == Class::SameNode).unwrap().raw / 1000;
    let (measured, expected) = (run.unwrap().value, (2 + 31_u64.div_ceil(4) + 16 / 4) * miss);
    let near = expected - miss / 3..expected + miss;
    assert!(near.contains(&measured), "{measured}, not {expected} ns");
}

#[test]
fn a_pass_takes_each_line_when_it_gets_there() {
    /// A word in the last line of a block.
    #[repr(C, align(64))]
    struct Block {
        block: Cell<[u8; 4096 + 32], Sim>,
        word: U64,
    }

    for request_percent in Machine::REQUEST_BAND {
        let machine = machine("epyc-9654-2s", 5).request_percent(request_percent);
        let run = machine.step_limit(1_000_000).run(|| {
            let block =
                Arc::new(Block { block: Cell::new_in([0; 4096 + 32]), word: U64::new_in(0) });
            let theirs = Arc::clone(&block);
            let adder = on(0, move || {
                theirs.block.with_mut(|_| ());
                // Hits of 6 ns, until the line is gone.
                loop {
                    let start = Sim::now();
                    theirs.word.fetch_add(1, Ordering::Relaxed);
                    if (Sim::now() - start).as_nanos() > 60 && start.as_nanos() > 100_000 {
                        break start;
                    }
                }
            });
            let passed = on(8, move || {
                Sim::sleep(core::time::Duration::from_micros(100));
                let start = Sim::now();
                block.block.with_mut(|_| ());
                (start, Sim::now())
            });
            let (start, end) = passed.join();
            let taken = adder.join();
            ((taken - start).as_nanos(), (end - start).as_nanos())
        });
        let (taken, whole) = run.unwrap().value;
        assert!((whole / 2..whole).contains(&taken), "after {taken} of {whole} ns");
    }
}

#[test]
fn aligned_objects_take_no_more_than_their_lines() {
    let run = machine("epyc-9654-2s", 5).run(|| {
        let words: Vec<_> = (0..200_000).map(|_| Box::new(Line(U64::new_in(0)))).collect();
        words.iter().for_each(|word| word.store(1, Ordering::Relaxed));
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}

#[test]
fn a_program_that_uses_more_memory_than_there_is_is_told() {
    let failure = machine("epyc-9654-2s", 5).run(|| {
        let mut words = Vec::with_capacity(1 << 23);
        words.push(Line(U64::new_in(0)));
        words[0].store(1, Ordering::Relaxed);
    });
    let failure = failure.unwrap_err();
    assert!(matches!(failure.kind, FailureKind::Unregistered { .. }));
    assert!(failure.to_string().contains("512 MiB"), "{failure}");
}

#[test]
fn the_largest_machine_runs() {
    let epyc = include_str!("../../machines/epyc-9654-2s.toml");
    let text =
        epyc.replace("sockets = 2", "sockets = 32").replace("per_cache = 8", "per_cache = 16");
    let text = text.replace("caches_per_node = 12", "caches_per_node = 4");
    let text = text.replacen("name = \"epyc-9654-2s\"", "name = \"large\"", 1);
    let spec = coreline_sim::Spec::parse("large", &text).unwrap();
    assert_eq!(spec.topology().cpu_count(), 4096);
    let run = Machine::new(spec).run(|| {
        let word = Arc::new(Line(U64::new_in(0)));
        let threads: Vec<_> = (0..4096)
            .map(|cpu| {
                let word = Arc::clone(&word);
                on(cpu, move || word.fetch_add(1, Ordering::Relaxed))
            })
            .collect();
        let before: u64 = threads.into_iter().map(JoinHandle::join).sum();
        assert_eq!(before, 4095 * 4096 / 2, "each found another value");
        word.load(Ordering::Relaxed)
    });
    let run = run.unwrap();
    assert_eq!(run.value, 4096);
    assert_eq!(run.report.transfers.total(), 4097, "{:?}", run.report);
}

#[test]
fn a_line_of_a_stack_is_one_line_for_all_threads() {
    let machine = machine("epyc-9654-2s", 1).statistics(Statistics::Full);
    let run = machine.run(|| {
        let word = Line(U32::new_in(0));
        name(&word, "word");
        let add_twice = || {
            word.fetch_add(1, Ordering::Relaxed);
            word.fetch_add(1, Ordering::Relaxed);
        };
        add_twice();
        thread::scope(|scope| _ = scope.spawn(add_twice));
        add_twice();
        word.load(Ordering::Relaxed)
    });
    let run = run.unwrap();
    assert_eq!(run.value, 6);
    let details = run.report.details.unwrap();
    let lines: Vec<_> = details.lines.iter().filter(|line| line.names == ["word"]).collect();
    assert_eq!(lines.len(), 1);
    // From memory, to the other CPU and back; the second of two is always a hit, and so is the
    // load.
    let transfers = lines[0].cost.transfers;
    assert_eq!((transfers.memory, transfers.private, transfers.total()), (1, 4, 7));
}

#[test]
fn a_stack_that_the_host_uses_again_has_lines_of_its_own() {
    // The first thread's stack is gone when the second starts, which mostly gets the same memory.
    let run = machine("host-2c", 1).run(|| {
        for _ in 0..8 {
            on(1, || {
                let word = Line(U32::new_in(0));
                word.fetch_add(1, Ordering::Relaxed);
                word.fetch_add(1, Ordering::Relaxed);
            })
            .join();
        }
    });
    let transfers = run.unwrap().report.transfers;
    assert!(transfers.memory >= 8 && transfers.private >= 8, "{transfers:?}");
}

#[test]
fn words_that_a_closure_owns_lie_on_its_threads_stack() {
    // So many that the closure is handed on by its address.
    let words = || [0; 32].map(U64::new_in);
    let add = |word: &U64| word.fetch_add(1, Ordering::Relaxed);
    let count = move |words: &[U64; 32]| words.iter().map(add).sum::<u64>();
    let run = machine("host-2c", 1).statistics(Statistics::Full).run(move || {
        let theirs = words();
        let on_stack = move || {
            name(&theirs, "theirs");
            count(&theirs)
        };
        on(1, on_stack).join() + thread::spawn(move || count(&words())).join().unwrap()
    });
    let run = run.unwrap();
    assert_eq!(run.value, 0);
    let details = run.report.details.unwrap();
    let mut lines = details.lines.iter().filter(|line| line.names == ["theirs"]).peekable();
    assert!(lines.peek().is_some() && lines.all(|line| line.stack == Some(1)));
}
