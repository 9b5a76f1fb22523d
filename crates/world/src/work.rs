//! Computation between accesses to shared memory.

use core::time::Duration;

/// The capability *work*, for [programs](crate::Testbed).
///
/// What a program does between two accesses to shared memory decides how often they meet. A
/// benchmark says it here, so that it takes as long in every world where time runs.
pub trait Work {
    /// Computes for about `span` on the calling thread's CPU, and touches no shared memory.
    ///
    /// Where time runs, at least nine tenths of `span` pass before it returns; more, if the thread
    /// is preempted or interrupted. Nothing else is promised about how long it takes.
    fn work(span: Duration);
}
