//! `threadstorm`: threads are created and end at a high rate, and each of them gets concurrency IDs
//! (what Linux 6.19 changed).
//!
//! Pools create threads. A pool's creator starts its threads one after the other, sleeps until all
//! run, wakes them all, and sleeps until all are about to end; then it begins again. A thread says
//! that it runs, sleeps until it is woken, says that it ends, and ends. So it is switched in twice.
//! This is the benchmark "thread create teardown" of the series that became Linux 6.19; its mutex
//! is not modelled, and its condition variable wakes exactly the threads that it must.
//!
//! The threads are not the world's. A worker, pinned to each CPU, plays that CPU's scheduler: it
//! takes threads that were sent to it, switches them in, does what they do, and switches them out.
//! Around that it calls a [`CidSpace`] as a kernel does: the creator of a thread enters it, an
//! arrival from another CPU migrates it where it arrives, the CPU where it ends takes it out, and
//! every [`TICK`] of a busy CPU asks for a scan. Each access of the space is then one of the
//! simulated machine, and what is measured is the time that these calls take.
//!
//! | variant | IDs are handed out by |
//! |---|---|
//! | `none` | nothing: the floor |
//! | `first-fit`, `recent`, `owned`, `clustered` | a [`CidSpace`] under that policy |
//! | `kernel-cid`, natively | this machine's kernel: see [`plain`] |
//!
//! | placement | a thread may run | a new thread goes | a woken thread goes |
//! |---|---|---|---|
//! | `roaming` | anywhere | to an idle CPU, if draws find one | near its waker, or back |
//! | `pinned` | on one CPU | there | there |
//!
//! Computed, and so declared: creating and ending a thread (two thirds at the creator, one third
//! where the thread ends), the rest of a switch, what a wake-up takes beyond a switch
//! ([`WAKE_UP`]), and what a thread does when it runs ([`BODY`]).
//!
//! The scenario checks itself: no two running threads have an ID at once, and in the end no thread
//! is left in the space.

mod ids;
mod place;
mod plain;
mod program;
mod storm;
#[cfg(test)]
mod tests;

use core::time::Duration;

use clap::ValueEnum;
use coreline::cid::{CidSpace, Clustered, FirstFit, Owned, Recent};
use coreline_topology::CpuId;
use coreline_world::Testbed;

use ids::NoIds;
use storm::storm;

use super::{RunError, Variant};

pub(crate) use ids::is_of_ids;
pub(crate) use program::{MOST_REST_US, Size, ThreadstormProgram};

/// Where threads may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Placing {
    /// Anywhere
    Roaming,
    /// Each on one CPU
    Pinned,
}

impl std::fmt::Display for Placing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        super::fmt_name(self, f)
    }
}

/// What one run depends on.
#[derive(Debug, Clone)]
pub(crate) struct ThreadstormParams {
    /// A worker is pinned to each.
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) variant: Variant,
    pub(crate) size: Size,
    pub(crate) place: Placing,
    /// What creating and ending a thread takes without IDs.
    pub(crate) rest: Duration,
    /// What a switch takes without IDs, each way.
    pub(crate) path: Duration,
    /// How often each pool creates its threads and is counted.
    pub(crate) rounds: u32,
    /// Seeds where threads go.
    pub(crate) seed: u64,
}

/// Rounds of each pool that are not counted: lines come from memory.
const WARM_UP: u32 = 5;

/// What a wake-up takes beyond a switch.
const WAKE_UP: Duration = Duration::from_nanos(1500);

/// What a created thread computes each time that it runs.
const BODY: Duration = Duration::from_micros(1);

/// How often a busy CPU asks for a scan: the tick of a kernel with 250 ticks a second.
const TICK: Duration = Duration::from_millis(4);

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Storms {
    /// Threads created in a second: the sum over the pools.
    pub(crate) rate: f64,
    /// What IDs cost; `None` for `kernel-cid`, whose IDs are handed out elsewhere.
    pub(crate) costs: Option<Costs>,
}

/// What IDs cost, of counted threads, and of creators.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Costs {
    /// All calls, for each created thread.
    pub(crate) thread_ns: f64,
    /// A switch-in of a thread that has run before, with its arrival if it comes from another CPU,
    /// and a switch-out.
    pub(crate) switch_ns: f64,
    /// A created thread's entering, first switch-in and leaving.
    pub(crate) life_ns: f64,
    /// An arrival from another CPU; 0 if there was none.
    pub(crate) migrate_ns: f64,
    /// The share of all calls in the time of CPUs that do not idle.
    pub(crate) share: f64,
    /// Switch-ins, also those that are not counted.
    pub(crate) switches: u64,
}

/// Runs the scenario.
///
/// # Errors
///
/// [`RunError`] if a thread cannot be started, if two running threads had one ID, or if threads are
/// left in the end.
pub(crate) fn threadstorm<W: Testbed>(params: &ThreadstormParams) -> Result<Storms, RunError> {
    match params.variant {
        Variant::NoIds => storm::<W, NoIds>(params),
        Variant::FirstFit => storm::<W, CidSpace<FirstFit, W>>(params),
        Variant::Recent => storm::<W, CidSpace<Recent, W>>(params),
        Variant::Owned => storm::<W, CidSpace<Owned, W>>(params),
        Variant::Clustered => storm::<W, CidSpace<Clustered, W>>(params),
        Variant::KernelCid => plain::storm::<W>(params),
        other => Err(RunError::Lack(format!("{other} is no variant of threadstorm"))),
    }
}
