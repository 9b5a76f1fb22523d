//! Place: the thread's rseq area where there is one, else the kernel's `getcpu`.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use coreline_topology::{CacheId, Cid, CpuId, MAX_CPUS, NodeId, Shape, SysfsError, Topology};

use crate::Place;
use crate::native::{Native, affinity, rseq};

/// The machine's tree, and why it is a made-up one where sysfs could not be read.
pub(crate) fn tree() -> &'static (Arc<Topology>, Option<SysfsError>) {
    static TREE: OnceLock<(Arc<Topology>, Option<SysfsError>)> = OnceLock::new();
    TREE.get_or_init(|| match Topology::from_sysfs(Path::new("/sys")) {
        Ok(tree) => (Arc::new(tree), None),
        Err(error) => (Arc::new(flat()), Some(error)),
    })
}

/// One node with one cache and as many CPUs as the machine can have, where nothing else is known.
///
/// Rather some CPUs too many than one too few: whoever uses [`Place::cpu`] as an index relies on
/// [`Topology::cpu_limit`]. What the calling thread may use says little, as other threads may use
/// more; without sysfs the C library counts no better.
fn flat() -> Topology {
    let cpus = affinity::width().unwrap_or_else(|| {
        // SAFETY: asks for a number.
        let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        u32::try_from(configured).unwrap_or(1)
    });
    Topology::uniform(Shape {
        sockets: 1,
        nodes_per_socket: 1,
        caches_per_node: 1,
        cores_per_cache: cpus.clamp(1, MAX_CPUS),
        threads_per_core: 1,
    })
    .expect("every count is at least 1 and their product at most MAX_CPUS")
}

/// One more than the highest number that a CPU of this machine can have.
pub(crate) fn cpu_limit() -> usize {
    tree().0.cpu_limit()
}

/// The CPU that runs the caller.
#[inline]
pub(crate) fn cpu() -> CpuId {
    rseq::cpu().unwrap_or_else(cpu_by_call)
}

#[cold]
fn cpu_by_call() -> CpuId {
    // SAFETY: asks for a number.
    let cpu = unsafe { libc::sched_getcpu() };
    // The call fails only under a filter. CPU 0 is always there, and any answer is only a hint.
    CpuId::new(u32::try_from(cpu).unwrap_or(0))
}

impl Place for Native {
    /// The first call reads sysfs. Where that cannot be read, one node with one cache holds every
    /// CPU that the kernel could number, and [`probe`](super::probe()) reports why.
    fn topology() -> Arc<Topology> {
        Arc::clone(&tree().0)
    }

    /// Async-signal-safe once it was called.
    #[inline]
    fn cpu() -> CpuId {
        cpu()
    }

    /// `None` as well while the calling thread is not registered for rseq.
    #[inline]
    fn kernel_cid() -> Option<Cid> {
        rseq::cid()
    }

    fn node() -> NodeId {
        tree().0.cpu(cpu()).map_or(NodeId::new(0), |cpu| cpu.node)
    }

    fn cache() -> CacheId {
        tree().0.cpu(cpu()).map_or(CacheId::new(0), |cpu| cpu.cache)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flat_tree_has_every_cpu() {
        let flat = flat();
        assert!(flat.cpu_limit() >= cpu_limit(), "{} below {}", flat.cpu_limit(), cpu_limit());
        assert!(flat.cpu(cpu()).is_some());
        assert_eq!((flat.node_count(), flat.cache_count()), (1, 1));
    }
}
