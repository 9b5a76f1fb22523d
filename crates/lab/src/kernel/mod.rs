//! What the simulated kernel does at a thread switch: policies that hand out concurrency IDs.
//!
//! | module | holds |
//! |---|---|
//! | [`space`] | the IDs of a process: references, expiry, migration, exec; all that is shared |
//! | [`first_fit`], [`recent`] | the policies: which ID a CPU gets that has none |
//! | [`laws`], [`simulated`] | what must hold whatever happens, as tests |
//!
//! A simulated machine runs one process, and makes one call after the other: these are sequential
//! state machines.

mod first_fit;
#[cfg(test)]
mod laws;
mod recent;
#[cfg(test)]
mod simulated;
mod space;

pub(crate) use first_fit::FirstFit;
pub(crate) use recent::Recent;
pub(crate) use space::{Scan, Space};
