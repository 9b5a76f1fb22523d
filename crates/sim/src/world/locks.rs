//! Lock reports: the holders of each lock of a run, its hand-offs, the longest wait, and its
//! fairness.
//!
//! The locks of [`sync`](crate::sync) report by themselves. Any other lock reports by calls to this
//! module, which take no simulated time and do nothing outside of a machine:
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
//! The address identifies a lock. If two locks occupy one address one after another, they are one
//! lock in the report.

use core::panic::Location;

use crate::engine;
pub use crate::results::locks::{Handoffs, LockReport};
use crate::results::locks::{Happens, Log};

/// Reports that the calling thread begins to wait for a lock. A second call before the acquisition
/// has no effect.
#[track_caller]
pub fn waiting<T: ?Sized>(lock: &T) {
    note(lock, Log::waiting);
}

/// Reports that the calling thread has acquired a lock.
#[track_caller]
pub fn acquired<T: ?Sized>(lock: &T) {
    note(lock, Log::acquired);
}

/// Reports that the calling thread has stopped waiting for a lock without acquiring it. Without
/// this call, the wait counts until the thread ends.
#[track_caller]
pub fn gave_up<T: ?Sized>(lock: &T) {
    note(lock, Log::gave_up);
}

/// Reports that the calling thread is about to release a lock.
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
