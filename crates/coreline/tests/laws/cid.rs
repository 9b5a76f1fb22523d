//! The laws of concurrency IDs.

mod concurrent;
mod model;
mod policies;
mod process;
mod steps;
