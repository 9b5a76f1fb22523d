//! The Linux kernel's many-core techniques for ordinary programs.
//!
//! | module | what | in the kernel |
//! |---|---|---|
//! | [`counter`] | [`PerCpuCounter`], [`CounterSet`], histograms: no atomics | `percpu_counter` |
//! | [`percpu`] | [`PerCpu`], [`PerCpuPool`]: a value for each CPU | `alloc_percpu` |
//! | [`cid`] | [`CidSpace`]: small numbers for running threads, used as indexes | `mm_cid` |
//! | [`object`] | [`ObjectCache`]: objects that stay constructed; budgets | slab caches, sheaves |
//! | [`domain`] | [`Domain`]: IDs, values and leases of a tenant | what an `mm` is |
//! | [`limit`] | [`RateLimiter`](limit::RateLimiter): at most so often, on all CPUs | `ratelimit` |
//! | [`mask`] | [`CpuMask`]: which CPUs take part; a write reads first | `mm_cpumask` |
//! | [`call`] | [`Workers`]: calls to workers that poll, queued work | `smp_call_function` |
//! | [`lock`] | [`Mutex`], [`RwLock`]: spin in a queue, then sleep, in 8 bytes | `mutex`, `rwsem` |
//! | [`lock`] | [`TicketLock`]: FIFO, for fewer threads than CPUs | spinlock, 2.6.25 to 4.1 |
//! | [`lock`] | [`Osq`](lock::Osq): waiters that are near first, in 4 bytes | `osq_lock` |
//!
//! Every type takes its machine as its last type parameter, which defaults to the real one. So
//! users need not know of it:
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
//! Use it if many threads write to one thing: a counter or a tenant's counters whose sum is seldom
//! read, a value that is always read and seldom changed, a pool, or a lock that many threads wait
//! for. Do not use it if
//!
//! - nothing contends: an atomic is smaller and takes a few nanoseconds. If no two threads use the
//!   same tenant, a [`Domain`] for each of thousands of tenants is many times slower than an atomic
//!   for each;
//! - each thread can own its part and knows which: a plain store to a padded line of its own is
//!   faster than all types here;
//! - every read must be exact at that moment: cheap additions cost a sum over all CPUs.
//!
//! # Figures
//!
//! The candidates of a group take turns in one run. The machine is virtual, and nothing else ran on
//! it.
//!
//! <!-- figures -->
//! Measured on: Intel(R) Xeon(R) Processor (family 6, model 207), 2 CPUs.
//!
//! | ns per operation (ratio to the bold row) | 1 thread | 2 threads |
//! |---|---|---|
//! | **`PerCpuCounter::add`** | 1.38 | 1.42 |
//! | one shared `AtomicU64` | 8.23 (6.0) | 89.18 (63.0) |
//! | `CachePadded` shards, `fetch_add` | 8.13 (5.9) | 8.19 (5.8) |
//! | the same, load and store: a thread to a shard | 0.56 (0.4) | 0.54 (0.4) |
//! | an rseq section by hand, as librseq's | 1.31 (0.9) | 1.28 (0.9) |
//! | | | |
//! | **`Versioned`: enter and get** | 2.04 | 2.25 |
//! | arc-swap `load` | 21.80 (10.7) | 22.40 (10.0) |
//! | arc-swap `Cache` | 0.60 (0.3) | 0.78 (0.3) |
//! | std `RwLock<Arc<T>>` | 23.73 (11.6) | 159.82 (71.0) |
//! | | | |
//! | **`Mutex`** (several threads: sections of 100 ns, 500 ns apart) | 11.42 | 384.58 |
//! | std `Mutex` | 21.88 (1.9) | 391.64 (1.0) |
//! | parking_lot `Mutex` | 19.41 (1.7) | 387.45 (1.0) |
//! | | | |
//! | **`DomainLocal`: add** | 2.67 | 2.87 |
//! | **`Domain`: enter, add, leave** | 7.70 (2.9) | 8.53 (3.0) |
//! | an atomic of the thread's own | 7.62 (2.9) | 7.97 (2.8) |
//! <!-- end of figures -->
//!
//! `-` means not measured. In the repository, `docs/figures.md` has the figures of other
//! processors, and `docs/README.md` lists the results on simulated machines of hundreds of CPUs.
//!
//! # Where there is no Linux
//!
//! On other 64-bit systems, and on Linux with the feature `portable`, the machine is built on std.
//! All types exist and keep their laws, but nothing is faster than atomics and std's locks.
//! Promises of the modules about signal handlers and forked children hold on Linux only.
//!
//! | missing | in its place |
//! |---|---|
//! | restartable sections | atomic instructions; lists, stacks and buffers take a lock |
//! | the CPU that a thread runs on | the thread's number, modulo [`available_parallelism`] (1) |
//! | threads kept on a CPU | a placed thread has the CPU's number but runs anywhere (2) |
//! | the machine's tree | one node and one cache: no CPU is nearer than another |
//! | the kernel's concurrency IDs | an error if the IDs are to be an index (3) |
//! | the futex | std's locks and condition variables, in a table by address |
//! | asymmetric fences, kicks | full fences on both sides; a kick interrupts nothing |
//! | memory on a node, huge pages | an error for each; memory comes from std's system allocator |
//! | signals held off | nothing: no signal handler may use this crate |
//! | memory wiped at a fork | the number of the process (4) |
//! | what the machine has, as `doctor` shows it | nothing: `native::probe` is not there |
//!
//! 1. It stays the same for the thread's whole life. Threads with the same number may run at the
//!    same time.
//! 2. The same holds for [`Workers`]: there are as many as CPUs, each with a number of its own.
//! 3. This concerns [`IndexBy::KernelCid`]. The IDs of a [`CidSpace`] or a [`Domain`] are the
//!    library's own.
//! 4. A child that sleeps or wakes a thread may wait forever.
//!
//! On Windows and macOS we only know that the crate compiles. We run the laws on Linux, with the
//! feature.
//!
//! **The feature is for a whole program.** Cargo builds a crate once, with every feature that any
//! package of the program asks for. If one package asks for `portable`, all get it. So a program or
//! a test may ask for it, and a library should not.
//!
//! [`available_parallelism`]: std::thread::available_parallelism
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
pub mod limit;
pub mod lock;
pub mod mask;
mod numbered;
pub mod object;
mod panics;
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

/// The CPU that runs the calling thread. The thread may run on another CPU by the time that this
/// returns, unless it is pinned to one. So the value is a hint, like that of `sched_getcpu`.
///
/// ```
/// let cpu = coreline::current_cpu();
/// assert!(coreline::CpuSet::from_iter([cpu]).contains(cpu));
/// ```
///
/// On Linux this is async-signal-safe. It reads the thread's rseq area if that is registered, and
/// else asks the kernel. Elsewhere it returns [a number of the
/// thread's](crate#where-there-is-no-linux).
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

/// The examples of the pages for users, as they stand there. A package does not have them.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/get-started.md")]
    struct GetStarted;
    #[doc = include_str!("../../../docs/migration.md")]
    struct Migration;
    #[doc = include_str!("../../../docs/faq.md")]
    struct Faq;
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
