//! The imports that depend on the simulator: in tests, the machine is a simulated one.

#[cfg(not(test))]
pub(crate) use coreline::world::Native as Machine;
#[cfg(not(test))]
pub(crate) use std::collections::hash_map::RandomState;

#[cfg(test)]
pub(crate) use coreline_sim::{Sim as Machine, collections::hash_map::RandomState};
