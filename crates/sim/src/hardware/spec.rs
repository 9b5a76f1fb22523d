//! Machine files: a topology and what things cost on it, each number with its source.

use std::collections::BTreeMap;
use std::path::Path;

use coreline_topology::{CpuId, CpuSet, Shape, Topology};
use serde::Deserialize;

use crate::hardware::class::Class;
use crate::hardware::digest::digest;
use crate::hardware::presets::PRESETS;
pub use crate::hardware::presets::{SpecError, presets};

/// One number of a machine file.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// Picoseconds, or a plain count for the costs that are counts.
    pub value: u64,
    /// Whether [`value`](Cost::value) is a count.
    pub is_count: bool,
    /// Where the number comes from.
    pub source: String,
    /// Whether claims must hold while it moves by 30 % (the band).
    pub uncertain: bool,
}

macro_rules! costs {
    ($($(#[doc = $doc:literal])+ $name:ident: $unit:ident,)+) => {
        /// What things cost on a machine, in picoseconds unless said otherwise; of transfers, the
        /// latencies of ping-pongs, from which a [`Machine`](crate::Machine) finds what they cost.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub struct Costs {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Costs {
            /// The names of all costs, in the order of a machine file.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            fn build(
                file: &str,
                table: &BTreeMap<String, RawCost>,
            ) -> Result<(Costs, BTreeMap<&'static str, Cost>), SpecError> {
                let mut sources = BTreeMap::new();
                let costs = Costs {
                    $($name: {
                        let cost = RawCost::take(file, table, stringify!($name), Unit::$unit)?;
                        let value = cost.value;
                        sources.insert(stringify!($name), cost);
                        value
                    },)+
                };
                Ok((costs, sources))
            }

            fn get_mut(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)+
                    _ => None,
                }
            }
        }
    };
}

costs! {
    /// An access that the core's private cache serves.
    private_hit: Time,
    /// A clean line that another core under the same last-level cache holds.
    cache_hit: Time,
    /// The one-way latency of a ping-pong with a core under the same last-level cache.
    same_cache: PingPong,
    /// The same under another last-level cache of the same node.
    same_node: PingPong,
    /// The same in another node of the same socket.
    same_socket: PingPong,
    /// The same in another socket.
    other_socket: PingPong,
    /// A line that no cache holds, in the memory of the CPU's own node.
    memory_local: Time,
    /// A line that no cache holds, in the memory of another node.
    memory_remote: Time,
    /// What an atomic read-modify-write adds to a store.
    locked: Time,
    /// How long the home of a line is occupied by one reader of many.
    directory: Time,
    /// How soon a core uses a line again that it keeps from others for that.
    keep: Time,
    /// How long a core keeps a line from others at most, however soon it uses it again.
    hold: Time,
    /// A plain store on its way into the store buffer.
    store_issue: Time,
    /// A count: how many stores the store buffer holds.
    store_queue: Count,
    /// A spin loop's pause.
    pause: Time,
    /// A count: how many misses of a sequential read overlap.
    stream_loads: Count,
    /// A count: how many ownership requests of a sequential update overlap.
    stream_stores: Count,
    /// From one thread to the next on a CPU.
    switch: Time,
    /// From a wake-up until the woken thread runs, on an idle CPU.
    wake: Time,
    /// A system call that does nothing.
    syscall: Time,
    /// Reading the clock.
    clock: Time,
    /// From spawning a thread until it runs.
    spawn: Time,
    /// How long a thread runs before another one that wants the CPU gets it.
    slice: Time,
    /// A fence that interrupts all running threads.
    broadcast: Time,
    /// From sending an interrupt to another CPU until it arrives there.
    ipi: Time,
    /// From an interrupt's arrival until its handler runs.
    irq_entry: Time,
    /// From the end of an interrupt's handler until the interrupted code goes on.
    irq_exit: Time,
    /// From what ends a monitored wait until the CPU executes.
    mwait_exit: Time,
    /// From one timer tick of a busy CPU to the next.
    tick: Time,
    /// How long a core idles at least before its own caches and translations are empty.
    idle_flush: Time,
    /// Finding where a page lies, for a core whose translations are empty.
    page_walk: Time,
    /// A copy-on-write fault: the first write to a page that was only read.
    first_write: Time,
    /// What such a fault takes longer for each other CPU that ran the process and has switched
    /// since the faulting core looked at it last: whether to interrupt it.
    first_write_visit: Time,
}

impl Costs {
    /// The latency of a ping-pong between cores so far apart; in a machine that runs, the cost of a
    /// transfer instead.
    pub fn of(&self, class: Class) -> u64 {
        match class {
            Class::SameCache => self.same_cache,
            Class::SameNode => self.same_node,
            Class::SameSocket => self.same_socket,
            Class::OtherSocket => self.other_socket,
        }
    }
}

