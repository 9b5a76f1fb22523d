//! Schedules: what random ones, probabilistic concurrency testing and exploration find, and that a
//! replay line brings it back.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use coreline_sim::{
    Explore, Explored, Failure, FailureKind, Faults, Kernel, Machine, Replay, Schedule, Sim, Spec,
    search,
};
use coreline_topology::{Cid, CpuId};
use coreline_world::conformance::{clock, order, restartable, sleep, threads};
use coreline_world::{
    Clock, Integer, JoinHandle, Line, Ordering, Parked, Sleep, Threads, Time, Word, Words,
};

use crate::common::{U32, machine, on};
use crate::replays;

const PCT: Schedule = Schedule::Pct { depth: 3, steps: 200 };

fn host(seed: u64, schedule: Schedule) -> Machine {
    machine("host-2c", seed).schedule(schedule).step_limit(5_000_000)
}

/// Each of two threads, on the CPUs `cpus`, adds one to a sum, with a load and a store.
fn lossy(cpus: [u32; 2]) {
    let sum = Arc::new(U32::new_in(0));
    let threads = cpus.map(|cpu| {
        let sum = Arc::clone(&sum);
        on(cpu, move || sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed))
    });
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(sum.load(Ordering::Relaxed), 2, "an addition was lost");
}

fn lossy_apart() {
    lossy([0, 1]);
}

fn lossy_together() {
    lossy([1, 1]);
}

/// Like `lossy`, but correct.
fn sound() {
    let sum = Arc::new(U32::new_in(0));
    let threads = [0, 1].map(|cpu| {
        let sum = Arc::clone(&sum);
        on(cpu, move || _ = sum.fetch_add(1, Ordering::Relaxed))
    });
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(sum.load(Ordering::Relaxed), 2);
}

/// A thread looks at a flag and then parks, and is woken in between.
fn loses_a_wake_up() {
    let (flag, word) = (Arc::new(Line(U32::new_in(0))), Arc::new(Line(U32::new_in(0))));
    let (their_flag, their_word) = (Arc::clone(&flag), Arc::clone(&word));
    let waker = on(1, move || {
        their_flag.store(1, Ordering::Relaxed);
        Sim::wake(&**their_word, 1);
    });
    while flag.load(Ordering::Relaxed) == 0 {
        assert_eq!(Sim::park(&word, 0, None), Parked::Woken);
    }
    waker.join();
}

fn is_lost_addition(failure: &Failure) -> bool {
    matches!(&failure.kind, FailureKind::Panic { message, .. } if message.contains("was lost"))
}

#[test]
fn random_and_pct_find_a_lost_addition() {
    for schedule in [Schedule::Random, PCT] {
        for program in [lossy_apart, lossy_together] {
            let machines = (0..100).map(|seed| host(seed, schedule.clone()));
            let failure = search(machines, program).unwrap_err();
            assert!(is_lost_addition(&failure), "{failure}");
            assert_eq!(failure.replay.schedule, schedule);
            assert_eq!(search((0..100).map(|seed| host(seed, schedule.clone())), sound), Ok(100));
        }
    }
    // By time, threads that share a CPU for so short a time do not interrupt each other.
    let machines = (0..100).map(|seed| host(seed, Schedule::Time));
    assert_eq!(search(machines, lossy_together), Ok(100));
}

#[test]
fn a_failure_comes_back_from_its_line() {
    for schedule in [Schedule::Random, PCT] {
        let machines = (0..100).map(|seed| host(seed, schedule.clone()));
        let failure = search(machines, lossy_apart).unwrap_err();
        replays(&failure, lossy_apart);
    }
    let explore = Explore::new().preemptions(1);
    let failure = explore.run(|| host(1, Schedule::Time), lossy_apart).unwrap_err();
    let line = failure.replay.to_string();
    assert!(line.contains("schedule=choices:"), "{line}");
    replays(&failure, lossy_apart);
}

#[test]
fn exploration_finds_what_takes_one_preemption_and_comes_to_an_end() {
    let run = |preemptions, program: fn()| {
        Explore::new().preemptions(preemptions).run(|| host(1, Schedule::Time), program)
    };
    for program in [lossy_apart as fn(), lossy_together] {
        assert!(run(0, program).unwrap().complete);
        assert!(is_lost_addition(&run(1, program).unwrap_err()));
    }
    let counts = [0, 1, 2].map(|preemptions| {
        let Explored { runs, complete } = run(preemptions, sound).unwrap();
        assert!(complete);
        runs
    });
    assert!(counts[0] < counts[1] && counts[1] < counts[2], "{counts:?}");
    let failure = run(1, loses_a_wake_up).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock, "{failure}");
    let limited = Explore::new().limit(3).run(|| host(1, Schedule::Time), sound).unwrap();
    assert_eq!(limited, Explored { runs: 3, complete: false });
}

#[test]
fn pct_finds_a_lost_wake_up() {
    let failure = search((0..200).map(|seed| host(seed, PCT)), loses_a_wake_up).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock, "{failure}");
}

/// One thread waits for another in a loop, in each of the ways there are.
fn waits(cpu: u32, wait: fn(&U32)) {
    let flag = Arc::new(Line(U32::new_in(0)));
    let theirs = Arc::clone(&flag);
    let waker = on(cpu, move || theirs.store(1, Ordering::Release));
    wait(&flag);
    waker.join();
}

