//! The interface of `parking_lot` 0.12, on the locks of [coreline].
//!
//! The types, functions and features are those of `parking_lot`, so a program changes its
//! dependency and no code:
//!
//! ```toml
//! [dependencies]
//! parking_lot = { package = "coreline-parking-lot", version = "0.1" }
//! ```
//!
//! To also replace `parking_lot` in all dependencies of a program, patch it. The repository has a
//! package with the name `parking_lot`, which re-exports this one:
//!
//! ```toml
//! [patch.crates-io]
//! parking_lot = { git = "REPOSITORY" }
//! ```
//!
//! ```
//! # use coreline_parking_lot as parking_lot;
//! use parking_lot::{Condvar, Mutex};
//!
//! static JOBS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
//! static CAME: Condvar = Condvar::new();
//!
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         JOBS.lock().push(7);
//!         CAME.notify_one();
//!     });
//!     let mut jobs = JOBS.lock();
//!     CAME.wait_while(&mut jobs, |jobs| jobs.is_empty());
//!     assert_eq!(jobs.pop(), Some(7));
//! });
//! ```
//!
//! # What differs
//!
//! - **Size**: [`RawMutex`] and [`RawRwLock`] have 8 bytes (1 and 8 in `parking_lot`), [`Condvar`]
//!   has 16 (8), and [`Once`] has 8 (1).
//! - **Order**: waiters near the holder go first, but none waits without bound; in `parking_lot`
//!   the order is FIFO. A running thread may pass a waiter that spins for 5 us, and one that
//!   sleeps for 1 ms (0.5 ms in `parking_lot`).
//! - **Fair unlock** of a mutex hands the lock over, as in `parking_lot`; a [`FairMutex`] is FIFO.
//!   For a readers-writer lock, it is a plain unlock, because the first waiter comes next after 20
//!   us in any case.
//! - **[`Condvar::notify_all`]** wakes all waiters; in `parking_lot`, each wakes after the one
//!   before.
//! - **Readers**: more than 2^24 readers at one time cause a panic.
//! - **Trials**: `try_upgrade` fails while another thread tries to read, even if that thread fails,
//!   too. `is_locked` is a hint.
//! - **Memory**: an unlock or a notification may read the lock, or the condition variable, after
//!   another thread has gone on. So it must stay in memory until the call returns. Safe code
//!   guarantees this.
//! - **Deadlock detection**: there is no feature `deadlock_detection`, so cargo refuses it. A lock
//!   does not know its holder.
//!
//! A waiter spins in a queue for at most 0.1 ms before it sleeps, so a lock under load moves
//! between neighbouring CPUs, and the lock's line is not contended. [`coreline::lock`] documents
//! the locks: fairness, priorities, signals, fork.
//!
//! # Sources
//!
//! The interface is that of Amanieu d'Antras and others, [parking_lot](https://docs.rs/parking_lot)
//! and [lock_api](https://docs.rs/lock_api). This crate contains none of their code.

mod condvar;
mod mutex;
mod once;
mod remutex;
mod rwlock;
mod waiters;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use lock_api_0_4 as lock_api;
pub use mutex::{FairMutex, FairMutexGuard, MappedFairMutexGuard, RawFairMutex, const_fair_mutex};
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard, RawMutex, const_mutex};
pub use once::{Once, OnceState};
pub use remutex::const_reentrant_mutex;
pub use remutex::{MappedReentrantMutexGuard, RawThreadId, ReentrantMutex, ReentrantMutexGuard};
pub use rwlock::{MappedRwLockReadGuard, MappedRwLockWriteGuard, RawRwLock, RwLock, const_rwlock};
pub use rwlock::{RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};

#[cfg(feature = "arc_lock")]
pub use lock_api_0_4::{
    ArcMutexGuard, ArcReentrantMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard,
    ArcRwLockWriteGuard,
};

/// The marker of guards. With the feature `send_guard`, a guard may be sent to another thread.
#[cfg(feature = "send_guard")]
type GuardMarker = lock_api::GuardSend;
#[cfg(not(feature = "send_guard"))]
type GuardMarker = lock_api::GuardNoSend;
