//! Object caches, which keep objects constructed from one use (a *life*) to the next.
//!
//! Some objects cost more to construct than to use: a session with its buffers, a tenant with
//! memory for each CPU, a connection with its counters. Destroying such an object and constructing
//! an equal one a moment later uses the allocator of each of its parts. For per-CPU memory, this
//! also takes a process-wide lock. So a cache keeps objects constructed:
//!
//! | part | is created | is destroyed |
//! |---|---|---|
//! | `T` | by the constructor, if none is idle | by the destructor, when the cache shrinks |
//! | `L` | at each [`get`](ObjectCache::get) | when the object is given back |
//!
//! ```
//! use coreline::object::ObjectCache;
//! use coreline::{CounterSet, Lacking};
//!
//! /// What a session keeps from one life to the next.
//! struct Session {
//!     buffer: Vec<u8>,
//!     traffic: CounterSet<2>,
//! }
//!
//! /// What each life has for itself.
//! #[derive(Clone)]
//! struct Peer {
//!     name: String,
//! }
//!
//! let sessions = ObjectCache::<Session, Peer>::builder("sessions")
//!     .check(|session| {
//!         session.buffer.clear();
//!         Ok(session.traffic.check_zero()?)
//!     })
//!     .build(|| {
//!         let traffic = CounterSet::new()?;
//!         Ok::<_, Lacking>(Session { buffer: Vec::with_capacity(4096), traffic })
//!     })?;
//!
//! let mut first = sessions.get_with(|| Peer { name: "alice".into() })?;
//! first.buffer.extend(b"hello");
//! let second = sessions.get_copy_of(&first)?;
//! assert_eq!((second.life().name.as_str(), second.buffer.len()), ("alice", 0));
//! drop((first, second));
//!
//! // Both are constructed still.
//! let again = sessions.get_with(|| Peer { name: "bob".into() })?;
//! assert!(again.buffer.capacity() >= 4096);
//! assert_eq!(sessions.stats().constructed, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where an idle object waits
//!
//! ```text
//! CPU 0  stack of pointers  ]
//! CPU 1  stack of pointers  ]--- magazines --- depot of node 0
//! CPU 2  stack of pointers  ---- magazines --- depot of node 1
//! ```
//!
//! A get pops from the stack of the calling thread's CPU, and a return pushes onto the stack. Each
//! is a [restartable operation](coreline_world::restartable) without atomic instructions. A stack
//! holds up to two magazines. An empty stack fetches a magazine from the depot of its node, and a
//! full stack moves a magazine there. So a CPU that only gets, or only returns, visits the depot
//! once per magazine. A CPU that alternates at the edge of a magazine does not visit the depot each
//! time. Bonwick's two magazines for each CPU have the same effect. Stacks grow while CPUs contend
//! for depots, as in Bonwick's paper, unless idle objects have a limit.
//!
//! The memory of an object is on the node of the CPU that constructed it. An object that is
//! returned on another CPU may be reused on that CPU while it is in the CPU's caches. An object
//! that leaves the stack of a CPU of another node returns to its home node with its magazine.
//!
//! # A limit
//!
//! A [`Budget`] limits the objects that are in use. [`get`](ObjectCache::get) fails immediately
//! while the budget is full. [`get_by`](ObjectCache::get_by) and
//! [`get_async`](ObjectCache::get_async) wait until an object is returned.
//!
//! # The contract
//!
//! A returned object must be reusable. `L` is dropped. [`check`](Builder::check) resets `T`, and
//! decides whether the object may be reused. The thread that returned a rejected object destroys
//! it. Rejected objects are [counted](CacheStats::failed), and [`on_failure`](Builder::on_failure)
//! is called with the reason. To find out why objects fail, keep the last ones in a
//! [`quarantine`](Builder::quarantine) instead, each with its address and the reason. A holder that
//! knows that its object is broken [discards](Object::discard) the object.
//!
//! A destructor runs in the thread that shrank the cache or returned an object, while this thread
//! holds all its locks. So a destructor may take only *leaf locks*. A leaf lock is a lock whose
//! holder takes no other lock and calls no cache. In builds with debug assertions, a destructor
//! panics if it gets or returns an object, or shrinks a cache.
//!
//! # Law
//!
//! Each constructed object has one holder at a time, or lies in one stack, depot or quarantine of
//! the cache. An object is constructed once, and destroyed at most once. If a charge or a closure
//! fails or panics, no object leaks, and no object is duplicated. All other work is done before the
//! first panic is resumed. The number of idle objects never exceeds the limit.
//!
//! **Signals**: signal handlers must not use a cache, because the interrupted thread may hold a
//! lock of the cache. **Fork**: the child has a copy of all objects and can continue to use the
//! cache, even if a handler forks and returns in the child. Objects that other threads held are
//! lost to the child. **Thread exit**: a cache keeps no per-thread state. **CPU offline**: objects
//! on the stack of an offline CPU stay there until [`shrink`](ObjectCache::shrink). **Priorities**:
//! a thread that waits for a lock yields, and then sleeps from time to time, so a holder with a
//! lower priority can run.
//!
//! # Source
//!
//! Yoo, ["kernel/fork: improve exec() throughput with slab ctor/dtor pair"][yoo] (2025; constructed
//! `mm_struct`s in the kernel); Bonwick, ["The slab allocator: an object-caching kernel memory
//! allocator"][slab] (USENIX 1994); Bonwick and Adams, ["Magazines and Vmem: extending the slab
//! allocator to many CPUs and arbitrary resources"][vmem] (USENIX 2001); the kernel's sheaves
//! (6.18).
//!
//! [yoo]: https://lore.kernel.org/r/20250424080755.272925-8-harry.yoo@oracle.com
//! [slab]: https://www.usenix.org/legacy/publications/library/proceedings/bos94/pdfs/bonwick.pdf
//! [vmem]: https://www.usenix.org/event/usenix01/bonwick.html

mod budget;
mod builder;
mod cache;
mod depot;
mod ends;
mod handle;
mod leaf;
mod owned;
mod quarantine;
mod quarantined;
mod slab;
mod stats;
#[cfg(test)]
mod tests;
mod vacant;
mod waiting;
mod ways;

pub use budget::{Budget, ChargeError, ChargeFuture, OverBudget};
pub use builder::{Builder, Pressure};
pub use cache::{GetError, Leaked, ObjectCache};
pub use handle::Object;
pub use owned::OwnedObject;
pub use quarantined::Quarantined;
pub use stats::CacheStats;
pub use vacant::{Built, Vacant};
