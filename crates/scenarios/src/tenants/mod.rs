//! `tenants`: counters for very many tenants, each of which has few tasks (Desnoyers 2024).
//!
//! An executor has a pinned worker on each CPU. A tenant has a line of counters, of [`WORDS`]
//! words, and a few tasks. In each round, every task is polled once. It enters its tenant, adds 1
//! to each of the words, and leaves. Tasks begin on random workers, and usually stay there.
//! Sometimes a task moves to another worker, usually a near one: see [`schedule`].
//!
//! Each variant is an implementation of [`Counters`]. Everything else is one function,
//! `Executor::work`. The schedule of polls is chosen at random before the run, and is the same for
//! all variants. The schedule is read from plain memory, and the simulator charges nothing for such
//! a read. So no variant contains queues of tasks. Between two rounds, all workers wait for each
//! other, so no task is polled twice at one time.
//!
//! We set three things without a measurement: the length of a round ([`executor::ROUND`]), the
//! movement of tasks, and the workers' random start times in the first [`executor::PHASE`] of a
//! round. `docs/tenants.md` gives the reasons.
//!
//! The scenario checks itself. At the end, a word of each tenant must equal the number of polls of
//! the tenant's tasks.

mod by_cpu;
pub mod executor;
mod in_domain;
pub mod schedule;
mod sharded;

use coreline::cid::{Clustered, Recent};
use coreline_sim::{Sim, Transfers};
use coreline_topology::CpuId;
use coreline_world::{Integer, Line, Native, Ordering, Testbed, Word};

use by_cpu::ByCpu;
use executor::execute;
use in_domain::InDomain;
use sharded::Sharded;

use super::figure::Figure;
use super::figure::Made::{Number, Over, Quotient};
use super::metric::FigureKind::{Bytes, Gain, Nanoseconds, PerThousand, Ratio, Slots};
use super::param::Param;
use super::point::{Point, Setup};
use super::{RunError, Scenario, Variant};

/// Index in a run's numbers: the memory per tenant, in bytes.
pub const BYTES: usize = 0;
/// Index in a run's numbers: the memory that a tenant with a line for each CPU would use, in bytes.
pub const PLAIN_ARRAY: usize = 1;
/// Index in a run's numbers: the number of lines of counters per tenant.
pub const SLOTS: usize = 2;
/// Index in a run's numbers: the time of an addition, in nanoseconds.
pub const OPERATION: usize = 3;
/// Index in a run's numbers: the number of changes of a CPU's ID in a tenant, per thousand
/// additions.
pub const ID_CHANGES: usize = 4;
/// Index in a run's numbers: the number of lines that came from another node's cache, per thousand
/// additions. Only the simulator has this number.
pub const REMOTE: usize = 5;
/// Index in a run's numbers: the number of lines of counters that came from another node's cache,
/// per thousand additions. Only the simulator has this number.
pub const REMOTE_SLOTS: usize = 6;

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        // What fits into a simulated machine's memory.
        Param::number("tenants", "The number of tenants", [1, 10_000])
            .usual(&["10000"])
            .quick(&["1000"]),
        Param::number("tasks", "The number of tasks of a tenant", [1, 64])
            .usual(&["2", "4"])
            .quick(&["2"]),
    ],
    variants: &[
        Variant::new("domain", "A slot for each concurrency ID of the tenant's domain"),
        Variant::new("domain-clustered", "As domain, with IDs for each last-level cache"),
        Variant::new("cpu-id", "A slot for each CPU's number"),
        Variant::new("sharded", "Entries of a sharded map, with a lock for each shard"),
        Variant::new("atomic", "A line that all CPUs add to"),
    ],
    figures: &[
        Figure::new("bytes_per_tenant", Bytes, Number(BYTES)),
        Figure::new("plain_array_bytes", Bytes, Number(PLAIN_ARRAY))
            .when(|it| it.variant == "cpu-id"),
        Figure::new("slots_per_tenant", Slots, Number(SLOTS)),
        Figure::new("op_ns", Nanoseconds, Number(OPERATION)),
        Figure::new("id_changes", PerThousand, Number(ID_CHANGES)).when(is_domain),
        Figure::new("remote_transfers", PerThousand, Number(REMOTE)),
        Figure::new("remote_slot_transfers", PerThousand, Number(REMOTE_SLOTS)),
        Figure::new("plain_array_over_bytes", Gain, Quotient(PLAIN_ARRAY, BYTES)).when(is_domain),
        Figure::new("op_over_cpu_id", Ratio, Over(OPERATION, "cpu-id")).when(is_domain),
        Figure::new("op_over_sharded", Ratio, Over(OPERATION, "sharded")).when(is_domain),
        Figure::new("op_over_atomic", Ratio, Over(OPERATION, "atomic")).when(is_domain),
    ],
    not_testable: "the run has few CPUs, which share one L3: no evidence about a tenant's memory \
                   on many CPUs, or about distant lines",
    statistics: true,
    ..Scenario::new(
        "tenants",
        "Counters of ten thousand tenants with few tasks each (Desnoyers 2024)",
        [run::<Native>, run::<Sim>],
    )
};

