//! The laws of calls and tasks: each runs exactly once and on its worker, its caller returns after
//! it has, no wake-up is lost, and none runs after the end.

use std::sync::Arc;
use std::time::Duration;

use coreline::Workers;
use coreline::call::{Builder, CallError, Policy, WorkerStats};
use coreline_sim::{FailureKind, Faults, Sim};
use coreline_topology::{CpuId, CpuSet};
use coreline_world::model::{Model, Plant};
use coreline_world::{
    Cell, Integer, JoinHandle, Line, Native, Ordering, Placement, Testbed, Threads, Word,
};

use crate::worlds::{self, Effort, FEW, MANY, RACE, assert_caught};

/// In the model stores are exchanges: a worker takes a message by a store over what only exchanges
/// that it has seen could have written.
const EXCHANGES: Plant = Plant::EXCHANGES;

/// How workers wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) policy: Policy,
    pub(crate) polling: Duration,
}

pub(crate) const POLLS: Manner =
    Manner { policy: Policy::Notify, polling: Duration::from_micros(200) };
pub(crate) const SLEEPS: Manner = Manner { policy: Policy::Notify, polling: Duration::ZERO };
const SEARCHES: Manner = Manner { policy: Policy::Resched, ..POLLS };
const KICKED: Manner = Manner { policy: Policy::AlwaysKick, ..POLLS };
pub(crate) const MANNERS: [Manner; 4] = [POLLS, SLEEPS, SEARCHES, KICKED];

/// Runs a law with workers of each manner: natively so often, and simulated with preemptions.
pub(crate) fn in_every_manner(
    name: &str,
    rounds: usize,
    native: fn(Manner),
    simulated: fn(Manner),
) {
    for manner in MANNERS {
        (0..rounds).for_each(|_| native(manner));
        let law = move || simulated(manner);
        worlds::simulate(name, "host-2c", worlds::PREEMPTED, law).unwrap();
    }
}

/// Workers on the CPUs of an effort.
pub(crate) fn workers<W: Testbed>(effort: Effort, manner: Manner) -> Workers<W> {
    let place = effort.places::<W>();
    let on = |number| match place(number) {
        Placement::On(cpu) => cpu,
        Placement::Anywhere => unreachable!("an effort names CPUs"),
    };
    let cpus: CpuSet = (0..effort.cpus).map(on).collect();
    let builder: Builder<W> = Workers::builder_in().cpus(cpus);
    builder.policy(manner.policy).polling(manner.polling).start().unwrap()
}

fn total<W: Testbed>(workers: &Workers<W>) -> WorkerStats {
    workers.stats().map(|(_, stats)| stats).fold(WorkerStats::default(), |sum, it| sum + it)
}

/// What calls touch: one count for each worker, which only calls on that worker may touch, and
/// which are no atomics.
struct Counts<W: Testbed> {
    cpus: Vec<CpuId>,
    each: Vec<Line<Cell<u64, W>>>,
}

impl<W: Testbed> Counts<W> {
    fn new(workers: &Workers<W>) -> Self {
        let cpus: Vec<_> = workers.cpus().collect();
        let each = cpus.iter().map(|_| Line(Cell::new_in(0))).collect();
        Counts { cpus, each }
    }

    /// On the worker of that number.
    fn add(&self, worker: usize) -> u64 {
        assert!(!W::RUNS || W::cpu() == self.cpus[worker], "on another CPU");
        // SAFETY: calls on one worker follow each other, and none waits within this: that is what
        // is tested.
        self.each[worker].with_mut(|at| unsafe {
            *at += 1;
            *at
        })
    }

    fn sum(self) -> u64 {
        self.each.into_iter().map(|count| count.0.into_inner()).sum()
    }
}

