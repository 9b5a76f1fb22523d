//! [`Topology`], the tree of one machine: which CPUs share a core, a cache, a node, a socket.

use std::collections::BTreeSet;

use crate::cpuset::CpuSet;
use crate::ids::{CacheId, CpuId, NodeId};

/// One online CPU and its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The CPU.
    pub id: CpuId,
    /// Its core, numbered densely from 0 over the whole machine in the order of each core's lowest
    /// CPU.
    pub core: u32,
    /// Its place among the hardware threads of that core, counted from 0.
    pub thread: u32,
    /// Its last-level cache domain.
    pub cache: CacheId,
    /// Its memory node.
    pub node: NodeId,
    /// Its socket (package), numbered densely from 0 in the order of each socket's lowest CPU.
    pub socket: u32,
}

/// How far two CPUs are apart in the tree: the smallest part of the machine that holds both.
///
/// Nearer compares as less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// The two are one CPU.
    SameCpu,
    /// Hardware threads of one core.
    SameCore,
    /// Cores under one last-level cache.
    SameCache,
    /// Caches of one memory node.
    SameNode,
    /// Nodes of one socket.
    SameSocket,
    /// Different sockets.
    OtherSocket,
}

/// The tree of one machine: its online CPUs, and the cores, last-level caches, memory nodes and
/// sockets that hold them.
///
/// A value: it describes the moment at which it was read, and hotplug does not change it. Read one
/// with [`from_sysfs`](Topology::from_sysfs) or build a regular one with
/// [`uniform`](Topology::uniform).
///
/// ```
/// use coreline_topology::{CpuId, Distance, Shape, Topology};
///
/// // Two sockets of 12 caches, each of 8 cores with 2 hardware threads.
/// let epyc = Topology::uniform(Shape {
///     sockets: 2,
///     nodes_per_socket: 1,
///     caches_per_node: 12,
///     cores_per_cache: 8,
///     threads_per_core: 2,
/// })?;
/// assert_eq!((epyc.cpu_count(), epyc.cache_count()), (384, 24));
/// let sibling = epyc.distance(CpuId::new(0), CpuId::new(192));
/// assert_eq!(sibling, Some(Distance::SameCore));
/// # Ok::<(), coreline_topology::ShapeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// By CPU number; `None` is a CPU that is possible but not online.
    slots: Vec<Option<Cpu>>,
    nodes: BTreeSet<NodeId>,
    cpu_count: usize,
    core_count: usize,
    cache_count: usize,
    socket_count: usize,
}

impl Topology {
    /// The tree of these CPUs on a machine that may get CPUs up to `limit - 1`. Cores, caches and
    /// sockets are numbered densely already; `limit` is raised where a CPU lies beyond it.
    pub(crate) fn new(cpus: &[Cpu], limit: usize) -> Self {
        let count = |part: fn(&Cpu) -> u32| {
            cpus.iter().map(part).max().map_or(0, |highest| highest as usize + 1)
        };
        let mut slots = vec![None; limit.max(count(|cpu| cpu.id.get()))];
        for cpu in cpus {
            slots[cpu.id.index()] = Some(*cpu);
        }
        Self {
            slots,
            nodes: cpus.iter().map(|cpu| cpu.node).collect(),
            cpu_count: cpus.len(),
            core_count: count(|cpu| cpu.core),
            cache_count: count(|cpu| cpu.cache.get()),
            socket_count: count(|cpu| cpu.socket),
        }
    }

    /// The CPU with this number, if it is online.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        self.slots.get(id.index())?.as_ref()
    }

    /// The online CPUs, by ascending number.
    pub fn cpus(&self) -> impl Iterator<Item = &Cpu> {
        self.slots.iter().flatten()
    }

    /// The number of online CPUs, at least 1.
    pub fn cpu_count(&self) -> usize {
        self.cpu_count
    }

    /// The highest CPU number that the machine can ever have, plus 1: the length of an array that
    /// is indexed by CPU. At least [`cpu_count`](Topology::cpu_count); more where CPUs are offline.
    pub fn cpu_limit(&self) -> usize {
        self.slots.len()
    }

    /// The number of cores.
    pub fn core_count(&self) -> usize {
        self.core_count
    }

    /// The number of last-level cache domains.
    pub fn cache_count(&self) -> usize {
        self.cache_count
    }

    /// The number of memory nodes that have an online CPU. Their numbers may have gaps:
    /// [`nodes`](Topology::nodes) gives them.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The memory nodes that have an online CPU, by ascending number.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().copied()
    }

    /// The number of sockets.
    pub fn socket_count(&self) -> usize {
        self.socket_count
    }

    /// The CPUs of one last-level cache domain; empty where there is no such domain.
    pub fn cpus_of_cache(&self, cache: CacheId) -> CpuSet {
        self.cpus().filter(|cpu| cpu.cache == cache).map(|cpu| cpu.id).collect()
    }

    /// The CPUs of one memory node; empty where there is no such node.
    pub fn cpus_of_node(&self, node: NodeId) -> CpuSet {
        self.cpus().filter(|cpu| cpu.node == node).map(|cpu| cpu.id).collect()
    }

    /// All online CPUs.
    pub fn set(&self) -> CpuSet {
        self.cpus().map(|cpu| cpu.id).collect()
    }

    /// How far two CPUs are apart; `None` where one of them is not online.
    pub fn distance(&self, a: CpuId, b: CpuId) -> Option<Distance> {
        let (a, b) = (self.cpu(a)?, self.cpu(b)?);
        Some(if a.id == b.id {
            Distance::SameCpu
        } else if a.core == b.core {
            Distance::SameCore
        } else if a.cache == b.cache {
            Distance::SameCache
        } else if a.node == b.node {
            Distance::SameNode
        } else if a.socket == b.socket {
            Distance::SameSocket
        } else {
            Distance::OtherSocket
        })
    }
}
