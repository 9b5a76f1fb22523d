//! Many runs: a claim over all that is unknown of a machine, tables over numbers of threads, and
//! the search for a failing schedule.

pub mod claim;
pub(crate) mod determinism;
pub(crate) mod explore;
mod json;
pub mod measure;
pub mod testing;
