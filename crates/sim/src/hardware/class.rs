//! How far apart two cores are: the classes of transfers.

use coreline_topology::{CpuId, Distance, Topology};

/// How far apart two cores are that exchange a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Under one last-level cache.
    SameCache,
    /// Under different caches of a memory node.
    SameNode,
    /// In different nodes of a socket.
    SameSocket,
    /// In different sockets.
    OtherSocket,
}

impl Class {
    /// All classes, the nearest first.
    pub const ALL: [Class; 4] =
        [Class::SameCache, Class::SameNode, Class::SameSocket, Class::OtherSocket];

    /// The class's name, which is that of its cost.
    pub fn name(self) -> &'static str {
        match self {
            Class::SameCache => "same_cache",
            Class::SameNode => "same_node",
            Class::SameSocket => "same_socket",
            Class::OtherSocket => "other_socket",
        }
    }

    /// The first two CPUs of a machine that are so far apart; `None` if no two are.
    pub fn pair(self, topology: &Topology) -> Option<[CpuId; 2]> {
        let distance = match self {
            Class::SameCache => Distance::SameCache,
            Class::SameNode => Distance::SameNode,
            Class::SameSocket => Distance::SameSocket,
            Class::OtherSocket => Distance::OtherSocket,
        };
        let first = topology.cpus().next()?.id;
        let other = topology.cpus().find(|cpu| topology.distance(first, cpu.id) == Some(distance));
        Some([first, other?.id])
    }
}
