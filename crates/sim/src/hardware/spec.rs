//! Machine files: a topology and its costs, each number with its source.

use std::collections::BTreeMap;
use std::path::Path;

use coreline_topology::{NodeId, Shape, Topology};
use serde::Deserialize;

use crate::hardware::class::Class;
use crate::hardware::costs::{Cost, Costs, RawCost, check_distances};
use crate::hardware::digest::digest;
use crate::hardware::distances::{Distances, NodeDistance, RawDistance};
use crate::hardware::presets::PRESETS;
pub use crate::hardware::presets::{SpecError, presets};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSpec {
    name: String,
    summary: String,
    #[serde(default)]
    weakly_ordered: bool,
    topology: RawShape,
    cost: BTreeMap<String, RawCost>,
    #[serde(default)]
    distance: Vec<RawDistance>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawShape {
    sockets: u32,
    nodes_per_socket: u32,
    caches_per_node: u32,
    cores_per_cache: u32,
    threads_per_core: u32,
}

/// The specification of a machine: its tree and its costs.
#[derive(Debug, Clone)]
pub struct Spec {
    name: String,
    summary: String,
    is_weakly_ordered: bool,
    topology: Topology,
    costs: Costs,
    sources: BTreeMap<&'static str, Cost>,
    distances: Distances,
    /// Costs that were moved, and to how many percent.
    scaled: BTreeMap<String, u64>,
    /// Of the text.
    digest: u64,
    is_preset: bool,
}

impl Spec {
    /// Returns the machine of a preset.
    ///
    /// # Errors
    ///
    /// [`SpecError::NoPreset`] if there is no preset with this name.
    pub fn preset(name: &str) -> Result<Spec, SpecError> {
        let (name, text) = PRESETS
            .iter()
            .find(|(preset, _)| *preset == name)
            .ok_or_else(|| SpecError::NoPreset { name: name.to_owned() })?;
        Spec::parse(name, text)
    }

    /// Reads a machine from a user's own machine file.
    ///
    /// # Errors
    ///
    /// [`SpecError`] if the file is not a valid machine file. The error names the file, the key and
    /// the reason.
    pub fn from_file(path: &Path) -> Result<Spec, SpecError> {
        let text = std::fs::read_to_string(path).map_err(|error| SpecError::Unreadable {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
        Spec::parse(&path.display().to_string(), &text)
    }

    /// Parses a machine from the text of its file. Errors name the file `file`.
    ///
    /// # Errors
    ///
    /// [`SpecError`] if the file is not a valid machine file. The error names the file, the key and
    /// the reason.
    pub fn parse(file: &str, text: &str) -> Result<Spec, SpecError> {
        let raw: RawSpec = toml::from_str(text).map_err(|error| SpecError::Malformed {
            file: file.to_owned(),
            why: error.to_string(),
        })?;
        let shape = Shape {
            sockets: raw.topology.sockets,
            nodes_per_socket: raw.topology.nodes_per_socket,
            caches_per_node: raw.topology.caches_per_node,
            cores_per_cache: raw.topology.cores_per_cache,
            threads_per_core: raw.topology.threads_per_core,
        };
        if raw.name.is_empty() || raw.name.contains(|c: char| c.is_whitespace() || c == '@') {
            let why =
                format!("{:?} is not one word without @, which a replay line needs", raw.name);
            return Err(SpecError::Value { file: file.to_owned(), key: "name".to_owned(), why });
        }
        let wrong = |key: String, why: String| SpecError::Value { file: file.to_owned(), key, why };
        let topology = Topology::uniform(shape)
            .map_err(|error| wrong("topology".to_owned(), error.to_string()))?;
        if topology.cpu_count() > Spec::MOST_CPUS {
            let why = format!("{} CPUs; at most {}", topology.cpu_count(), Spec::MOST_CPUS);
            return Err(wrong("topology".to_owned(), why));
        }
        if let Some(unknown) = raw.cost.keys().find(|key| !Costs::NAMES.contains(&key.as_str())) {
            let why = format!("no such cost; the costs are {}", Costs::NAMES.join(", "));
            return Err(wrong(format!("cost.{unknown}"), why));
        }
        let (costs, sources) = Costs::build(file, &raw.cost)?;
        check_distances(&costs).map_err(|(key, why)| wrong(format!("cost.{key}"), why))?;
        let stated: Result<Vec<_>, _> =
            raw.distance.into_iter().map(|distance| distance.check(&topology)).collect();
        let distances = stated.and_then(|stated| Distances::new(stated, &topology, &costs));
        let distances = distances.map_err(|why| wrong("distance".to_owned(), why))?;
        let firmware = distances.of_firmware(&topology, &costs);
        let topology = topology.with_node_distances(firmware);
        let preset = PRESETS.iter().find(|(name, _)| *name == raw.name);
        if preset.is_some_and(|(_, theirs)| *theirs != text) {
            let why = format!("{:?} is a preset, and this is another machine: rename it", raw.name);
            return Err(wrong("name".to_owned(), why));
        }
        let (digest, is_preset) = (digest(text.as_bytes()), preset.is_some());
        Ok(Spec {
            name: raw.name,
            summary: raw.summary,
            is_weakly_ordered: raw.weakly_ordered,
            topology,
            costs,
            sources,
            distances,
            scaled: BTreeMap::new(),
            digest,
            is_preset,
        })
    }

    /// Returns the digest of the machine's file, or `None` for a preset. A replay line uses it to
    /// distinguish files with the same machine name.
    pub fn digest(&self) -> Option<u64> {
        (!self.is_preset).then_some(self.digest)
    }

    /// Returns the digest of the machine's file, even for a preset. The digest is FNV-1a with 64
    /// bits.
    pub fn file_digest(&self) -> u64 {
        self.digest
    }

    /// The maximum number of CPUs that the simulator promises.
    pub(crate) const MOST_CPUS: usize = 4096;

    /// More than a band needs, and little enough for costs not to overflow.
    const MOST_PERCENT: u64 = 1000;

    /// Returns the machine's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a description in one line.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// Returns whether the machine's cores reorder loads, as those of Arm and POWER do. An acquire
    /// then waits for the accesses before it, where [accesses overlap](crate::Overlap). x86 is not
    /// weakly ordered. In a machine file it is `weakly_ordered = true`.
    pub fn is_weakly_ordered(&self) -> bool {
        self.is_weakly_ordered
    }

    /// Returns the machine's tree.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the costs in use. They are the costs of the file, except for the costs that
    /// [`scale`](Spec::scale) changed.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Returns every cost of the file with its source, by name.
    pub fn sources(&self) -> impl Iterator<Item = (&'static str, &Cost)> {
        Costs::NAMES.iter().filter_map(|name| Some((*name, self.sources.get(name)?)))
    }

    /// Returns the pairs of nodes to which the file gives costs of their own, in place of the costs
    /// of their class.
    pub fn node_distances(&self) -> &[NodeDistance] {
        self.distances.stated()
    }

    /// Those pairs, with the costs as used.
    pub(crate) fn distances(&self) -> &Distances {
        &self.distances
    }

    /// Scales one cost to `percent` of the file's value, for a band. `percent` is at most 1000. The
    /// cost stays at least 1. The costs that replace this cost for pairs of nodes are scaled, too.
    ///
    /// # Errors
    ///
    /// [`SpecError::Value`] if there is no such cost, or `percent` is more than 1000.
    pub fn scale(&mut self, cost: &str, percent: u64) -> Result<(), SpecError> {
        let (Some(base), Some(value)) =
            (self.sources.get(cost).map(|cost| cost.value), self.costs.get_mut(cost))
        else {
            return Err(SpecError::Value {
                file: self.name.clone(),
                key: format!("cost.{cost}"),
                why: format!("no such cost; this machine's are {}", self.costs_stated()),
            });
        };
        if percent > Spec::MOST_PERCENT {
            return Err(SpecError::Value {
                file: self.name.clone(),
                key: format!("cost.{cost}"),
                why: format!("{percent} percent; at most {}", Spec::MOST_PERCENT),
            });
        }
        *value = ((base * percent + 50) / 100).max(1);
        self.distances.scale(cost, percent, &self.costs);
        match percent {
            100 => self.scaled.remove(cost),
            _ => self.scaled.insert(cost.to_owned(), percent),
        };
        Ok(())
    }

    /// The names of the costs that its file has.
    fn costs_stated(&self) -> String {
        self.sources().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
    }

    /// Returns the names of the [scaled](Spec::scale) costs, each with its percentage of the file's
    /// value.
    pub fn scaled(&self) -> impl Iterator<Item = (&str, u64)> {
        self.scaled.iter().map(|(name, &percent)| (name.as_str(), percent))
    }
}

impl Spec {
    /// Replaces the ping-pong figure of a class, or of two nodes, by the cost of a transfer.
    pub(crate) fn set_transfer(&mut self, class: Class, nodes: Option<[NodeId; 2]>, raw: u64) {
        match (nodes, self.costs.get_mut(class.name())) {
            (Some(nodes), _) => self.distances.set_transfer(nodes, raw),
            (None, Some(cost)) => *cost = raw,
            (None, None) => {}
        }
    }

    /// Two CPUs of these costs, whose transfers all cost `raw`: hardware threads of one core if
    /// the class is theirs; otherwise two cores, whose distance only selects the name of a cost.
    pub(crate) fn two_cpus(&self, class: Class, raw: u64) -> Spec {
        let cores = if class == Class::SameCore { 1 } else { 2 };
        let shape =
            Shape { cores_per_cache: cores, threads_per_core: 2 / cores, ..Shape::default() };
        let topology = Topology::uniform(shape).expect("two CPUs are a machine");
        let mut spec = Spec { topology, distances: Distances::default(), ..self.clone() };
        Class::ALL.into_iter().for_each(|class| spec.set_transfer(class, None, raw));
        if class != Class::SameCore {
            spec.costs.same_core = 0;
        }
        spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_parses_and_names_itself() {
        for name in presets() {
            let spec = Spec::preset(name).unwrap();
            assert_eq!(spec.name(), name);
            // No source is known for hardware threads of one core.
            assert_eq!(spec.sources().count(), Costs::NAMES.len() - 1);
        }
    }

    /// CPUs, cores, last-level caches, nodes and sockets.
    #[test]
    fn presets_have_the_shapes_of_their_machines() {
        for (name, shape) in [
            ("epyc-9654-2s", [384, 192, 24, 2, 2]),
            ("epyc-9754-2s", [512, 256, 32, 2, 2]),
            ("epyc-7003-2s", [256, 128, 16, 2, 2]),
            ("epyc-7r13-2s", [192, 96, 12, 2, 2]),
            ("kunpeng920-96c-4n", [96, 96, 4, 4, 2]),
            ("ivybridge-ex-4s", [120, 60, 4, 4, 4]),
            ("ivybridge-ex-8s", [240, 120, 8, 8, 8]),
            ("ivybridge-ep-2s", [40, 20, 2, 2, 2]),
            ("haswell-ex-4s", [144, 72, 4, 4, 4]),
            ("skylake-2s", [112, 56, 2, 2, 2]),
            ("sapphire-rapids-2s", [224, 112, 2, 2, 2]),
            ("power8-16s", [1536, 192, 16, 16, 16]),
            ("x86-128c-8n", [128, 128, 16, 8, 2]),
            ("arm64-2x64c", [128, 128, 64, 2, 2]),
            ("desktop-12c", [24, 12, 2, 1, 1]),
            ("host-2c", [2, 2, 1, 1, 1]),
            ("host-2c-xeon", [2, 2, 1, 1, 1]),
        ] {
            let spec = Spec::preset(name).unwrap();
            let tree = spec.topology();
            let found = [
                tree.cpu_count(),
                tree.core_count(),
                tree.cache_count(),
                tree.node_count(),
                tree.socket_count(),
            ];
            assert_eq!(found, shape, "{name}");
        }
        assert_eq!(presets().count(), 17);
    }

    /// A line that comes from further away takes longer; "does not occur" repeats a nearer figure.
    #[test]
    fn figures_grow_with_the_distance() {
        for name in presets() {
            let costs = *Spec::preset(name).unwrap().costs();
            let figures = Class::ALL.map(|class| costs.of(class));
            assert!(figures.is_sorted(), "{name}: {figures:?}");
            assert!(costs.private_hit < costs.cache_hit, "{name}");
            assert!(costs.cache_hit < costs.same_cache, "{name}");
            assert!(costs.memory_local <= costs.memory_remote, "{name}");
        }
    }

    #[test]
    fn an_unknown_preset_is_answered_with_the_known_ones() {
        let error = Spec::preset("pdp-11").unwrap_err();
        assert!(error.to_string().contains("epyc-9654-2s"), "{error}");
    }

    /// The text of `host-2c` with one replacement, and the error that it gives.
    fn error_after(from: &str, to: &str) -> String {
        let text = PRESETS.iter().find(|(name, _)| *name == "host-2c").unwrap().1;
        assert!(text.contains(from), "{from:?} is not in the file");
        Spec::parse("my.toml", &text.replacen(from, to, 1)).unwrap_err().to_string()
    }

    #[test]
    fn a_mistake_is_answered_with_file_key_and_reason() {
        for (from, to, key, reason) in [
            ("ns = 1.1", "ns = -1.1", "cost.private_hit", "between"),
            ("ns = 1.1", "ns = nan", "cost.private_hit", "between"),
            ("ns = 1.1", "ns = 0.0", "cost.private_hit", "must take time"),
            ("ns = 118.0", "ns = 119.0", "cost.memory_remote", "of memory_local"),
            ("ping_pong_ns = ", "ping_pong_ns = 9", "cost.same_node", "of same_cache"),
            ("ns = 1.1", "count = 3", "cost.private_hit", "is a time"),
            ("count = 10", "count = 0", "cost.stream_loads", "between"),
            ("name = \"host-2c\"", "name = \"my host\"", "name", "one word"),
            ("ping_pong_ns = ", "ns = ", "cost.same_cache", "is the one-way latency"),
            ("ping_pong_ns = ", "ping_pong_ns = -", "cost.same_cache", "ping_pong_ns = -"),
            ("ping_pong_ns = ", "ping_pong_ns = 999", "cost.same_cache", "between 0.001 and 10000"),
            ("ns = 1.1", "ping_pong_ns = 1.1", "cost.private_hit", "is a time"),
            ("[cost.pause]", "[cost.paws]", "cost.paws", "no such cost"),
            ("source = \"from memory\"", "source = \" \"", "cost.memory_local", "no source"),
            ("cores_per_cache = 2", "cores_per_cache = 0", "topology", ""),
            ("cores_per_cache = 2", "cores_per_cache = 5000", "topology", "at most 4096"),
        ] {
            let error = error_after(from, to);
            assert!(error.contains("my.toml"), "{error}");
            assert!(error.contains(key) && error.contains(reason), "{from} -> {to}: {error}");
        }
        assert!(error_after("sockets = 1", "socket = 1").contains("socket"));
    }

    #[test]
    fn a_presets_name_is_the_presets() {
        let text = PRESETS.iter().find(|(name, _)| *name == "host-2c").unwrap().1;
        let same = Spec::parse("copy.toml", text).unwrap();
        assert_eq!(same.digest(), None, "the same text is the same machine");
        let error = error_after("ns = 24.6", "ns = 25.0");
        assert!(error.contains("name") && error.contains("is a preset"), "{error}");
        let mine = text.replacen("name = \"host-2c\"", "name = \"mine\"", 1);
        let [one, other] = [&mine, &mine.replacen("ns = 24.6", "ns = 25.0", 1)]
            .map(|text| Spec::parse("mine.toml", text).unwrap().digest().unwrap());
        assert_ne!(one, other);
    }

    #[test]
    fn scaling_moves_one_cost_from_the_files_value() {
        let mut spec = Spec::preset("epyc-9654-2s").unwrap();
        spec.scale("same_cache", 130).unwrap();
        spec.scale("same_cache", 70).unwrap();
        assert_eq!(spec.costs().same_cache, 18_900, "70 % of 27 ns");
        spec.scale("stream_stores", 70).unwrap();
        assert_eq!(spec.costs().stream_stores, 3, "4 x 0.7, rounded");
        assert!(spec.scale("nonsense", 130).is_err());
        let error = spec.scale("same_cache", u64::MAX).unwrap_err().to_string();
        assert!(error.contains("at most 1000"), "{error}");
    }
}
