//! The activities of threads and CPUs when the machine stopped.

use coreline_topology::CpuId;

use super::{Cpu, Engine, PS_PER_NS, State, Thread, memory};
use crate::results::failure::{CpuState, Doing, ThreadState};
use crate::results::report::SourceSite;

impl Engine {
    /// The states of all unfinished threads.
    pub(super) fn thread_states(&self) -> Vec<ThreadState> {
        let doing = |state| match state {
            State::Done | State::Idle => None,
            State::Ready { .. }
            | State::Running
            | State::Accessing
            | State::Waiting { .. }
            | State::Draining { .. }
            | State::Working { .. } => Some(Doing::Running),
            State::Spinning { line } => {
                Some(Doing::Spinning { line: self.directory.name(line) * memory::LINE as u64 })
            }
            State::Parked { word, .. } => Some(Doing::Parked { word: self.relative(word) }),
            State::Sleeping => Some(Doing::Sleeping),
            State::Joining { thread } => Some(Doing::Joining { thread }),
        };
        let state = |(number, thread): (usize, &Thread)| {
            let cpu = CpuId::new(thread.cpu as u32);
            let doing = doing(thread.state)?;
            let seen = || self.observation.as_ref().and_then(|it| it.site(number));
            let site = if doing == Doing::Running { seen() } else { thread.site };
            let (site, waits_for) = (site.map(SourceSite::of), self.locks.waited_for(number));
            Some(ThreadState { thread: number, cpu, doing, site, waits_for })
        };
        self.threads.iter().enumerate().filter_map(state).collect()
    }

    /// The state of all CPUs.
    pub(super) fn cpu_states(&self) -> Vec<CpuState> {
        let state = |(number, cpu): (usize, &Cpu)| CpuState {
            cpu: CpuId::new(number as u32),
            thread: cpu.current.filter(|&thread| self.threads[thread].state != State::Done),
            queued: cpu.queue.len(),
            masked: cpu.current.is_some_and(|thread| self.threads[thread].masked > 0),
            offline: cpu.offline,
            at_ns: cpu.now / PS_PER_NS,
        };
        self.cpus.iter().enumerate().map(state).collect()
    }
}
