//! The simulated machine's kernel: which thread runs where, and what interrupts it.

pub(super) mod balance;
pub(super) mod faults;
pub(super) mod interrupts;
pub(super) mod schedule;
pub(super) mod signals;
pub(super) mod ticks;
