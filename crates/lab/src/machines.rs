//! The verb `machines`: what can be simulated, and what everything costs there.

use std::io::Write;

use coreline_sim::{Cost, NodeDistance, Spec, presets};
use coreline_topology::NodeId;
use serde::Serialize;

use crate::error::Error;
use crate::output::table;
use crate::validate::core_to_core::{self, CoreToCore};
use crate::{tree, world};

/// All presets. The schema is `coreline.machines/1`.
#[derive(Debug, Serialize)]
pub(crate) struct List {
    schema: &'static str,
    machines: Vec<Machine>,
}

/// The head of a machine.
#[derive(Debug, Serialize)]
struct Machine {
    name: String,
    summary: String,
    cpus: usize,
    cores: usize,
    caches: usize,
    nodes: usize,
    sockets: usize,
}

impl Machine {
    fn of(spec: &Spec) -> Machine {
        let topology = spec.topology();
        Machine {
            name: spec.name().to_owned(),
            summary: spec.summary().to_owned(),
            cpus: topology.cpu_count(),
            cores: topology.core_count(),
            caches: topology.cache_count(),
            nodes: topology.node_count(),
            sockets: topology.socket_count(),
        }
    }
}

impl List {
    pub(crate) fn new() -> Result<List, Error> {
        let machine = |name| Ok(Machine::of(&Spec::preset(name).map_err(Error::Machine)?));
        let machines = presets().map(machine).collect::<Result<_, Error>>()?;
        Ok(List { schema: "coreline.machines/1", machines })
    }

    pub(crate) fn show(&self, out: &mut dyn Write) -> Result<(), Error> {
        let mut table = table(["machine", "CPUs", "cores", "L3", "nodes", "sockets", "what it is"]);
        for Machine { name, summary, cpus, cores, caches, nodes, sockets } in &self.machines {
            let counts = [cpus, cores, caches, nodes, sockets].map(ToString::to_string);
            table.add_row([vec![name.clone()], counts.to_vec(), vec![summary.clone()]].concat());
        }
        writeln!(out, "{}", table.trim_fmt())?;
        writeln!(out, "tree and costs: coreline machines NAME; or FILE, for one of your own")?;
        Ok(())
    }
}

/// One machine. The schema is `coreline.machine/1`.
#[derive(Debug, Serialize)]
pub(crate) struct Detail {
    schema: &'static str,
    #[serde(flatten)]
    machine: Machine,
    costs: Vec<CostRow>,
    /// Pairs of nodes of which the file says more than their class.
    node_distances: Vec<NodeRow>,
    /// What transfers cost, so that ping-pongs come to the figures among the costs.
    core_to_core: Vec<CoreToCore>,
    #[serde(skip)]
    spec: Spec,
}

#[derive(Debug, Serialize)]
struct CostRow {
    name: &'static str,
    value: f64,
    unit: &'static str,
    uncertain: bool,
    source: String,
}

impl CostRow {
    fn new((name, cost): (&'static str, &Cost)) -> CostRow {
        let Cost { value, is_count, ref source, uncertain } = *cost;
        // A machine file gives nanoseconds; picoseconds are the simulator's own unit.
        let (value, unit) =
            if is_count { (value as f64, "count") } else { (value as f64 / 1000.0, "ns") };
        CostRow { name, value, unit, uncertain, source: source.clone() }
    }
}

#[derive(Debug, Serialize)]
struct NodeRow {
    nodes: [u32; 2],
    ping_pong_ns: f64,
    memory_ns: Option<f64>,
    source: String,
}

impl NodeRow {
    fn new(distance: &NodeDistance) -> NodeRow {
        let ns = |ps: u64| ps as f64 / 1000.0;
        let NodeDistance { nodes, ping_pong, memory, source } = distance;
        NodeRow {
            nodes: nodes.map(NodeId::get),
            ping_pong_ns: ns(*ping_pong),
            memory_ns: memory.map(ns),
            source: source.clone(),
        }
    }
}

impl Detail {
    /// The machine of a preset or file.
    pub(crate) fn new(asked: &str) -> Result<Detail, Error> {
        let spec = world::machine(asked)?;
        Ok(Detail {
            schema: "coreline.machine/1",
            machine: Machine::of(&spec),
            costs: spec.sources().map(CostRow::new).collect(),
            node_distances: spec.node_distances().iter().map(NodeRow::new).collect(),
            core_to_core: core_to_core::of(&spec)?,
            spec,
        })
    }

    pub(crate) fn show(&self, out: &mut dyn Write) -> Result<(), Error> {
        writeln!(out, "{}: {}", self.machine.name, self.machine.summary)?;
        tree::write(self.spec.topology(), out)?;
        let mut table = table(["cost", "value", "uncertain", "source"]);
        for CostRow { name, value, unit, uncertain, source } in &self.costs {
            let uncertain = if *uncertain { "+-30 %" } else { "" };
            table.add_row([*name, &format!("{value} {unit}"), uncertain, source]);
        }
        for NodeRow { nodes: [a, b], memory_ns, source, .. } in &self.node_distances {
            // The ping-pong stands among those of all classes.
            if let Some(ns) = memory_ns {
                let of = format!("memory, nodes {a} and {b}");
                table.add_row([&of, &format!("{ns} ns"), "", source]);
            }
        }
        writeln!(out, "{}\n", table.trim_fmt())?;
        core_to_core::show(&self.core_to_core, out)
    }
}
