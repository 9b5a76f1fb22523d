//! Computation between accesses to shared memory.

use core::time::Duration;

/// The capability *work*, for [programs](crate::Testbed).
///
/// The computation of a program between two accesses to shared memory decides how often they meet.
/// A benchmark states it here, so that it takes as long in every world in which time passes.
pub trait Work {
    /// Computes for about `span` on the calling thread's CPU, and touches no shared memory.
    ///
    /// If time passes, at least nine tenths of `span` pass before it returns, and more if the
    /// thread is preempted or interrupted. It promises nothing else about how long it takes.
    fn work(span: Duration);
}
