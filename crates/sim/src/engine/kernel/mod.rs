//! The simulated machine's kernel: which thread runs where, and what interrupts it.

mod balance;
pub(super) mod extension;
pub(super) mod faults;
pub(super) mod fiber;
pub(super) mod futex;
mod idle;
pub(super) mod interrupts;
pub(super) mod points;
pub(super) mod schedule;
pub(super) mod signals;
mod ticks;