/// Threads call all workers in turn, by functions of one word, which lie beside the wake word, and
/// of more words, which lie with their callers. Each call reads what its caller wrote, and its
/// caller reads what it wrote.
fn calls<W: Testbed>(effort: Effort, manner: Manner) {
    let workers = Arc::new(workers::<W>(effort, manner));
    let counts = Arc::new(Counts::new(&workers));
    let place = effort.places::<W>();
    let call = |number: u32| {
        let (workers, counts) = (Arc::clone(&workers), Arc::clone(&counts));
        move || {
            for round in 0..effort.rounds {
                let index = (number + round) as usize % counts.cpus.len();
                let (sent, came) = (Cell::<_, W>::new_in(0), Cell::<_, W>::new_in(0));
                // SAFETY: the call begins after this.
                sent.with_mut(|at| unsafe { *at = round + 1 });
                let run = || {
                    // SAFETY: the caller waits meanwhile: that is what is tested.
                    let value = sent.with(|at| unsafe { *at });
                    // SAFETY: as for `sent`.
                    came.with_mut(|at| unsafe { *at = value });
                    counts.add(index)
                };
                let cpu = counts.cpus[index];
                let is_small = round % 2 == 0;
                let count = if is_small {
                    workers.call_on(cpu, &run).map_err(CallError::from)
                } else {
                    workers.call_on(cpu, run).map_err(CallError::from)
                };
                assert!(count.unwrap() > 0);
                // SAFETY: the call is over.
                assert_eq!(came.with(|at| unsafe { *at }), round + 1);
            }
        }
    };
    // The first thread is one of them: the model has few.
    let others = 1..effort.threads;
    let others: Vec<_> =
        others.map(|number| W::spawn(place(number), call(number)).unwrap()).collect();
    call(0)();
    others.into_iter().for_each(JoinHandle::join);
    let all = u64::from(effort.threads * effort.rounds);
    assert_eq!(total(&workers).calls, all);
    drop(Arc::into_inner(workers).expect("the threads have ended"));
    assert_eq!(Arc::into_inner(counts).expect("the workers have ended").sum(), all);
}

/// Each worker calls all others in turn, and all do at the same time: calls cross.
fn crossing<W: Testbed>(effort: Effort, manner: Manner) {
    let workers = workers::<W>(effort, manner);
    let cpus: Vec<_> = workers.cpus().collect();
    if cpus.len() == 1 {
        return;
    }
    let counts = Counts::new(&workers);
    let call_others = |cpu| {
        let own = cpus.iter().position(|it| *it == cpu).unwrap();
        for round in 0..effort.rounds as usize {
            let other = (own + 1 + round % (cpus.len() - 1)) % cpus.len();
            workers.call_on(cpus[other], || counts.add(other)).unwrap();
        }
    };
    let all: CpuSet = cpus.iter().copied().collect();
    workers.call_many(&all, call_others).unwrap();
    let made = effort.rounds as usize * cpus.len();
    drop(workers);
    assert_eq!(counts.sum(), made as u64);
}

/// Each worker calls the next one in a ring, and that one the next, for so many steps, while the
/// others do the same.
fn rings<W: Testbed>(effort: Effort, manner: Manner, steps: usize) {
    let workers = workers::<W>(effort, manner);
    let cpus: Vec<_> = workers.cpus().collect();
    let counts = W::U64::new_in(0);
    fn go<W: Testbed>(
        workers: &Workers<W>,
        cpus: &[CpuId],
        at: usize,
        left: usize,
        count: &W::U64,
    ) {
        // Relaxed: a count.
        count.fetch_add(1, Ordering::Relaxed);
        if left > 0 {
            let next = (at + 1) % cpus.len();
            workers.call_on(cpus[next], || go(workers, cpus, next, left - 1, count)).unwrap();
        }
    }
    let all: CpuSet = cpus.iter().copied().collect();
    for _ in 0..effort.rounds {
        let start = |cpu| {
            let at = cpus.iter().position(|it| *it == cpu).unwrap();
            go(&workers, &cpus, at, steps, &counts);
            at
        };
        let came = workers.call_many(&all, start).unwrap();
        assert_eq!(came.len(), cpus.len());
        assert!(came.into_iter().all(|(cpu, at)| cpus[at] == cpu));
    }
    // Relaxed: all calls have returned.
    let made = counts.load(Ordering::Relaxed);
    assert_eq!(made, u64::from(effort.rounds) * (cpus.len() * (steps + 1)) as u64);
}

