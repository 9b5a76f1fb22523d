//! [`Workers`] that run the tasks, under each of their policies. A task is woken by a call that
//! queues it on its worker. The waker does not wait for the call.

use core::time::Duration;
use std::sync::Arc;

use coreline::Workers;
use coreline::call::{Policy, Reply, WorkerStats};
use coreline_topology::CpuId;
use coreline_world::{Testbed, Time};

use super::load::Load;
use super::{KICKS, SCANS, SLEEPS, places};
use crate::RunError;
use crate::crew::{SOON, Start, nanos};
use crate::point::Setup;

struct Pool<W: Testbed> {
    load: Load<W>,
    workers: Workers<W>,
    /// The CPUs of the workers; a task is bound to one.
    cpus: Vec<CpuId>,
    start: Start<W>,
}

pub(super) fn serve<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    serve_load(setup, Load::<W>::new(setup))
}

/// Runs these tasks on [`Workers`]. Returns the numbers of the scenario.
///
/// # Errors
///
/// [`RunError`] if the workers could not be started, or if a message was not handled exactly once.
pub fn serve_load<W: Testbed>(setup: &Setup, load: Load<W>) -> Result<Vec<f64>, RunError> {
    let policy = match setup.variant {
        "resched" => Policy::Resched,
        "always-kick" => Policy::AlwaysKick,
        _ => Policy::Notify,
    };
    let cpus: Vec<_> = places::<W>(setup)?.into_iter().map(|cpu| cpu.id).collect();
    let cpus = cpus[..cpus.len().min(load.tasks())].to_vec();
    let builder = Workers::<W>::builder_in().cpus(cpus.iter().copied().collect()).policy(policy);
    let workers = builder.start().map_err(|error| RunError::Lack(error.to_string()))?;
    let pool = Arc::new(Pool { load, workers, cpus, start: Start::new() });
    // The first task of each worker waits for all, so that tasks which are queued behind it begin
    // at one time.
    let begun: Vec<_> = pool.cpus.iter().map(|cpu| pool.begin(*cpu)).collect();
    pool.load.first().for_each(|task| pool.queue(task));
    pool.start.give(pool.cpus.len(), None, SOON);
    pool.load.wait();
    let all = pool.workers.stats().map(|(_, stats)| stats);
    let after = all.fold(WorkerStats::default(), |sum, stats| sum + stats);
    // Each worker is done with what it was in the middle of: no other handle of the pool is left,
    // and the workers end here.
    let cpus = pool.cpus.iter().copied().collect();
    pool.workers.call_many(&cpus, |_| ()).map_err(|why| RunError::Lack(why.to_string()))?;
    let begun: Vec<_> = begun.into_iter().map(Reply::wait).collect();
    let (begin, _) = begun.first().copied().flatten().expect("all have begun");
    let before = begun.into_iter().flatten().fold(WorkerStats::default(), |sum, it| sum + it.1);
    let counted = after - before;
    let kicks = if policy == Policy::AlwaysKick { counted.calls } else { counted.sleeps };
    pool.load.check()?;
    let counts = [(KICKS, kicks), (SCANS, counted.searches), (SLEEPS, counted.sleeps)];
    Ok(pool.load.numbers(begin, counts))
}

impl<W: Testbed> Pool<W> {
    /// The CPU of the worker that a task is bound to.
    fn home(&self, task: usize) -> CpuId {
        self.cpus[task % self.cpus.len()]
    }

    /// Makes a worker wait for all. Returns when this wait was over, and what the worker had done
    /// before.
    fn begin(self: &Arc<Self>, cpu: CpuId) -> Reply<Option<(Time, WorkerStats)>, W> {
        let pool = Arc::clone(self);
        let wait = move || {
            let mut all = pool.workers.stats();
            let before = all.find(|it| it.0 == cpu).map_or(WorkerStats::default(), |it| it.1);
            let begin = pool.start.wait()?;
            W::work(Duration::from_nanos(nanos(W::now(), begin)));
            Some((begin, before))
        };
        self.workers.spawn_on(cpu, wait).expect("they are not closed")
    }

    fn queue(self: &Arc<Self>, task: usize) {
        let pool = Arc::clone(self);
        let run = move || pool.load.run(task, |woken| pool.wake(task, woken));
        let queued = self.workers.spawn_on(self.home(task), run);
        drop(queued.expect("they are not closed"));
    }

    fn wake(self: &Arc<Self>, from: usize, task: usize) {
        let home = self.home(task);
        if home == self.home(from) {
            return self.queue(task);
        }
        let pool = Arc::clone(self);
        let called = self.workers.call_async(home, move || pool.queue(task));
        called.expect("they are not closed").detach();
    }
}
