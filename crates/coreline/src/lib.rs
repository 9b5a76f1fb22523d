//! The Linux kernel's many-core techniques for ordinary programs.
//!
//! | module | contents | in the kernel |
//! |---|---|---|
//! | [`counter`] | [`PerCpuCounter`], [`CounterSet`], histograms: no atomics | `percpu_counter` |
//! | [`percpu`] | [`PerCpu`], [`PerCpuPool`]: a value for each CPU | `alloc_percpu` |
//! | [`percpu`] | [`PerCpuBag`][bag]: spare values, in a stack for each CPU | `pcp` lists |
//! | [`percpu`] | [`LossyBuffer`][lossy]: records, some of which may be lost | |
//! | [`cid`] | [`CidSpace`]: small numbers for running threads, used as indexes | `mm_cid` |
//! | [`object`] | [`ObjectCache`]: objects that stay constructed; budgets | slab caches, sheaves |
//! | [`domain`] | [`Domain`]: IDs, values and leases of a tenant | `mm_struct` |
//! | [`limit`] | [`RateLimiter`](limit::RateLimiter): a rate for all CPUs | `ratelimit` |
//! | [`mask`] | [`CpuMask`]: the CPUs that take part; a write reads first | `mm_cpumask` |
//! | [`rcu`] | [`Rcu`](rcu::Rcu), [`Collector`](rcu::Collector): readers without a lock | SRCU |
//! | [`call`] | [`Workers`]: calls to workers that poll, queued work | `smp_call_function` |
//! | [`lock`] | [`Mutex`], [`RwLock`]: spin in a queue, then sleep, in 8 bytes | `mutex`, `rwsem` |
//! | [`lock`] | [`ReadMostly`][mostly], [`BiasedRwLock`][biased] | `percpu-rwsem` |
//! | [`lock`] | [`TicketLock`]: FIFO, for fewer threads than CPUs | spinlock, 2.6.25 to 4.1 |
//! | [`lock`] | [`Osq`](lock::Osq): near waiters come first, in 4 bytes | `osq_lock` |
//! | [`stat`] | [`publish`](stat::publish): counts for `coreline stat` | `/proc/lock_stat` |
//!
//! [bag]: percpu::PerCpuBag
//! [lossy]: percpu::LossyBuffer
//! [mostly]: lock::ReadMostly
//! [biased]: lock::BiasedRwLock
//!
//! The last type parameter of every type is its machine. It defaults to the real machine, so users
//! can ignore it:
//!
//! ```
//! use coreline::{Mutex, PerCpuCounter};
//!
//! static TOTAL: Mutex<u64> = Mutex::new(0);
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
//! Use the crate if many threads share one object. Such objects are counters whose sums are seldom
//! read, a value that is often read and seldom changed, a pool, or a lock for which many threads
//! wait. Do not use the crate if
//!
//! - there is no contention, because an atomic is smaller and takes a few nanoseconds. If no two
//!   threads use the same tenant, a [`Domain`] for each of thousands of tenants is many times
//!   slower than one atomic per tenant;
//! - each thread can have its own padded cache line, because a plain store to that line is faster
//!   than any type here;
//! - every read must be exact, because a read of a cheap counter must then sum the slots of all
//!   CPUs.
//!
//! # Figures
//!
//! The candidates of a group are measured alternately in one run. The machine is virtual, and no
//! other program ran on it.
//!
//! <!-- figures -->
//! Measured on: Intel(R) Xeon(R) Processor (family 6, model 207), 16 CPUs.
//!
//! | ns per operation (ratio to the bold row) | 1 thread | 2 threads | 8 threads |
//! |---|---|---|---|
//! | **`PerCpuCounter::add`** | 1.70 | 1.71 | 1.77 |
//! | one shared `AtomicU64` | 8.12 (4.8) | 86.55 (50.6) | 130.92 (74.1) |
//! | `CachePadded` shards, `fetch_add` | 8.04 (4.7) | 8.29 (4.8) | 9.05 (5.1) |
//! | the same, load and store: a thread to a shard | 0.71 (0.4) | 0.71 (0.4) | 0.74 (0.4) |
//! | an rseq section by hand, as librseq's | 1.54 (0.9) | 1.57 (0.9) | 1.60 (0.9) |
//! | | | | |
//! | **`Versioned`: enter and get** | 4.24 | 4.23 | 4.05 |
//! | arc-swap `load` | 23.71 (5.6) | 23.76 (5.6) | 26.11 (6.4) |
//! | arc-swap `Cache` | 0.88 (0.2) | 0.88 (0.2) | 0.84 (0.2) |
//! | std `RwLock<Arc<T>>` | 25.45 (6.0) | 146.92 (34.8) | 767.78 (189.4) |
//! | | | | |
//! | **`Mutex`** (several threads: sections of 100 ns, 500 ns apart) | 11.72 | 349.42 | 492.11 |
//! | std `Mutex` | 23.02 (2.0) | 345.89 (1.0) | 477.76 (1.0) |
//! | parking_lot `Mutex` | 21.13 (1.8) | 349.33 (1.0) | 611.76 (1.2) |
//! | | | | |
//! | **`DomainLocal`: add** | 2.99 | 2.95 | 3.40 |
//! | **`Domain`: enter, add, leave** | 5.34 (1.8) | 5.48 (1.9) | 6.10 (1.8) |
//! | an atomic of the thread's own | 6.94 (2.3) | 8.74 (3.0) | 18.42 (5.4) |
//! <!-- end of figures -->
//!
//! `-` means not measured. In the repository, `docs/figures.md` has the figures of other
//! processors, and `docs/README.md` lists the results on simulated machines of hundreds of CPUs.
//!
//! # Without memory
//!
//! If there is no memory, objects that exist keep working. An operation continues without the
//! memory that it would have allocated, or returns an error. A later operation tries again.
//!
//! | call | without memory |
//! |---|---|
//! | additions to counters, sets and histograms | go to memory that all CPUs share |
//! | reads of a [`BiasedRwLock`][biased] | go on in the word that all CPUs share |
//! | operations on [`PerCpu`] values and locals of domains | are exact, and some are slower |
//! | [`PerCpu::new`], [`Domain::local`], [`Domain::lease`], [`ObjectCache::get`] | an error |
//! | [`PerCpuBag::new`][bag new], [`LossyBuffer::new`][lossy new] | an error |
//! | [`ObjectCache::shrink`] and the return of an object | do all their work (1) |
//! | dropping anything | allocates nothing (1) |
//! | all other calls that create a shared object, a waiter or a list | the process ends |
//!
//! The calls of the last row use the global allocator, as `Box::new` does. They are
//!
//! - the constructors of counters, histograms, pools, domains, caches, budgets, limiters, spaces of
//!   concurrency IDs and workers, including those that return errors for other reasons;
//! - the first addition to a counter in a `static`;
//! - [`Domain::enter`], [`Domain::lease_wait`], and all futures;
//! - [`Collector::retire`](rcu::Collector::retire), [`Rcu::store`](rcu::Rcu::store) and the like;
//! - a charge to a [`Budget`](object::Budget) that is full and has children;
//! - calls that return a `Vec`, a `String` or a snapshot, and errors that contain a name.
//!
//! To be safe from these, create such objects when the program starts.
//!
//! 1. There are four exceptions. While callers wait for a budget, a thread that uncharges an amount
//!    may allocate. The return of a rejected object allocates if there is a quarantine. The drop of
//!    a value in a checked pool allocates. So does a forked child that drops a future which waited
//!    in its parent.
//!
//! The first thread of the process that waits for a lock allocates, too. To allocate at the start
//! of the program instead, call [`lock::prepare`].
//!
//! [bag new]: percpu::PerCpuBag::new
//! [lossy new]: percpu::LossyBuffer::new
//!
//! # Where there is no Linux
//!
//! On other 64-bit systems, and on Linux with the feature `portable`, the crate falls back to std.
//! All types exist and keep their laws, but none of them is faster than atomics and std's locks.
//! Guarantees of the modules about signal handlers and forked children hold on Linux only.
//!
//! | missing | in its place |
//! |---|---|
//! | restartable sections | atomic instructions; stacks take a lock |
//! | the CPU that a thread runs on | the thread's number, modulo [`available_parallelism`] (1) |
//! | threads kept on a CPU | a placed thread has the CPU's number but runs anywhere (2) |
//! | the machine's tree | one node and one cache, so that no CPU is nearer than another |
//! | the kernel's concurrency IDs | an error if the index is the concurrency ID (3) |
//! | the futex | std's locks and condition variables, in a table by address |
//! | asymmetric fences, kicks | full fences on both sides; a kick interrupts nothing |
//! | memory on a node, huge pages | an error for each; memory comes from std's system allocator |
//! | signals held off | nothing: no signal handler may use this crate |
//! | memory wiped at a fork | the number of the process (4) |
//! | what the machine has, as `doctor` shows it | nothing: `native::probe` does not exist |
//!
//! 1. The number stays the same for the thread's whole life. Threads with the same number may run
//!    at the same time.
//! 2. [`Workers`] are placed like this, too. There are as many workers as CPUs, each with a number
//!    of its own.
//! 3. This concerns [`IndexBy::KernelCid`]. The IDs of a [`CidSpace`] or a [`Domain`] are the
//!    library's own.
//! 4. A child that sleeps or wakes a thread may wait forever.
//!
//! On Windows and macOS, we know only that the crate compiles. The tests of the laws with the
//! feature `portable` run on Linux.
//!
//! **The feature applies to a whole program.** Cargo builds a crate once, with every feature that
//! any package of the program enables. If one package enables `portable`, all packages get it. So a
//! program or a test may enable it, but a library should not.
//!
//! [`available_parallelism`]: std::thread::available_parallelism
//!
//! # The other worlds
//!
//! With `coreline_sim::Sim` as their world, the same types run on a simulated machine with hundreds
//! of CPUs. With `coreline_world::model::Model`, they run in a model checker. In the repository,
//! the tests in `tests/laws` do both.

