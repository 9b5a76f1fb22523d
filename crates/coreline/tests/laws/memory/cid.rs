//! The laws of concurrency IDs.

mod concurrent;
mod lines;
mod model;
mod policies;
mod process;
mod steps;
