//! `std::sync`, simulated: locks built on charged words and the machine's futex, as std builds its
//! locks on the futex of Linux.
//!
//! | here | as std's, on Linux |
//! |---|---|
//! | [`Mutex`], [`RwLock`], [`Condvar`], [`Once`] | the same states, 100 turns of spinning (4) |
//! | [`Barrier`], [`OnceLock`], [`LazyLock`] | built on these, as in std |
//! | [`Arc`], [`Weak`] | std's own, with its counts charged |
//! | [`PoisonError`], [`TryLockError`], [`LockResult`], [`TryLockResult`] | std's own |
//!
//! Differences from std:
//!
//! | std | here |
//! |---|---|
//! | a value is read where code reads it | each use of a guard accesses the whole value (1) |
//! | holders and waiters are not recorded | [lock reports](crate::locks) have those of both locks |
//! | `Arc<T>` turns into `Arc<dyn Trait>` | `Arc::from(std_arc)` (2) |
//! | a `static` works | see [`atomic`](crate::atomic) |
//! | [`mpsc`] is a lock-free list | a queue under a mutex (3) |
//! | `self: Arc<Self>` | only std's `Arc`: the language allows no other receiver |
//!
//! 1. Each time that a guard is used as a reference, the machine charges an access to all lines of
//!    the value. It does not charge for memory that the value owns elsewhere.
//! 2. Convert from std's `Arc<dyn Trait>`: the language lets only std convert in place.
//! 3. So the cost differs from the cost of std's channels, which depends on the layout of their
//!    queues.
//! 4. In searches, mostly without spinning: see [`Faults::cut_spins`](crate::Faults::cut_spins).
//!
//! All of this module works only in a machine.

mod arc;
mod barrier;
mod condvar;
pub mod mpsc;
mod mutex;
mod once;
mod once_lock;
mod poison;
mod rwlock;

use crate::world::sleep_until_woken as sleep;

pub use crate::words::atomic;

pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

pub use arc::{Arc, Weak};
pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceState};
pub use once_lock::{LazyLock, OnceLock};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How often a thread checks a lock before it parks. This is std's number on Linux, from memory.
const SPINS: u32 = 100;

/// How often it checks in this run: see [`Faults::cut_spins`](crate::Faults::cut_spins).
fn turns() -> u32 {
    crate::engine::inside(|engine| engine.turns(SPINS))
}

/// Charges for a use of a value that a lock protects.
#[track_caller]
fn used<T: ?Sized>(value: *const T, access: crate::hardware::coherence::Access) {
    // SAFETY: a guard's value is live; only its size is asked for.
    let size = unsafe { size_of_val(&*value) };
    crate::engine::access_range(value.addr(), size, access);
}
