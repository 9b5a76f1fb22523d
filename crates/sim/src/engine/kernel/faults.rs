//! Faults: what the machine does to a thread at an unlucky moment.
//!
//! There are two kinds of moments. Between two steps of a restartable operation anything may
//! happen; before any other access to memory, what [`Faults`](crate::Faults) says of accesses. An
//! access inside a restartable operation is part of a step, and only a delay hits it.

use coreline_topology::{CpuId, CpuSet};

use crate::engine::choice::Seen;
use crate::engine::kernel::signals;
use crate::engine::{Engine, PS_PER_NS, inside, suspend};

/// The longest delay that a fault makes: an interrupt of the firmware, or a hypervisor's.
const LONGEST_DELAY: u64 = 10_000 * PS_PER_NS;

/// The effect of a fault on the running thread.
enum Strike {
    /// Nothing, or nothing that it notices immediately.
    Missed,
    /// It lost its CPU.
    Away,
    /// A signal.
    Signal,
}

impl Strike {
    fn take(self) {
        match self {
            Strike::Missed => {}
            Strike::Away => suspend(),
            Strike::Signal => signals::deliver(),
        }
    }
}

/// The fault that hits the running thread between two steps of a restartable operation.
pub(in crate::engine) fn strike_step() {
    inside(Engine::strike_step).take();
}

/// Looks at a point of the running thread, which may then go on: before an access to a word, or at
/// a call of the kernel.
pub(in crate::engine) fn visit_point(access: Option<Seen>) {
    let (strike, chosen) = inside(|engine| {
        engine.look_at_write();
        let strike = engine.strike_access();
        let chosen = matches!(strike, Strike::Missed) && engine.chooser.is_some();
        (strike, chosen && !engine.spins_alone(access))
    });
    strike.take();
    if chosen {
        suspend();
    }
    inside(|engine| {
        let current = engine.current();
        engine.threads[current].visited = true;
    });
}

/// The CPUs that the current thread may run on.
pub(crate) fn allowed() -> CpuSet {
    inside(|engine| {
        let thread = &engine.threads[engine.current()];
        match thread.bound {
            true => [CpuId::new(thread.cpu as u32)].into_iter().collect(),
            false => engine.online(),
        }
    })
}

impl Engine {
    fn strike_step(&mut self) -> Strike {
        let faults = self.faults;
        if self.is_masked() {
            return Strike::Missed;
        }
        if self.dice.once_in(faults.preempt) {
            self.preempt();
            return Strike::Away;
        }
        let bound = self.threads[self.current()].bound;
        if !bound && self.online_count > 1 && self.dice.once_in(faults.migrate) {
            self.migrate();
            return Strike::Away;
        }
        self.strike_anywhere()
    }

    fn strike_access(&mut self) -> Strike {
        let current = self.current();
        let faults = self.faults;
        if self.dice.once_in(faults.delay) {
            let delay = 1 + self.dice.below(LONGEST_DELAY);
            self.spend(delay);
        }
        if self.threads[current].section || self.is_masked() {
            return Strike::Missed;
        }
        if self.dice.once_in(faults.preempt_access) {
            self.preempt();
            return Strike::Away;
        }
        self.strike_anywhere()
    }

    /// Whether nothing can take the running thread off its CPU.
    fn is_masked(&self) -> bool {
        let thread = &self.threads[self.current()];
        thread.masked > 0 || thread.is_idle
    }

    /// The faults that hit steps and accesses alike.
    fn strike_anywhere(&mut self) -> Strike {
        let faults = self.faults;
        if self.online_count > 1 && self.dice.once_in(faults.offline) {
            self.take_offline();
            return Strike::Away;
        }
        match self.dice.once_in(faults.signal) {
            true => Strike::Signal,
            false => Strike::Missed,
        }
    }

    /// The running CPU goes out of service, and all its threads to others, bound or not.
    fn take_offline(&mut self) {
        self.settle_here();
        let now = self.here().now;
        let cpu = self.cpu().index();
        self.cpus[cpu].offline = true;
        self.online_count -= 1;
        let wake = self.spec.costs().wake;
        let thread = self.vacate();
        self.enqueue(thread, cpu, now + wake);
        let queue = std::mem::take(&mut self.cpus[cpu].queue);
        self.queued -= queue.len();
        for thread in queue {
            let since = self.threads[thread].ready_since();
            self.enqueue(thread, cpu, since.max(now) + wake);
        }
    }

    /// The CPU for a thread that wants to go to `cpu`. If `cpu` is out of service it is another
    /// one, and the thread is no longer bound, as on Linux when its affinity has no CPU left.
    pub(in crate::engine) fn refuge(&mut self, thread: usize, cpu: usize) -> usize {
        if !self.cpus[cpu].offline {
            return cpu;
        }
        self.threads[thread].bound = false;
        self.other_cpu(cpu)
    }

    /// Another CPU that is in service: there is one.
    pub(in crate::engine) fn other_cpu(&mut self, cpu: usize) -> usize {
        let others = self.online_count - usize::from(!self.cpus[cpu].offline);
        let chosen = self.dice.below(others as u64) as usize;
        let mut online = (0..self.cpus.len()).filter(|&at| at != cpu && !self.cpus[at].offline);
        online.nth(chosen).expect("as many as were counted")
    }

    /// Why a CPU is not in service; `None` if it is.
    pub(crate) fn out_of_service(&self, cpu: CpuId) -> Option<String> {
        match self.topology.cpu(cpu) {
            _ if self.is_online(cpu) => None,
            Some(_) => Some("it is offline".to_owned()),
            None => Some(format!("the machine {} does not have it", self.spec.name())),
        }
    }

    fn is_online(&self, cpu: CpuId) -> bool {
        self.cpus.get(cpu.index()).is_some_and(|cpu| !cpu.offline)
    }

    /// The CPUs in service.
    pub(crate) fn online(&self) -> CpuSet {
        self.topology.set().iter().filter(|&cpu| self.is_online(cpu)).collect()
    }
}
