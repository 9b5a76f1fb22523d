//! The laws of scopes: each task runs once, and what it wrote is seen when the scope ends; no scope
//! ends before its tasks, not by a panic either; and a scope on a worker needs no other worker.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use coreline::Workers;
use coreline::call::{Builder, CallError, Scope};
use coreline_sim::{FailureKind, Sim};
use coreline_topology::CpuSet;
use coreline_world::model::{Model, Plant};
use coreline_world::{Cell, Integer, JoinHandle, Native, Ordering, Testbed, Word, Work};

use crate::call::{MANNERS, Manner, POLLS, SLEEPS, in_every_manner, workers};
use crate::worlds::{self, Effort, FEW};

/// Each task counts in a place of its own, which is no atomic, and adds the next one if there is
/// to be one.
fn counts<'scope, W: Testbed>(scope: &Scope<'scope, W>, places: &'scope [Cell<u32, W>]) {
    if let [first, rest @ ..] = places {
        let count = move |scope: &Scope<'scope, W>| {
            // SAFETY: this task alone knows the place until the scope ends: that is what is tested.
            first.with_mut(|at| unsafe { *at += 1 });
            counts(scope, rest);
        };
        scope.spawn(count).expect("they are not closed");
    }
}

/// Chains of tasks, in one scope.
fn chains<W: Testbed>(workers: &Workers<W>, chains: usize, length: usize) {
    let places: Vec<_> = (0..chains * length).map(|_| Cell::<u32, W>::new_in(0)).collect();
    let sum = workers.scope(|scope| {
        places.chunks(length).for_each(|chain| counts(scope, chain));
        chains
    });
    assert_eq!(sum, chains);
    // Nothing but the end of the scope orders this.
    // SAFETY: the tasks have ended: that is what is tested.
    let count = |place: &Cell<u32, W>| place.with(|at| unsafe { *at });
    assert!(places.iter().all(|place| count(place) == 1), "each task runs once");
}

/// A thread that is no worker opens scopes, and then all workers do at the same time.
fn scopes<W: Testbed>(effort: Effort, manner: Manner) {
    let workers = workers::<W>(effort, manner);
    let all: CpuSet = workers.cpus().collect();
    for round in 0..effort.rounds as usize {
        chains(&workers, 1 + round % 3, 1 + round % 4);
        let opened = workers.call_many(&all, |_| chains(&workers, 1 + round % 3, 1 + round % 2));
        assert_eq!(opened.unwrap().len(), all.len());
    }
    let tasks: u64 = {
        let shared = (0..effort.rounds).map(|round| u64::from((1 + round % 3) * (1 + round % 4)));
        let own = (0..effort.rounds).map(|round| u64::from((1 + round % 3) * (1 + round % 2)));
        shared.sum::<u64>() + own.sum::<u64>() * all.len() as u64
    };
    assert!(workers.close_and_wait());
    // A worker that comes to a ticket counts, also if the owner has run the task.
    assert!(workers.stats().map(|(_, it)| it.tasks).sum::<u64>() >= tasks);
    assert!(workers.stats().all(|(_, it)| it.depth == 0));
}

#[test]
fn scopes_end_after_their_tasks_natively() {
    for manner in MANNERS {
        scopes::<Native>(Effort { threads: 1, rounds: 500, cpus: 2 }, manner);
        scopes::<Native>(Effort { threads: 1, rounds: 200, cpus: 1 }, manner);
    }
}

#[test]
fn scopes_end_after_their_tasks_in_simulation() {
    for manner in MANNERS {
        for faults in [worlds::TORN, worlds::PREEMPTED] {
            let law = move || scopes::<Sim>(Effort { rounds: 12, ..FEW }, manner);
            worlds::simulate("scopes::scopes", "host-2c", faults, law).unwrap();
        }
    }
    let law = || scopes::<Sim>(Effort { threads: 1, rounds: 3, cpus: 48 }, POLLS);
    worlds::simulate("scopes::many", "epyc-9654-2s", coreline_sim::Faults::NONE, law).unwrap();
}

