//! The laws where switches run side by side. A thread is a task; the CPUs that it runs on are made
//! up, each with a lock that its runner holds, as the kernel's run queues have.
//!
//! Tried by hand: if taking an ID is a load and a store instead of one exchange, every simulated
//! test here fails, and `model` does. The native one does not always.

use std::sync::Arc;
use std::time::Duration;

use coreline::cid::{CidLayout, CidSpace, Clustered, FirstFit, Owned, Policy, Recent, Task};
use coreline::lock::RawTicketLock;
use coreline_sim::{Faults, Machine, Schedule, Sim};
use coreline_topology::{CpuId, CpuSet, Topology};
use coreline_world::{Cell, JoinHandle, Line, Native, Ordering, Placement, Testbed, Time, Word};

use super::process::{Dice, machine};
use crate::worlds;

/// How much runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd {
    pub(super) caches: u32,
    pub(super) cores_per_cache: u32,
    pub(super) threads: u32,
    /// How often each runs.
    pub(super) rounds: u32,
    /// How far the time goes on at each step: this or less, so that IDs expire.
    pub(super) ms: u64,
}

impl Crowd {
    fn cpus(self) -> u32 {
        self.caches * self.cores_per_cache
    }

    fn topology(self) -> Topology {
        machine(self.caches, self.cores_per_cache)
    }
}

/// What a space's tasks run on, and what they find under their IDs.
pub(super) struct Scene<P: Policy, W: Testbed> {
    pub(super) space: CidSpace<P, W>,
    /// By CPU.
    queues: Vec<Line<RawTicketLock<W>>>,
    /// By ID: 1 while a task holds it.
    holders: Vec<Line<W::U32>>,
    /// By ID: how often it was held. Plain memory: nothing but the space orders accesses.
    uses: Vec<Line<Cell<u64, W>>>,
    /// In milliseconds.
    clock: W::U32,
    crowd: Crowd,
}

impl<P: Policy, W: Testbed> Scene<P, W> {
    pub(super) fn new_in(crowd: Crowd) -> Self {
        let layout = CidLayout::<P>::new(&crowd.topology()).unwrap();
        let ids = 0..layout.width();
        Scene {
            space: CidSpace::new_in(&layout),
            queues: (0..crowd.cpus()).map(|_| Line(RawTicketLock::new_in())).collect(),
            holders: ids.clone().map(|_| Line(W::U32::new_in(0))).collect(),
            uses: ids.map(|_| Line(Cell::new_in(0))).collect(),
            clock: W::U32::new_in(0),
            crowd,
        }
    }

    pub(super) fn now(&self) -> Time {
        // Relaxed: a time is a hint.
        let ms = self.clock.load(Ordering::Relaxed);
        Time::from_nanos(u64::from(ms) * 1_000_000)
    }

    /// One run of a task, which may have to move before; with the CPU's lock.
    fn run(&self, cpu: u32, task: &Task<P, W>, from: u32) {
        let queue = &self.queues[cpu as usize];
        queue.lock();
        let [to, left] = [cpu, from].map(CpuId::new);
        self.space.migrate(self.now(), task, left, to).unwrap();
        self.hold(to, task);
        // SAFETY: this thread locked it at the beginning, and has not unlocked it.
        unsafe { queue.unlock() };
    }

    /// A task gets an ID and uses it.
    pub(super) fn hold(&self, cpu: CpuId, task: &Task<P, W>) {
        let cid = self.space.switch_in(self.now(), cpu, task).unwrap();
        // Relaxed: what is tested is whether the space orders holders; see `uses`.
        let held = self.holders[cid.index()].swap(1, Ordering::Relaxed);
        // SAFETY: the holder of an ID is alone: that is what is tested.
        self.uses[cid.index()].with_mut(|uses| unsafe { *uses += 1 });
        // Relaxed: what is tested is whether the space orders holders.
        self.holders[cid.index()].store(0, Ordering::Relaxed);
        self.space.switch_out(self.now(), cpu, task);
        assert_eq!(held, 0, "{cid} has two holders under {}", P::NAME);
        assert!(self.space.layout().range(cpu).unwrap().contains(&cid.get()));
    }

