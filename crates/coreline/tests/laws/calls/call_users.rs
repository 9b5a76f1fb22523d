//! The law of shootdowns through workers: after one no worker works with what it cached before.

use std::sync::Arc;

use coreline::Workers;
use coreline::call::{CallError, NotAWorker, Users};
use coreline::mask::{Entry, Shot};
use coreline_sim::{Faults, Sim};
use coreline_topology::CpuId;
use coreline_world::model::{Model, Plant};
use coreline_world::{Cell, JoinHandle, Line, Native, Ordering, Testbed, Word};

use super::call::{MANNERS, Manner, SLEEPS, workers};
use crate::worlds::{self, Effort, FEW, MANY};

/// Something that changes, and what each worker has cached of it.
struct Changing<W: Testbed> {
    workers: Workers<W>,
    users: Users<W>,
    cpus: Vec<CpuId>,
    /// Its number now.
    current: W::U64,
    /// The last number whose shootdown is over.
    told: W::U64,
    cached: Vec<Line<Cell<u64, W>>>,
    /// Whether a worker does as it was told when it entered.
    refreshes: bool,
}

impl<W: Testbed> Changing<W> {
    fn new(effort: Effort, manner: Manner, refreshes: bool) -> Self {
        let workers = workers::<W>(effort, manner);
        let (users, cpus) = (workers.users(), workers.cpus().collect::<Vec<_>>());
        let cached = cpus.iter().map(|_| Line(Cell::new_in(1))).collect();
        let (current, told) = (W::U64::new_in(1), W::U64::new_in(1));
        Changing { workers, users, cpus, current, told, cached, refreshes }
    }

    /// On the worker with this index.
    fn refresh(&self, worker: usize) {
        // Relaxed: the shootdown, or the entry, orders it.
        let current = self.current.load(Ordering::Relaxed);
        // SAFETY: touched by the worker alone.
        self.cached[worker].with_mut(|cached| unsafe { *cached = current });
    }

    /// On the worker with this index.
    fn check(&self, worker: usize) {
        // Acquire: pairs with the Release in `change`.
        let told = self.told.load(Ordering::Acquire);
        // SAFETY: touched by the worker alone.
        let cached = self.cached[worker].with(|cached| unsafe { *cached });
        assert!(cached >= told, "worked with {cached} after {told}");
    }

    /// What a call or task on the worker with this index does. `meets`: it calls that one, too.
    fn work(&self, worker: usize, meets: Option<usize>) {
        let (using, entry) = self.users.enter().unwrap();
        if entry == Entry::MustRefresh && self.refreshes {
            self.refresh(worker);
        }
        self.check(worker);
        if let Some(other) = meets {
            self.workers.call_on(self.cpus[other], || self.work(other, None)).unwrap();
            self.check(worker);
        }
        drop(using);
    }

    /// Changes it.
    fn change(&self) -> Shot {
        // Relaxed: the shootdown orders it. One thread changes it.
        let number = self.current.load(Ordering::Relaxed) + 1;
        // Relaxed: as for the load.
        self.current.store(number, Ordering::Relaxed);
        let refresh = || {
            let here = self.cpus.iter().position(|&cpu| !W::RUNS || cpu == W::cpu());
            self.refresh(here.expect("it runs on a worker"));
        };
        let shot = self.users.shootdown(refresh).unwrap();
        // Release: pairs with the Acquire in `check`.
        self.told.store(number, Ordering::Release);
        shot
    }
}

/// One thread changes it, and others have workers use it, in tasks and in calls.
fn shootdowns<W: Testbed>(effort: Effort, manner: Manner, refreshes: bool) {
    let changing = Arc::new(Changing::<W>::new(effort, manner, refreshes));
    let place = effort.places::<W>();
    let users = |number: u32| {
        let changing = Arc::clone(&changing);
        move || {
            let count = changing.cpus.len();
            for round in 0..effort.rounds {
                let at = (number + round) as usize % count;
                let meets = (count > 1 && round % 2 == 1).then_some((at + 1) % count);
                let cpu = changing.cpus[at];
                if round % 3 == 0 {
                    let theirs = Arc::clone(&changing);
                    let task = move || theirs.work(at, meets);
                    changing.workers.spawn_on(cpu, task).unwrap().wait();
                } else {
                    changing.workers.call_on(cpu, || changing.work(at, meets)).unwrap();
                }
            }
        }
    };
    let others: Vec<_> =
        (1..effort.threads).map(|number| W::spawn(place(number), users(number)).unwrap()).collect();
    for _ in 0..effort.rounds {
        let shot = changing.change();
        assert!(shot.reached + shot.away <= changing.cpus.len());
    }
    others.into_iter().for_each(JoinHandle::join);
}

#[test]
fn no_worker_works_with_what_is_gone_natively() {
    for manner in MANNERS {
        shootdowns::<Native>(Effort { threads: 3, rounds: 1000, cpus: 2 }, manner, true);
    }
}

#[test]
fn no_worker_works_with_what_is_gone_in_simulation() {
    for manner in MANNERS {
        for faults in [Faults::NONE, worlds::TORN, worlds::PREEMPTED] {
            let law = move || shootdowns::<Sim>(FEW, manner, true);
            worlds::simulate("call_users::shootdowns", "host-2c", faults, law).unwrap();
        }
        let law = move || shootdowns::<Sim>(Effort { cpus: 24, ..MANY }, manner, true);
        let (name, machine) = ("call_users::shootdowns", "epyc-9654-2s");
        worlds::simulate_seeds(name, machine, Faults::NONE, 3, law).unwrap();
    }
}

#[test]
fn no_worker_works_with_what_is_gone_in_every_interleaving() {
    let effort = Effort { threads: 2, rounds: 1, cpus: 1 };
    let law = move || shootdowns::<Model>(effort, SLEEPS, true);
    worlds::fewest_planted(Plant::EXCHANGES, law);
}

#[test]
fn a_worker_that_does_not_refresh_is_found() {
    let law = || {
        let changing = Changing::<Sim>::new(FEW, SLEEPS, false);
        // No worker uses it yet, so none is told.
        assert_eq!(changing.change(), Shot::default());
        changing.workers.call_on(changing.cpus[0], || changing.work(0, None)).unwrap();
    };
    let found = worlds::simulate("call_users::careless", "host-2c", Faults::NONE, law);
    assert!(found.unwrap_err().to_string().contains("worked with 1 after 2"));
}

/// Bits stay when a worker leaves; what clears them is a shootdown, at most once a second.
#[test]
fn workers_that_have_left_are_away_once_a_second() {
    let law = || {
        let changing = Changing::<Sim>::new(FEW, SLEEPS, true);
        let call = |at: usize| {
            let work = || changing.work(at, None);
            changing.workers.call_on(changing.cpus[at], work).unwrap();
        };
        call(0);
        assert_eq!(changing.change(), Shot { reached: 0, away: 1 }, "the first one clears");
        assert_eq!(changing.change(), Shot::default(), "no worker uses it");
        call(0);
        call(1);
        assert_eq!(changing.change(), Shot { reached: 2, away: 0 }, "too early to clear");
    };
    worlds::simulate("call_users::away", "host-2c", Faults::NONE, law).unwrap();
}

#[test]
fn what_cannot_be_told_is_an_error_natively() {
    let workers = Workers::new().unwrap();
    let users = workers.users();
    assert_eq!(users.enter().map(|_| ()), Err(NotAWorker));
    workers.close();
    assert_eq!(users.shootdown(|| ()), Err(CallError::Closed));
}