#[test]
fn scopes_end_after_their_tasks_under_schedules_that_look_for_mistakes() {
    for manner in MANNERS {
        let law = move || scopes::<Sim>(Effort { threads: 1, rounds: 3, cpus: 2 }, manner);
        worlds::search("scopes::searched", "host-2c", worlds::schedules(12), law).unwrap();
    }
}

/// One task, whose scope a thread has opened that is no worker.
fn one<W: Testbed>() {
    let workers = workers::<W>(Effort { threads: 1, rounds: 1, cpus: 1 }, SLEEPS);
    chains(&workers, 1, 1);
}

/// One task, whose scope the only worker has opened: it runs the task itself.
fn alone<W: Testbed>() {
    let workers = workers::<W>(Effort { threads: 1, rounds: 1, cpus: 1 }, SLEEPS);
    let cpu = workers.cpus().next().unwrap();
    workers.call_on(cpu, || chains(&workers, 1, 1)).unwrap();
}

#[test]
fn a_scope_ends_after_its_task_in_every_interleaving() {
    worlds::few_planted(Plant::EXCHANGES, one::<Model>);
    worlds::few_planted(Plant::EXCHANGES, alone::<Model>);
}

/// So many tasks, each of which adds the next one.
fn one_by_one<'scope, W: Testbed>(
    scope: &Scope<'scope, W>,
    count: u32,
    look: &'scope (impl Fn() + Sync),
) {
    let task = move |scope: &Scope<'scope, W>| {
        look();
        if count > 1 {
            one_by_one(scope, count - 1, look);
        }
    };
    scope.spawn(task).unwrap();
}

/// In a call that goes on, the tickets of scopes that are over are gone from the queue, and there
/// are no more of them than tasks that wait, also if the queue may have no other tasks.
fn tickets_go<W: Testbed>(limit: usize) {
    let cpu = W::allowed().iter().next().unwrap();
    let builder: Builder<W> = Workers::builder_in().cpus([cpu].into_iter().collect());
    let workers = builder.queue_limit(limit).start().unwrap();
    let depth = || workers.stats().map(|(_, stats)| stats.depth).sum::<u64>();
    let opened = workers.call_on(cpu, || {
        for _ in 0..10 {
            workers.scope(|scope| {
                (0..5).for_each(|_| scope.spawn(|_| ()).unwrap());
                assert_eq!(depth(), 5);
            });
            assert!(depth() == 0 && !workers.need_resched(), "nothing waits");
        }
        let one_waits = || assert_eq!(depth(), 1, "each task adds the next one");
        workers.scope(|scope| one_by_one(scope, 20, &one_waits));
        workers.spawn(|| ()).map_err(CallError::from).map(drop)
    });
    let expected = if limit == 0 { Err(CallError::Full) } else { Ok(()) };
    assert_eq!(opened.unwrap(), expected, "all places are free");
}

#[test]
fn tickets_of_scopes_that_are_over_are_gone_in_every_world() {
    for limit in [0, 1, usize::MAX] {
        tickets_go::<Native>(limit);
        let law = move || tickets_go::<Sim>(limit);
        worlds::simulate("scopes::tickets", "host-2c", worlds::PREEMPTED, law).unwrap();
    }
}

