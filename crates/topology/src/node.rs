//! Memory nodes: their numbers, which of them have memory, and the distances between them.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::NodeId;

/// The default distances of ACPI and the kernel: a node's distance to itself, and to every other
/// node.
const LOCAL: u32 = 10;
const REMOTE: u32 = 20;

/// The memory nodes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// The nodes that have an online CPU.
    pub(crate) with_cpus: BTreeSet<NodeId>,
    /// The nodes that have memory.
    pub(crate) with_memory: BTreeSet<NodeId>,
    /// The distance from the first node's CPUs to the second one's memory, as far as firmware
    /// states it.
    pub(crate) distances: BTreeMap<(NodeId, NodeId), u32>,
}

impl Nodes {
    /// The distance between two nodes; `None` where there is no such node.
    pub(crate) fn distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        let there = |node| self.with_cpus.contains(node) || self.with_memory.contains(node);
        if !there(&from) || !there(&to) {
            return None;
        }
        let unsaid = if from == to { LOCAL } else { REMOTE };
        Some(self.distances.get(&(from, to)).copied().unwrap_or(unsaid))
    }

    /// The node with memory that is nearest to a node: itself where it has memory.
    pub(crate) fn nearest_memory(&self, from: NodeId) -> Option<NodeId> {
        if self.with_memory.contains(&from) {
            return Some(from);
        }
        let with_distance =
            self.with_memory.iter().filter_map(|&to| Some((self.distance(from, to)?, to)));
        with_distance.min().map(|(_, to)| to)
    }
}
