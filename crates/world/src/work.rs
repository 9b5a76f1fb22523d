//! Computation between accesses to shared memory.

use core::time::Duration;

/// The capability *work*, for [programs](crate::Testbed).
///
/// The length of the computation between two accesses to shared memory decides how often threads
/// contend. A benchmark states this length here, so that it is the same in every world in which
/// time passes.
pub trait Work {
    /// Computes for about `span` on the calling thread's CPU, without accesses to shared memory.
    ///
    /// If time passes, the call takes at least nine tenths of `span`, and more if the thread is
    /// preempted or interrupted. There is no other guarantee about the duration.
    fn work(span: Duration);
}