/// Two threads call the only worker again and again. Its scope ends meanwhile.
fn calls_do_not_keep_it_from_its_tasks(manner: Manner) {
    const MOST: u32 = 500;
    let workers = Arc::new(workers::<Sim>(Effort { threads: 1, rounds: 1, cpus: 1 }, manner));
    let (cpu, over) = (workers.cpus().next().unwrap(), Arc::new(AtomicBool::new(false)));
    let callers = Effort { threads: 3, rounds: 1, cpus: 3 }.crew::<Sim, _, _>(|number| {
        let (workers, over) = (Arc::clone(&workers), Arc::clone(&over));
        move || {
            // The first one would be on the worker's CPU.
            let calls = (0..MOST).take_while(|_| number > 0 && !over.load(Ordering::Relaxed));
            let work = || Sim::work(Duration::from_micros(1));
            calls.map(|_| workers.call_on(cpu, work).unwrap()).count()
        }
    });
    let opened = workers.call_on(cpu, || {
        // The others call by then.
        Sim::work(Duration::from_micros(50));
        workers.scope(|scope| scope.spawn(|_| ()).unwrap());
        over.store(true, Ordering::Relaxed);
    });
    opened.unwrap();
    let calls = callers.into_iter().map(JoinHandle::join);
    assert!(calls.max() < Some(MOST as usize), "they did not end first");
}

#[test]
fn calls_do_not_keep_a_worker_that_waits_from_its_tasks_in_simulation() {
    for manner in MANNERS {
        let law = move || calls_do_not_keep_it_from_its_tasks(manner);
        worlds::simulate("scopes::called", "epyc-9654-2s", coreline_sim::Faults::NONE, law)
            .unwrap();
    }
}

/// A task that waits for one that no worker has begun, as only the owner can run it. A queue that
/// may have no tasks still takes those of a scope.
fn a_worker_that_waits_runs_what_others_leave<W: Testbed>(manner: Manner) {
    let cpus: CpuSet = W::allowed().iter().take(2).collect();
    let builder: Builder<W> = Workers::builder_in().cpus(cpus).queue_limit(0);
    let workers = builder.policy(manner.policy).polling(manner.polling).start().unwrap();
    let cpus: Vec<_> = workers.cpus().collect();
    let (begun, ran) = (W::U32::new_in(0), W::U32::new_in(0));
    let waits = |word: &W::U32| {
        // Acquire: pairs with the Release of the other task.
        while word.load(Ordering::Acquire) == 0 {
            W::yield_now();
        }
    };
    let opened = workers.call_on(cpus[0], || {
        workers.scope(|scope| {
            let first = scope.spawn(|scope| {
                // Release, twice: pairs with the Acquire of the other task's wait.
                begun.store(1, Ordering::Release);
                scope.spawn(|_| ran.store(1, Ordering::Release)).unwrap();
                // No other worker is left: each of the two is in a task.
                waits(&ran);
            });
            first.unwrap();
            // It goes to another worker, and this one has only the second task to run.
            waits(&begun);
        });
        // Acquire: the scope has ended.
        ran.load(Ordering::Acquire)
    });
    assert_eq!(opened.unwrap(), 1);
}

#[test]
fn a_worker_that_waits_runs_what_others_leave_in_every_world() {
    in_every_manner(
        "scopes::leaves",
        20,
        a_worker_that_waits_runs_what_others_leave::<Native>,
        a_worker_that_waits_runs_what_others_leave::<Sim>,
    );
}

/// A task calls the worker that waits for it.
fn a_worker_that_waits_serves_calls<W: Testbed>(manner: Manner) {
    let workers = &workers::<W>(Effort { threads: 1, rounds: 1, cpus: 2 }, manner);
    let cpus: Vec<_> = workers.cpus().collect();
    for &cpu in &cpus {
        let opened = workers.call_on(cpu, || {
            let called = &W::U32::new_in(0);
            workers.scope(|scope| {
                for &cpu in &cpus {
                    // Relaxed: a count.
                    let count = move || called.fetch_add(1, Ordering::Relaxed);
                    scope.spawn(move |_| _ = workers.call_on(cpu, count).unwrap()).unwrap();
                }
            });
            // Relaxed: the scope has ended.
            called.load(Ordering::Relaxed)
        });
        assert_eq!(opened.unwrap(), cpus.len() as u32);
    }
}

#[test]
fn a_worker_that_waits_serves_calls_in_every_world() {
    in_every_manner(
        "scopes::serves",
        20,
        a_worker_that_waits_serves_calls::<Native>,
        a_worker_that_waits_serves_calls::<Sim>,
    );
}

