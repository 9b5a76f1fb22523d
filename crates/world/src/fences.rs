//! Fences, and the asymmetric pair.

use crate::Ordering;

/// The capability *fences*.
pub trait Fences {
    /// Executes an ordinary fence. In the model, [`Ordering::SeqCst`] is as strong as loom
    /// implements it.
    fn fence(order: Ordering);

    /// Executes the light fence, the frequent side of an asymmetric pair. The fence orders the
    /// caller's earlier accesses before the caller's later accesses, *towards every caller of*
    /// [`fence_all`](Fences::fence_all).
    ///
    /// The law says that a light fence and a heavy fence are ordered: one of the two comes first.
    /// All accesses before the first fence are visible to all accesses after the second. Two light
    /// fences do not order each other's accesses.
    ///
    /// Natively, the light fence is a compiler fence if the kernel has `membarrier`, and a full
    /// fence otherwise.
    fn fence_light();

    /// Returns whether [`fence_light_free`](Fences::fence_light_free) is a complete light fence in
    /// this process. The answer never changes. The function is for fast paths that ask once and
    /// store the answer.
    fn light_is_free() -> bool {
        false
    }

    /// Executes a light fence without an instruction, if [`light_is_free`](Fences::light_is_free)
    /// returns true. Otherwise, the call orders nothing, and the caller takes a slower path with
    /// [`fence_light`](Fences::fence_light).
    #[inline]
    fn fence_light_free() {}

    /// Executes the heavy fence, the rare side of the pair: see
    /// [`fence_light`](Fences::fence_light). Natively, the heavy fence is a system call that
    /// interrupts the process's other running threads. It takes microseconds.
    ///
    /// # Panics
    ///
    /// Panics if [`try_fence_all`](Fences::try_fence_all) fails.
    fn fence_all() {
        if let Err(lacking) = Self::try_fence_all() {
            panic!("{lacking}");
        }
    }

    /// Executes the heavy fence, like [`fence_all`](Fences::fence_all), but returns an error. The
    /// function is for callers that must clean up before they fail.
    ///
    /// # Errors
    ///
    /// Natively, [`Lacking`](crate::Lacking) if the kernel refuses `membarrier` after an earlier
    /// success, because a system-call filter was installed later. In this case, the call ordered no
    /// accesses.
    fn try_fence_all() -> Result<(), crate::Lacking>;

    /// Executes the rare side of the pair, for message passing only. Suppose that the caller has
    /// read a store that another thread made after a light fence. Then the caller sees everything
    /// that this thread did before that fence, including its reads. The fence does not order stores
    /// that the caller has not read, and does not order the caller's own stores towards other
    /// threads. Such stores need [`try_fence_all`](Fences::try_fence_all), which includes this
    /// fence.
    ///
    /// Natively, the fence takes no instruction on x86-64, where a thread's stores become visible
    /// in order and after its earlier reads. On other processors, it is
    /// [`try_fence_all`](Fences::try_fence_all). On simulated machines, including those with arm64
    /// processors, it takes no time.
    ///
    /// # Errors
    ///
    /// The same errors as for [`try_fence_all`](Fences::try_fence_all).
    fn try_fence_seen() -> Result<(), crate::Lacking> {
        Self::try_fence_all()
    }

    /// Waits for the restartable operations that were running on any CPU at the time of the call.
    /// When the function returns, each of these operations has either committed or been restarted.
    ///
    /// # Errors
    ///
    /// [`Lacking`](crate::Lacking) if restartable operations run in rseq sections but the kernel
    /// cannot fence them. If the operations run on atomics, no operation needs a restart, and the
    /// call succeeds as a heavy fence.
    fn fence_restartable() -> Result<(), crate::Lacking>;
}