#[macro_use]
mod impls;

mod block_on;
pub mod call;
pub mod cid;
pub mod counter;
pub mod domain;
mod heap;
pub mod limit;
pub mod lock;
pub mod mask;
mod node_pool;
pub mod object;
mod panics;
pub mod percpu;
mod queue;
pub mod rcu;
mod reclaim;
pub mod stat;

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

/// Returns the CPU that runs the calling thread. Unless the thread is pinned to one CPU, it may run
/// on another CPU when the call returns. So the value is a hint, like the value of `sched_getcpu`.
///
/// ```
/// let cpu = coreline::current_cpu();
/// assert!(coreline::CpuSet::from_iter([cpu]).contains(cpu));
/// ```
///
/// On Linux the function is async-signal-safe after its first call in the process. It reads the
/// thread's rseq area if the area is registered, and otherwise asks the kernel. On other systems it
/// returns [the thread's number](crate#where-there-is-no-linux).
pub fn current_cpu() -> CpuId {
    <world::Native as world::Place>::cpu()
}

/// The example of this crate's README.md, unchanged.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the repository's README.md, unchanged. A package does not have it.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeOfAll;

/// The examples of the pages for users, unchanged. A package does not have them.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/get-started.md")]
    struct GetStarted;
    #[doc = include_str!("../../../docs/migration.md")]
    struct Migration;
    #[doc = include_str!("../../../docs/faq.md")]
    struct Faq;
    #[doc = include_str!("../../../docs/stat.md")]
    struct Stat;
    #[doc = include_str!("../../../docs/cookbook/bags.md")]
    struct Bags;
    #[doc = include_str!("../../../docs/cookbook/calls.md")]
    struct Calls;
    #[doc = include_str!("../../../docs/cookbook/counter.md")]
    struct Counter;
    #[doc = include_str!("../../../docs/cookbook/limiter.md")]
    struct Limiter;
    #[doc = include_str!("../../../docs/cookbook/locks.md")]
    struct Locks;
    #[doc = include_str!("../../../docs/cookbook/masks.md")]
    struct Masks;
    #[doc = include_str!("../../../docs/cookbook/objects.md")]
    struct Objects;
    #[doc = include_str!("../../../docs/cookbook/per-cpu.md")]
    struct PerCpu;
    #[doc = include_str!("../../../docs/cookbook/pool.md")]
    struct Pool;
    #[doc = include_str!("../../../docs/cookbook/rcu.md")]
    struct Rcu;
    #[doc = include_str!("../../../docs/cookbook/read-mostly.md")]
    struct ReadMostly;
    #[doc = include_str!("../../../docs/cookbook/scaling-test.md")]
    struct ScalingTest;
    #[doc = include_str!("../../../docs/cookbook/tenants.md")]
    struct Tenants;
}

/// The tests here have simulated worlds too, whose memory must have addresses of their own.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
