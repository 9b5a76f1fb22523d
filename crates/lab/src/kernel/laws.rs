//! What must hold whatever a process does, under every policy; and a process to do it with.

use core::time::Duration;

use coreline_sim::Kernel;
use coreline_topology::{Cid, CpuId};
use coreline_world::Time;
use proptest::prelude::*;

use super::space::{EXPIRY, Ids, Policy, Reference, SCAN_DELAY};
use super::{FirstFit, Recent, Scan, Space};

/// A process that is driven by hand, and checked at every step.
pub(super) struct Process<P> {
    space: Space<P>,
    now: Time,
    cpus: usize,
    /// Where each thread is, and whether it is bound; `None` if it has ended.
    threads: Vec<Option<(CpuId, bool)>>,
    /// By CPU: who runs there, and its ID.
    running: Vec<Option<(usize, u32)>>,
    /// By CPU: whether a thread was ever allowed there.
    allowed: Vec<bool>,
}

impl<P: Policy> Process<P> {
    pub(super) fn new(cpus: usize, scan: Scan) -> Process<P> {
        Process {
            space: Space::new(cpus, scan),
            now: Time::from_nanos(0),
            cpus,
            threads: Vec::new(),
            running: vec![None; cpus],
            allowed: vec![false; cpus],
        }
    }

    /// A process with one thread bound to each CPU.
    pub(super) fn pinned(cpus: usize, scan: Scan) -> Process<P> {
        let mut process = Process::new(cpus, scan);
        (0..cpus).for_each(|cpu| process.spawn(cpu, true));
        process
    }

    pub(super) fn wait(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    pub(super) fn spawn(&mut self, cpu: usize, bound: bool) {
        let id = CpuId::new(cpu as u32);
        self.space.spawned(self.threads.len(), id, bound);
        self.threads.push(Some((id, bound)));
        self.allowed[cpu] = true;
        if !bound {
            self.allowed.fill(true);
        }
    }

    pub(super) fn users(&self) -> usize {
        self.threads.iter().flatten().count()
    }

    fn bound(&self) -> usize {
        self.users().min(self.allowed.iter().filter(|&&allowed| allowed).count())
    }

    /// A thread gets its CPU; returns its ID.
    pub(super) fn start(&mut self, thread: usize) -> u32 {
        let (cpu, _) = self.threads[thread].unwrap();
        let cid = self.space.switch_in(self.now, cpu, thread).get();
        let holders = self.running.iter().flatten().filter(|(_, other)| *other == cid).count();
        assert_eq!(holders, 0, "{cid} has two holders: {:?}", self.running);
        assert!((cid as usize) < self.cpus, "{cid} of {} CPUs", self.cpus);
        self.running[cpu.index()] = Some((thread, cid));
        cid
    }

    /// A running thread loses its CPU.
    pub(super) fn stop(&mut self, thread: usize) {
        let (cpu, _) = self.threads[thread].unwrap();
        assert_eq!(self.running[cpu.index()].take().unwrap().0, thread);
        self.space.switch_out(self.now, cpu, thread);
    }

    /// A thread has its CPU for a moment; returns its ID.
    pub(super) fn burst(&mut self, thread: usize) -> u32 {
        let cid = self.start(thread);
        self.stop(thread);
        cid
    }

    /// The same, for each of these, one after the other.
    pub(super) fn bursts(&mut self, threads: &[usize]) -> Vec<u32> {
        threads.iter().map(|&thread| self.burst(thread)).collect()
    }

    /// A thread that does not run moves.
    pub(super) fn migrate(&mut self, thread: usize, to: usize) {
        let (from, bound) = self.threads[thread].unwrap();
        let to = CpuId::new(to as u32);
        self.space.migrated(self.now, thread, from, to);
        self.threads[thread] = Some((to, bound));
        self.allowed[to.index()] = true;
    }

    /// A running thread ends.
    pub(super) fn exit(&mut self, thread: usize) {
        self.stop(thread);
        self.space.exited(thread);
        self.threads[thread] = None;
    }

    pub(super) fn exec(&mut self, thread: usize) {
        self.space.exec(self.now, thread);
        let (cpu, bound) = self.threads[thread].unwrap();
        for (other, allowed) in self.allowed.iter_mut().enumerate() {
            *allowed = !bound || other == cpu.index() || self.running[other].is_some();
        }
    }

    /// A tick hits a running thread.
    pub(super) fn tick(&mut self, thread: usize) {
        let (cpu, _) = self.threads[thread].unwrap();
        self.space.tick(self.now, cpu, thread);
    }

    fn runs(&self, thread: usize) -> bool {
        self.threads[thread].is_some_and(|(cpu, _)| {
            self.running[cpu.index()].is_some_and(|(other, _)| other == thread)
        })
    }

    /// Does what the numbers say, if that is possible.
    fn step(&mut self, step: Step) {
        let Step { what, who, to, ms } = step;
        self.wait(u64::from(ms));
        let cpu = usize::from(to) % self.cpus;
        if what == 0 {
            self.spawn(cpu, ms % 2 == 0);
            return;
        }
        let thread = usize::from(who) % self.threads.len();
        let Some((at, bound)) = self.threads[thread] else { return };
        let (runs, busy) = (self.runs(thread), self.running[at.index()].is_some());
        match (what, runs) {
            (1 | 2, true) => self.exit(thread),
            (3, true) => self.exec(thread),
            (4 | 5, true) => self.tick(thread),
            (6.., true) => self.stop(thread),
            (4..=6, false) if !bound && cpu != at.index() => self.migrate(thread, cpu),
            (7.., false) if !busy => {
                self.start(thread);
            }
            _ => {}
        }
    }

    /// The IDs of CPUs on which one thread of those left after the other runs for a moment.
    fn round(&mut self) -> Vec<u32> {
        let alive: Vec<usize> =
            (0..self.threads.len()).filter(|&thread| self.threads[thread].is_some()).collect();
        self.bursts(&alive)
    }
}

/// One thing that a process does.
#[derive(Debug, Clone, Copy)]
struct Step {
    what: u8,
    who: u8,
    to: u8,
    ms: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..13u8, any::<u8>(), any::<u8>(), 0..60u8);
    proptest::collection::vec(step.prop_map(|(what, who, to, ms)| Step { what, who, to, ms }), 300)
}

