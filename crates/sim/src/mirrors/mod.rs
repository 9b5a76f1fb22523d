//! Mirrors of std's modules, simulated.

pub mod cell;
pub mod collections;
pub mod hint;
pub(crate) mod statics;
pub mod sync;
pub mod task;
pub mod thread;
pub mod time;

pub use crate::words::atomic;
