//! The policies as the kernel of a machine that preempts, moves and takes CPUs out of service.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coreline::cid::{Clustered, FirstFit, Owned, Policy, Recent};
use coreline::{IndexBy, PerCpu};
use coreline_scenarios::kernel::{Scan, Space};
use coreline_sim::{Faults, Kernel, Machine, Sim, SimU64, Spec, exec};
use coreline_topology::{Cid, CpuId};
use coreline_world::{JoinHandle, Placement, Threads, Time, Work};

/// A kernel that asserts the law of holders, and counts what it is asked.
struct Watched<K> {
    kernel: K,
    /// By CPU.
    holders: Vec<Option<Cid>>,
    /// Moves, ticks, execs.
    counts: Rc<Cell<[u64; 3]>>,
}

impl<K> Watched<K> {
    fn count(&self, what: usize) {
        let mut counts = self.counts.get();
        counts[what] += 1;
        self.counts.set(counts);
    }
}

impl<K: Kernel> Kernel for Watched<K> {
    fn name(&self) -> &str {
        self.kernel.name()
    }

    fn switch_in(&mut self, at: Time, cpu: CpuId, thread: usize) -> Cid {
        let cid = self.kernel.switch_in(at, cpu, thread);
        assert!(cid.index() < self.holders.len(), "{cid}");
        assert!(!self.holders.contains(&Some(cid)), "{cid} is held: {:?}", self.holders);
        self.holders[cpu.index()] = Some(cid);
        cid
    }

    fn switch_out(&mut self, at: Time, cpu: CpuId, thread: usize) {
        self.holders[cpu.index()] = None;
        self.kernel.switch_out(at, cpu, thread);
    }

    fn migrated(&mut self, at: Time, thread: usize, from: CpuId, to: CpuId) {
        self.count(0);
        self.kernel.migrated(at, thread, from, to);
    }

    fn tick(&mut self, at: Time, cpu: CpuId, thread: usize) {
        self.count(1);
        self.kernel.tick(at, cpu, thread);
    }

    fn exec(&mut self, at: Time, thread: usize) {
        self.count(2);
        self.kernel.exec(at, thread);
    }

    fn spawned(&mut self, thread: usize, cpu: CpuId, bound: bool) {
        self.kernel.spawned(thread, cpu, bound);
    }

    fn exited(&mut self, thread: usize) {
        self.kernel.exited(thread);
    }
}

const CPUS: usize = 6;
const THREADS: u64 = 9;
const ROUNDS: u64 = 20;

/// Threads that add to the memory of their concurrency IDs, sleep past expiries, and end; one calls
/// exec. Returns the sum.
fn program() -> u64 {
    let slots = Arc::new(PerCpu::<SimU64, Sim>::words_in(IndexBy::KernelCid).unwrap());
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let slots = Arc::clone(&slots);
            let cpu = CpuId::new(number as u32 % CPUS as u32);
            let placement = if number % 3 == 0 { Placement::On(cpu) } else { Placement::Anywhere };
            let body = move || {
                for round in 0..ROUNDS {
                    slots.add(1);
                    Sim::work(Duration::from_millis(number));
                    Sim::sleep(Duration::from_millis(17 * (number % 4) * (round % 5)));
                    if (number, round) == (4, 10) {
                        exec();
                    }
                }
            };
            Sim::spawn(placement, body).unwrap()
        })
        .collect();
    threads.into_iter().for_each(JoinHandle::join);
    slots.sum()
}

/// Runs the program under a policy; returns what the kernel was asked.
fn watch<P: Policy>(scan: Scan, seed: u64) -> [u64; 3] {
    let text = include_str!("../../../sim/machines/host-2c.toml");
    let text = text.replace("cores_per_cache = 2", &format!("cores_per_cache = {CPUS}"));
    let text = text.replacen("name = \"host-2c\"", "name = \"six\"", 1);
    let spec = Spec::parse("six.toml", &text).unwrap();
    let kernel = Space::<P>::new(spec.topology(), scan).unwrap();
    let counts = Rc::new(Cell::new([0; 3]));
    let holders = vec![None; CPUS];
    let watched = Watched { kernel, holders, counts: Rc::clone(&counts) };
    let faults = Faults { preempt: 7, migrate: 11, offline: 2000, ..Faults::NONE };
    let machine = Machine::new(spec).seed(seed).faults(faults).step_limit(1_000_000);
    let run = machine.kernel(Box::new(watched)).run(program);
    let run = run.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(run.value, THREADS * ROUNDS, "two running threads had one ID");
    counts.get()
}

#[test]
fn a_machine_that_interferes_sees_no_two_holders() {
    let mut seen = [0; 3];
    for seed in 0..20 {
        for scan in [Scan::Switch, Scan::Tick] {
            for counts in [
                watch::<FirstFit>(scan, seed),
                watch::<Recent>(scan, seed),
                watch::<Owned>(scan, seed),
                watch::<Clustered>(scan, seed),
            ] {
                (0..3).for_each(|what| seen[what] += counts[what]);
            }
        }
    }
    let [moves, ticks, execs] = seen;
    assert!(moves > 1000 && ticks > 1000 && execs == 20 * 8, "{seen:?}");
}