fn scan() -> impl Strategy<Value = Scan> {
    prop_oneof![Just(Scan::Switch), Just(Scan::Tick)]
}

/// Runs any steps; the process checks that holders are alone and IDs are below the CPUs.
fn any_steps<P: Policy>(cpus: usize, scan: Scan, steps: &[Step]) -> Process<P> {
    let mut process = Process::<P>::new(cpus, scan);
    process.spawn(0, false);
    for &step in steps {
        process.step(step);
    }
    process
}

/// Ends all threads but some, lets the others run on for a while, and wants their IDs below their
/// number.
fn shrinks_back<P: Policy>(mut process: Process<P>, left: usize) {
    for thread in 0..process.threads.len() {
        if process.runs(thread) {
            process.stop(thread);
        }
    }
    // One thread for each CPU that goes on, all CPUs different: they would run side by side.
    for cpu in 0..left {
        process.spawn(cpu, true);
    }
    for thread in 0..process.threads.len() - left {
        if process.threads[thread].is_some() {
            process.start(thread);
            process.exit(thread);
        }
    }
    // The first scan drops what is old, and what is too high after that; nobody has to be idle.
    for _ in 0..3 {
        process.wait((EXPIRY + SCAN_DELAY).as_millis() as u64);
        let last = process.threads.len() - 1;
        process.start(last);
        process.tick(last);
        process.stop(last);
        process.round();
    }
    let ids = process.round();
    assert!(ids.iter().all(|&cid| (cid as usize) < left), "{ids:?} of {left} threads");
}

/// A policy with a mistake: it does not look whether the recent ID is taken.
#[derive(Debug)]
struct Careless;

impl Policy for Careless {
    const NAME: &str = "careless";

    fn take(ids: &mut Ids, recent: Option<Cid>) -> Cid {
        recent.unwrap_or_else(|| ids.take_lowest())
    }

    fn has_one(reference: Reference, _recent: Option<Cid>) -> bool {
        reference != Reference::None
    }

    fn allowed(process: usize, _thread: usize) -> usize {
        process
    }
}

#[test]
#[should_panic(expected = "has two holders")]
fn the_process_sees_two_holders() {
    let mut process = Process::<Careless>::pinned(2, Scan::Tick);
    process.spawn(0, true);
    // CPU 0 has ID 0, until its thread's end.
    process.start(0);
    process.exit(0);
    assert_eq!(process.start(1), 0, "the lowest that is free");
    process.start(2);
}

proptest! {
    #[test]
    fn no_two_running_threads_have_one_id(cpus in 1..12usize, scan in scan(), steps in steps()) {
        any_steps::<FirstFit>(cpus, scan, &steps);
        any_steps::<Recent>(cpus, scan, &steps);
    }

    #[test]
    fn ids_shrink_back_when_threads_leave(
        cpus in 1..12usize,
        left in 1..12usize,
        scan in scan(),
        steps in steps(),
    ) {
        let left = left.min(cpus);
        shrinks_back(any_steps::<FirstFit>(cpus, scan, &steps), left);
        shrinks_back(any_steps::<Recent>(cpus, scan, &steps), left);
    }

    /// Threads are bound, and none leaves: then IDs stay below the number of threads and of allowed
    /// CPUs, however old references get.
    #[test]
    fn ids_stay_below_users_and_allowed_cpus(
        cpus in 1..12usize,
        scan in scan(),
        steps in steps(),
    ) {
        stays_compact::<FirstFit>(cpus, scan, &steps);
        stays_compact::<Recent>(cpus, scan, &steps);
    }
}

fn stays_compact<P: Policy>(cpus: usize, scan: Scan, steps: &[Step]) {
    let mut process = Process::<P>::new(cpus, scan);
    process.spawn(0, true);
    for &step in steps {
        let what = if step.what < 4 { 0 } else { step.what };
        // Even: bound.
        process.step(Step { what, ms: step.ms & !1, ..step });
        let bound = process.bound();
        let highest = process.running.iter().flatten().map(|&(_, cid)| cid).max();
        assert!(highest.is_none_or(|cid| (cid as usize) < bound), "{highest:?} of {bound}");
    }
}
