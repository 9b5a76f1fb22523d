//! A space of concurrency IDs as the kernel of a simulated machine.
//!
//! The machine's calls become those of the space, one for one. The machine and not a simulated
//! thread makes them, so the space's words are the host's. They cost nothing, and use no host clock
//! or place.
//!
//! # The scan
//!
//! The time of the scan matters much. In the kernel, a timer tick that hits a running thread of the
//! process asks for it, at most once per 100 ms. The thread does it on its way back to user mode.
//!
//! One detail of the kernel is left out. It takes the age of a reference by the clock of the CPU's
//! run queue, which stands still while the CPU idles without a tick. So there a reference expires
//! only after another process has run on the CPU. A machine file does not know what else runs on a
//! machine, and how often.

use std::fmt;

use coreline::cid::{CidError, CidLayout, CidSpace, Policy, Task};
use coreline_sim::Kernel;
use coreline_topology::{Cid, CpuId, CpuSet, Topology};
use coreline_world::Time;

/// The event that triggers a scan, once [`SCAN_DELAY`](coreline::cid::SCAN_DELAY) has passed since
/// the last scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// A tick that hits a running thread, as in the kernel. Scans are somewhat rarer than in the
    /// kernel, because the simulator charges no time for executing code, except for the kernel's
    /// switches.
    Tick,
    /// A switch to any thread. Scans are as frequent as the kernel's own limit allows.
    Switch,
}

impl fmt::Display for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scan::Switch => "switch",
            Scan::Tick => "tick",
        })
    }
}

/// The kernel's record of a thread.
struct Thread<P: Policy> {
    /// Where it was last.
    cpu: CpuId,
    /// Whether that is the only CPU that it is allowed on.
    bound: bool,
    /// Its task in the space, until it ends.
    task: Option<Task<P>>,
}

/// The concurrency IDs of the machine's one process under a policy.
pub struct Space<P: Policy> {
    space: CidSpace<P>,
    threads: Vec<Thread<P>>,
    cpus: CpuSet,
    scan: Scan,
    name: String,
}

impl<P: Policy> Space<P> {
    /// A slot of an ID is whole pages, whatever the machine's tree.
    const SLOTS_PER_PAGE: u32 = 1;

    /// Creates a space in which no thread has run yet.
    ///
    /// # Errors
    ///
    /// [`CidError`] if the machine is too large.
    pub fn new(topology: &Topology, scan: Scan) -> Result<Self, CidError> {
        let layout = CidLayout::with_slots_per_page(topology, Self::SLOTS_PER_PAGE)?;
        Ok(Space {
            space: CidSpace::new(&layout),
            threads: Vec::new(),
            cpus: (0..topology.cpu_limit()).map(|cpu| CpuId::new(cpu as u32)).collect(),
            scan,
            name: Self::name_with(scan),
        })
    }

    /// The name in replay lines of the kernel whose scans this makes.
    fn name_with(scan: Scan) -> String {
        format!("{}:{scan}", P::NAME)
    }

    fn allowed(&self, cpu: CpuId, bound: bool) -> CpuSet {
        if bound { CpuSet::from_iter([cpu]) } else { self.cpus.clone() }
    }

    fn task(&self, thread: usize) -> &Task<P> {
        self.threads[thread]
            .task
            .as_ref()
            .expect("the machine speaks of threads that have not ended")
    }
}

/// The machine names CPUs that it has, and switches a thread out before it goes on.
const KEPT: &str = "the machine keeps the order of its calls";

impl<P: Policy> Kernel for Space<P> {
    fn name(&self) -> &str {
        &self.name
    }

    fn switch_in(&mut self, at: Time, cpu: CpuId, thread: usize) -> Cid {
        self.threads[thread].cpu = cpu;
        let cid = self.space.switch_in(at, cpu, self.task(thread)).expect(KEPT);
        if self.scan == Scan::Switch {
            // After the thread got its ID, so that it does not drop the reference that it takes.
            self.space.expire(at);
        }
        cid
    }

    fn switch_out(&mut self, at: Time, cpu: CpuId, thread: usize) {
        self.space.switch_out(at, cpu, self.task(thread));
    }

    fn migrated(&mut self, at: Time, thread: usize, from: CpuId, to: CpuId) {
        self.space.migrate(at, self.task(thread), from, to).expect(KEPT);
    }

    fn tick(&mut self, at: Time, _cpu: CpuId, _thread: usize) {
        if self.scan == Scan::Tick {
            self.space.expire(at);
        }
    }

    /// Running threads keep their ID until they lose their CPU. The machine asks for no other ID
    /// before that. (Linux gives the thread another immediately, and has ended all others.)
    fn exec(&mut self, at: Time, thread: usize) {
        let Thread { cpu, bound, .. } = self.threads[thread];
        let allowed = self.allowed(cpu, bound);
        self.space.exec(at, self.task(thread), &allowed).expect(KEPT);
    }

    fn spawned(&mut self, thread: usize, cpu: CpuId, bound: bool) {
        debug_assert_eq!(thread, self.threads.len(), "threads are numbered in order");
        let task = self.space.user_enter(&self.allowed(cpu, bound)).expect(KEPT);
        self.threads.push(Thread { cpu, bound, task: Some(task) });
    }

    fn exited(&mut self, thread: usize) {
        let task = self.threads[thread].task.take().expect(KEPT);
        self.space.user_leave(task).expect(KEPT);
    }
}