/// How a cost is given in a machine file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Given as `ns`.
    Time,
    /// Given as `ping_pong_ns`, half of a round trip.
    PingPong,
    /// Given as `count`.
    Count,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSpec {
    name: String,
    summary: String,
    topology: RawShape,
    cost: BTreeMap<String, RawCost>,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCost {
    ns: Option<f64>,
    ping_pong_ns: Option<f64>,
    count: Option<u64>,
    source: String,
    #[serde(default)]
    uncertain: bool,
}

/// The engine's unit of time.
const LEAST_NS: f64 = 0.001;

/// A line that comes from further away takes no less time: what is nearer, and why, if one does.
fn check_distances(costs: &Costs) -> Result<(), (&'static str, String)> {
    let transfers = Class::ALL.map(|class| (class.name(), costs.of(class)));
    let memory = [("memory_local", costs.memory_local), ("memory_remote", costs.memory_remote)];
    for pair in transfers.windows(2).chain(memory.windows(2)) {
        let [(near, less), (far, more)] = pair else { continue };
        if more < less {
            let [less, more] = [less, more].map(|ps| *ps as f64 / 1000.0);
            let why = format!("{more} ns is less than the {less} of {near}, which is nearer");
            return Err((far, why));
        }
    }
    Ok(())
}

impl RawCost {
    /// Times up to a second, ping-pongs up to ten microseconds, counts up to a thousand: more is
    /// taken for a typing mistake.
    const MOST_NS: f64 = 1e9;
    const MOST_PING_PONG_NS: f64 = 1e4;
    const MOST: u64 = 1000;

    fn take(
        file: &str,
        table: &BTreeMap<String, RawCost>,
        name: &str,
        unit: Unit,
    ) -> Result<Cost, SpecError> {
        let wrong = |why: String| SpecError::Value {
            file: file.to_owned(),
            key: format!("cost.{name}"),
            why,
        };
        let raw = table.get(name).ok_or_else(|| wrong("is missing".to_owned()))?;
        if raw.source.trim().is_empty() {
            return Err(wrong(
                "has no source; say where it is from, or \"from memory\"".to_owned(),
            ));
        }
        let (key, most) = match unit {
            Unit::PingPong => ("ping_pong_ns", Self::MOST_PING_PONG_NS),
            Unit::Time | Unit::Count => ("ns", Self::MOST_NS),
        };
        let value = match (unit, raw.ns, raw.ping_pong_ns, raw.count) {
            (Unit::Time, Some(ns), None, None) | (Unit::PingPong, None, Some(ns), None) => {
                if !(LEAST_NS..=most).contains(&ns) {
                    return Err(wrong(format!(
                        "{key} = {ns} is not between {LEAST_NS} and {most}: nothing is for free, \
                         and time must pass for a CPU that spins"
                    )));
                }
                // In range, so the rounded picoseconds fit, and are at least 1.
                (ns * 1000.0).round() as u64
            }
            (Unit::Count, None, None, Some(count)) if (1..=Self::MOST).contains(&count) => count,
            (Unit::Count, None, None, Some(count)) => {
                return Err(wrong(format!("count = {count} is not between 1 and {}", Self::MOST)));
            }
            (Unit::Time, ..) => {
                return Err(wrong("is a time: give `ns` and nothing else".to_owned()));
            }
            (Unit::PingPong, ..) => {
                return Err(wrong(
                    "is the one-way latency of a ping-pong: give `ping_pong_ns` and nothing else"
                        .to_owned(),
                ));
            }
            (Unit::Count, ..) => {
                return Err(wrong("is a count: give `count` and nothing else".to_owned()));
            }
        };
        let is_count = unit == Unit::Count;
        Ok(Cost { value, is_count, source: raw.source.clone(), uncertain: raw.uncertain })
    }
}

/// A machine: its tree and its costs.
#[derive(Debug, Clone)]
pub struct Spec {
    name: String,
    summary: String,
    topology: Topology,
    costs: Costs,
    sources: BTreeMap<&'static str, Cost>,
    /// Costs that were moved, and to how many percent.
    scaled: BTreeMap<String, u64>,
    /// The digest of the text; `None` for a preset.
    digest: Option<u64>,
}

impl Spec {
    /// A machine that comes with the crate.
    ///
    /// # Errors
    ///
    /// [`SpecError::NoPreset`] if there is none of that name.
    pub fn preset(name: &str) -> Result<Spec, SpecError> {
        let (name, text) = PRESETS
            .iter()
            .find(|(preset, _)| *preset == name)
            .ok_or_else(|| SpecError::NoPreset { name: name.to_owned() })?;
        Spec::parse(name, text)
    }

    /// A user's own machine.
    ///
    /// # Errors
    ///
    /// [`SpecError`] names the file, the key and the reason.
    pub fn from_file(path: &Path) -> Result<Spec, SpecError> {
        let text = std::fs::read_to_string(path).map_err(|error| SpecError::Unreadable {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
        Spec::parse(&path.display().to_string(), &text)
    }

    /// A machine from the text of its file; errors name it `file`.
    ///
    /// # Errors
    ///
    /// [`SpecError`] names the file, the key and the reason.
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
                format!("{:?} is not one word without @, as a replay line needs it", raw.name);
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
        let preset = PRESETS.iter().find(|(name, _)| *name == raw.name);
        if preset.is_some_and(|(_, theirs)| *theirs != text) {
            let why = format!("{:?} is a preset, and this is another machine: rename it", raw.name);
            return Err(wrong("name".to_owned(), why));
        }
        let digest = preset.is_none().then(|| digest(text.as_bytes()));
        let (name, summary, scaled) = (raw.name, raw.summary, BTreeMap::new());
        Ok(Spec { name, summary, topology, costs, sources, scaled, digest })
    }

    /// The digest of the machine's file, by which a replay line tells it from others of its name;
    /// `None` for a preset.
    pub fn digest(&self) -> Option<u64> {
        self.digest
    }

    /// As many CPUs as the simulator promises.
    pub(crate) const MOST_CPUS: usize = 4096;

    /// More than a band needs, and little enough for costs not to overflow.
    const MOST_PERCENT: u64 = 1000;

    /// The machine's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One line about it.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// Its tree.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Its costs, as used: those of the file unless [`scale`](Spec::scale) moved one.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Every cost of the file with its source, by name.
    pub fn sources(&self) -> impl Iterator<Item = (&'static str, &Cost)> {
        Costs::NAMES.iter().filter_map(|name| Some((*name, self.sources.get(name)?)))
    }

    /// Moves one cost to `percent` of the file's value, at most 1000, for a band. It stays at least
    /// 1.
    ///
    /// # Errors
    ///
    /// [`SpecError::Value`] if there is no such cost, or `percent` is more.
    pub fn scale(&mut self, cost: &str, percent: u64) -> Result<(), SpecError> {
        let (Some(base), Some(value)) =
            (self.sources.get(cost).map(|cost| cost.value), self.costs.get_mut(cost))
        else {
            return Err(SpecError::Value {
                file: self.name.clone(),
                key: format!("cost.{cost}"),
                why: format!("no such cost; the costs are {}", Costs::NAMES.join(", ")),
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
        match percent {
            100 => self.scaled.remove(cost),
            _ => self.scaled.insert(cost.to_owned(), percent),
        };
        Ok(())
    }

    /// The costs that were [moved](Spec::scale), and to how many percent of the file's value, by
    /// name.
    pub fn scaled(&self) -> impl Iterator<Item = (&str, u64)> {
        self.scaled.iter().map(|(name, &percent)| (name.as_str(), percent))
    }
}

impl Spec {
    /// Replaces the ping-pong figure of a class by what a transfer costs.
    pub(crate) fn set_transfer(&mut self, class: Class, raw: u64) {
        if let Some(cost) = self.costs.get_mut(class.name()) {
            *cost = raw;
        }
    }

    /// Two cores of these costs, whose transfers all cost `raw`: their distance only selects the
    /// name of a cost.
    pub(crate) fn two_cores(&self, raw: u64) -> Spec {
        let cpus = CpuSet::from_iter([0, 1].map(CpuId::new));
        let topology = Topology::flat(&cpus).expect("two CPUs are a machine");
        let mut spec = Spec { topology, ..self.clone() };
        Class::ALL.into_iter().for_each(|class| spec.set_transfer(class, raw));
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
            assert_eq!(spec.sources().count(), Costs::NAMES.len());
        }
    }

    /// CPUs, cores, last-level caches, nodes and sockets.
    #[test]
    fn presets_have_the_shapes_of_their_machines() {
        for (name, shape) in [
            ("epyc-9654-2s", [384, 192, 24, 2, 2]),
            ("epyc-7003-2s", [256, 128, 16, 2, 2]),
            ("epyc-7r13-2s", [192, 96, 12, 2, 2]),
            ("kunpeng920-96c-4n", [96, 96, 4, 4, 2]),
            ("ivybridge-ex-4s", [120, 60, 4, 4, 4]),
            ("ivybridge-ex-8s", [240, 120, 8, 8, 8]),
            ("haswell-ex-4s", [144, 72, 4, 4, 4]),
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
        assert_eq!(presets().count(), 13);
    }

    /// A line that comes from further away takes longer; "does not occur" repeats a nearer figure.
    #[test]
    fn figures_grow_with_the_distance() {
        for name in presets() {
            let costs = *Spec::preset(name).unwrap().costs();
            let figures = Class::ALL.map(|class| costs.of(class));
            assert!(figures.is_sorted(), "{name}: {figures:?}");
            assert!(costs.private_hit < costs.cache_hit && costs.cache_hit < figures[0], "{name}");
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
            ("ns = 1.1", "ns = 0.0", "cost.private_hit", "for free"),
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
