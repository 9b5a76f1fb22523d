//! Classes of transfers: the distance between two CPUs.

use coreline_topology::{CpuId, Distance, Topology};

/// The distance between two CPUs that exchange a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Two hardware threads of one core.
    SameCore,
    /// Two cores under one last-level cache.
    SameCache,
    /// Two cores under different last-level caches of a memory node.
    SameNode,
    /// Two cores in different nodes of a socket.
    SameSocket,
    /// Two cores in different sockets.
    OtherSocket,
}

impl Class {
    /// All classes, the nearest first.
    pub const ALL: [Class; 5] =
        [Class::SameCore, Class::SameCache, Class::SameNode, Class::SameSocket, Class::OtherSocket];

    /// Returns the class's name, which is also the name of its cost.
    pub fn name(self) -> &'static str {
        match self {
            Class::SameCore => "same_core",
            Class::SameCache => "same_cache",
            Class::SameNode => "same_node",
            Class::SameSocket => "same_socket",
            Class::OtherSocket => "other_socket",
        }
    }

    /// Whether two CPUs at this distance are of the class.
    pub(crate) fn is_of(self, distance: Option<Distance>) -> bool {
        distance == Some(self.distance())
    }

    /// The distance of two CPUs of a machine file's machine, whose cores have second-level caches
    /// of their own.
    fn distance(self) -> Distance {
        match self {
            Class::SameCore => Distance::SameCore,
            Class::SameCache => Distance::SameCache,
            Class::SameNode => Distance::SameNode,
            Class::SameSocket => Distance::SameSocket,
            Class::OtherSocket => Distance::OtherSocket,
        }
    }

    /// Returns the first two CPUs of a machine at this distance, or `None` if no two CPUs are at
    /// this distance.
    pub fn pair(self, topology: &Topology) -> Option<[CpuId; 2]> {
        let first = topology.cpus().next()?.id;
        let other = topology.cpus().find(|cpu| self.is_of(topology.distance(first, cpu.id)));
        Some([first, other?.id])
    }
}