/// One thread calls until it is refused, while another one closes.
fn closing<W: Testbed>(effort: Effort, manner: Manner) {
    let workers = Arc::new(workers::<W>(effort, manner));
    let ran = Arc::new(W::U64::new_in(0));
    let cpus: Vec<_> = workers.cpus().collect();
    let place = effort.places::<W>();
    let call = |number: u32| {
        let (workers, ran, cpus) = (Arc::clone(&workers), Arc::clone(&ran), cpus.clone());
        let limit = if W::RUNS { u64::MAX } else { 2 };
        let call = move || {
            for round in 0..limit {
                let cpu = cpus[(u64::from(number) + round) as usize % cpus.len()];
                // Relaxed: a count.
                let run = || ran.fetch_add(1, Ordering::Relaxed);
                if let Err(refused) = workers.call_on(cpu, run) {
                    assert_eq!(refused.why, CallError::Closed);
                    return round;
                }
            }
            limit
        };
        W::spawn(place(number), call).unwrap()
    };
    let threads: Vec<_> = (1..effort.threads).map(call).collect();
    for round in 0..effort.rounds {
        let _ = workers.call_on(cpus[round as usize % cpus.len()], || ());
    }
    workers.close();
    let kept = workers.call_on(cpus[0], || "came back");
    let kept = kept.expect_err("it was closed before");
    assert_eq!((kept.why, (kept.function)()), (CallError::Closed, "came back"));
    assert_eq!(workers.spawn(|| ()).unwrap_err().why, CallError::Closed);
    let came: u64 = threads.into_iter().map(JoinHandle::join).sum();
    drop(Arc::into_inner(workers).expect("the threads have ended"));
    // Relaxed: all threads have been joined.
    assert_eq!(ran.load(Ordering::Relaxed), came, "calls that returned, and calls that ran");
}

/// Calls that no thread waits for, some of which are withdrawn: each runs whole, or not.
fn withdrawn<W: Testbed>(effort: Effort, manner: Manner) {
    let workers = workers::<W>(effort, manner);
    let (begun, ended) = (Arc::new(W::U64::new_in(0)), Arc::new(W::U64::new_in(0)));
    let cpus: Vec<_> = workers.cpus().collect();
    let mut kept = 0;
    for round in 0..effort.rounds {
        let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
        let count = move || {
            // Relaxed, twice: counts.
            begun.fetch_add(1, Ordering::Relaxed);
            ended.fetch_add(1, Ordering::Relaxed);
            round
        };
        let reply = workers.call_async(cpus[round as usize % cpus.len()], count).unwrap();
        match round % 3 {
            0 => drop(reply),
            1 => {
                assert_eq!(reply.wait(), round);
                kept += 1;
            }
            _ => {
                reply.detach();
                kept += 1;
            }
        }
    }
    drop(workers);
    // Every letter is gone, and with it what its function held.
    let begun = Arc::into_inner(begun).expect("no letter is left");
    let ended = Arc::into_inner(ended).expect("no letter is left");
    // Relaxed, twice: the workers have ended.
    let (begun, ended) = (begun.load(Ordering::Relaxed), ended.load(Ordering::Relaxed));
    assert_eq!(begun, ended);
    assert!((kept..=u64::from(effort.rounds)).contains(&begun), "{begun} of {kept}");
}

