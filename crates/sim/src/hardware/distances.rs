//! Pairs of memory nodes that are nearer or farther than the others of their class: nodes within a
//! socket, and sockets that are not linked directly.

use coreline_topology::{CpuId, NodeId, Topology};
use serde::Deserialize;

use crate::hardware::class::Class;
use crate::hardware::costs::{Costs, picoseconds};

/// The costs of a machine file for a pair of nodes, in picoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDistance {
    /// The two nodes. The costs hold in both directions.
    pub nodes: [NodeId; 2],
    /// The one-way latency of a ping-pong between a core of each node. It replaces the latency of
    /// the nodes' class.
    pub ping_pong: u64,
    /// The cost of a line in the other node's memory that no cache holds. It replaces the cost
    /// `memory_remote`.
    pub memory: Option<u64>,
    /// The source of the numbers.
    pub source: String,
}

/// A pair as a machine uses it: with costs that a band moved, and with the cost of a transfer in
/// place of the latency of a ping-pong once that is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) nodes: [NodeId; 2],
    pub(crate) class: Class,
    pub(crate) transfer: u64,
    pub(crate) memory: u64,
}

impl Pair {
    pub(crate) fn is_of(&self, a: NodeId, b: NodeId) -> bool {
        self.nodes == [a, b] || self.nodes == [b, a]
    }
}

/// How a pair stands in a machine file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawDistance {
    nodes: Vec<u32>,
    ping_pong_ns: f64,
    memory_ns: Option<f64>,
    source: String,
}

impl RawDistance {
    /// The distance in the file, if it is possible on this machine, or why it is not.
    pub(crate) fn check(self, topology: &Topology) -> Result<NodeDistance, String> {
        let RawDistance { nodes, ping_pong_ns, memory_ns, source } = self;
        let &[a, b] = &nodes[..] else {
            return Err(format!("{nodes:?} are not two nodes"));
        };
        let count = topology.node_count();
        if let Some(none) = [a, b].into_iter().find(|&node| node as usize >= count) {
            return Err(format!(
                "there is no node {none}: the machine has {count}, numbered from 0"
            ));
        }
        if a == b {
            return Err(format!("{a} and {b} are the same node, whose cost is `same_node`"));
        }
        if source.trim().is_empty() {
            return Err("has no source; say where it is from, or \"from memory\"".to_owned());
        }
        let memory =
            memory_ns.map(|ns| picoseconds("memory_ns", ns, Costs::MOST_NS)).transpose()?;
        let ping_pong = picoseconds("ping_pong_ns", ping_pong_ns, Costs::MOST_PING_PONG_NS)?;
        Ok(NodeDistance { nodes: [a, b].map(NodeId::new), ping_pong, memory, source })
    }
}

/// All pairs of a machine file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Distances {
    stated: Vec<NodeDistance>,
    pairs: Vec<Pair>,
}

impl Distances {
    /// The distances of a machine with these costs, or why the pairs are impossible.
    pub(crate) fn new(
        stated: Vec<NodeDistance>,
        topology: &Topology,
        costs: &Costs,
    ) -> Result<Distances, String> {
        let mut pairs: Vec<Pair> = Vec::with_capacity(stated.len());
        for &NodeDistance { nodes: [a, b], ping_pong, memory, .. } in &stated {
            if pairs.iter().any(|pair| pair.is_of(a, b)) {
                return Err(format!("{a} and {b} occur twice"));
            }
            let memory = memory.unwrap_or(costs.memory_remote);
            if memory < costs.memory_local {
                let [less, more] = [memory, costs.memory_local].map(in_ns);
                return Err(format!(
                    "{a} and {b}: {less} ns is less than the {more} of memory_local"
                ));
            }
            let socket = |node| topology.cpus().find(|cpu| cpu.node == node).map(|cpu| cpu.socket);
            let class = match socket(a) == socket(b) {
                true => Class::SameSocket,
                false => Class::OtherSocket,
            };
            pairs.push(Pair { nodes: [a, b], class, transfer: ping_pong, memory });
        }
        let distances = Distances { stated, pairs };
        distances.check_order(topology, costs)?;
        Ok(distances)
    }

