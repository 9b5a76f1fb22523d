//! Locks.
//!
//! | lock | bytes | waiters |
//! |---|---|---|
//! | [`Mutex`] | 8 | spin in a queue, near ones first, and then sleep; can give up |
//! | [`RwLock`] | 8 | as those of [`Mutex`]; readers share the lock |
//! | [`Condvar`] | 8 | sleep, without the lock, until they are notified |
//! | [`TicketLock`] | 8 | spin on one line, in order of arrival |
//! | [`Osq`] | 4 | spin on lines of their own, near ones first or in order; can give up |

mod condvar;
mod mutex;
mod osq;
mod rwlock;
mod spin;
mod ticket;

pub use condvar::{Condvar, TimedOut};
pub use mutex::{Mutex, MutexGuard, RawMutex};
pub use osq::{Fifo, Near, Order, Osq, Turn};
pub use rwlock::{RawRwLock, Readers, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use rwlock::{SleepingReaders, SpinningReaders};
pub use ticket::{RawTicketLock, TicketGuard, TicketLock};