/// Tasks make tasks, in a tree: each runs once, some of them on workers that took them from others.
fn tasks<W: Testbed>(effort: Effort, manner: Manner) -> WorkerStats {
    let workers = Arc::new(workers::<W>(effort, manner));
    let ran = Arc::new(W::U64::new_in(0));
    fn grow<W: Testbed>(workers: &Arc<Workers<W>>, ran: &Arc<W::U64>, depth: u32) {
        // Relaxed: a count.
        ran.fetch_add(1, Ordering::Relaxed);
        W::work(Duration::from_micros(2));
        for child in 0..if depth == 0 { 0 } else { 2 } {
            let (theirs, count) = (Arc::clone(workers), Arc::clone(ran));
            let grow = move || grow(&theirs, &count, depth - 1);
            match child {
                0 => workers.spawn(grow).unwrap().detach(),
                _ => {
                    let cpu = workers.cpus().last().unwrap();
                    workers.spawn_on(cpu, grow).unwrap().detach();
                }
            }
        }
    }
    let (theirs, count, depth) = (Arc::clone(&workers), Arc::clone(&ran), effort.rounds);
    workers.spawn(move || grow(&theirs, &count, depth)).unwrap().wait();
    let all = (2 << depth) - 1;
    // Relaxed: a count. It grows to this, or the test does not end.
    ran.wait_until(Ordering::Relaxed, |ran| ran == all);
    let stats = loop {
        // The last tasks let go of what they hold when they have counted.
        let stats = total(&workers);
        if stats.tasks == all {
            break stats;
        }
        W::relax();
    };
    assert_eq!(stats.calls, 0);
    stats
}

/// What a called function queues on its worker runs there next, and `need_resched` tells of it.
fn resched<W: Testbed>(effort: Effort, manner: Manner) {
    let workers = Arc::new(workers::<W>(effort, manner));
    let cpus: Vec<_> = workers.cpus().collect();
    for round in 0..effort.rounds {
        let cpu = cpus[round as usize % cpus.len()];
        let told = workers.call_on(cpu, || {
            let before = workers.need_resched();
            let task = workers.spawn_on(cpu, move || W::cpu()).unwrap();
            (before, workers.need_resched(), task)
        });
        let (before, after, task) = told.unwrap();
        assert!(!before, "nothing was queued");
        assert!(after, "a task was queued");
        assert!(task.wait() == cpu || !W::RUNS);
    }
    assert!(!workers.need_resched(), "this is no worker");
    let stats = total(&workers);
    assert_eq!(stats.tasks, u64::from(effort.rounds));
}

/// Simulated: runs a law on two CPUs with faults, and on many.
fn simulated(name: &'static str, law: fn(Effort, Manner), many: Effort) {
    for manner in MANNERS {
        for faults in [Faults::NONE, worlds::TORN, worlds::PREEMPTED] {
            worlds::simulate(name, "host-2c", faults, move || law(FEW, manner)).unwrap();
        }
        let all = move || law(many, manner);
        worlds::simulate_seeds(name, "epyc-9654-2s", Faults::NONE, 3, all).unwrap();
    }
}

const CROWDED: Effort = Effort { threads: 4, rounds: 5000, cpus: 2 };

#[test]
fn calls_run_once_natively() {
    for manner in MANNERS {
        calls::<Native>(CROWDED, manner);
        calls::<Native>(Effort { threads: 1, rounds: 2000, cpus: 1 }, manner);
    }
}

#[test]
fn calls_run_once_in_simulation() {
    simulated("call::calls", calls::<Sim>, MANY);
}

const ONE: Effort = Effort { threads: 1, rounds: 2, cpus: 1 };

#[test]
fn calls_run_once_in_every_interleaving() {
    worlds::check_planted(EXCHANGES, || calls::<Model>(ONE, SLEEPS));
    let effort = Effort { threads: 2, rounds: 1, ..ONE };
    worlds::fewest_planted(EXCHANGES, move || calls::<Model>(effort, SLEEPS));
}