#[test]
fn a_thread_that_waits_in_a_loop_lets_the_others_go_first() {
    let ways: [fn(&U32); 5] = [
        |flag| {
            while flag.load(Ordering::Acquire) == 0 {
                Sim::relax();
            }
        },
        |flag| {
            while flag.load(Ordering::Acquire) == 0 {
                Sim::yield_now();
            }
        },
        |flag| while flag.load(Ordering::Acquire) == 0 {},
        |flag| _ = flag.wait_until(Ordering::Acquire, |value| value == 1),
        |flag| {
            while flag.load(Ordering::Acquire) == 0 {
                Sim::sleep(Duration::from_micros(1));
            }
        },
    ];
    for way in ways {
        for cpu in [0, 1] {
            for schedule in [Schedule::Random, PCT] {
                for seed in 0..5 {
                    let run = host(seed, schedule.clone()).run(move || waits(cpu, way));
                    run.unwrap_or_else(|failure| panic!("{failure}"));
                }
            }
            let explore = Explore::new().preemptions(1).limit(200);
            let explored = explore.run(|| host(1, Schedule::Time), move || waits(cpu, way));
            explored.unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

#[test]
fn a_loop_over_a_word_of_the_host_does_not_hang_a_schedule() {
    for seed in 0..10 {
        let run = host(seed, PCT).run(|| {
            let done = Arc::new(AtomicBool::new(false));
            let theirs = Arc::clone(&done);
            let other = on(1, move || theirs.store(true, Ordering::Relaxed));
            while !done.load(Ordering::Relaxed) {
                Sim::now();
            }
            other.join();
        });
        run.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn the_laws_hold_under_every_schedule() {
    let laws: [(&str, fn()); 6] = [
        ("additions", restartable::no_addition_is_lost::<Sim>),
        ("publication", order::published_data_is_seen::<Sim>),
        ("wake-ups", sleep::no_wakeup_is_lost::<Sim>),
        ("deadlines", sleep::a_deadline_ends_the_sleep::<Sim>),
        ("time", clock::time_never_goes_back::<Sim>),
        ("detached", threads::a_dropped_handle_detaches::<Sim>),
    ];
    for schedule in [Schedule::Random, Schedule::Pct { depth: 4, steps: 20_000 }] {
        for (name, law) in laws {
            for (seed, faults) in [(0, "none"), (1, "preempt:7,migrate:9,signal:20,delay:30")] {
                let faults = faults.parse().unwrap();
                let machine = machine("host-2c", seed).faults(faults).program(name);
                let run = machine.schedule(schedule.clone()).run(law);
                run.unwrap_or_else(|failure| panic!("{failure}"));
            }
        }
    }
}

#[test]
fn time_passes_and_the_same_seed_gives_the_same_run() {
    let program = || {
        let before = Sim::now();
        let threads = [0, 0, 1].map(|cpu| {
            on(cpu, || {
                Sim::sleep(Duration::from_micros(50));
                Sim::now()
            })
        });
        threads.map(|thread| thread.join() - before)
    };
    for schedule in [Schedule::Random, PCT] {
        let run = |seed| host(seed, schedule.clone()).run(program).unwrap();
        for slept in run(1).value {
            assert!((50..500).contains(&slept.as_micros()), "{slept:?}");
        }
        assert_eq!(run(1), run(1));
        assert!((2..10).any(|seed| run(seed).report != run(1).report));
    }
}

#[test]
fn random_takes_turns_between_the_threads_of_a_cpu() {
    let preemptions = |schedule| {
        let program = || {
            let work = || (0..100).for_each(|n| U32::new_in(0).store(n, Ordering::Relaxed));
            [1, 1].map(|cpu| on(cpu, work)).into_iter().for_each(JoinHandle::join);
        };
        host(1, schedule).run(program).unwrap().report.preemptions
    };
    assert!(preemptions(Schedule::Random) > 10);
    assert_eq!(preemptions(Schedule::Time), 0);
}

/// A kernel with a name.
struct Named(&'static str);

impl Kernel for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn switch_in(&mut self, _at: Time, cpu: CpuId, _thread: usize) -> Cid {
        Cid::new(cpu.get())
    }

    fn switch_out(&mut self, _at: Time, _cpu: CpuId, _thread: usize) {}

    fn spawned(&mut self, _thread: usize, _cpu: CpuId, _bound: bool) {}

    fn exited(&mut self, _thread: usize) {}
}

#[test]
fn a_line_has_scaled_costs_the_step_limit_and_the_kernel() {
    let mut spec = Spec::preset("host-2c").unwrap();
    spec.scale("same_cache", 130).unwrap();
    spec.scale("ipi", 70).unwrap();
    let faults = Faults { delay: 5, ..Faults::NONE };
    let machine = Machine::new(spec).seed(3).faults(faults).step_limit(10_000).program("forever");
    let forever = || loop {
        Sim::relax();
    };
    let failure = machine.kernel(Box::new(Named("mine"))).run(forever).unwrap_err();
    let line = failure.replay.to_string();
    assert_eq!(
        line,
        "coreline-sim/1 machine=host-2c seed=3 request=30 faults=delay:5 steps=10000 \
         scaled=ipi:70,same_cache:130 kernel=mine program=forever"
    );
    let replay: Replay = line.parse().unwrap();
    let again = |name| {
        let machine = Machine::replay(&replay).unwrap().kernel(Box::new(Named(name)));
        machine.run(forever).unwrap_err()
    };
    assert_eq!(again("mine"), failure);
    let FailureKind::Refused { why } = &again("another").kind else { panic!("not refused") };
    assert!(why.contains("\"mine\"") && why.contains("another"), "{why}");
    let mut unknown = replay;
    unknown.scaled.push(("fuel".to_owned(), 70));
    let refused = Machine::replay(&unknown).unwrap().run(forever).unwrap_err();
    assert!(refused.to_string().contains("cost.fuel"), "{refused}");
}
