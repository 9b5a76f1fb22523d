//! Locks.
//!
//! Here: the [ticket lock](TicketLock), fair and simple, for short critical sections of threads
//! that are not preempted.

mod ticket;

pub use ticket::{RawTicketLock, TicketGuard, TicketLock};