#[test]
fn rings_of_calls_end_natively() {
    for manner in MANNERS {
        rings::<Native>(Effort { threads: 1, rounds: 1000, cpus: 2 }, manner, 5);
    }
}

#[test]
fn rings_of_calls_end_in_simulation() {
    simulated(
        "call::rings",
        |effort, manner| rings::<Sim>(effort, manner, 5),
        Effort { threads: 1, rounds: 2, cpus: 48 },
    );
}

#[test]
fn a_million_calls_cross_natively() {
    let effort = Effort { threads: 1, rounds: 10_000, cpus: 2 };
    for manner in MANNERS {
        crossing::<Native>(effort, manner);
    }
    crossing::<Native>(Effort { rounds: 500_000, ..effort }, POLLS);
}

#[test]
fn calls_cross_in_simulation() {
    simulated("call::crossing", crossing::<Sim>, Effort { threads: 1, rounds: 40, cpus: 24 });
}

#[test]
fn no_call_runs_after_the_end_natively() {
    for manner in MANNERS {
        for _ in 0..20 {
            closing::<Native>(Effort { threads: 3, rounds: 50, cpus: 2 }, manner);
        }
    }
}

#[test]
fn no_call_runs_after_the_end_in_simulation() {
    let many = Effort { threads: 64, rounds: 4, cpus: 64 };
    simulated("call::closing", closing::<Sim>, many);
}

#[test]
fn no_call_runs_after_the_end_in_every_interleaving() {
    let effort = Effort { threads: 2, rounds: 0, cpus: 1 };
    worlds::few_planted(EXCHANGES, move || closing::<Model>(effort, SLEEPS));
}

#[test]
fn withdrawn_calls_run_whole_or_not_natively() {
    for manner in MANNERS {
        withdrawn::<Native>(CROWDED, manner);
    }
}

#[test]
fn withdrawn_calls_run_whole_or_not_in_simulation() {
    simulated("call::withdrawn", withdrawn::<Sim>, Effort { rounds: 60, ..MANY });
}

#[test]
fn withdrawn_calls_run_whole_or_not_in_every_interleaving() {
    let effort = Effort { threads: 1, rounds: 1, cpus: 1 };
    worlds::few_planted(EXCHANGES, move || withdrawn::<Model>(effort, SLEEPS));
    let effort = Effort { threads: 1, rounds: 2, cpus: 1 };
    worlds::few_planted(EXCHANGES, move || withdrawn::<Model>(effort, SLEEPS));
}

#[test]
fn tasks_run_once_natively() {
    for manner in MANNERS {
        tasks::<Native>(Effort { threads: 1, rounds: 10, cpus: 2 }, manner);
    }
}

#[test]
fn tasks_run_once_in_simulation() {
    let few = |effort: Effort, manner| _ = tasks::<Sim>(Effort { rounds: 5, ..effort }, manner);
    simulated("call::tasks", few, Effort { cpus: 24, ..FEW });
}

#[test]
fn tasks_of_a_busy_worker_are_taken_by_others() {
    let law = || {
        let stats = tasks::<Sim>(Effort { threads: 1, rounds: 8, cpus: 24 }, POLLS);
        assert!(stats.steals >= 20, "{stats:?}");
    };
    worlds::simulate("call::steals", "epyc-9654-2s", Faults::NONE, law).unwrap();
}

#[test]
fn what_a_call_queues_runs_next_natively() {
    for manner in MANNERS {
        resched::<Native>(Effort { threads: 1, rounds: 500, cpus: 2 }, manner);
    }
}

#[test]
fn what_a_call_queues_runs_next_in_simulation() {
    simulated("call::resched", resched::<Sim>, Effort { threads: 1, rounds: 20, cpus: 48 });
}

