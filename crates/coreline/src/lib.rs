//! The Linux kernel's many-core techniques for ordinary programs.
//!
//! | module | what | in the kernel |
//! |---|---|---|
//! | [`counter`] | [`PerCpuCounter`], [`CounterSet`]: adds without atomics | `percpu_counter` |
//! | [`percpu`] | [`PerCpu`], [`PerCpuPool`]: a value for each CPU | `alloc_percpu` |
//! | [`cid`] | [`CidSpace`]: small numbers for running threads, to index by | `mm_cid` |
//! | [`object`] | [`ObjectCache`]: objects that stay constructed; budgets | slab caches, sheaves |
//! | [`domain`] | [`Domain`]: IDs, values and leases of a tenant | what an `mm` is |
//! | [`mask`] | [`CpuMask`]: which CPUs take part, read before it is written | `mm_cpumask` |
//! | [`call`] | [`Workers`]: calls to workers that poll, queued work | `smp_call_function` |
//! | [`lock`] | [`Mutex`], [`RwLock`]: spin in a queue, then sleep, in 8 bytes | `mutex`, `rwsem` |
//! | [`lock`] | [`TicketLock`]: in order of arrival, in 8 bytes | the spinlock of 2.6.25 to 4.1 |
//! | [`lock`] | [`Osq`](lock::Osq): waiters that are near first, in 4 bytes | `osq_lock` |
//!
//! Every type takes its machine as its last type parameter and defaults to the real one, so users
//! need not know of it:
//!
//! ```
//! use coreline::{PerCpuCounter, TicketLock};
//!
//! static TOTAL: TicketLock<u64> = TicketLock::new(0);
//! static REQUESTS: PerCpuCounter = PerCpuCounter::const_new();
//!
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             for _ in 0..1000 {
//!                 REQUESTS.add(1);
//!             }
//!             *TOTAL.lock() += 1000;
//!         });
//!     }
//! });
//! assert_eq!(REQUESTS.read_exact(), 4000);
//! assert_eq!(*TOTAL.lock(), 4000);
//! ```
//!
//! # When to use it, and when not to
//!
//! Use it where many threads write to one thing: a counter or a tenant's counters whose sum is read
//! seldom, a value that is read always and changed seldom, a pool, a lock that many threads wait
//! for. Do not use it where
//!
//! - nothing contends: an atomic is smaller, and takes a few nanoseconds. Where no two threads meet
//!   on a tenant, a [`Domain`] for each of thousands is many times slower than an atomic for each;
//! - each thread can own its part, and know which it is: a plain store to a padded line of its own
//!   is faster than all that is here;
//! - every read must be exact at that moment: a sum over all CPUs is what cheap additions cost.
//!
//! # Figures
//!
//! From one sitting on an AMD EPYC (family 25, model 17: Zen 4) with 2 CPUs and nothing else
//! running; candidates of a group take turns in one run.
//!
//! | ns, and times the first of the group | 1 thread | 2 threads |
//! |---|---|---|
//! | **`PerCpuCounter::add`** | 0.89 | 1.10 |
//! | one shared `AtomicU64` | 2.28 (2.6) | 18.16 (16.4) |
//! | `CachePadded` shards, `fetch_add` | 2.28 (2.6) | 2.52 (2.3) |
//! | the same, load and store: a thread to a shard | 0.30 (0.3) | 0.37 (0.3) |
//! | an rseq section by hand, as librseq's | 0.70 (0.8) | 0.88 (0.8) |
//! | | | |
//! | **`Versioned`: enter and get** | 1.69 | 1.72 |
//! | arc-swap `load` | 5.93 (3.5) | 5.94 (3.5) |
//! | arc-swap `Cache` | 0.63 (0.4) | 0.61 (0.4) |
//! | std `RwLock<Arc<T>>` | 5.15 (3.0) | 49.66 (28.9) |
//! | | | |
//! | **`DomainLocal`: add** | 2.16 | 2.23 |
//! | **`Domain`: enter, add, leave** | 6.33 (2.9) | 6.38 (2.9) |
//! | an atomic of the thread's own | 2.39 (1.1) | 2.38 (1.1) |
//!
//! `cargo xtask figures` makes it anew, in the repository; its folder `docs` says what scenarios
//! came to on simulated machines of hundreds of CPUs.
//!
//! # The other worlds
//!
//! The same types over `coreline_sim::Sim` run on a simulated machine with hundreds of CPUs, and
//! over `coreline_world::model::Model` in a model checker: `tests/laws`, in the repository, does
//! both.

pub mod call;
pub mod cid;
pub mod counter;
pub mod domain;
mod ear;
pub mod lock;
pub mod mask;
mod numbered;
pub mod object;
pub mod percpu;

pub use call::Workers;
pub use cid::CidSpace;
pub use coreline_topology as topology;
pub use coreline_topology::{CpuId, CpuSet};
pub use coreline_world as world;
pub use coreline_world::{IndexBy, Lacking, Why};
pub use counter::{CounterSet, PerCpuCounter};
pub use domain::Domain;
pub use lock::{Mutex, RwLock, TicketLock};
pub use mask::CpuMask;
pub use object::ObjectCache;
pub use percpu::{PerCpu, PerCpuPool};

/// The CPU that runs the calling thread. It may run on another by the time that this returns,
/// unless it is pinned to one: a hint, as `sched_getcpu` is.
///
/// ```
/// let cpu = coreline::current_cpu();
/// assert!(coreline::CpuSet::from_iter([cpu]).contains(cpu));
/// ```
///
/// Async-signal-safe. Reads the thread's rseq area where it is registered, else asks the kernel.
pub fn current_cpu() -> CpuId {
    <world::Native as world::Place>::cpu()
}

/// The example of this crate's README.md, as it stands there.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the repository's README.md, as they stand there. A package does not have it.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeOfAll;

/// The tests here have simulated worlds too, whose memory must have addresses of their own.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
