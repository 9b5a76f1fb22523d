//! Read-copy update: readers of a structure write to no memory that they share. A node that a
//! writer unlinks is freed when no reader can hold it any more.
//!
//! | type | for |
//! |---|---|
//! | [`Rcu`] | one value that is read by all and replaced as a whole |
//! | [`Collector`] | structures of your own: lists, tables, trees whose nodes are unlinked |
//! | [`Reclaimer`] | a thread that frees what was retired |
//!
//! A reader is in a *read-side critical section* while it has a [`Guard`]. A writer unlinks a node,
//! so that no section that begins later finds it, and then *retires* it. When all sections that
//! were in progress have ended, the *grace period* is over, and the node is freed.
//!
//! # A structure of your own
//!
//! In this example, any thread reads a stack, and writers take its top:
//!
//! ```
//! use coreline::Mutex;
//! use coreline::rcu::Collector;
//! use std::ptr;
//! use std::sync::atomic::{AtomicPtr, Ordering};
//!
//! struct Node {
//!     value: u32,
//!     next: *mut Node,
//! }
//! // SAFETY: a node does not change once it is linked, and is freed when no thread can find it.
//! unsafe impl Send for Node {}
//!
//! struct Stack {
//!     top: AtomicPtr<Node>,
//!     writers: Mutex<()>,
//!     collector: Collector,
//! }
//!
//! impl Stack {
//!     fn contains(&self, value: u32) -> bool {
//!         let _section = self.collector.enter();
//!         let mut at = self.top.load(Ordering::Acquire); // pairs with the Release in `push`
//!         // SAFETY: the section began before the load, so it keeps all nodes that it finds.
//!         while let Some(node) = unsafe { at.as_ref() } {
//!             if node.value == value {
//!                 return true;
//!             }
//!             at = node.next;
//!         }
//!         false
//!     }
//!
//!     fn push(&self, value: u32) {
//!         let _writer = self.writers.lock();
//!         let next = self.top.load(Ordering::Relaxed); // only writers write it
//!         let node = Box::into_raw(Box::new(Node { value, next }));
//!         self.top.store(node, Ordering::Release); // pairs with the Acquire in `contains`
//!     }
//!
//!     fn pop(&self) -> Option<u32> {
//!         let writer = self.writers.lock();
//!         let top = self.top.load(Ordering::Relaxed);
//!         // SAFETY: the lock keeps other writers away, so the node is not freed.
//!         let node = unsafe { top.as_ref() }?;
//!         let value = node.value;
//!         self.top.store(node.next, Ordering::Release);
//!         drop(writer);
//!         // SAFETY: from a box. It is unlinked, by this thread alone.
//!         unsafe { self.collector.retire(top) };
//!         Some(value)
//!     }
//! }
//!
//! # impl Drop for Stack {
//! #     fn drop(&mut self) {
//! #         while self.pop().is_some() {}
//! #     }
//! # }
//! let stack = Stack {
//!     top: AtomicPtr::new(ptr::null_mut()),
//!     writers: Mutex::new(()),
//!     collector: Collector::new()?,
//! };
//! stack.push(1);
//! stack.push(2);
//! assert!(stack.contains(1));
//! assert_eq!((stack.pop(), stack.contains(2)), (Some(2), false));
//! # Ok::<(), coreline::percpu::PoolError>(())
//! ```
//!
//! In the repository, `crates/coreline/examples/table.rs` is a hash table whose readers take no
//! lock.
//!
//! # Costs
//!
//! A section costs two additions to per-CPU memory. These are not locked instructions if the
//! machine has restartable sections. Sections nest, and each costs the same.
//!
//! Retiring a value adds it to a list of the calling thread's CPU, with one locked instruction on a
//! line that only this CPU uses. When the list has a batch of values, the thread drives a grace
//! period. It makes a heavy fence, which interrupts the CPUs that run this process, and reads the
//! counts of all CPUs. So larger [batches](CollectorOptions::batch) cost less for each value, and
//! keep more values. A grace period waits only for sections that began before it. A value that is
//! retired during a grace period waits for the next one, for up to two lengths of a section.
//!
//! # Rules
//!
//! - A section must not wait for a grace period ([`synchronize`](Collector::synchronize),
//!   [`barrier`](Collector::barrier)), or for a thread that does. It may block for other reasons,
//!   but values that are retired during that time are not freed.
//! - The drop of a retired value, and a deferred function, run on a thread that retires something
//!   later, or on a reclaimer's. They must not wait for a grace period. Without a reclaimer, they
//!   must not take a lock that a thread may hold while it retires.
//! - With a [patience](CollectorOptions::limit) of `Duration::MAX`, a thread that retires may wait
//!   for a grace period. So it must not retire in a section, such as after
//!   [`enter`](Collector::enter) or in the function of [`update`](Rcu::update), because it would
//!   wait for itself forever. Nor may it hold a lock that the drop of a retired value takes, even
//!   if there is a reclaimer.
//! - Separate structures that are not read together can have a collector each. Then a long section
//!   of one does not delay the values that the other retires.
//!
//! # In async code
//!
//! A [`Guard`] may move between threads, so a future may keep it across an await if the collector
//! lives long enough, for example in a `static`. An [`OwnedGuard`] keeps the collector alive:
//!
//! ```
//! use coreline::rcu::{Collector, Rcu};
//! use std::sync::Arc;
//!
//! let collector = Arc::new(Collector::new()?);
//! let limit = Arc::new(Rcu::with_collector(&collector, 10));
//!
//! async fn wait_for_request() {}
//! let theirs = Arc::clone(&limit);
//! let task = async move {
//!     let section = theirs.collector().enter_owned();
//!     let limit = theirs.load(&section);
//!     wait_for_request().await;
//!     *limit
//! };
//! fn can_be_spawned(_: &(impl Future<Output = i32> + Send + 'static)) {}
//! can_be_spawned(&task);
//! # Ok::<(), coreline::percpu::PoolError>(())
//! ```
//!
//! While the task awaits, values that others retire are not freed. Before a long await, clone an
//! `Arc` out of the value, and end the section.
//!
//! # Which one to take
//!
//! | | reads | old values |
//! |---|---|---|
//! | [`Rcu`] | any thread, no registration | freed by later calls, or by a reclaimer |
//! | [`Versioned`] | a reader for each thread, which keeps the value | the same |
//! | [`ReadMostly`] | any thread; waits for writers | none: changed in place |
//!
//! [`Versioned`]: crate::mask::Versioned
//! [`ReadMostly`]: crate::lock::ReadMostly
//!
//! # Source
//!
//! Paul E. McKenney and John D. Slingwine, ["Read-Copy Update: Using Execution History to Solve
//! Concurrency Problems"][rcu], 1998. Linux, `kernel/rcu/srcutree.c`, sleepable RCU: the two pairs
//! of per-CPU counts. Mathieu Desnoyers et al., ["User-Level Implementations of Read-Copy
//! Update"][urcu], 2012: fences of all threads by a system call. In the repository,
//! `rcu/periods.rs` has the state words and the proof, and `tests/laws/calls/rcu.rs` checks the
//! laws in all three worlds.
//!
//! [rcu]: https://www.rdrop.com/users/paulmck/RCU/rclockpdcsproof.pdf
//! [urcu]: https://doi.org/10.1109/TPDS.2011.159

mod backlog;
mod cell;
mod collector;
mod guard;
mod periods;
mod reclaimer;

pub use cell::{Rcu, RcuRef};
pub use collector::{Collector, CollectorOptions};
pub use guard::{Guard, OwnedGuard, Section};
pub use reclaimer::Reclaimer;
