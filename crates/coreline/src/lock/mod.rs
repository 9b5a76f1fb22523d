//! Locks.
//!
//! | lock | bytes | waiters |
//! |---|---|---|
//! | [`Mutex`] | 8 | spin in a queue, near ones first, and then sleep; can give up |
//! | [`RwLock`] | 8 | as those of [`Mutex`]; readers share the lock |
//! | [`ReadMostly`] | 16, and 16 for each CPU | sleep; readers write to lines of their own |
//! | [`Condvar`] | 8 | sleep, without the lock, until they are notified |
//! | [`TicketLock`] | 8 | spin on one line, in order of arrival |
//! | [`Osq`] | 4 | spin on lines of their own, near ones first or in order; can give up |
//!
//! # More threads than CPUs
//!
//! Locks that sleep let ten times as many turns through as those that only spin, and more; their
//! longest waits are longer. With 8 threads and with 32, in millions of turns in a second, and
//! milliseconds:
//!
//! | lock | 8: turns | share | longest wait | 32: turns | share | longest wait |
//! |---|---|---|---|---|---|---|
//! | [`Mutex`] | 1.5–2.1 | 0.56–0.86 | 20–28 | 1.2–1.4 | 0.37–0.49 | 127–184 |
//! | [`RwLock`]¹ | 1.7–2.1 | 0.44–0.89 | 24–32 | 1.5–1.9 | 0.29–0.50 | 136–156 |
//! | [`ReadMostly`]¹ | 1.3–1.9 | 0.52–0.80 | 13–18 | 1.1–1.9 | 0.40–0.65 | 83–122 |
//! | [`TicketLock`] | 0.09–0.12 | 0.88–0.98 | 1.8–2.4 | 0.04–0.07 | 0.20–0.60 | 2.6–4.9 |
//! | [`Osq`] | 0.09–0.12 | 0.91–1.00 | 1.8–4.4 | 0.03–0.07 | 0.11–0.68 | 2.5–6.7 |
//! | std's `Mutex` | 1.4–2.1 | 0.58–0.92 | 24–32 | 1.4–1.9 | 0.35–0.45 | 274–304 |
//! | `parking_lot`'s `RwLock`¹ | 1.4–2.0 | 0.47–0.79 | 20–24 | 1.7–2.4 | 0.30–0.46 | 80–100 |
//!
//! Natively on an AMD EPYC (family 25 model 1, Zen 3) with 2 CPUs and kernel 6.18, 2026-11-25, by
//! the example `oversubscribed` of `coreline-rivals`: turns of 100 ns and 500 ns between them, for
//! 1.5 s, threads pinned to the CPUs by turns; the least and the most of five runs, interleaved.
//! *Share* is the turns of the thread with the fewest over those of the one with the most. A wait
//! is from the call to the turn, and so holds what else the CPU did meanwhile. ¹: one turn of a
//! hundred is to write.
//!
//! # For users of `parking_lot`
//!
//! With the feature `lock_api` (for version 0.5 of that crate) or `lock_api_0_4`, [`RawMutex`] and
//! [`RawRwLock`] have its traits. So a program keeps its code, with mapped guards, `Arc` guards and
//! data without a size, and changes a type:
//!
//! ```
//! # #[cfg(feature = "lock_api")] {
//! type Mutex<T> = lock_api::Mutex<coreline::lock::RawMutex, T>;
//! type RwLock<T> = lock_api::RwLock<coreline::lock::RawRwLock, T>;
//!
//! static LOCK: Mutex<u32> = Mutex::new(1);
//! *LOCK.lock() += 1;
//! let halves: &RwLock<[u32]> = &RwLock::new([1, 2]);
//! assert_eq!(*LOCK.lock() as usize, halves.read().len());
//! # }
//! ```

#[cfg(any(feature = "lock_api", feature = "lock_api_0_4"))]
mod api;
mod condvar;
mod guard;
mod mutex;
mod osq;
mod queued;
mod read_mostly;
mod rwlock;
pub(crate) mod spin;
mod ticket;

pub use condvar::{Condvar, TimedOut};
pub use mutex::{Mutex, MutexGuard, RawMutex};
pub use osq::{Fifo, Near, Order, Osq, Turn};
pub(crate) use queued::QueuedLock;
pub use read_mostly::{ReadMostly, ReadMostlyReadGuard, ReadMostlyWriteGuard};
pub use rwlock::{RawRwLock, Readers, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use rwlock::{SleepingReaders, SpinningReaders};
pub use ticket::{RawTicketLock, TicketGuard, TicketLock};