    /// No node of the same socket is farther than one of another socket, nor nearer than what is in
    /// one node: a read takes the nearest copy by class first.
    fn check_order(&self, topology: &Topology, costs: &Costs) -> Result<(), String> {
        let (mut near, mut least) = ("same_node".to_owned(), costs.same_node);
        for class in [Class::SameSocket, Class::OtherSocket] {
            let of_class = self.pairs.iter().filter(|pair| pair.class == class);
            let mut figures: Vec<(u64, String)> = of_class
                .map(|pair| (pair.transfer, format!("{} and {}", pair.nodes[0], pair.nodes[1])))
                .collect();
            if self.cpus(class, topology).is_some() {
                figures.push((costs.of(class), class.name().to_owned()));
            }
            if let Some((figure, of)) = figures.iter().find(|(figure, _)| *figure < least) {
                let [less, more] = [*figure, least].map(in_ns);
                return Err(format!(
                    "{of}: {less} ns is less than the {more} of {near}, which is nearer"
                ));
            }
            if let Some((figure, of)) = figures.into_iter().max() {
                (near, least) = (of, figure);
            }
        }
        Ok(())
    }

    pub(crate) fn stated(&self) -> &[NodeDistance] {
        &self.stated
    }

    pub(crate) fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// The first two CPUs at this distance for whose nodes the file has no distance of their own.
    pub(crate) fn cpus(&self, class: Class, topology: &Topology) -> Option<[CpuId; 2]> {
        let cpus = class.pair(topology)?;
        let is_stated = |a, b| self.pairs.iter().any(|pair| pair.is_of(a, b));
        let [a, b] = cpus.map(|cpu| topology.cpu(cpu).map(|cpu| cpu.node));
        if !is_stated(a?, b?) {
            return Some(cpus);
        }
        let mut all = topology.cpus();
        all.find_map(|a| {
            let other = topology
                .cpus()
                .find(|b| class.is_of(topology.distance(a.id, b.id)) && !is_stated(a.node, b.node));
            other.map(|b| [a.id, b.id])
        })
    }

    /// The first two CPUs of a pair.
    pub(crate) fn cpus_of(nodes: [NodeId; 2], topology: &Topology) -> Option<[CpuId; 2]> {
        let [a, b] = nodes.map(|node| topology.cpus().find(|cpu| cpu.node == node));
        Some([a?.id, b?.id])
    }

    /// A cost was moved to `percent` of the file's, and those that stand in its place with it.
    pub(crate) fn scale(&mut self, cost: &str, percent: u64, costs: &Costs) {
        let scaled = |base: u64| ((base * percent + 50) / 100).max(1);
        for (pair, stated) in self.pairs.iter_mut().zip(&self.stated) {
            if pair.class.name() == cost {
                pair.transfer = scaled(stated.ping_pong);
            }
            if cost == "memory_remote" {
                pair.memory = stated.memory.map_or(costs.memory_remote, scaled);
            }
        }
    }

    /// Replaces the ping-pong figure of a pair by the cost of a transfer.
    pub(crate) fn set_transfer(&mut self, nodes: [NodeId; 2], raw: u64) {
        let [a, b] = nodes;
        self.pairs.iter_mut().filter(|pair| pair.is_of(a, b)).for_each(|pair| pair.transfer = raw);
    }

    /// The distances of the nodes, as firmware would state them: 10 for a node's own memory.
    /// Nothing if the file says nothing.
    pub(crate) fn of_firmware(
        &self,
        topology: &Topology,
        costs: &Costs,
    ) -> Vec<([NodeId; 2], u32)> {
        if self.pairs.is_empty() {
            return Vec::new();
        }
        let nodes: Vec<NodeId> = topology.nodes().collect();
        let far = |a, b| {
            let pair = self.pairs.iter().find(|pair| pair.is_of(a, b));
            let memory = pair.map_or(costs.memory_remote, |pair| pair.memory);
            // 254 is the most that can be reached.
            let times_ten = (10 * memory).div_ceil(costs.memory_local).clamp(11, 254);
            times_ten as u32
        };
        let pairs = nodes.iter().flat_map(|&a| nodes.iter().map(move |&b| [a, b]));
        pairs.filter(|[a, b]| a != b).map(|[a, b]| ([a, b], far(a, b))).collect()
    }
}

fn in_ns(ps: u64) -> f64 {
    ps as f64 / 1000.0
}
