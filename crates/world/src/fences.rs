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

    /// Whether [`fence_light_free`](Fences::fence_light_free) is all of a light fence, in this
    /// process and for as long as it lives. For fast paths that ask once and remember the answer.
    fn light_is_free() -> bool {
        false
    }

    /// A light fence without an instruction, where [`light_is_free`](Fences::light_is_free) says
    /// that there is one. Elsewhere it orders nothing: the caller then takes a slower path, with
    /// [`fence_light`](Fences::fence_light).
    #[inline]
    fn fence_light_free() {}

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

    /// The rare side where only a message is passed: behind this the caller has all that a thread
    /// did before a light fence, its reads among it, if it has read what that thread stored behind
    /// that fence. Of stores that it has not read, and of its own, it orders nothing towards
    /// others: that needs [`try_fence_all`](Fences::try_fence_all), which does this, too.
    ///
    /// Natively no instruction on x86-64, where a thread's stores are seen in their order and after
    /// its earlier reads; else [`try_fence_all`](Fences::try_fence_all). Simulated machines take no
    /// time for it, those with arm64 processors neither.
    ///
    /// # Errors
    ///
    /// As [`try_fence_all`](Fences::try_fence_all).
    fn try_fence_seen() -> Result<(), crate::Lacking> {
        Self::try_fence_all()
    }

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