fn is_domain(point: &Point) -> bool {
    point.variant.starts_with("domain")
}

/// The number of words of a tenant's counters, which fill one line.
pub const WORDS: usize = 8;

/// The operations of a poll.
const OPERATIONS: usize = WORDS;

/// The counters of all tenants.
pub trait Counters<W: Testbed>: Sized + Send + Sync + 'static {
    /// The data that a task needs to work for its tenant.
    type Handle: Send;

    /// Creates counters for this number of tenants, and for this number of CPUs that work for them.
    ///
    /// # Errors
    ///
    /// [`RunError::Lack`] if there is no memory for the counters.
    fn new_in(tenants: usize, cpus: usize) -> Result<Self, RunError>;

    /// Creates the handle of a new task of a tenant.
    fn handle(&self, tenant: usize) -> Self::Handle;

    /// Executes a poll, which enters the tenant, adds 1 to each word, and leaves. Variants differ
    /// only in this function.
    fn poll(&self, tenant: usize, handle: &mut Self::Handle);

    /// Returns the ID that the CPU has in a tenant, if the variant hands out IDs.
    fn id_at(&self, _tenant: usize, _cpu: CpuId) -> Option<u32> {
        None
    }

    /// Returns the sum of all additions to a word of the tenant, after the last addition.
    fn sum(&self, tenant: usize, which: usize) -> u64;

    /// Returns the memory in bytes and the number of lines of counters, for all tenants together. A
    /// line that all CPUs share does not count.
    fn footprint(&self) -> [f64; 2];

    /// Returns the addresses of all lines of counters.
    fn lines(&self) -> Vec<usize>;
}

fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    match setup.variant {
        "domain" => execute::<W, InDomain<Recent, W>>(setup),
        "domain-clustered" => execute::<W, InDomain<Clustered, W>>(setup),
        "cpu-id" => execute::<W, ByCpu<W>>(setup),
        "sharded" => execute::<W, Sharded<W>>(setup),
        _ => execute::<W, Atomic<W>>(setup),
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

/// The variant with one line of atomic words for each tenant.
pub struct Atomic<W: Testbed>(Vec<Line<[W::U64; WORDS]>>);

impl<W: Testbed> Counters<W> for Atomic<W> {
    type Handle = ();

    fn new_in(tenants: usize, _: usize) -> Result<Self, RunError> {
        Ok(Atomic((0..tenants).map(|_| Line(words::<W>())).collect()))
    }

    fn handle(&self, _: usize) {}

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

    fn footprint(&self) -> [f64; 2] {
        let tenants = self.0.len() as f64;
        [size_of::<Line<[W::U64; WORDS]>>() as f64 * tenants, tenants]
    }

    fn lines(&self) -> Vec<usize> {
        self.0.iter().map(line_of).collect()
    }
}
