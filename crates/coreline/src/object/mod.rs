//! Object caches: objects that stay constructed from one life to the next.
//!
//! Some objects cost more to make than to use: a session with its buffers, a tenant with memory for
//! each CPU, a connection with its counters. Destroying such a one, to construct the same again a
//! moment later, goes each time through whatever its parts come from; for per-CPU memory that is a
//! lock of the whole process. So a cache keeps what was constructed:
//!
//! | what | is made | goes |
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
//! A get is a pop from the stack of the calling thread's CPU, and giving back a push: a
//! [restartable operation](coreline_world::restartable) each, without atomic instructions. A stack
//! holds up to two magazines. One that runs empty takes a magazine from the depot of its node, and
//! one that runs full takes a magazine there: so a CPU that only gets, or only gives back, comes to
//! the depot once in so many times, and one that does both in turn, at the edge of a magazine, does
//! not come there each time. (Bonwick's two magazines for each CPU have the same effect.) Stacks
//! grow while CPUs meet at depots, as in his paper, unless idle objects have a limit.
//!
//! Objects lie on the node of the CPU that had them constructed. Those that are given back
//! elsewhere may be taken again there while they are in that CPU's caches; what leaves the stack of
//! a CPU of another node goes home with its magazine.
//!
//! # The contract
//!
//! An object comes back reusable. `L` is dropped; what must be cleared in `T` is cleared by
//! [`check`](Builder::check), which also says whether the object may live again. One that may not
//! is destroyed by the thread that gave it back, and [counted](CacheStats::failed); a hook is told
//! why: [`on_failure`](Builder::on_failure). To find out how objects come to fail, have the last
//! ones put aside instead, each with its address and the reason:
//! [`quarantine`](Builder::quarantine). A holder that knows that its object is broken
//! [discards](Object::discard) it.
//!
//! A destructor runs in whichever thread made the cache shrink or gave an object back, whatever
//! locks that thread has. So it may take *leaf locks* only: such as no thread holds while it takes
//! another one, or calls a cache. In builds with debug assertions a destructor that gets an object,
//! gives one back or shrinks a cache panics.
//!
//! # Law
//!
//! Each constructed object is in one hand at a time, or in one place of the cache; it was
//! constructed once, and is destroyed at most once. A charge or a closure that fails or panics
//! leaks nothing and doubles nothing: all else is done before the first panic goes on. Idle objects
//! are never more than the limit.
//!
//! **Signals**: not for handlers: the thread that one interrupts may hold a lock of the cache.
//! **Fork**: the child has a copy of all objects, and goes on, also one that a handler forks and
//! returns in; objects that other threads had in their hands are lost to it. **Thread exit**: a
//! cache has nothing of a thread. **CPU offline**: what waits on the stack of a CPU that is gone
//! waits until [`shrink`](ObjectCache::shrink). **Priorities**: a thread that waits for a lock
//! yields, and then sleeps now and then, so a holder of a lower priority gets on.
//!
//! # Source
//!
//! Yoo, ["kernel/fork: improve exec() throughput with slab ctor/dtor pair"][yoo] (2025; constructed
//! `mm_struct`s in the kernel); Bonwick, "The slab allocator" (USENIX 1994); Bonwick and Adams,
//! "Magazines and Vmem" (USENIX 2001); the kernel's sheaves (6.18).
//!
//! [yoo]: https://lore.kernel.org/r/20250424080755.272925-8-harry.yoo@oracle.com

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
mod ways;

pub use budget::{Budget, OverBudget};
pub use builder::{Builder, Pressure};
pub use cache::{GetError, Leaked, ObjectCache};
pub use handle::Object;
pub use owned::OwnedObject;
pub use quarantined::Quarantined;
pub use stats::CacheStats;
pub use vacant::{Built, Vacant};
