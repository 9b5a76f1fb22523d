//! A simulated machine: its parts as nested boxes, how far cores are apart, what everything costs.

use std::collections::{BTreeMap, BTreeSet};

use coreline_sim::{Machine, Spec, presets};
use coreline_topology::{Cpu, CpuId, NodeId};
use serde_json::{Value, json};

use super::figure::{Chart, Figure, Section, plain, slug};
use super::hottest::Hottest;
use super::read::Run;
use crate::error::Error;
use crate::measure::matrix::class;
use crate::validate::core_to_core::{self, CoreToCore};

/// A heat map has a line for each core, up to this many cores, and otherwise for each last-level
/// cache. Boxes are cores up to four times as many.
const MOST_CORES: usize = 64;

pub(super) struct Shown {
    pub(super) spec: Spec,
    /// The times of transfers, at the default request share.
    core_to_core: Vec<CoreToCore>,
}

/// The presets that results are of, each once.
pub(super) fn of(runs: &[Run]) -> Result<Vec<Shown>, Error> {
    let mut shown: Vec<Shown> = Vec::new();
    for run in runs {
        let Some(spec) = spec(run)? else { continue };
        if shown.iter().all(|it| it.spec.name() != spec.name()) {
            let mut core_to_core = core_to_core::of(&spec)?;
            core_to_core.retain(|it| it.request_percent == Machine::REQUEST_PERCENT);
            shown.push(Shown { spec, core_to_core });
        }
    }
    Ok(shown)
}

/// The machine of a result, if it is a preset of this program: of other machines, and of a preset
/// that was another file then, the tree and the costs are not known here.
pub(super) fn spec(run: &Run) -> Result<Option<Spec>, Error> {
    if !presets().any(|name| name == run.world) {
        return Ok(None);
    }
    let spec = Spec::preset(&run.world).map_err(Error::Machine)?;
    let digest = format!("{:016x}", spec.file_digest());
    Ok((run.machine_digest == Some(digest)).then_some(spec))
}

/// A part of the tree: its id, its label and the id of what it is in.
struct Part {
    id: String,
    label: String,
    inside: String,
    cpus: Vec<CpuId>,
    /// The number of smallest parts inside this part.
    leaves: usize,
}

impl Shown {
    fn machine(&self) -> String {
        format!("simulated machine {}: {}", self.spec.name(), self.spec.summary())
    }

    fn chart(&self, id: &str, title: String, says: String, figure: Figure) -> Chart {
        let name = self.spec.name();
        Chart {
            id: slug(&format!("{id} {name}")),
            section: Section::Machine,
            title,
            says,
            machine: self.machine(),
            replay: format!("coreline machines {name}"),
            figure,
        }
    }

    /// The parts in one another, coloured by how long their CPUs waited for lines in a run.
    pub(super) fn boxes(&self, hottest: Option<&Hottest>) -> Chart {
        let name = self.spec.name();
        let topology = self.spec.topology();
        let parts = self.parts();
        let waits: BTreeMap<u32, u64> = hottest.map(Hottest::waits).unwrap_or_default();
        let wait = |part: &Part| {
            let ns = part.cpus.iter().filter_map(|cpu| waits.get(&cpu.get())).sum::<u64>();
            ns as f64 / 1000.0 / part.cpus.len().max(1) as f64
        };
        let list = |of: &dyn Fn(&Part) -> Value| Value::Array(parts.iter().map(of).collect());
        let mut trace = json!({
            "type": "treemap",
            "ids": list(&|part| part.id.clone().into()),
            "labels": list(&|part| plain(&part.label).into()),
            "parents": list(&|part| part.inside.clone().into()),
            "values": list(&|part| part.leaves.into()),
            "branchvalues": "total",
            "textinfo": "label",
            "hovertemplate": "%{label}<extra></extra>",
            "tiling": { "pad": 2 },
            "pathbar": { "visible": false },
        });
        let counts = format!(
            "{} sockets, {} nodes, {} last-level caches, {} cores, {} CPUs",
            topology.socket_count(),
            topology.node_count(),
            topology.cache_count(),
            topology.core_count(),
            topology.cpu_count()
        );
        let mut title = format!("{name}: sockets, nodes, caches, cores");
        let mut says = format!("{counts}.");
        if let Some(hottest) = hottest {
            trace["marker"] = json!({
                "colors": list(&|part| wait(part).into()),
                "colorscale": "YlOrRd",
                "showscale": true,
                "colorbar": { "title": { "text": "us waited" } },
            });
            trace["hovertemplate"] =
                "%{label}: each CPU waited %{color:.1f} us for lines<extra></extra>".into();
            title += &format!("; how long each waited for lines in {}", hottest.scenario);
            says += &format!(
                " Colours: the time that CPUs waited for lines, in {}. {}",
                hottest.replay.program,
                hottest.says()
            );
        }
        let layout = json!({
            "title": { "text": plain(&title) },
            "margin": { "l": 10, "r": 10, "t": 50, "b": 10 },
        });
        self.chart("boxes", title, says, Figure { data: vec![trace], layout })
    }

