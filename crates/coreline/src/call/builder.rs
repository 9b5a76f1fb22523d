//! How workers are set up.

use core::marker::PhantomData;
use core::time::Duration;
use std::sync::Arc;

use coreline_topology::{CpuId, CpuSet};
use coreline_world::{Native, Placement, SpawnError, Threads, World};

use super::Workers;
use super::policy::Policy;
use super::shared::Shared;

/// The reason why workers were not started. All workers that had already started have ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The set of CPUs for the workers is empty.
    #[error("the set of CPUs is empty; name CPUs that the calling thread may use")]
    NoCpus,
    /// The machine's topology does not list this CPU, or does not say where it is.
    #[error(
        "{0} is not in the machine's topology, or its position there is unknown; choose only CPUs \
         that the topology lists"
    )]
    NoSuchCpu(CpuId),
    /// The thread could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// The length of a thread's name that Linux keeps, in bytes.
const LONGEST_NAME: usize = 15;

/// The options of [`Workers`], from [`Workers::builder`].
#[derive(Debug, Clone)]
#[must_use = "workers begin with `start`"]
pub struct Builder<W: World = Native> {
    cpus: Option<CpuSet>,
    policy: Policy,
    polling: Duration,
    name: String,
    world: PhantomData<fn() -> W>,
}

impl<W: World> Default for Builder<W> {
    fn default() -> Self {
        Builder {
            cpus: None,
            policy: Policy::Notify,
            polling: Self::POLLING,
            name: "coreline".to_owned(),
            world: PhantomData,
        }
    }
}

impl<W: World> Builder<W> {
    /// The default maximum time for which a worker without work polls before it sleeps. It is also
    /// the limit of the kernel's haltpoll (`Documentation/virt/guest-halt-polling.rst`).
    pub const POLLING: Duration = Duration::from_micros(200);

    /// Starts a worker for each of the given CPUs. By default, there is a worker for each CPU that
    /// the thread that calls [`start`](Builder::start) may use. `taskset`, a cpuset and the program
    /// itself can restrict these CPUs.
    pub fn cpus(mut self, cpus: CpuSet) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Sets what a call does to a worker that has no work.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the maximum time for which a worker without work polls before it sleeps. The time
    /// adapts. If a worker finds nothing by polling and sleeps, but a message arrives within this
    /// maximum after the worker began to wait, it polls twice as long next time. If the message
    /// arrives later, the worker polls half as long next time.
    ///
    /// With zero, workers never poll. Use zero for CPUs that other threads need, and for virtual
    /// CPUs that cannot poll.
    pub fn polling(mut self, most: Duration) -> Self {
        self.polling = most;
        self
    }

    /// Sets the prefix of the thread names. The default is `coreline`, so the worker of CPU 5 is
    /// named `coreline-5`. The prefix is cut so that the whole name has at most 15 bytes, the limit
    /// of Linux.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The name of a thread.
    fn name_of(&self, cpu: CpuId) -> String {
        let number = format!("-{}", cpu.get());
        let mut most = self.name.len().min(LONGEST_NAME - number.len());
        while !self.name.is_char_boundary(most) {
            most -= 1;
        }
        format!("{}{number}", &self.name[..most])
    }
}

impl<W: World + Threads> Builder<W> {
    /// Starts the workers, each pinned to its CPU.
    ///
    /// # Errors
    ///
    /// [`StartError`] if a worker cannot be started. Then no worker is left running.
    pub fn start(self) -> Result<Workers<W>, StartError> {
        let topology = W::topology();
        let cpus: Vec<CpuId> = match &self.cpus {
            Some(cpus) => cpus.iter().collect(),
            // Not where threads can be placed: on a CPU, too, that the user gave to others.
            None => W::allowed().iter().filter(|cpu| topology.cpu(*cpu).is_some()).collect(),
        };
        if let Some(cpu) = cpus.iter().find(|cpu| topology.cpu(**cpu).is_none()) {
            return Err(StartError::NoSuchCpu(*cpu));
        }
        if cpus.is_empty() {
            return Err(StartError::NoCpus);
        }
        let shared = Arc::new(Shared::new_in(&cpus, self.policy, self.polling));
        let mut workers = Workers { shared, threads: Vec::new() };
        for index in 0..workers.shared.workers.len() {
            let cpu = workers.shared.workers[index].cpu;
            let shared = Arc::clone(&workers.shared);
            // Where this fails, dropping `workers` ends those that run.
            let name = self.name_of(cpu);
            let thread = W::spawn_named(&name, Placement::On(cpu), move || shared.work(index))?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_to_what_linux_keeps() {
        let name = |prefix: &str, cpu| Builder::<Native>::default().name(prefix).name_of(cpu);
        for (prefix, cpu, found) in [
            ("coreline", 5, "coreline-5"),
            ("coreline", u32::MAX, "core-4294967295"),
            ("a service with a name", 10, "a service wi-10"),
            ("ääääääää", 3, "ääääää-3"),
            ("", 7, "-7"),
        ] {
            assert_eq!(name(prefix, CpuId::new(cpu)), found);
        }
    }
}