/// Calls on two workers that count in one place, which no order guards.
#[test]
fn schedules_that_look_for_mistakes_find_calls_on_two_workers_in_one_place() {
    let law = || {
        let effort = Effort { threads: 2, rounds: 3, cpus: 2 };
        let (workers, place) = (Arc::new(workers::<Sim>(effort, POLLS)), effort.places::<Sim>());
        let count = Arc::new(Cell::<u64, Sim>::new_in(0));
        let call = |number| {
            let (workers, count) = (Arc::clone(&workers), Arc::clone(&count));
            let call = move || {
                let cpu = workers.cpus().nth(number as usize).unwrap();
                for _ in 0..3 {
                    // SAFETY: none: that is what is to be found.
                    workers.call_on(cpu, || count.with_mut(|at| unsafe { *at += 1 })).unwrap();
                }
            };
            Sim::spawn(place(number), call).unwrap()
        };
        [0, 1].map(call).into_iter().for_each(JoinHandle::join);
    };
    let found = worlds::search("call::searched_race", "host-2c", 20, law).unwrap_err();
    assert!(matches!(found.kind, FailureKind::DataRace { .. }), "{found}");
}

/// With two workers, on CPUs that their callers have, too; and with four.
#[test]
fn calls_and_tasks_hold_under_schedules_that_look_for_mistakes() {
    type Law = fn(Effort, Manner);
    let laws: [(&str, Law); 6] = [
        ("call::searched_calls", calls::<Sim>),
        ("call::searched_crossing", crossing::<Sim>),
        ("call::searched_rings", |effort, manner| rings::<Sim>(effort, manner, 3)),
        ("call::searched_closing", closing::<Sim>),
        ("call::searched_withdrawn", withdrawn::<Sim>),
        ("call::searched_tasks", |effort, manner| _ = tasks::<Sim>(effort, manner)),
    ];
    let runs = (laws.len() * MANNERS.len() * 2) as u64;
    let schedules = worlds::schedules(6 * runs).div_ceil(runs);
    for (name, law) in laws {
        for manner in MANNERS {
            let two = move || law(Effort { threads: 3, rounds: 3, cpus: 2 }, manner);
            worlds::search(name, "host-2c", schedules, two).unwrap();
            let four = move || law(Effort { threads: 3, rounds: 3, cpus: 4 }, manner);
            worlds::search(name, "kunpeng920-96c-4n", schedules, four).unwrap();
        }
    }
}

/// Calls have a worker search only under the policy that says so.
#[test]
fn a_call_is_no_work() {
    let searches = |manner| {
        let law = move || {
            let workers = workers::<Sim>(Effort { threads: 1, rounds: 0, cpus: 8 }, manner);
            let cpu = workers.cpus().next().unwrap();
            // It has found no work before.
            workers.call_on(cpu, || ()).unwrap();
            let before = total(&workers).searches;
            (0..100).for_each(|_| workers.call_on(cpu, || ()).unwrap());
            let searches = total(&workers).searches - before;
            match manner.policy {
                Policy::Resched => assert!(searches >= 99, "{searches}"),
                _ => assert!(searches <= 8, "{searches}: by those that have just started"),
            }
        };
        worlds::simulate("call::searches", "epyc-9654-2s", Faults::NONE, law).unwrap();
    };
    MANNERS.into_iter().for_each(searches);
}

#[test]
fn a_missing_order_is_caught() {
    let loads = Plant { load: Plant::RELAXED_LOADS.load, ..EXCHANGES };
    assert_caught(loads, RACE, || calls::<Model>(ONE, SLEEPS));
    let rmws = Plant { rmw: Plant::RELAXED_RMWS.rmw, ..EXCHANGES };
    assert_caught(rmws, RACE, || calls::<Model>(ONE, SLEEPS));
}

#[test]
fn a_missing_fence_is_caught() {
    let fences = Plant { fence: Plant::NO_FENCES.fence, ..EXCHANGES };
    assert_caught(fences, "deadlock", || calls::<Model>(ONE, SLEEPS));
}
