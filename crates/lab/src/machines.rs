//! The verb `machines`: what can be simulated, and what everything costs there.

use std::io::{self, Write};

use coreline_sim::{Cost, NodeDistance, Spec, presets};
use coreline_topology::NodeId;
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;
use crate::listing::Listing;
use crate::text::Form;
use crate::validate::core_to_core::{self, CoreToCore};
use crate::{tree, world};

/// All presets. The schema is `coreline.machines/1`.
#[derive(Debug, Serialize)]
pub(crate) struct List {
    schema: &'static str,
    machines: Vec<Machine>,
}

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

    pub(crate) fn show(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        let mut listing = Listing::new(&[
            ("machine", false),
            ("CPUs", true),
            ("cores", true),
            ("L3", true),
            ("nodes", true),
            ("sockets", true),
            ("what it is", false),
        ]);
        for Machine { name, summary, cpus, cores, caches, nodes, sockets } in &self.machines {
            let [cpus, cores, caches, nodes, sockets] =
                [cpus, cores, caches, nodes, sockets].map(ToString::to_string);
            listing.row([name.clone(), cpus, cores, caches, nodes, sockets, summary.clone()]);
        }
        write!(out, "{}", listing.text(form))?;
        let more = "to print a machine's tree and costs: coreline machines NAME, or FILE";
        write!(out, "{}", form.paragraph("", more))?;
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
    /// Pairs of nodes for which the file has a distance of their own.
    node_distances: Vec<NodeRow>,
    /// The costs of transfers that give the ping-pong figures among the costs.
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

/// A machine's counts, its costs and its tree. Unlike [`Detail`], it needs no simulation.
pub(crate) fn facts(spec: &Spec) -> io::Result<Value> {
    let mut facts = serde_json::to_value(Machine::of(spec))?;
    let mut text = Vec::new();
    tree::write(spec.topology(), &mut text)?;
    facts["digest"] = spec.digest().map(|digest| format!("{digest:016x}")).into();
    facts["tree"] = String::from_utf8_lossy(&text).into();
    facts["costs"] = serde_json::to_value(spec.sources().map(CostRow::new).collect::<Vec<_>>())?;
    Ok(facts)
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

    pub(crate) fn show(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        let mut head = format!("{}: {}\n", self.machine.name, self.machine.summary).into_bytes();
        tree::write(self.spec.topology(), &mut head)?;
        write!(out, "{}", form.fitted(&String::from_utf8_lossy(&head)))?;
        let columns = [("cost", false), ("value", true), ("uncertain", false), ("source", false)];
        let mut listing = Listing::new(&columns);
        for CostRow { name, value, unit, uncertain, source } in &self.costs {
            let uncertain = if *uncertain { "+-30 %" } else { "" };
            let name = (*name).to_owned();
            let value = format!("{value} {unit}");
            listing.row([name, value, uncertain.to_owned(), source.clone()]);
        }
        for NodeRow { nodes: [a, b], memory_ns, source, .. } in &self.node_distances {
            // The ping-pong stands among those of all classes.
            if let Some(ns) = memory_ns {
                let of = format!("memory, nodes {a} and {b}");
                listing.row([of, format!("{ns} ns"), String::new(), source.clone()]);
            }
        }
        writeln!(out, "{}", listing.text(form))?;
        core_to_core::show(&self.core_to_core, form, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_fits(show: impl Fn(Form, &mut dyn Write) -> Result<(), Error>) -> String {
        let mut whole = String::new();
        for width in [40, 80, 120] {
            let mut text = Vec::new();
            show(Form { width, colour: false, unicode: false }, &mut text).unwrap();
            whole = String::from_utf8(text).unwrap();
            let wide = whole.lines().find(|line| line.chars().count() > width);
            assert_eq!(wide, None, "{width}: {whole}");
        }
        whole
    }

    #[test]
    fn the_list_fits() {
        let mut list = List::new().unwrap();
        let text = assert_fits(|form, out| list.show(form, out));
        assert!(list.machines.iter().all(|it| text.contains(&it.name)), "{text}");
        list.machines[0].name = "n".repeat(200);
        list.machines[1].summary = "a summary of many words ".repeat(20);
        (list.machines[2].cpus, list.machines[2].cores) = (usize::MAX, usize::MAX);
        let text = assert_fits(|form, out| list.show(form, out));
        assert!(text.matches('n').count() >= 200 && text.contains(&usize::MAX.to_string()));
    }

    /// Also one that has a name and sources of hundreds of characters.
    #[test]
    fn every_machine_fits() {
        let text = include_str!("../../sim/machines/host-2c.toml");
        let text = text.replace("\"host-2c\"", &format!("{:?}", "x".repeat(200)));
        let source = format!("source = \"{}", "a source, in words ".repeat(20));
        let path = std::env::temp_dir().join(format!("coreline-wide-{}.toml", std::process::id()));
        std::fs::write(&path, text.replace("source = \"", &source)).unwrap();
        let detail = Detail::new(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        let detail = detail.unwrap();
        let text = assert_fits(|form, out| detail.show(form, out));
        assert!(text.matches('x').count() >= 200, "{text}");
        for name in presets() {
            let detail = Detail::new(name).unwrap();
            let text = assert_fits(|form, out| detail.show(form, out));
            assert!(detail.costs.iter().all(|cost| text.contains(cost.name)), "{text}");
        }
    }
}
