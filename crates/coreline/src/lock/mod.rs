//! Locks.
//!
//! | lock | bytes | waiters |
//! |---|---|---|
//! | [`TicketLock`] | 8 | spin on one line, in order of arrival |
//! | [`Osq`] | 4 | spin on lines of their own, near ones first or in order; can give up |

mod osq;
mod ticket;

pub use osq::{Fifo, Near, Order, Osq, Turn};
pub use ticket::{RawTicketLock, TicketGuard, TicketLock};