/// A worker that waits runs no task but those of its scope.
#[test]
fn a_worker_that_waits_runs_no_other_task_natively() {
    let workers = workers::<Native>(Effort { threads: 1, rounds: 1, cpus: 1 }, SLEEPS);
    let cpu = workers.cpus().next().unwrap();
    let ran = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let theirs = std::sync::Arc::clone(&ran);
    let seen = workers.call_on(cpu, || {
        let other = workers.spawn(move || theirs.fetch_add(1, Ordering::Relaxed)).unwrap();
        workers.scope(|scope| scope.spawn(|_| ()).unwrap());
        (ran.load(Ordering::Relaxed), other)
    });
    let (before, other) = seen.unwrap();
    assert_eq!((before, other.wait()), (0, 0));
}

/// Tasks and functions that panic: the scope ends after its tasks, and one panic comes.
fn panics<W: Testbed>(manner: Manner) {
    let workers = workers::<W>(Effort { threads: 1, rounds: 1, cpus: 2 }, manner);
    let cpu = workers.cpus().next().unwrap();
    for own in [false, true] {
        let ran = W::U32::new_in(0);
        let fails = || {
            workers.scope(|scope| {
                for number in 0..4 {
                    let spawned = scope.spawn(|_| {
                        // Relaxed: a count.
                        ran.fetch_add(1, Ordering::Relaxed);
                        std::panic::panic_any("a task");
                    });
                    spawned.unwrap();
                    if own && number == 3 {
                        std::panic::panic_any("the function");
                    }
                }
            });
        };
        let expected = if own { "the function" } else { "a task" };
        let panicked = catch_unwind(AssertUnwindSafe(fails)).unwrap_err();
        assert_eq!(panicked.downcast_ref::<&str>(), Some(&expected));
        let panicked = workers.call_on(cpu, || catch_unwind(AssertUnwindSafe(fails)).is_err());
        assert!(panicked.unwrap());
        // Relaxed: the scopes have ended.
        assert_eq!(ran.load(Ordering::Relaxed), 8);
    }
    chains(&workers, 2, 2);
}

#[test]
fn a_scope_that_panics_ends_after_its_tasks_in_every_world() {
    in_every_manner("scopes::panics", 1, panics::<Native>, panics::<Sim>);
}

/// After the workers are closed: a scope of another thread refuses, one on a worker does not.
fn closed<W: Testbed>(manner: Manner) {
    let workers = workers::<W>(Effort { threads: 1, rounds: 1, cpus: 2 }, manner);
    let cpu = workers.cpus().next().unwrap();
    let opened = workers.call_on(cpu, || {
        workers.close();
        chains(&workers, 3, 2);
    });
    opened.unwrap();
    let refused = workers.scope(|scope| {
        let refused = scope.spawn(|_| ()).expect_err("they are closed");
        (refused.function)(scope);
        refused.why
    });
    assert_eq!(refused, CallError::Closed);
}

#[test]
fn closed_workers_refuse_tasks_of_scopes_in_every_world() {
    in_every_manner("scopes::closed", 1, closed::<Native>, closed::<Sim>);
}

/// Two tasks of one scope that count in one place.
#[test]
fn schedules_that_look_for_mistakes_find_two_tasks_in_one_place() {
    let law = || {
        let workers = workers::<Sim>(Effort { threads: 1, rounds: 1, cpus: 2 }, POLLS);
        let place = Cell::<u32, Sim>::new_in(0);
        workers.scope(|scope| {
            for _ in 0..3 {
                // SAFETY: none: that is what is to be found.
                scope.spawn(|_| place.with_mut(|at| unsafe { *at += 1 })).unwrap();
            }
        });
    };
    let found = worlds::search("scopes::race", "host-2c", 20, law).unwrap_err();
    assert!(matches!(found.kind, FailureKind::DataRace { .. }), "{found}");
}
