//! What the simulated kernel does at a thread switch: hands out concurrency IDs, as
//! [`coreline::cid`] does in programs. The policies and their laws are there; this module makes a
//! [`Kernel`](coreline_sim::Kernel) of them, and says when it scans ([`Scan`]).

#[cfg(test)]
mod simulated;
mod space;

pub(crate) use coreline::cid::{Clustered, FirstFit, Owned, Recent};
pub(crate) use space::{Scan, Space};
