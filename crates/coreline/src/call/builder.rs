//! How workers are set up.

use core::marker::PhantomData;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;

use coreline_topology::{CpuId, CpuSet};
use coreline_world::{Native, Placement, SpawnError, ThreadOptions, Threads, World};

use super::Workers;
use super::policy::Policy;
use super::request::{PanicResult, keep_first};
use super::shared::Shared;
use crate::panics::quietly;

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
    stack_size: Option<usize>,
    queue_limit: usize,
    on_start: Hook,
    on_stop: Hook,
    world: PhantomData<fn() -> W>,
}

/// A function that each worker calls.
#[derive(Clone, Default)]
pub(super) struct Hook(Option<Arc<dyn Fn(CpuId) + Send + Sync>>);

impl_debug!([] Hook as it { set: it.0.is_some() });

impl Hook {
    /// Calls it, and keeps its panic if there was none before.
    fn call(&self, cpu: CpuId, panic: &mut PanicResult<()>) {
        let Some(function) = &self.0 else { return };
        keep_first(panic, catch_unwind(AssertUnwindSafe(|| function(cpu))));
    }
}

impl<W: World> Default for Builder<W> {
    fn default() -> Self {
        Builder {
            cpus: None,
            policy: Policy::Notify,
            polling: Self::POLLING,
            name: "coreline".to_owned(),
            stack_size: None,
            queue_limit: usize::MAX,
            on_start: Hook::default(),
            on_stop: Hook::default(),
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

    /// Sets the minimum size of each worker's stack in bytes. The default is that of std: 2 MiB, or
    /// `RUST_MIN_STACK`. The calls that a waiting worker serves run on the same stack.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets how many tasks may wait in the queue of one worker. By default, there is no limit.
    ///
    /// A task that finds the queue full goes to another worker, if any worker may run it. If there
    /// is no room, it comes back with [`CallError::Full`](super::CallError::Full). The limit also
    /// holds for tasks that workers queue. A worker that takes tasks of another one may exceed the
    /// limit for a while. The limit does not hold for the tasks of a [scope](Workers::scope) that a
    /// worker has opened, but until these begin, they take up room in the queue.
    /// [`WorkerStats::depth`](super::WorkerStats::depth) is the length of a queue. Calls have no
    /// limit, because each has a caller that waits or a reply.
    ///
    /// ```
    /// use coreline::Workers;
    /// use coreline::call::CallError;
    ///
    /// let workers = Workers::builder().queue_limit(0).start()?;
    /// let refused = workers.spawn(|| 7).expect_err("no task may wait");
    /// assert_eq!((refused.why, (refused.function)()), (CallError::Full, 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue_limit(mut self, tasks: usize) -> Self {
        self.queue_limit = tasks;
        self
    }

    /// Sets a function that each worker calls with its CPU before it runs anything else.
    /// [`start`](Builder::start) does not wait for it. The function may use the workers: it runs on
    /// one of them. If it waits for another worker there, it serves calls.
    ///
    /// If the function panics, the worker still works. When all workers have ended, the first panic
    /// is resumed in the thread that drops or joins them. If that thread is unwinding, or if
    /// `start` fails, the panic has no effect.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// static RUNNING: AtomicUsize = AtomicUsize::new(0);
    ///
    /// let workers = coreline::Workers::builder()
    ///     .on_thread_start(|_cpu| _ = RUNNING.fetch_add(1, Ordering::Relaxed))
    ///     .on_thread_stop(|_cpu| _ = RUNNING.fetch_sub(1, Ordering::Relaxed))
    ///     .start()?;
    /// workers.broadcast(|_cpu| ())?;
    /// assert_eq!(RUNNING.load(Ordering::Relaxed), workers.cpus().count());
    /// drop(workers);
    /// assert_eq!(RUNNING.load(Ordering::Relaxed), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_thread_start(mut self, hook: impl Fn(CpuId) + Send + Sync + 'static) -> Self {
        self.on_start = Hook(Some(Arc::new(hook)));
        self
    }

    /// Sets a function that each worker calls with its CPU when it has run everything. By then, the
    /// workers are closed, and the calling thread is no longer a worker. A panic is treated like
    /// one in [`on_thread_start`](Builder::on_thread_start).
    pub fn on_thread_stop(mut self, hook: impl Fn(CpuId) + Send + Sync + 'static) -> Self {
        self.on_stop = Hook(Some(Arc::new(hook)));
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
        let shared = Arc::new(Shared::new_in(&cpus, self.policy, self.polling, self.queue_limit));
        let mut workers = Workers { shared, threads: Vec::new() };
        for index in 0..workers.shared.workers.len() {
            let cpu = workers.shared.workers[index].cpu;
            let shared = Arc::clone(&workers.shared);
            let options = ThreadOptions { name: &self.name_of(cpu), stack_size: self.stack_size };
            let (on_start, on_stop) = (self.on_start.clone(), self.on_stop.clone());
            let work = move || {
                let mut panic = Ok(());
                shared.begin(index);
                on_start.call(cpu, &mut panic);
                shared.work(index, &mut || on_stop.call(cpu, &mut panic));
                panic.unwrap_or_else(|panic| resume_unwind(panic));
            };
            match W::spawn_with(options, Placement::On(cpu), work) {
                Ok(thread) => workers.threads.push(thread),
                Err(why) => {
                    // Ends those that run, and drops a panic of their hooks.
                    quietly(|| drop(workers));
                    return Err(why.into());
                }
            }
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
