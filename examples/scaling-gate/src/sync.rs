//! The imports that depend on the simulator. Tests use those of the simulated machine.

#[cfg(not(test))]
pub(crate) use std::{sync::Mutex, sync::atomic, thread_local};

#[cfg(test)]
pub(crate) use coreline_sim::{atomic, sync::Mutex, thread_local};
