//! [`Topology`], the tree of one machine: the CPUs that share a core, a cache, a node, a socket.

use std::collections::BTreeSet;

use crate::cpuset::CpuSet;
use crate::ids::{CacheId, CpuId, MAX_CPUS, NodeId};
use crate::kind::CoreKind;
use crate::node::Nodes;

/// One online CPU and its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The CPU.
    pub id: CpuId,
    /// The CPU's core, numbered from 0 without gaps over the whole machine, in the order of each
    /// core's lowest CPU.
    pub core: u32,
    /// The CPU's position among the hardware threads of its core, counted from 0.
    pub thread: u32,
    /// The CPU's second-level cache domain, numbered like cores. A core that shares no such cache
    /// is a domain of its own.
    pub l2: u32,
    /// The CPU's cluster, numbered like cores. A cluster is a set of cores that share a resource
    /// between the second-level and the last-level cache. Examples are the tags of a part of the
    /// last-level cache, or a port to the interconnect. If there is no such resource, each
    /// second-level domain is a cluster.
    pub cluster: u32,
    /// The CPU's last-level cache domain.
    pub cache: CacheId,
    /// The CPU's memory node.
    pub node: NodeId,
    /// The CPU's socket (package), numbered densely from 0 in the order of each socket's lowest
    /// CPU.
    pub socket: u32,
    /// The kind of the CPU's core.
    pub kind: CoreKind,
}

/// The distance between two CPUs in the tree, which is the smallest part of the machine that holds
/// both.
///
/// A shorter distance compares as less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// The CPUs are the same.
    SameCpu,
    /// Two hardware threads of one core.
    SameCore,
    /// Two cores under one second-level cache.
    SameL2,
    /// Two cores of one cluster.
    SameCluster,
    /// Two cores under one last-level cache.
    SameCache,
    /// Two last-level caches of one memory node.
    SameNode,
    /// Two nodes of one socket.
    SameSocket,
    /// Two sockets.
    OtherSocket,
}

/// How many CPU numbers a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// One more than the highest number that a CPU can have.
    pub(crate) cpus: usize,
    /// Whether a file or a caller stated it; otherwise it follows from the CPUs that are online.
    pub(crate) stated: bool,
}

/// The tree of one machine: its online CPUs, and the cores, second-level caches, clusters,
/// last-level caches, memory nodes and sockets that hold them.
///
/// On all machines that we know, each part lies within the next larger part. The only exception is
/// that a last-level cache may span several nodes (sub-NUMA clustering).
///
/// The tree is a value. It describes the machine at the time when the tree was read, and hotplug
/// does not change it. Read a tree with [`from_sysfs`](Topology::from_sysfs), or build a regular
/// tree with [`uniform`](Topology::uniform). The tree is immutable, so any code may read it,
/// including signal handlers. Functions that return sets allocate.
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
    /// The CPUs by number, up to the highest online CPU; `None` is a CPU that is not online.
    slots: Vec<Option<Cpu>>,
    limit: Limit,
    nodes: Nodes,
    cpu_count: usize,
    core_count: usize,
    l2_count: usize,
    cluster_count: usize,
    cache_count: usize,
    socket_count: usize,
}

impl Topology {
    /// The tree of these CPUs, whose numbers are below [`MAX_CPUS`]. All parts but nodes are
    /// numbered densely already; the limit is raised where a CPU lies beyond it, and the nodes of
    /// the CPUs are entered into `nodes`.
    pub(crate) fn new(cpus: &[Cpu], limit: Limit, mut nodes: Nodes) -> Self {
        let count = |part: fn(&Cpu) -> u32| {
            cpus.iter().map(part).max().map_or(0, |highest| highest as usize + 1)
        };
        let mut slots = vec![None; count(|cpu| cpu.id.get())];
        for cpu in cpus {
            slots[cpu.id.index()] = Some(*cpu);
        }
        nodes.with_cpus = cpus.iter().map(|cpu| cpu.node).collect();
        Self {
            limit: Limit { cpus: limit.cpus.max(slots.len()), ..limit },
            slots,
            nodes,
            cpu_count: cpus.len(),
            core_count: count(|cpu| cpu.core),
            l2_count: count(|cpu| cpu.l2),
            cluster_count: count(|cpu| cpu.cluster),
            cache_count: count(|cpu| cpu.cache.get()),
            socket_count: count(|cpu| cpu.socket),
        }
    }

