//! [`Shape`], the description of a regular machine, and trees made from a shape or from a set of
//! CPUs.

use thiserror::Error;

use crate::cpuset::CpuSet;
use crate::ids::{CacheId, CpuId, MAX_CPUS, NodeId};
use crate::kind::CoreKind;
use crate::node::Nodes;
use crate::topology::{Cpu, Limit, Topology};

/// A regular machine, whose parts are all alike. Each field is the number of parts in the next
/// larger part. By default, there is one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The number of sockets of the machine.
    pub sockets: u32,
    /// The number of memory nodes in a socket.
    pub nodes_per_socket: u32,
    /// The number of last-level caches in a node.
    pub caches_per_node: u32,
    /// The number of cores under a last-level cache.
    pub cores_per_cache: u32,
    /// The number of hardware threads of a core.
    pub threads_per_core: u32,
}

/// A machine of one CPU: each count is 1.
impl Default for Shape {
    fn default() -> Self {
        Shape {
            sockets: 1,
            nodes_per_socket: 1,
            caches_per_node: 1,
            cores_per_cache: 1,
            threads_per_core: 1,
        }
    }
}

impl Shape {
    /// The counts, from the largest part to the smallest, with the names of their fields.
    fn fields(self) -> [(&'static str, u32); 5] {
        [
            ("sockets", self.sockets),
            ("nodes_per_socket", self.nodes_per_socket),
            ("caches_per_node", self.caches_per_node),
            ("cores_per_cache", self.cores_per_cache),
            ("threads_per_core", self.threads_per_core),
        ]
    }
}

/// The error for a [`Shape`] or a set of CPUs that does not describe a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// A count is zero.
    #[error("the shape has {field} = 0; every count must be at least 1")]
    Zero {
        /// The field of [`Shape`] that is zero.
        field: &'static str,
    },
    /// The product of the counts is above [`MAX_CPUS`].
    #[error("the shape {shape:?} has more than {MAX_CPUS} CPUs; make one of its counts smaller")]
    TooManyCpus {
        /// The requested shape.
        shape: Shape,
    },
    /// A set of CPUs has a number that is not below [`MAX_CPUS`].
    #[error("the set has {cpu}, but the number of a CPU must be below {MAX_CPUS}; leave it out")]
    NoSuchCpu {
        /// The CPU.
        cpu: CpuId,
    },
    /// A set of CPUs is empty.
    #[error("the set of CPUs is empty; a machine has at least one")]
    NoCpus,
}

impl Topology {
    /// Creates a regular machine, whose parts are all alike and whose CPUs are all online.
    ///
    /// CPUs are numbered as Linux does on x86. The first hardware threads of all cores have the
    /// lowest numbers, socket by socket, node by node, cache by cache. All second hardware threads
    /// follow. Every core has a second-level cache of its own, and every node has memory.
    ///
    /// # Errors
    ///
    /// An error if a count is zero, or the machine would have more than [`MAX_CPUS`] CPUs.
    pub fn uniform(shape: Shape) -> Result<Self, ShapeError> {
        let fields = shape.fields();
        if let Some((field, _)) = fields.into_iter().find(|&(_, count)| count == 0) {
            return Err(ShapeError::Zero { field });
        }
        let count = fields
            .into_iter()
            .try_fold(1u32, |product, (_, count)| product.checked_mul(count))
            .filter(|&count| count <= MAX_CPUS)
            .ok_or(ShapeError::TooManyCpus { shape })?;
        let cores = count / shape.threads_per_core;
        let cpus: Vec<Cpu> = (0..count)
            .map(|number| {
                let core = number % cores;
                let cache = core / shape.cores_per_cache;
                let node = cache / shape.caches_per_node;
                Cpu {
                    id: CpuId::new(number),
                    core,
                    thread: number / cores,
                    l2: core,
                    cluster: core,
                    cache: CacheId::new(cache),
                    node: NodeId::new(node),
                    socket: node / shape.nodes_per_socket,
                    kind: CoreKind::default(),
                }
            })
            .collect();
        let limit = Limit { cpus: cpus.len(), stated: true };
        Ok(Self::new(&cpus, limit, with_memory(&cpus)))
    }

    /// Creates a machine from a set of CPUs. Each CPU is a core, and all cores are under one cache
    /// on node 0. The set states which CPUs exist but not the highest possible number. A caller
    /// that knows this number passes it to [`with_limit_at_least`](Topology::with_limit_at_least).
    ///
    /// # Errors
    ///
    /// An error if the set is empty, or has a number that is not below [`MAX_CPUS`].
    ///
    /// ```
    /// use coreline_topology::Topology;
    ///
    /// let sandbox = Topology::flat(&"2,5".parse()?)?.with_limit_at_least(64);
    /// assert_eq!((sandbox.cpu_count(), sandbox.cpu_limit()), (2, 64));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flat(cpus: &CpuSet) -> Result<Self, ShapeError> {
        let last = cpus.last().ok_or(ShapeError::NoCpus)?;
        if last.get() >= MAX_CPUS {
            return Err(ShapeError::NoSuchCpu { cpu: last });
        }
        let alone = |(id, number)| Cpu {
            id,
            core: number,
            thread: 0,
            l2: number,
            cluster: number,
            cache: CacheId::new(0),
            node: NodeId::new(0),
            socket: 0,
            kind: CoreKind::default(),
        };
        let cpus: Vec<Cpu> = cpus.iter().zip(0..).map(alone).collect();
        Ok(Self::new(&cpus, Limit { cpus: 0, stated: false }, with_memory(&cpus)))
    }
}

/// The nodes of these CPUs, all with memory.
fn with_memory(cpus: &[Cpu]) -> Nodes {
    Nodes { with_memory: cpus.iter().map(|cpu| cpu.node).collect(), ..Nodes::default() }
}
