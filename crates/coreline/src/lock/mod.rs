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
//! Locks that sleep let about ten times as many turns through as those that only spin, and more;
//! their longest waits are longer. With 8 threads and with 32, in millions of turns in a second,
//! and milliseconds:
//!
//! | lock | 8: turns | share | longest wait | 32: turns | share | longest wait |
//! |---|---|---|---|---|---|---|
//! | [`Mutex`] | 1.3–2.2 | 0.74–0.75 | 44–48 | 0.8–0.9 | 0.24–0.36 | 270–290 |
//! | [`RwLock`]¹ | 1.4–1.5 | 0.80–0.90 | 40–56 | 0.9–1.0 | 0.22–0.49 | 210–260 |
//! | [`ReadMostly`]¹ | 1.5 | 0.78–0.89 | 35–40 | 1.0 | 0.36–0.42 | 240–250 |
//! | [`TicketLock`] | 0.16–0.17 | 0.84–0.87 | 3.3–6.6 | 0.07 | 0.29–0.31 | 6–12 |
//! | [`Osq`] | 0.05–0.15 | 0.57–0.86 | 4.1–12 | 0.02–0.03 | 0.02–0.14 | 30–40 |
//! | std's `Mutex` | 1.5–1.6 | 0.79–0.83 | 68–72 | 0.8–0.9 | 0.26–0.31 | 550–780 |
//!
//! Natively on an AMD EPYC (family 26 model 2, Zen 5) with 2 CPUs and kernel 6.18: turns of 100 ns
//! and 500 ns between them, for 1.5 s; medians of five runs, measured twice, while other builds
//! ran beside. *Share* is the turns of the thread with the fewest over those of the one with the
//! most. A wait is from the call to the turn, and so holds what else the CPU did meanwhile.
//! ¹: one turn of a hundred is to write.
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
