//! Experiments with many runs: claims that hold over a machine's unknowns, tables over numbers of
//! threads, and the search for a failing schedule.

pub mod claim;
pub(crate) mod determinism;
pub(crate) mod explore;
mod json;
pub mod measure;
pub mod testing;
