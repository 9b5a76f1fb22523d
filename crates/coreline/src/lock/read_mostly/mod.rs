//! [`ReadMostly`]: a readers-writer lock whose readers write to nothing that they share.
//!
//! A reader counts itself in its CPU's slot of per-CPU memory when it comes and when it goes. A
//! writer closes the lock and waits until as many have gone as came (the kernel's
//! `percpu_rw_semaphore`, `kernel/locking/percpu-rwsem.c`). The separate counts of coming and
//! going, and the order in which they are read, are those of the kernel's sleepable RCU,
//! `kernel/rcu/srcutree.c`. Between a reader's two accesses, to its count and to the sign that the
//! lock is closed, there is only a compiler fence, because the writer makes all CPUs pass a fence.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `closed` | `CLOSED`: a writer holds the lock or waits for readers | that writer |
//! | | `SLEPT_ON`: the same, and readers sleep on this word or are about to | readers |
//! | `calls` | how often a reader went while the lock was closed, modulo 2³² | readers |
//! | `writers` | which writer is next; also readers that slept in vain 8 times | both |
//! | `came`, `went` | for each CPU: how many readers came there, and how many went | readers |
//!
//! # Why the counts are apart
//!
//! While the writer adds up the counts, a reader may come on one CPU and go on another, or come
//! without getting the lock.
//!
//! ```text
//! Writer: reads what CPU 0 has
//! Reader: comes on CPU 0, finds the lock closed, is moved, goes on CPU 1
//! Writer: reads what CPU 1 has      <- one less than there are, if both were one count
//! ```
//!
//! So the writer first adds up all that went and then, after a fence, all that came. If it saw a
//! reader go, it also sees that the reader came. The two sums are equal only if all readers that
//! came before the lock was closed have left.
//!
//! # Law
//!
//! A writer is alone, and a reader sees all writes of earlier writers. In the repository,
//! `tests/laws/locks/read_mostly.rs` checks this in all three worlds.

mod guard;
mod raw;
#[cfg(test)]
mod tests;

pub use guard::{ReadMostly, ReadMostlyReadGuard, ReadMostlyWriteGuard};
pub use raw::RawReadMostly;
