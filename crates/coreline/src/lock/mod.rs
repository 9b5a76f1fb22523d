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
mod mutex;
mod osq;
mod read_mostly;
mod rwlock;
mod spin;
mod ticket;

pub use condvar::{Condvar, TimedOut};
pub use mutex::{Mutex, MutexGuard, RawMutex};
pub use osq::{Fifo, Near, Order, Osq, Turn};
pub use read_mostly::{ReadMostly, ReadMostlyReadGuard, ReadMostlyWriteGuard};
pub use rwlock::{RawRwLock, Readers, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use rwlock::{SleepingReaders, SpinningReaders};
pub use ticket::{RawTicketLock, TicketGuard, TicketLock};
