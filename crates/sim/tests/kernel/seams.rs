//! Where the parts of the engine meet: interrupts in waits, handlers that block, loads that meet
//! stores on their way, and machines that end late.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use coreline_sim::interrupts::{mask, monitor_wait, send};
use coreline_sim::{
    Explore, FailureKind, Faults, Kernel, Machine, Report, Schedule, Sim, Statistics, on_signal,
};
use coreline_topology::{Cid, CpuId};
use coreline_world::conformance::restartable::BareWords;
use coreline_world::{
    Clock, IndexBy, Integer, JoinHandle, Line, Ordering, Threads, Time, Word, Work,
};

use crate::common::{U32, machine, on};
use crate::{host, word};

/// A machine of two CPUs under each schedule.
fn scheduled() -> impl Iterator<Item = Machine> {
    let pct = Schedule::Pct { depth: 3, steps: 100 };
    [Schedule::Time, Schedule::Random, pct].into_iter().map(|schedule| host().schedule(schedule))
}

/// The second arrives while the first one's handler runs in the wait that it ended.
#[test]
fn a_second_interrupt_waits_for_the_handler_of_the_first_in_a_monitored_wait() {
    for machine in scheduled() {
        let run = machine.run(|| {
            let (handled, monitored) = (word(0), word(0));
            let (theirs, watched) = (Arc::clone(&handled), Arc::clone(&monitored));
            let resting = on(1, move || {
                while theirs.load(Ordering::Acquire) < 2 {
                    monitor_wait(&**watched, 0);
                }
            });
            Sim::sleep(Duration::from_micros(100));
            for _ in 0..2 {
                let handled = Arc::clone(&handled);
                let handler = move || {
                    Sim::work(Duration::from_micros(5));
                    handled.fetch_add(1, Ordering::Release);
                };
                send(CpuId::new(1), handler).unwrap();
            }
            resting.join();
            handled.load(Ordering::Relaxed)
        });
        assert_eq!(run.unwrap().value, 2);
    }
}

#[test]
fn an_interrupt_that_is_masked_forever_keeps_no_deadlock_from_being_seen() {
    let spin = |word: &U32| _ = word.wait_until(Ordering::Relaxed, |value| value == 1);
    let failure = host().run(move || {
        let never = word(0);
        let theirs = Arc::clone(&never);
        on(1, move || {
            let _masked = mask();
            spin(&theirs);
        });
        Sim::sleep(Duration::from_micros(100));
        send(CpuId::new(1), || ()).unwrap();
        spin(&never);
    });
    assert_eq!(failure.unwrap_err().kind, FailureKind::Deadlock);
}

/// A kernel that knows threads by their birth.
#[derive(Default)]
struct Strict {
    known: Vec<bool>,
}

impl Kernel for Strict {
    fn switch_in(&mut self, _at: Time, _cpu: CpuId, thread: usize) -> Cid {
        assert!(self.known.get(thread) == Some(&true), "unknown thread {thread}");
        Cid::new(0)
    }

    fn switch_out(&mut self, _at: Time, _cpu: CpuId, thread: usize) {
        assert!(self.known[thread]);
    }

    fn tick(&mut self, _at: Time, _cpu: CpuId, thread: usize) {
        assert!(self.known.get(thread) == Some(&true), "unknown thread {thread}");
    }

    fn migrated(&mut self, _at: Time, thread: usize, _from: CpuId, _to: CpuId) {
        assert!(self.known.get(thread) == Some(&true), "unknown thread {thread}");
    }

    fn spawned(&mut self, thread: usize, _cpu: CpuId, _bound: bool) {
        self.known.resize(thread, false);
        self.known.push(true);
    }

    fn exited(&mut self, thread: usize) {
        assert!(std::mem::take(&mut self.known[thread]));
    }
}

