//! The laws of replies: a function that was withdrawn does not run, one that has begun is waited
//! for, and no wait ends before its deadline without the value. And of the end of workers.

use std::sync::Arc;
use std::time::Duration;

use coreline::Workers;
use coreline::call::{Builder, Reply};
use coreline_sim::{Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::model::{Model, Plant};
use coreline_world::{
    Clock, Integer, JoinHandle, Native, Ordering, Placement, Testbed, Threads, Time, Word, Work,
};

use crate::call::{MANNERS, Manner, SLEEPS, in_every_manner, workers};
use crate::worlds::{self, Effort, FEW};

/// Calls and tasks, each of which is withdrawn, or waited for once it has begun. Waits in between
/// end early. What the functions counted is seen after the end, without a join.
fn each_runs_or_was_withdrawn<W: Testbed>(effort: Effort, manner: Manner) {
    let workers = workers::<W>(effort, manner);
    let ran = Arc::new(W::U64::new_in(0));
    let cpus: Vec<_> = workers.cpus().collect();
    let mut expected = 0;
    for round in 0..effort.rounds {
        let ran = Arc::clone(&ran);
        let count = move || {
            // Relaxed: a count.
            ran.fetch_add(1, Ordering::Relaxed);
            round
        };
        let cpu = cpus[round as usize % cpus.len()];
        let reply = match round % 3 {
            0 => workers.call_async(cpu, count),
            1 => workers.spawn_on(cpu, count),
            _ => workers.spawn(count),
        };
        let reply = reply.unwrap();
        // In the model a park may end early, and there is no time.
        let reply = match (round / 3) % 3 {
            0 => Err(reply),
            1 => reply.wait_by(Time::from_nanos(0)),
            _ => reply.wait_by(W::now() + Duration::from_micros(2)),
        };
        let value = match reply.map_err(Reply::withdraw) {
            Ok(value) => Some(value),
            Err(Ok(())) => None,
            Err(Err(begun)) => Some(begun.wait()),
        };
        assert!(value.is_none_or(|value| value == round));
        expected += u64::from(value.is_some());
    }
    assert!(workers.close_and_wait());
    // Relaxed: the workers have ended.
    assert_eq!(ran.load(Ordering::Relaxed), expected);
    drop(workers);
    assert!(Arc::into_inner(ran).is_some(), "no letter is left");
}

#[test]
fn each_runs_or_was_withdrawn_natively() {
    for manner in MANNERS {
        let effort = Effort { threads: 1, rounds: 2000, cpus: 2 };
        each_runs_or_was_withdrawn::<Native>(effort, manner);
    }
}

#[test]
fn each_runs_or_was_withdrawn_in_simulation() {
    for manner in MANNERS {
        for faults in [worlds::TORN, worlds::PREEMPTED] {
            let law = move || {
                each_runs_or_was_withdrawn::<Sim>(Effort { rounds: 36, ..FEW }, manner);
            };
            worlds::simulate("replies::each_runs", "host-2c", faults, law).unwrap();
        }
    }
}

#[test]
fn each_runs_or_was_withdrawn_in_every_interleaving() {
    let effort = Effort { threads: 1, rounds: 1, cpus: 1 };
    let law = move || each_runs_or_was_withdrawn::<Model>(effort, SLEEPS);
    worlds::few_planted(Plant::EXCHANGES, law);
}

/// A function on a worker cannot wait for that worker's end, and another thread can.
fn a_worker_does_not_wait_for_its_own_end<W: Testbed>(manner: Manner) {
    let workers = Arc::new(workers::<W>(Effort { threads: 1, rounds: 1, cpus: 2 }, manner));
    let cpus: Vec<_> = workers.cpus().collect();
    let waits = || {
        let workers = Arc::clone(&workers);
        move || workers.close_and_wait()
    };
    assert_eq!(workers.call_on(cpus[0], waits()).ok(), Some(false));
    assert!(workers.spawn(|| 3).is_ok_and(|reply| reply.wait() == 3), "it did not close them");
    let late = workers.spawn_on(cpus[1], || 7).unwrap();
    let other = W::spawn(Placement::Anywhere, waits()).unwrap();
    assert!(other.join() && workers.close_and_wait());
    assert_eq!(late.wait_by(Time::from_nanos(0)).ok(), Some(7), "it ran before the end");
}

#[test]
fn a_worker_does_not_wait_for_its_own_end_in_every_world() {
    in_every_manner(
        "replies::own_end",
        1,
        a_worker_does_not_wait_for_its_own_end::<Native>,
        a_worker_does_not_wait_for_its_own_end::<Sim>,
    );
}

/// A small call that is waited for later goes the same way as one that is waited for at once: its
/// value comes back with the line that brought it. In a letter on the heap it takes 1.7 times as
/// long as by hand, because that is a second line.
#[test]
fn a_reply_costs_little_more_than_a_call() {
    let law = || {
        let cpus: Vec<_> = (0..2).map(CpuId::new).collect();
        let workers: Builder<Sim> = Workers::builder_in().cpus([cpus[1]].into_iter().collect());
        let workers = Arc::new(workers.polling(Duration::from_millis(1)).start().unwrap());
        let calls = move || {
            let timed = |call: &dyn Fn(u64) -> u64| {
                let begun = Sim::now();
                (0..200).for_each(|number| assert_eq!(call(number), number + 1));
                Sim::now() - begun
            };
            let call = |number| workers.call_on(cpus[1], move || number + 1).unwrap();
            let reply = |number| workers.call_async(cpus[1], move || number + 1).unwrap().wait();
            [timed(&call), timed(&call), timed(&reply)]
        };
        let caller = Sim::spawn(Placement::On(CpuId::new(0)), calls).unwrap();
        let [_, called, replied] = caller.join();
        assert!(replied * 10 <= called * 13, "{replied:?} and {called:?}");
    };
    Machine::preset("host-2c").unwrap().run(law).unwrap();
}

/// A thread that would wait awake for longer gives up when its time is over.
#[test]
fn a_short_wait_for_a_reply_is_over_soon() {
    let law = || {
        let cpu = CpuId::new(1);
        let workers: Builder<Sim> = Workers::builder_in().cpus([cpu].into_iter().collect());
        let workers = workers.start().unwrap();
        let reply = workers.spawn_on(cpu, || Sim::work(Duration::from_millis(1))).unwrap();
        let short = Duration::from_micros(10);
        let begun = Sim::now();
        let reply = reply.wait_timeout(short).expect_err("the task is not over");
        let took = Sim::now() - begun;
        assert!(took >= short && took < 3 * short, "{took:?}");
        reply.wait();
    };
    Machine::preset("host-2c").unwrap().run(law).unwrap();
}
