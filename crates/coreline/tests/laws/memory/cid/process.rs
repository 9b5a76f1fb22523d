//! A process that is driven by hand, one step after the other, and checked at every step.

use std::time::Duration;

use coreline::cid::{CidLayout, CidSpace, Clustered, FirstFit, Owned, Policy, Recent, Task};
use coreline_topology::{CpuId, CpuSet, Shape, Topology};
use coreline_world::Time;

/// A machine with one node, and CPUs of one thread each under so many caches.
pub(super) fn machine(caches: u32, cores_per_cache: u32) -> Topology {
    nodes(1, caches, cores_per_cache)
}

/// The same, with nodes.
pub(super) fn nodes(nodes: u32, caches_per_node: u32, cores_per_cache: u32) -> Topology {
    let shape = Shape { sockets: nodes, caches_per_node, cores_per_cache, ..Shape::default() };
    Topology::uniform(shape).unwrap()
}

/// What a test knows of a thread.
struct Thread<P: Policy> {
    task: Task<P>,
    cpu: usize,
    bound: bool,
}

/// Threads on the CPUs of a machine.
pub(super) struct Process<P: Policy> {
    pub(super) space: CidSpace<P>,
    now: Time,
    cpus: usize,
    /// `None` if it has ended.
    threads: Vec<Option<Thread<P>>>,
    /// By CPU: the thread that runs there, and its ID.
    running: Vec<Option<(usize, u32)>>,
}

impl<P: Policy> Process<P> {
    pub(super) fn new(cpus: usize) -> Self {
        Process::on(&machine(1, cpus as u32))
    }

    pub(super) fn on(topology: &Topology) -> Self {
        let cpus = topology.cpu_limit();
        Process {
            space: CidSpace::new(&CidLayout::new(topology).unwrap()),
            now: Time::from_nanos(0),
            cpus,
            threads: Vec::new(),
            running: vec![None; cpus],
        }
    }

    /// A process with one thread bound to each CPU.
    pub(super) fn pinned(cpus: usize) -> Self {
        let mut process = Process::new(cpus);
        (0..cpus).for_each(|cpu| process.spawn(cpu, true));
        process
    }

