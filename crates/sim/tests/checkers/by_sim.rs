//! The simulator: its own order of events, and three kinds of schedule that look for unlikely ones.

#[path = "programs.rs"]
mod programs;

mod api {
    pub(super) use coreline_sim::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    pub(super) use coreline_sim::cell::UnsafeCell;
    pub(super) use coreline_sim::hint::spin_loop;
    pub(super) use coreline_sim::sync::{Arc, Condvar, Mutex, RwLock};
    pub(super) use coreline_sim::thread;
}

use std::cell::Cell;
use std::sync::LazyLock;

use coreline_sim::{Explore, Failure, Machine, Schedule, Spec, search};

use super::{Checker, Program, Verdict, runs};

const PROGRAMS: &[Program] = compiled!();

pub(super) const CHECKERS: [Checker; 4] = [
    ("by time", |program, mistaken| searched(|| Schedule::Time, program, mistaken)),
    ("random", |program, mistaken| searched(|| Schedule::Random, program, mistaken)),
    ("PCT", |program, mistaken| searched(pct, program, mistaken)),
    ("`Explore`", explored),
];

fn pct() -> Schedule {
    Schedule::Pct { depth: 3, steps: 60 }
}

/// A machine that also looks for unordered accesses to cells.
fn machine(seed: u64) -> Machine {
    static SPEC: LazyLock<Spec> =
        LazyLock::new(|| Spec::preset("host-2c").expect("it comes with the simulator"));
    Machine::new(SPEC.clone()).seed(seed).find_races()
}

fn searched(schedule: fn() -> Schedule, program: usize, mistaken: bool) -> Verdict {
    let machines = (0..runs(mistaken)).map(|seed| machine(seed).schedule(schedule()));
    verdict(search(machines, move || PROGRAMS[program](mistaken)), |failure| {
        failure.replay.seed + 1
    })
}

/// With one preemption first, then with two and three.
fn explored(program: usize, mistaken: bool) -> Verdict {
    let started = Cell::new(0);
    let next = || {
        started.set(started.get() + 1);
        machine(0)
    };
    let explore = |preemptions| {
        let explore = Explore::new().preemptions(preemptions).limit(runs(mistaken));
        explore.run(next, move || PROGRAMS[program](mistaken)).map(|_| started.get())
    };
    verdict((1..=3).try_fold(0, |_, preemptions| explore(preemptions)), |_| started.get())
}

fn verdict(searched: Result<u64, Box<Failure>>, run: impl FnOnce(&Failure) -> u64) -> Verdict {
    match searched {
        Ok(runs) => Verdict::Passes(runs),
        Err(failure) => Verdict::Fails(run(&failure)),
    }
}
