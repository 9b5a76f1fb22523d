//! What the queues share memory by. In tests the simulated machine's, which charges for each cache
//! line that moves; outside of a machine those are ordinary, too.

#[cfg(not(test))]
pub(crate) use std::{sync::Mutex, sync::atomic, thread, thread_local};

#[cfg(test)]
pub(crate) use coreline_sim::{atomic, sync::Mutex, thread, thread_local};