    /// The machine, its sockets, nodes, caches and, of few, cores.
    fn parts(&self) -> Vec<Part> {
        type Level = (&'static str, fn(&Cpu) -> u32);
        let topology = self.spec.topology();
        let mut levels: Vec<Level> = vec![
            ("socket", |cpu| cpu.socket),
            ("node", |cpu| cpu.node.get()),
            ("L3", |cpu| cpu.cache.get()),
        ];
        if topology.core_count() <= 4 * MOST_CORES {
            levels.push(("core", |cpu| cpu.core));
        }
        let smallest = levels[levels.len() - 1].1;
        let part = |label: String, inside: String, cpus: &[&Cpu]| Part {
            id: label.clone(),
            label,
            inside,
            cpus: cpus.iter().map(|cpu| cpu.id).collect(),
            leaves: cpus.iter().map(|cpu| smallest(cpu)).collect::<BTreeSet<_>>().len(),
        };
        let name = self.spec.name().to_owned();
        let all: Vec<&Cpu> = topology.cpus().collect();
        let mut parts = vec![part(name.clone(), String::new(), &all)];
        for (at, (level, of)) in levels.iter().enumerate() {
            let mut groups: BTreeMap<u32, Vec<&Cpu>> = BTreeMap::new();
            all.iter().for_each(|cpu| groups.entry(of(cpu)).or_default().push(cpu));
            for (number, cpus) in groups {
                let above = at.checked_sub(1).map(|above| levels[above]);
                let inside = above.map(|(level, of)| format!("{level} {}", of(cpus[0])));
                let inside = inside.unwrap_or_else(|| name.clone());
                parts.push(part(format!("{level} {number}"), inside, &cpus));
            }
        }
        parts
    }

    /// The time of a line from each core, or cache, to each other one.
    pub(super) fn heat_map(&self) -> Chart {
        let name = self.spec.name();
        let topology = self.spec.topology();
        let by_core = topology.core_count() <= MOST_CORES;
        let number = |cpu: &Cpu| if by_core { cpu.core } else { cpu.cache.get() };
        let what = if by_core { "core" } else { "L3" };
        let mut first: BTreeMap<u32, Vec<CpuId>> = BTreeMap::new();
        let cores = topology.cpus().filter(|cpu| cpu.thread == 0);
        cores.for_each(|cpu| first.entry(number(cpu)).or_default().push(cpu.id));
        let cell = |from: &[CpuId], to: &[CpuId]| {
            // Within a cache: between two of its cores.
            let to = if from == to { to.get(1)? } else { to.first()? };
            self.transfer(from[0], *to)
        };
        let z: Vec<Vec<Option<f64>>> =
            first.values().map(|from| first.values().map(|to| cell(from, to)).collect()).collect();
        let labels: Vec<_> = first.keys().map(|number| format!("{what} {number}")).collect();
        let mut trace = json!({
            "type": "heatmap",
            "x": labels,
            "y": labels,
            "z": z,
            "colorscale": "Viridis",
            "colorbar": { "title": { "text": "ns" } },
            "hovertemplate": "%{y} to %{x}: %{z} ns<extra></extra>",
        });
        if labels.len() <= 12 {
            trace["texttemplate"] = "%{z}".into();
        }
        let title = format!("{name}: a line from {what} to {what}, one way, ns");
        let each = self.core_to_core.iter().map(|it| {
            let what = match it.nodes {
                Some([a, b]) => format!("nodes {a} and {b}"),
                None => it.class.replace('_', " "),
            };
            format!("{what} {:.0} ns, in the file {:.0}", it.simulated_ns, it.file_ns)
        });
        let says = format!("Simulated ping-pongs: {}.", each.collect::<Vec<_>>().join("; "));
        let layout = json!({
            "title": { "text": plain(&title) },
            "yaxis": { "autorange": "reversed", "automargin": true, "type": "category" },
            "xaxis": { "automargin": true, "type": "category" },
            "margin": { "l": 60, "r": 20, "t": 50, "b": 60 },
        });
        self.chart("core-to-core", title, says, Figure { data: vec![trace], layout })
    }

    /// A simulated ping-pong between two CPUs, one way, in ns.
    fn transfer(&self, from: CpuId, to: CpuId) -> Option<f64> {
        let topology = self.spec.topology();
        let node = |cpu| topology.cpu(cpu).map(|cpu| cpu.node);
        let nodes = [node(from)?, node(to)?].map(NodeId::get);
        let either =
            |it: &CoreToCore| it.nodes.is_some_and(|of| of == nodes || of == [nodes[1], nodes[0]]);
        let class = class(topology, [from, to])?.name();
        let of_class = |it: &&CoreToCore| it.nodes.is_none() && it.class == class;
        let all = &self.core_to_core;
        let found = all.iter().find(|it| either(it)).or_else(|| all.iter().find(of_class))?;
        Some((found.simulated_ns * 10.0).round() / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str) -> Shown {
        let spec = Spec::preset(name).unwrap();
        Shown { core_to_core: core_to_core::of(&spec).unwrap(), spec }
    }

    #[test]
    fn boxes_are_all_parts_and_a_parent_is_the_sum_of_its_parts() {
        let boxes = shown("ivybridge-ex-4s").boxes(None);
        let topology = Spec::preset("ivybridge-ex-4s").unwrap().topology().clone();
        let parts = 1 + topology.socket_count() + topology.node_count() + topology.cache_count();
        assert_eq!(boxes.figure.marks(), parts + topology.core_count());
        let trace = &boxes.figure.data[0];
        let values = crate::report::figure::numbers(&trace["values"]);
        assert_eq!(values[0] as usize, topology.core_count());
        let of_root = |at: &usize| trace["parents"][*at] == trace["ids"][0];
        let sum: f64 = (0..values.len()).filter(of_root).map(|at| values[at]).sum();
        assert_eq!(sum, values[0]);
    }

    #[test]
    fn a_wide_machine_has_a_line_for_each_cache_and_a_narrow_one_for_each_core() {
        for (name, of) in [("epyc-9654-2s", "L3 0"), ("host-2c", "core 0")] {
            let shown = shown(name);
            let map = shown.heat_map().figure.data[0].clone();
            let topology = shown.spec.topology();
            let lines = if of == "L3 0" { topology.cache_count() } else { topology.core_count() };
            assert_eq!(map["x"][0], of);
            assert_eq!(map["z"].as_array().unwrap().len(), lines);
            let far = map["z"][0][lines - 1].as_f64().unwrap();
            let near = map["z"][0][0].as_f64();
            assert!(near.is_none_or(|near| near < far), "{near:?} {far}");
        }
    }
}
