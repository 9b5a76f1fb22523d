//! Place: where the calling thread runs.

use std::sync::Arc;

use coreline_topology::{CacheId, Cid, CpuId, NodeId, Topology};

/// The capability *place*.
///
/// Every answer except the topology may be out of date when it returns, unless the thread is
/// pinned: the thread may be moved between the answer and its use. Use it as a hint, or inside a
/// restartable operation.
pub trait Place {
    /// The machine's tree, the same for the whole life of the machine.
    fn topology() -> Arc<Topology>;

    /// The CPU that runs the caller: below [`Topology::cpu_limit`].
    fn cpu() -> CpuId;

    /// The CPU that runs the caller, or ran it a while ago. It is for code that is correct on any
    /// CPU, and fast on that one. If only a kernel knows the CPU, this does not ask it each time.
    #[inline]
    fn cpu_hint() -> CpuId {
        Self::cpu()
    }

    /// The kernel's concurrency ID of the calling thread, if there is one (`mm_cid`).
    fn kernel_cid() -> Option<Cid>;

    /// The memory node of [`cpu`](Place::cpu); node 0 if the topology does not know the CPU.
    fn node() -> NodeId {
        Self::topology().cpu(Self::cpu()).map_or(NodeId::new(0), |cpu| cpu.node)
    }

    /// The last-level cache domain of [`cpu`](Place::cpu); domain 0 if the topology does not know
    /// the CPU.
    fn cache() -> CacheId {
        Self::topology().cpu(Self::cpu()).map_or(CacheId::new(0), |cpu| cpu.cache)
    }
}
