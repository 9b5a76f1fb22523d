//! What a machine can be set up with: plain values, and the trait of its kernel's extension.

pub(crate) mod faults;
pub(crate) mod kernel;
pub(crate) mod schedule;
