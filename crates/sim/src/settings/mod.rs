//! The settings of a machine: plain values, and the trait for an extension of its kernel.

pub(crate) mod faults;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod schedule;

/// The share of a miss that is request flight, in percent, unless a machine is told another.
pub(crate) const REQUEST_PERCENT: u32 = 30;

/// After how many engine steps a run is given up, unless a machine is told otherwise.
pub(crate) const STEP_LIMIT: u64 = 10_000_000_000;
