//! `tenants`: counting for each of very many tenants, of which each has few tasks (seed 000).
//!
//! An executor has a pinned worker on each CPU. A tenant has a line of counters, of
//! [`WORDS`] words, and a few tasks. In each round every task is polled once: it enters its tenant,
//! adds 1 to each of the words, and leaves. Tasks begin anywhere, stay where they are, and now and
//! then move to another worker, a near one mostly: see [`schedule`].
//!
//! | variant | what a tenant's counters are |
//! |---|---|
//! | `domain` | a slot for each concurrency ID of the tenant's domain, under `Recent` |
//! | `domain-clustered` | the same, under `Clustered` |
//! | `cpu-id` | a slot for each CPU number |
//! | `sharded` | an entry of a map, looked up each time under the lock of a part of the map |
//! | `atomic` | a line that all CPUs add to by atomic instructions |
//!
//! Each is an implementation of [`Counters`]; all else is one function, [`Executor::work`]. The
//! schedule of polls is drawn beforehand, the same for all variants, and read from plain memory,
//! which costs nothing in the simulator: queues of tasks are in no variant. Between two rounds all
//! wait for all, so that no task is polled twice at a time.
//!
//! Declared, and not measured: [`ROUND`], how tasks move, and that workers begin at moments that
//! are drawn, in the first [`PHASE`] of a round. `docs/tenants.md` argues for them.
//!
//! The scenario checks itself: in the end a word of each tenant is the number of polls of its
//! tasks.

mod by_cpu;
mod executor;
mod in_domain;
mod program;
mod schedule;
mod sharded;

use coreline::cid::{Clustered, Recent};
use coreline_sim::Transfers;
use coreline_topology::CpuId;
use coreline_world::{Integer, Line, Ordering, Testbed, Word};

use by_cpu::ByCpu;
use executor::run;
use in_domain::InDomain;
use sharded::Sharded;

use super::{RunError, Variant};

pub(crate) use program::{MOST_TASKS, MOST_TENANTS, TenantsProgram};

/// Words of a tenant's counters: a line.
const WORDS: usize = 8;

/// The operations of a poll.
const OPERATIONS: usize = WORDS;

/// The bytes of a tenant that has a line for each CPU.
pub(crate) fn plain_bytes(cpus: usize) -> f64 {
    (cpus * size_of::<Line<[u64; WORDS]>>()) as f64
}

/// What one run depends on.
#[derive(Debug, Clone)]
pub(crate) struct TenantsParams {
    /// A worker on each.
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) variant: Variant,
    pub(crate) tenants: usize,
    /// Of each tenant.
    pub(crate) tasks: usize,
    /// Seeds the schedule of polls.
    pub(crate) seed: u64,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Costs {
    pub(crate) footprint: Footprint,
    /// Nanoseconds of an operation, mean. This and what follows are of the steady state.
    pub(crate) op_ns: f64,
    /// How often a CPU's ID for a tenant was not the one of its last poll there; in a thousand
    /// operations.
    pub(crate) id_changes: f64,
    /// Simulated.
    pub(crate) remote: Option<Remote>,
}

/// Means over tenants.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Footprint {
    pub(crate) bytes: f64,
    /// The number of lines of counters, without one that all CPUs share.
    pub(crate) slots: f64,
}

/// How often a line came from a cache of another node; in a thousand operations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Remote {
    /// Any line.
    pub(crate) all: f64,
    /// One of counters.
    pub(crate) slots: f64,
}

/// The counters of all tenants.
trait Counters<W: Testbed>: Sized + Send + Sync + 'static {
    /// What a task needs to work for its tenant.
    type Handle: Send;

    /// For so many tenants, and so many CPUs that work for them.
    fn new_in(tenants: usize, cpus: usize) -> Result<Self, RunError>;

    fn handle(&self, tenant: usize) -> Result<Self::Handle, RunError>;

    /// The part that variants differ in: enters the tenant, adds 1 to each word, and leaves.
    fn poll(&self, tenant: usize, handle: &mut Self::Handle);

    /// The ID that the CPU has in a tenant, where such are handed out.
    fn id_at(&self, _tenant: usize, _cpu: CpuId) -> Option<u32> {
        None
    }

    /// What all CPUs have added to a word of the tenant, after the last addition.
    fn sum(&self, tenant: usize, which: usize) -> u64;

    /// Of all tenants together.
    fn footprint(&self) -> Footprint;

    /// All lines of counters, by address.
    fn lines(&self) -> Vec<usize>;
}

/// Runs the scenario.
///
/// # Errors
///
/// [`RunError`] if a thread or memory is refused, or if an addition was lost.
pub(crate) fn tenants<W: Testbed>(params: &TenantsParams) -> Result<Costs, RunError> {
    match params.variant {
        Variant::Domain => run::<W, InDomain<Recent, W>>(params),
        Variant::DomainClustered => run::<W, InDomain<Clustered, W>>(params),
        Variant::CpuId => run::<W, ByCpu<W>>(params),
        Variant::Sharded => run::<W, Sharded<W>>(params),
        Variant::Atomic => run::<W, Atomic<W>>(params),
        other => Err(RunError::Lack(format!("{other} is no variant of tenants"))),
    }
}

/// Words that begin at 0.
fn words<W: Testbed>() -> [W::U64; WORDS] {
    core::array::from_fn(|_| W::U64::new_in(0))
}

/// The line that an object begins on, by address.
fn line_of<T>(object: &T) -> usize {
    (&raw const *object).addr() & !63
}

/// How many of them came from another node's cache.
fn from_other_nodes(transfers: &Transfers) -> u64 {
    transfers.same_socket + transfers.other_socket
}

/// A line for each tenant.
struct Atomic<W: Testbed>(Vec<Line<[W::U64; WORDS]>>);

impl<W: Testbed> Counters<W> for Atomic<W> {
    type Handle = ();

    fn new_in(tenants: usize, _: usize) -> Result<Self, RunError> {
        Ok(Atomic((0..tenants).map(|_| Line(words::<W>())).collect()))
    }

    fn handle(&self, _: usize) -> Result<(), RunError> {
        Ok(())
    }

    fn poll(&self, tenant: usize, (): &mut ()) {
        for word in &*self.0[tenant] {
            // Relaxed: a count.
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn sum(&self, tenant: usize, which: usize) -> u64 {
        // Relaxed: the adding threads have been joined.
        self.0[tenant][which].load(Ordering::Relaxed)
    }

    fn footprint(&self) -> Footprint {
        let tenants = self.0.len() as f64;
        Footprint { bytes: size_of::<Line<[W::U64; WORDS]>>() as f64 * tenants, slots: tenants }
    }

    fn lines(&self) -> Vec<usize> {
        self.0.iter().map(line_of).collect()
    }
}

#[cfg(test)]
mod tests;
