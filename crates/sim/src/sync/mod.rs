//! `std::sync`, simulated: locks built on charged words and the machine's futex, as std's are on
//! the futex of Linux.
//!
//! | here | as std's, on Linux |
//! |---|---|
//! | [`Mutex`], [`RwLock`], [`Condvar`], [`Once`] | the same words in the same states, a spin of 100 turns, then park; wake one or all |
//! | [`Barrier`], [`OnceLock`], [`LazyLock`] | on the above, as std's |
//! | [`Arc`], [`Weak`] | std's own, with its counts charged |
//! | [`PoisonError`], [`TryLockError`], [`LockResult`], [`TryLockResult`] | std's own |
//!
//! What differs:
//!
//! | std | here |
//! |---|---|
//! | what a lock protects is read where the code reads it | each use of a guard as a reference is charged as an access to the whole value, without what it owns elsewhere |
//! | nobody notes who waited for whom | [`Mutex`] and [`RwLock`] are in the run's [lock reports](crate::locks) |
//! | an `Arc<T>` becomes an `Arc<dyn Trait>` where one is expected | write `Arc::from(std_arc)`, from a std `Arc<dyn Trait>`: the language lets only std convert in place |
//! | a `static` works | see [`atomic`](crate::atomic) |
//! | `mpsc` | left out: its cost is in the layout of std's queues, which a rewrite would not have |
//!
//! All of it works in a machine only.

mod arc;
mod barrier;
mod condvar;
mod mutex;
mod once;
mod once_lock;
mod poison;
mod rwlock;

pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

pub use arc::{Arc, Weak};
pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceState};
pub use once_lock::{LazyLock, OnceLock};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How often a thread looks at a lock before it parks: what std does on Linux (from memory).
const SPINS: u32 = 100;

/// Charges for a use of a value that a lock protects.
#[track_caller]
fn used<T: ?Sized>(value: *const T, access: crate::coherence::Access) {
    // SAFETY: a guard's value is live; only its size is asked for.
    let size = unsafe { size_of_val(&*value) };
    crate::engine::access_range(value.addr(), size, access);
}
