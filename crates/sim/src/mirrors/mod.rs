//! Mirrors of std's modules, simulated.

pub mod atomic;
pub mod hint;
pub mod sync;
pub mod thread;
pub mod time;
