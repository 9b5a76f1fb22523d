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
//! | [`Mutex`] | 2.4–2.8 | 0.85–0.95 | 16–24 | 2.3–2.8 | 0.54–0.70 | 78–94 |
//! | [`RwLock`]¹ | 2.5–2.9 | 0.80–0.89 | 24–32 | 2.3–2.8 | 0.45–0.58 | 120–176 |
//! | [`ReadMostly`]¹ | 2.0–2.1 | 0.86–0.96 | 4.9–16 | 1.8–2.0 | 0.78–0.86 | 9.7–29 |
//! | [`TicketLock`] | 0.12–0.14 | 0.69–0.93 | 3.1–7.7 | 0.05–0.08 | 0.13–0.36 | 3.8–8.3 |
//! | [`Osq`] | 0.12–0.15 | 0.81–0.95 | 1.9–7.7 | 0.05–0.06 | 0.25–0.47 | 2.8–4.7 |
//! | std's `Mutex` | 2.5–2.8 | 0.84–0.92 | 20–29 | 2.2–2.6 | 0.42–0.52 | 196–280 |
//! | `parking_lot`'s `RwLock`¹ | 2.4–2.9 | 0.84–0.92 | 24–28 | 2.4–2.9 | 0.40–0.59 | 72–104 |
//!
//! Natively on an AMD EPYC (family 25 model 17, Zen 4) with 2 CPUs and kernel 6.18, 2026-11-26, by
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
