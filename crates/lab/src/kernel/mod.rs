//! What the simulated kernel does at a thread switch: policies that hand out concurrency IDs.

mod first_fit;

pub(crate) use first_fit::FirstFit;
