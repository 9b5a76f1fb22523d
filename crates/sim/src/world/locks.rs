//! Lock reports: for each lock of a run, which threads held it, where it went from one to the next,
//! the longest wait, and whether it was fair.
//!
//! The locks of [`sync`](crate::sync) report by themselves. Any other lock reports by calls, which
//! take no simulated time and do nothing outside of a machine:
//!
//! ```
//! # #[global_allocator]
//! # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
//! use coreline_sim::atomic::{AtomicBool, Ordering};
//! use coreline_sim::{Machine, hint, locks, thread};
//!
//! struct SpinLock(AtomicBool);
//!
//! impl SpinLock {
//!     fn lock(&self) {
//!         while self.0.swap(true, Ordering::Acquire) {
//!             locks::waiting(self);
//!             while self.0.load(Ordering::Relaxed) {
//!                 hint::spin_loop();
//!             }
//!         }
//!         locks::acquired(self);
//!     }
//!
//!     fn unlock(&self) {
//!         locks::released(self);
//!         self.0.store(false, Ordering::Release);
//!     }
//! }
//!
//! let run = Machine::preset("epyc-9654-2s")?.run(|| {
//!     let lock = SpinLock(AtomicBool::new(false));
//!     thread::scope(|scope| {
//!         for _ in 0..16 {
//!             scope.spawn(|| {
//!                 for _ in 0..10 {
//!                     lock.lock();
//!                     lock.unlock();
//!                 }
//!             });
//!         }
//!     });
//! })?;
//! let report = &run.locks[0];
//! assert_eq!((report.acquisitions, report.by_thread.len()), (160, 16));
//! assert!(report.jain() > 0.999, "each thread had it ten times");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A lock is known by its address: two locks that live there one after another are one in the
//! report.

use core::panic::Location;

use crate::engine;
pub use crate::results::locks::{Handoffs, LockReport};
use crate::results::locks::{Happens, Log};

/// Says that the calling thread waits for a lock from now on. A second call before it has the lock
/// changes nothing.
#[track_caller]
pub fn waiting<T: ?Sized>(lock: &T) {
    note(lock, Log::waiting);
}

/// Says that the calling thread has a lock.
#[track_caller]
pub fn acquired<T: ?Sized>(lock: &T) {
    note(lock, Log::acquired);
}

/// Says that the calling thread has stopped waiting for a lock, and does not have it. (Without this
/// call, the wait counts until the thread ends.)
#[track_caller]
pub fn gave_up<T: ?Sized>(lock: &T) {
    note(lock, Log::gave_up);
}

/// Says that the calling thread is about to free a lock.
#[track_caller]
pub fn released<T: ?Sized>(lock: &T) {
    note(lock, Log::released);
}

#[track_caller]
fn note<T: ?Sized>(lock: &T, what: Happens) {
    let (address, len) = (core::ptr::from_ref(lock).addr(), size_of_val(lock));
    let site = Location::caller();
    engine::with(|engine| engine.note_lock(address, len, site, what));
}