    pub(super) fn wait(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    pub(super) fn spawn(&mut self, cpu: usize, bound: bool) {
        let allowed = self.allowed(cpu, bound);
        let task = self.space.user_enter(&allowed).unwrap();
        self.threads.push(Some(Thread { task, cpu, bound }));
    }

    fn allowed(&self, cpu: usize, bound: bool) -> CpuSet {
        let cpus = if bound { cpu..cpu + 1 } else { 0..self.cpus };
        cpus.map(|cpu| CpuId::new(cpu as u32)).collect()
    }

    pub(super) fn users(&self) -> usize {
        self.threads.iter().flatten().count()
    }

    pub(super) fn cpus(&self) -> usize {
        self.cpus
    }

    pub(super) fn scan(&self) {
        self.space.expire(self.now);
    }

    /// How many IDs are taken.
    pub(super) fn taken(&self) -> usize {
        self.space.taken().count()
    }

    /// A thread gets its CPU; returns its ID.
    pub(super) fn start(&mut self, thread: usize) -> u32 {
        let Thread { task, cpu, .. } = self.threads[thread].as_ref().unwrap();
        let id = CpuId::new(*cpu as u32);
        let bounds = self.space.bounds(id).unwrap();
        let cid = self.space.switch_in(self.now, id, task).unwrap().get();
        // One that was not allowed there is now, so there may be one more.
        let bounds = bounds.start..bounds.end.max(self.space.bounds(id).unwrap().end);
        assert!(
            bounds.contains(&cid),
            "{}: {cid} is not in {bounds:?}: {:?} {:?} users {}",
            P::NAME,
            self.running,
            self.space.taken().collect::<Vec<_>>(),
            self.users()
        );
        let holders = self.running.iter().flatten().filter(|(_, other)| *other == cid).count();
        assert_eq!(holders, 0, "{cid} has two holders: {:?}", self.running);
        self.running[*cpu] = Some((thread, cid));
        cid
    }

    /// A running thread loses its CPU.
    pub(super) fn stop(&mut self, thread: usize) {
        let Thread { task, cpu, .. } = self.threads[thread].as_ref().unwrap();
        assert_eq!(self.running[*cpu].take().unwrap().0, thread);
        self.space.switch_out(self.now, CpuId::new(*cpu as u32), task);
    }

    /// A thread has its CPU for a moment; returns its ID.
    pub(super) fn burst(&mut self, thread: usize) -> u32 {
        let cid = self.start(thread);
        self.stop(thread);
        // As the kernel's end of a time slice: after the thread got its ID.
        self.scan();
        cid
    }

    /// The same, for each of these, one after the other.
    pub(super) fn bursts(&mut self, threads: &[usize]) -> Vec<u32> {
        threads.iter().map(|&thread| self.burst(thread)).collect()
    }

    /// A thread that does not run moves.
    pub(super) fn migrate(&mut self, thread: usize, to: usize) {
        let Thread { task, cpu, .. } = self.threads[thread].as_mut().unwrap();
        let [from, to_id] = [*cpu, to].map(|cpu| CpuId::new(cpu as u32));
        self.space.migrate(self.now, task, from, to_id).unwrap();
        *cpu = to;
    }

    /// A running thread ends.
    pub(super) fn exit(&mut self, thread: usize) {
        self.stop(thread);
        self.space.user_leave(self.threads[thread].take().unwrap().task).unwrap();
    }

    pub(super) fn exec(&mut self, thread: usize) {
        let Thread { task, cpu, bound } = self.threads[thread].as_ref().unwrap();
        self.space.exec(self.now, task, &self.allowed(*cpu, *bound)).unwrap();
    }

    fn runs(&self, thread: usize) -> bool {
        let Some(Thread { cpu, .. }) = &self.threads[thread] else { return false };
        self.running[*cpu].is_some_and(|(other, _)| other == thread)
    }

    /// Does what a number says, if that is possible; `leave` and `roam`: whether threads end, and
    /// are allowed everywhere.
    pub(super) fn step(&mut self, dice: &mut Dice, leave: bool, roam: bool) {
        self.wait(dice.below(60));
        let (what, to) = (dice.below(13), dice.below(self.cpus as u64) as usize);
        let bound = dice.below(2) == 0 || !roam;
        if what == 0 || self.threads.is_empty() {
            self.spawn(to, bound);
            return;
        }
        let thread = dice.below(self.threads.len() as u64) as usize;
        let Some(Thread { cpu, bound, .. }) = &self.threads[thread] else { return };
        let (runs, cpu, bound) = (self.runs(thread), *cpu, *bound);
        match (what, runs) {
            (1 | 2, true) if leave => self.exit(thread),
            (3, true) if leave => self.exec(thread),
            (4 | 5, _) => self.scan(),
            (6.., true) => self.stop(thread),
            (6..=7, false) if !bound && cpu != to => self.migrate(thread, to),
            (8.., false) if self.running[cpu].is_none() => drop(self.start(thread)),
            _ => {}
        }
    }

    /// Ends all threads but new ones, one on each of the first CPUs, and lets those run on for
    /// longer than the expiry.
    pub(super) fn shrink_to(&mut self, left: usize) {
        for thread in 0..self.threads.len() {
            if self.runs(thread) {
                self.stop(thread);
            }
        }
        (0..left).for_each(|cpu| self.spawn(cpu, true));
        let old = self.threads.len() - left;
        for thread in 0..old {
            if self.threads[thread].is_some() {
                self.start(thread);
                self.exit(thread);
            }
        }
        // The first scan drops what is old, and what is too high after that.
        for _ in 0..3 {
            self.wait(200);
            let stayed: Vec<usize> = (old..old + left).collect();
            self.bursts(&stayed);
        }
    }
}

/// Numbers that look random (a multiply and shift generator).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Runs the same for every policy.
pub(super) trait ForEach {
    fn run<P: Policy>(&mut self);

    fn each(&mut self) {
        self.run::<FirstFit>();
        self.run::<Recent>();
        self.run::<Owned>();
        self.run::<Clustered>();
    }
}
