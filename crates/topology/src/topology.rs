//! [`Topology`], the tree of one machine: which CPUs share a core, a cache, a node, a socket.

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
    /// Its core, numbered from 0 without gaps over the whole machine, in the order of each core's
    /// lowest CPU.
    pub core: u32,
    /// Its place among the hardware threads of that core, counted from 0.
    pub thread: u32,
    /// Its second-level cache domain, numbered like cores. A core that shares no such cache is a
    /// domain of its own.
    pub l2: u32,
    /// Its cluster, numbered like cores. A cluster is a set of cores that share something between
    /// the second-level and the last-level cache, such as the tags of a part of the latter or a
    /// port to the interconnect. If there is no such thing, each second-level domain is a cluster.
    pub cluster: u32,
    /// Its last-level cache domain.
    pub cache: CacheId,
    /// Its memory node.
    pub node: NodeId,
    /// Its socket (package), numbered densely from 0 in the order of each socket's lowest CPU.
    pub socket: u32,
    /// The kind of core it belongs to.
    pub kind: CoreKind,
}

/// How far apart two CPUs are in the tree: the smallest part of the machine that holds both.
///
/// A nearer distance compares as less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// The two are the same CPU.
    SameCpu,
    /// Hardware threads of one core.
    SameCore,
    /// Cores under one second-level cache.
    SameL2,
    /// Cores of one cluster.
    SameCluster,
    /// Cores under one last-level cache.
    SameCache,
    /// Caches of one memory node.
    SameNode,
    /// Nodes of one socket.
    SameSocket,
    /// Different sockets.
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
/// A part lies within the next larger one on the machines that we know of, with one exception: a
/// last-level cache may span several nodes (sub-NUMA clustering).
///
/// It is a value: it describes the moment at which it was read, and hotplug does not change it.
/// Read one with [`from_sysfs`](Topology::from_sysfs) or build a regular one with
/// [`uniform`](Topology::uniform). It is immutable, so any code may read it, including signal
/// handlers. Functions that return sets allocate.
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
    /// By CPU number, up to the highest online CPU; `None` is a CPU that is not online.
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

    /// The same machine, if CPU numbers up to `limit - 1` are known to be possible. A limit above
    /// [`MAX_CPUS`] counts as [`MAX_CPUS`]: no tree has a CPU beyond it.
    ///
    /// It is for a caller that knows the limit from elsewhere, such as from a system call, if
    /// [`cpu_limit_is_stated`](Topology::cpu_limit_is_stated) says that the tree does not.
    pub fn with_limit_at_least(mut self, limit: usize) -> Self {
        let limit = limit.min(MAX_CPUS as usize);
        self.limit = Limit { cpus: self.limit.cpus.max(limit), stated: true };
        self
    }

    /// The same machine with these CPUs, too, of which nothing else is known: each new one is a
    /// core of its own, in the last-level cache, the node and the socket of the lowest CPU. A
    /// number from [`MAX_CPUS`] on is left out, and the limit no longer counts as stated if a CPU
    /// is beyond it.
    ///
    /// For a caller that knows more CPUs than the tree, such as by the scheduler's answer in a
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
    /// is indexed by CPU. It is at most [`MAX_CPUS`] and at least
    /// [`cpu_count`](Topology::cpu_count), and larger if CPUs are offline.
    pub fn cpu_limit(&self) -> usize {
        self.limit.cpus
    }

    /// Whether the machine's description states [`cpu_limit`](Topology::cpu_limit). If not, it is
    /// one more than the highest number that was online, and CPUs beyond it may come online.
    pub fn cpu_limit_is_stated(&self) -> bool {
        self.limit.stated
    }

    /// The number of cores.
    pub fn core_count(&self) -> usize {
        self.core_count
    }

    /// The number of second-level cache domains.
    pub fn l2_count(&self) -> usize {
        self.l2_count
    }

    /// The number of clusters.
    pub fn cluster_count(&self) -> usize {
        self.cluster_count
    }

    /// The number of last-level cache domains.
    pub fn cache_count(&self) -> usize {
        self.cache_count
    }

    /// The number of memory nodes that have an online CPU. Their numbers may have gaps:
    /// [`nodes`](Topology::nodes) gives them.
    pub fn node_count(&self) -> usize {
        self.nodes.with_cpus.len()
    }

    /// The memory nodes that have an online CPU, by ascending number. Some may have no memory.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.with_cpus.iter().copied()
    }

    /// The memory nodes that have memory, by ascending number. Some may have no CPU.
    pub fn memory_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.with_memory.iter().copied()
    }

    /// Where to place the memory that a node's CPUs use: on the node itself if it has memory, else
    /// on the nearest node that has some. Among equally near nodes it is the lowest. `None` if
    /// nothing is known to have memory, or there is no such node.
    pub fn nearest_memory(&self, node: NodeId) -> Option<NodeId> {
        self.nodes.nearest_memory(node)
    }

    /// The distance from the CPUs of `from` to the memory of `to`, on ACPI's scale: 10 is local, 20
    /// takes twice as long, 255 cannot be reached. If the firmware does not say, it is 10 for the
    /// node itself and 20 for others, as in the kernel. `None` if there is no such node.
    pub fn node_distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        self.nodes.distance(from, to)
    }

    /// The same machine with these distances of nodes, each in both directions.
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

    /// The number of sockets.
    pub fn socket_count(&self) -> usize {
        self.socket_count
    }

    /// The CPUs of one last-level cache domain; empty if there is no such domain.
    pub fn cpus_of_cache(&self, cache: CacheId) -> CpuSet {
        self.cpus().filter(|cpu| cpu.cache == cache).map(|cpu| cpu.id).collect()
    }

    /// The CPUs of one memory node; empty if there is no such node.
    pub fn cpus_of_node(&self, node: NodeId) -> CpuSet {
        self.cpus().filter(|cpu| cpu.node == node).map(|cpu| cpu.id).collect()
    }

    /// The sorts of cores, from the fastest down. One where all cores are alike.
    pub fn kinds(&self) -> BTreeSet<CoreKind> {
        self.cpus().map(|cpu| cpu.kind).collect()
    }

    /// The CPUs of one sort of core; empty where there is none.
    pub fn cpus_of_kind(&self, kind: CoreKind) -> CpuSet {
        self.cpus().filter(|cpu| cpu.kind == kind).map(|cpu| cpu.id).collect()
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
