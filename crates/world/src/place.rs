//! Place: the location of the calling thread in the machine.

use std::sync::Arc;

use coreline_topology::{CacheId, Cid, CpuId, NodeId, Topology};

/// The capability *place*.
///
/// Unless the thread is pinned, every answer except the topology may be out of date when the call
/// returns, because the thread may migrate at any time. Use an answer as a hint, or inside a
/// restartable operation.
pub trait Place {
    /// Returns the machine's tree, which stays the same as long as the machine exists.
    fn topology() -> Arc<Topology>;

    /// Returns the CPU on which the caller runs. It is below [`Topology::cpu_limit`].
    fn cpu() -> CpuId;

    /// Returns the CPU on which the caller runs, or ran some time ago. Use it for code that is
    /// correct on any CPU, and fast on the returned CPU. If only the kernel knows the CPU, this
    /// function does not ask the kernel at each call.
    #[inline]
    fn cpu_hint() -> CpuId {
        Self::cpu()
    }

    /// Returns the kernel's concurrency ID of the calling thread, if there is one (`mm_cid`).
    fn kernel_cid() -> Option<Cid>;

    /// Returns the memory node of [`cpu`](Place::cpu), or node 0 if the topology does not know the
    /// CPU.
    fn node() -> NodeId {
        Self::topology().cpu(Self::cpu()).map_or(NodeId::new(0), |cpu| cpu.node)
    }

    /// Returns the last-level cache domain of [`cpu`](Place::cpu), or domain 0 if the topology does
    /// not know the CPU.
    fn cache() -> CacheId {
        Self::topology().cpu(Self::cpu()).map_or(CacheId::new(0), |cpu| cpu.cache)
    }
}
