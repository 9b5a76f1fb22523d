//! [`Shape`], the description of a regular machine, and the tree made of it.

use thiserror::Error;

use crate::ids::{CacheId, CpuId, MAX_CPUS, NodeId};
use crate::topology::{Cpu, Topology};

/// A machine whose parts are all alike: how many of each part the next larger one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Sockets of the machine.
    pub sockets: u32,
    /// Memory nodes of a socket.
    pub nodes_per_socket: u32,
    /// Last-level caches of a node.
    pub caches_per_node: u32,
    /// Cores under a last-level cache.
    pub cores_per_cache: u32,
    /// Hardware threads of a core.
    pub threads_per_core: u32,
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

/// A [`Shape`] is not a machine.
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
        /// What was asked.
        shape: Shape,
    },
}

impl Topology {
    /// A machine whose parts are all alike and whose CPUs are all online.
    ///
    /// CPUs are numbered as Linux does on x86: the first hardware threads of all cores come first,
    /// socket by socket, node by node, cache by cache; then come all the second threads.
    ///
    /// # Errors
    ///
    /// Where a count is zero, or the machine would have more than [`MAX_CPUS`] CPUs.
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
                    cache: CacheId::new(cache),
                    node: NodeId::new(node),
                    socket: node / shape.nodes_per_socket,
                }
            })
            .collect();
        Ok(Self::new(&cpus, cpus.len()))
    }
}