    /// A thread's part: enters, runs here and there, leaves; sometimes scans.
    fn live(&self, number: u32) {
        let cpus = self.crowd.cpus();
        let mut dice = Dice(u64::from(number));
        let mut cpu = number % cpus;
        let bound = number % 3 == 1;
        let allowed: CpuSet =
            (0..cpus).filter(|&other| !bound || other == cpu).map(CpuId::new).collect();
        let task = self.space.user_enter(&allowed).unwrap();
        let mut from = cpu;
        for _ in 0..self.crowd.rounds {
            self.run(cpu, &task, from);
            from = cpu;
            if !bound {
                cpu = dice.below(u64::from(cpus)) as u32;
            }
            // Relaxed, both: a time.
            let ms = self.clock.load(Ordering::Relaxed) + dice.below(self.crowd.ms + 1) as u32;
            self.clock.store(ms, Ordering::Relaxed);
            self.space.expire(self.now());
        }
        self.space.user_leave(task).unwrap();
    }
}

/// Runs the crowd, and looks at what is left: all uses, and no IDs.
fn law<P: Policy, W: Testbed>(crowd: Crowd) {
    let scene = Arc::new(Scene::<P, W>::new_in(crowd));
    let live = |number| {
        let scene = Arc::clone(&scene);
        W::spawn(Placement::Anywhere, move || scene.live(number)).unwrap()
    };
    let threads: Vec<_> = (1..crowd.threads).map(live).collect();
    scene.live(0);
    threads.into_iter().for_each(JoinHandle::join);
    // SAFETY: all others have been joined.
    let uses: u64 = scene.uses.iter().map(|uses| uses.with(|uses| unsafe { *uses })).sum();
    assert_eq!(uses, u64::from(crowd.threads * crowd.rounds), "two holders lost a count");
    assert_eq!(scene.space.users(), 0);
    for seconds in 1..=2 {
        scene.space.expire(scene.now() + Duration::from_secs(seconds));
    }
    assert_eq!(scene.space.taken().count(), 0, "IDs that no task has any more");
}

/// The law under each policy.
fn laws<W: Testbed>(crowd: Crowd) {
    law::<FirstFit, W>(crowd);
    law::<Recent, W>(crowd);
    law::<Owned, W>(crowd);
    law::<Clustered, W>(crowd);
}

#[test]
fn ids_have_one_holder_natively() {
    laws::<Native>(Crowd { caches: 3, cores_per_cache: 4, threads: 32, rounds: 300, ms: 30 });
    // More tasks than CPUs, which change the mode of `Owned` as they come and go.
    laws::<Native>(Crowd { caches: 1, cores_per_cache: 2, threads: 6, rounds: 1000, ms: 30 });
}

const SMALL: Crowd = Crowd { caches: 2, cores_per_cache: 2, threads: 5, rounds: 6, ms: 40 };

#[test]
fn ids_have_one_holder_with_threads_that_are_preempted_anywhere() {
    let torn = Faults { preempt_access: 5, ..Faults::NONE };
    worlds::simulate("cid::concurrent", "host-2c", torn, || laws::<Sim>(SMALL)).unwrap();
}

#[test]
fn ids_have_one_holder_on_384_simulated_cpus() {
    let crowd = Crowd { caches: 24, cores_per_cache: 4, threads: 96, rounds: 3, ms: 40 };
    let law = move || laws::<Sim>(crowd);
    worlds::simulate("cid::many", "epyc-9654-2s", Faults::NONE, law).unwrap();
}

/// Machines under schedules that look for mistakes.
fn schedules(runs: u64) -> impl Iterator<Item = Machine> {
    (0..runs).map(|seed| {
        let depth = 1 + (seed / 2 % 4) as u32;
        let schedule =
            if seed % 2 == 0 { Schedule::Random } else { Schedule::Pct { depth, steps: 2000 } };
        let machine = Machine::preset("host-2c").unwrap();
        machine.seed(seed).schedule(schedule).step_limit(1_000_000)
    })
}

#[test]
fn ids_have_one_holder_under_schedules_that_look_for_mistakes() {
    let crowd = Crowd { caches: 2, cores_per_cache: 1, threads: 3, rounds: 3, ms: 60 };
    coreline_sim::search(schedules(2500), move || laws::<Sim>(crowd)).unwrap();
}