/// As one that blocks on a thread's stack: the others of its CPU run, and further interrupts come.
#[test]
fn a_handler_may_block_on_an_idle_cpu() {
    let ways: [fn(); 3] = [
        || Sim::sleep(Duration::from_micros(500)),
        || (0..9).for_each(|_| Sim::yield_now()),
        || Sim::work(Duration::from_millis(20)),
    ];
    for block in ways {
        for machine in scheduled() {
            let run = machine.kernel(Box::new(Strict::default())).run(move || {
                let handled = word(0);
                for gap in [0, 100, 100, 1000] {
                    let handled = Arc::clone(&handled);
                    let handler = move || {
                        block();
                        handled.fetch_add(1, Ordering::Release);
                    };
                    send(CpuId::new(1), handler).unwrap();
                    Sim::sleep(Duration::from_micros(gap));
                }
                on(1, || Sim::sleep(Duration::from_micros(50))).join();
                handled.wait_until(Ordering::Acquire, |handled| handled == 4);
                let before = Sim::now();
                send(CpuId::new(1), move || assert!(Sim::now() > before)).unwrap();
            });
            run.unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

#[test]
fn an_interrupt_ends_an_endless_computation_under_any_schedule() {
    for machine in scheduled() {
        let run = machine.run(|| {
            on(1, || Sim::work(Duration::MAX));
            Sim::sleep(Duration::from_micros(100));
            let at = Arc::new(std::sync::Mutex::new(None));
            let theirs = Arc::clone(&at);
            let handled = word(0);
            let their_handled = Arc::clone(&handled);
            let handler = move || {
                *theirs.lock().unwrap() = Some(Sim::now());
                their_handled.store(1, Ordering::Release);
            };
            send(CpuId::new(1), handler).unwrap();
            handled.wait_until(Ordering::Acquire, |handled| handled == 1);
            let at = at.lock().unwrap().unwrap().as_nanos();
            assert!(at < 1_000_000_000, "{at}");
        });
        // The computation goes on forever.
        assert_eq!(run.unwrap_err().kind, FailureKind::Deadlock);
    }
}

fn assert_adds_up(report: &Report) {
    let details = report.details.as_ref().unwrap();
    for cpu in &details.cpus {
        let sum: u64 = cpu.by_name().iter().map(|(_, ns)| ns).sum();
        assert_eq!(sum, report.time_ns, "{cpu:?}");
    }
}

#[test]
fn a_handler_that_runs_after_the_last_thread_is_part_of_the_run() {
    for machine in scheduled() {
        let run = machine.statistics(Statistics::Full).run(|| {
            send(CpuId::new(1), || Sim::work(Duration::from_millis(3))).unwrap();
        });
        let report = run.unwrap().report;
        assert!(report.time_ns > 2_000_000, "{}", report.time_ns);
        assert_adds_up(&report);
    }
}

#[test]
fn a_guard_that_drops_in_another_machine_ends_nothing_there() {
    let guard = host().run(mask).unwrap().value;
    host().run(move || drop(guard)).unwrap();
}

/// Two threads that wait could take one CPU from each other forever.
#[test]
fn threads_that_wait_on_one_cpu_let_the_one_run_that_they_wait_for() {
    for seed in 0..20 {
        let schedule = Schedule::Pct { depth: 3, steps: 100 };
        let run = machine("host-2c", seed).step_limit(1_000_000).schedule(schedule).run(|| {
            let told = word(0);
            let wait = |told: Arc<Line<U32>>| {
                on(0, move || _ = told.wait_until(Ordering::Acquire, |told| told == 1))
            };
            let waiters = [(); 3].map(|()| wait(Arc::clone(&told)));
            on(0, move || told.store(1, Ordering::Release)).join();
            waiters.into_iter().for_each(JoinHandle::join);
        });
        run.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// A CPU's own store to a word is no way around another's later one.
#[test]
fn a_load_waits_for_the_latest_store_of_another_cpu_behind_its_own() {
    let run = machine("epyc-9654-2s", 1).run(|| {
        let shared = word(0);
        let far = Arc::clone(&shared);
        let warm = Arc::clone(&shared);
        on(8, move || _ = warm.swap(9, Ordering::Relaxed)).join();
        let start = Sim::now() + Duration::from_micros(100);
        let until = move |more: u64| {
            let now = Sim::now();
            Sim::sleep(start - now);
            while Sim::now() < start + Duration::from_nanos(50_000 + more) {}
        };
        let near = on(0, move || {
            until(0);
            shared.store(1, Ordering::Relaxed);
            while shared.load(Ordering::Relaxed) != 2 {}
            Sim::now()
        });
        let far = on(16, move || {
            until(40);
            let now = Sim::now();
            far.store(2, Ordering::Relaxed);
            now
        });
        let (stored, seen) = (far.join(), near.join());
        (seen - stored).as_nanos()
    });
    let ns = run.unwrap().value;
    assert!(ns > 100, "seen {ns} ns after");
}

/// All orders of two or three threads' steps, and those with few preemptions, counted by hand.
#[test]
fn exploration_runs_every_order() {
    let orders = |threads: u32, steps: usize, preemptions: u32| {
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let program = move || {
            let order = Arc::new(std::sync::Mutex::new(Vec::new()));
            let shared = word(0);
            // No thread begins before all are there; what is before has one order.
            let go = word(0);
            let threads: Vec<_> = (0..threads)
                .map(|n| {
                    let (order, shared, go) =
                        (Arc::clone(&order), Arc::clone(&shared), Arc::clone(&go));
                    on(n % 2, move || {
                        go.wait_until(Ordering::Relaxed, |go| go == 1);
                        for _ in 0..steps {
                            shared.fetch_add(1, Ordering::Relaxed);
                            order.lock().unwrap().push(n);
                        }
                    })
                })
                .collect();
            go.store(1, Ordering::Relaxed);
            threads.into_iter().for_each(JoinHandle::join);
            log.lock().unwrap().push(order.lock().unwrap().clone());
        };
        let explore = Explore::new().preemptions(preemptions).limit(20_000);
        let explored = explore.run(host, program).unwrap();
        assert!(explored.complete, "{explored:?}");
        let seen: std::collections::BTreeSet<Vec<u32>> = seen.lock().unwrap().drain(..).collect();
        seen.len()
    };
    // A thread after the other; with one of them interrupted; and 0101, which takes two.
    assert_eq!(orders(2, 2, 0), 2);
    assert_eq!(orders(2, 2, 1), 4);
    assert_eq!(orders(2, 2, 2), 6);
    assert_eq!(orders(3, 1, 1), 6);
}

/// Recurses too deep, touching the machine's memory on the way or not.
#[inline(never)]
fn dig(depth: u64, word: Option<&U32>) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    word.map(|word| word.load(Ordering::Relaxed));
    if depth == 0 { frame[0] } else { dig(depth - 1, word) + frame[63] }
}

fn overflow(accesses: bool) {
    let word = U32::new_in(0);
    std::hint::black_box(dig(1_000_000, accesses.then_some(&word)));
}

#[test]
fn a_handler_that_overflows_the_stack_fails_the_machine_and_the_next_is_well() {
    let stored = || {
        let lines = Arc::new([0; 8].map(|_| Line(U32::new_in(0))));
        let theirs = Arc::clone(&lines);
        on(1, move || theirs.iter().for_each(|line| _ = line.swap(1, Ordering::Relaxed))).join();
        lines.iter().for_each(|line| line.store(2, Ordering::Relaxed));
        lines
    };
    let well = || host().run(move || stored().iter().map(|it| it.load(Ordering::Relaxed)).sum());
    let fresh: (u32, Report) = well().map(|run| (run.value, run.report)).unwrap();
    for accesses in [true, false] {
        let doings: [Box<dyn Fn() + Send>; 3] = [
            Box::new(|| Sim::work(Duration::from_millis(1))),
            Box::new(|| ()),
            Box::new(|| on(1, || Sim::work(Duration::from_millis(1))).join()),
        ];
        for doing in doings {
            let failure = host().run(move || {
                let lines = stored();
                send(CpuId::new(1), move || overflow(accesses)).unwrap();
                doing();
                lines[0].load(Ordering::Relaxed)
            });
            let kind = failure.unwrap_err().kind;
            assert!(matches!(kind, FailureKind::StackOverflow { .. }), "{kind:?}");
        }
        let faults = Faults { signal: 1, ..Faults::NONE };
        let failure = host().faults(faults).run(move || {
            on_signal(move || overflow(accesses));
            stored()[0].load(Ordering::Relaxed)
        });
        let kind = failure.unwrap_err().kind;
        assert!(matches!(kind, FailureKind::StackOverflow { .. }), "{kind:?}");
        // Fails with stores on their way.
        host().run(move || assert_eq!(stored()[7].load(Ordering::Relaxed), 3)).unwrap_err();
        assert_eq!(well().map(|run| (run.value, run.report)).unwrap(), fresh);
    }
}

#[test]
fn a_handler_that_panics_in_an_operation_leaves_no_section_behind() {
    let run = host().faults(Faults { signal: 3, ..Faults::NONE }).run(|| {
        let (armed, signals) = (word(0), word(0));
        let slots = BareWords::<Sim>::new_in(IndexBy::Cpu).unwrap();
        let (theirs, counted) = (Arc::clone(&armed), Arc::clone(&signals));
        on_signal(move || {
            assert_eq!(theirs.load(Ordering::Relaxed), 0);
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let add = AssertUnwindSafe(|| {
            armed.store(1, Ordering::Relaxed);
            (0..100).for_each(|_| slots.add(1).unwrap());
        });
        catch_unwind(add).unwrap_err();
        // The store that disarms may be hit, too.
        while catch_unwind(AssertUnwindSafe(|| armed.store(0, Ordering::Relaxed))).is_err() {}
        let before = signals.load(Ordering::Relaxed);
        (0..300).for_each(|_| _ = armed.load(Ordering::Relaxed));
        signals.load(Ordering::Relaxed) - before
    });
    let signals = run.unwrap().value;
    assert!(signals > 50, "{signals} of 300 accesses and more were hit");
}
