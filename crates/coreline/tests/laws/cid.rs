//! The laws of concurrency IDs.

mod process;
mod steps;