    /// Returns the same machine, in which CPU numbers up to `limit - 1` are known to be possible. A
    /// limit above [`MAX_CPUS`] counts as [`MAX_CPUS`], because no tree has a CPU beyond that
    /// number.
    ///
    /// Use it if [`cpu_limit_is_stated`](Topology::cpu_limit_is_stated) returns false and the
    /// caller knows the limit from elsewhere, such as from a system call.
    pub fn with_limit_at_least(mut self, limit: usize) -> Self {
        let limit = limit.min(MAX_CPUS as usize);
        self.limit = Limit { cpus: self.limit.cpus.max(limit), stated: true };
        self
    }

    /// Returns the same machine with additional CPUs, for which only the numbers are known. Each
    /// new CPU is a core of its own, in the last-level cache, the node and the socket of the lowest
    /// CPU. Numbers from [`MAX_CPUS`] on are left out. If a CPU is beyond the limit, the limit no
    /// longer counts as stated.
    ///
    /// Use it if the caller knows more CPUs than the tree, such as from the scheduler's answer in a
    /// container whose sysfs is not the kernel's own.
    ///
    /// ```
    /// use coreline_topology::Topology;
    ///
    /// let named = Topology::flat(&"0-1".parse()?)?.with_limit_at_least(2);
    /// let whole = named.with_cpus(&"1,17".parse()?);
    /// assert_eq!(whole.set().to_string(), "0-1,17");
    /// assert_eq!((whole.core_count(), whole.cache_count()), (3, 1));
    /// assert_eq!((whole.cpu_limit(), whole.cpu_limit_is_stated()), (18, false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_cpus(self, cpus: &CpuSet) -> Self {
        let mut all: Vec<Cpu> = self.cpus().copied().collect();
        let Some(lowest) = all.first().copied() else { return self };
        let new = cpus.iter().filter(|id| id.get() < MAX_CPUS && self.cpu(*id).is_none());
        for (id, more) in new.zip(0..) {
            let next = |parts: usize| parts as u32 + more;
            let [core, l2, cluster] =
                [self.core_count, self.l2_count, self.cluster_count].map(next);
            all.push(Cpu { id, core, thread: 0, l2, cluster, ..lowest });
        }
        let beyond = all.iter().any(|cpu| cpu.id.index() >= self.limit.cpus);
        let stated = self.limit.stated && !beyond;
        Self::new(&all, Limit { stated, ..self.limit }, self.nodes)
    }

    /// Returns the CPU with this number, if it is online.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        self.slots.get(id.index())?.as_ref()
    }

    /// Returns the online CPUs, ordered by number.
    pub fn cpus(&self) -> impl Iterator<Item = &Cpu> {
        self.slots.iter().flatten()
    }

    /// Returns the number of online CPUs, at least 1.
    pub fn cpu_count(&self) -> usize {
        self.cpu_count
    }

    /// Returns the highest CPU number that the machine can ever have, plus 1. The result is the
    /// length of an array that is indexed by CPU number. It is at most [`MAX_CPUS`] and at least
    /// [`cpu_count`](Topology::cpu_count), and larger if CPUs are offline.
    pub fn cpu_limit(&self) -> usize {
        self.limit.cpus
    }

    /// Returns whether the machine's description states [`cpu_limit`](Topology::cpu_limit). If not,
    /// the limit is one more than the highest number that was online, and CPUs beyond it may come
    /// online.
    pub fn cpu_limit_is_stated(&self) -> bool {
        self.limit.stated
    }

    /// Returns the number of cores.
    pub fn core_count(&self) -> usize {
        self.core_count
    }

    /// Returns the number of second-level cache domains.
    pub fn l2_count(&self) -> usize {
        self.l2_count
    }

    /// Returns the number of clusters.
    pub fn cluster_count(&self) -> usize {
        self.cluster_count
    }

    /// Returns the number of last-level cache domains.
    pub fn cache_count(&self) -> usize {
        self.cache_count
    }

    /// Returns the number of memory nodes that have an online CPU. Their numbers may have gaps: see
    /// [`nodes`](Topology::nodes).
    pub fn node_count(&self) -> usize {
        self.nodes.with_cpus.len()
    }

    /// Returns the memory nodes that have an online CPU, ordered by number. Some of these nodes may
    /// have no memory.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.with_cpus.iter().copied()
    }

    /// Returns the memory nodes that have memory, ordered by number. Some of these nodes may have
    /// no CPU.
    pub fn memory_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.with_memory.iter().copied()
    }

    /// Returns the node on which to place the memory that a node's CPUs use. It is the node itself
    /// if it has memory, and otherwise the nearest node that has memory. Among equally near nodes,
    /// it is the node with the lowest number. Returns `None` if no node is known to have memory, or
    /// there is no such node.
    pub fn nearest_memory(&self, node: NodeId) -> Option<NodeId> {
        self.nodes.nearest_memory(node)
    }

    /// Returns the distance from the CPUs of `from` to the memory of `to`, on ACPI's scale. On this
    /// scale, 10 is local, 20 takes twice as long, and 255 is unreachable. If the firmware does not
    /// state the distance, it is 10 for the node itself and 20 for other nodes, as in the kernel.
    /// Returns `None` if there is no such node.
    pub fn node_distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        self.nodes.distance(from, to)
    }

    /// Returns the same machine with these distances between nodes, each in both directions.
    #[must_use]
    pub fn with_node_distances(
        mut self,
        distances: impl IntoIterator<Item = ([NodeId; 2], u32)>,
    ) -> Self {
        for ([a, b], far) in distances {
            self.nodes.distances.extend([((a, b), far), ((b, a), far)]);
        }
        self
    }

    /// Returns the number of sockets.
    pub fn socket_count(&self) -> usize {
        self.socket_count
    }

    /// Returns the CPUs of one last-level cache domain. The set is empty if there is no such
    /// domain.
    pub fn cpus_of_cache(&self, cache: CacheId) -> CpuSet {
        self.cpus().filter(|cpu| cpu.cache == cache).map(|cpu| cpu.id).collect()
    }

    /// Returns the CPUs of one memory node. The set is empty if there is no such node.
    pub fn cpus_of_node(&self, node: NodeId) -> CpuSet {
        self.cpus().filter(|cpu| cpu.node == node).map(|cpu| cpu.id).collect()
    }

    /// Returns the kinds of cores, the fastest first. There is one kind if all cores are alike.
    pub fn kinds(&self) -> BTreeSet<CoreKind> {
        self.cpus().map(|cpu| cpu.kind).collect()
    }

    /// Returns the CPUs of one kind of core. The set is empty if there is no such core.
    pub fn cpus_of_kind(&self, kind: CoreKind) -> CpuSet {
        self.cpus().filter(|cpu| cpu.kind == kind).map(|cpu| cpu.id).collect()
    }

    /// Returns all online CPUs.
    pub fn set(&self) -> CpuSet {
        self.cpus().map(|cpu| cpu.id).collect()
    }

    /// Returns the distance between two CPUs, or `None` if one of them is not online.
    pub fn distance(&self, a: CpuId, b: CpuId) -> Option<Distance> {
        let (a, b) = (self.cpu(a)?, self.cpu(b)?);
        Some(if a.id == b.id {
            Distance::SameCpu
        } else if a.core == b.core {
            Distance::SameCore
        } else if a.l2 == b.l2 {
            Distance::SameL2
        } else if a.cluster == b.cluster {
            Distance::SameCluster
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
