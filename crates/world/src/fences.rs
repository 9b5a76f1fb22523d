//! Fences, and the asymmetric pair.

use crate::Ordering;

/// The capability *fences*.
pub trait Fences {
    /// An ordinary fence. [`Ordering::SeqCst`] in the model is as strong as loom makes it.
    fn fence(order: Ordering);

    /// The frequent side of an asymmetric pair. It orders the caller's earlier accesses before its
    /// later ones *towards every caller of* [`fence_all`](Fences::fence_all).
    ///
    /// The law: of a light fence and a heavy fence, one comes first, and everything before it is
    /// visible to everything that follows the other. Two light fences order nothing between each
    /// other.
    ///
    /// Natively it is a compiler fence if the kernel has `membarrier`, else a full fence.
    fn fence_light();

    /// Whether [`fence_light_free`](Fences::fence_light_free) is a complete light fence, in this
    /// process and for as long as it lives. It is for fast paths that ask once and remember the
    /// answer.
    fn light_is_free() -> bool {
        false
    }

    /// A light fence without an instruction, if [`light_is_free`](Fences::light_is_free) says that
    /// there is one. Otherwise it orders nothing: the caller then takes a slower path, with
    /// [`fence_light`](Fences::fence_light).
    #[inline]
    fn fence_light_free() {}

    /// The rare side: see [`fence_light`](Fences::fence_light). Natively it is a system call that
    /// interrupts the process's other running threads, and takes microseconds.
    ///
    /// # Panics
    ///
    /// Panics if [`try_fence_all`](Fences::try_fence_all) fails.
    fn fence_all() {
        if let Err(lacking) = Self::try_fence_all() {
            panic!("{lacking}");
        }
    }

    /// Like [`fence_all`](Fences::fence_all), but for callers that must tidy up before they fail.
    ///
    /// # Errors
    ///
    /// [`Lacking`](crate::Lacking) natively, if the kernel refuses `membarrier` after it has once
    /// allowed it (a system-call filter was installed later). Then nothing was ordered.
    fn try_fence_all() -> Result<(), crate::Lacking>;

    /// The rare side if only a message is passed. After it the caller sees everything that a thread
    /// did before a light fence, including its reads, if the caller has read what that thread
    /// stored after that fence. It orders neither stores that the caller has not read nor its own
    /// stores towards others. That needs [`try_fence_all`](Fences::try_fence_all), which includes
    /// this.
    ///
    /// Natively it is no instruction on x86-64, where a thread's stores are seen in their order and
    /// after its earlier reads. Elsewhere it is [`try_fence_all`](Fences::try_fence_all). Simulated
    /// machines take no time for it, including those with arm64 processors.
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
    /// [`Lacking`](crate::Lacking) if restartable operations run in rseq sections but the kernel
    /// cannot fence them. If they run on atomics, nothing is under way, and the call succeeds as a
    /// heavy fence.
    fn fence_restartable() -> Result<(), crate::Lacking>;
}
