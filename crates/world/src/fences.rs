//! Fences, and the asymmetric pair.

use crate::Ordering;

/// The capability *fences*.
pub trait Fences {
    /// An ordinary fence. [`Ordering::SeqCst`] in the model is as strong as loom makes it.
    fn fence(order: Ordering);

    /// The frequent side of an asymmetric pair: orders the caller's earlier accesses before its
    /// later ones *towards every caller of* [`fence_all`](Fences::fence_all).
    ///
    /// The law: for a light fence and a heavy fence, one of the two comes first, and everything
    /// before it is visible to what follows the other. Two light fences order nothing between each
    /// other.
    ///
    /// Natively a compiler fence where the kernel has `membarrier`, else a full fence.
    fn fence_light();

    /// The rare side: see [`fence_light`](Fences::fence_light). Natively a system call that
    /// interrupts the process's other running threads: microseconds.
    ///
    /// # Panics
    ///
    /// Where [`try_fence_all`](Fences::try_fence_all) fails.
    fn fence_all() {
        if let Err(lacking) = Self::try_fence_all() {
            panic!("{lacking}");
        }
    }

    /// As [`fence_all`](Fences::fence_all), for callers that must tidy up before they fail.
    ///
    /// # Errors
    ///
    /// [`Lacking`](crate::Lacking) natively, if the kernel refuses `membarrier` after it has once
    /// allowed it (a system-call filter put up later). Nothing was ordered.
    fn try_fence_all() -> Result<(), crate::Lacking>;

    /// Returns only after every restartable operation that was under way at the time of the call,
    /// on any CPU, has either committed or been made to restart.
    ///
    /// # Errors
    ///
    /// [`Lacking`](crate::Lacking) where restartable operations run in rseq sections but the kernel
    /// cannot fence them. Where they run on atomics there is nothing under way, and the call
    /// succeeds as a heavy fence.
    fn fence_restartable() -> Result<(), crate::Lacking>;
}
