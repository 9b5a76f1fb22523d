//! [`Config`]: which CPUs of a machine take part.

use std::collections::BTreeSet;

use coreline_topology::{CpuId, Topology};

/// The CPUs of a machine that take part. Its name describes them: `24-core/24-L3` is 24 cores under
/// 24 L3 caches, one hardware thread of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The name in results and programs.
    pub name: String,
    /// The CPUs in the order in which they get threads.
    pub cpus: Vec<CpuId>,
    /// How many last-level caches these CPUs have; 0 if that is unknown.
    pub caches: usize,
}

impl Config {
    /// Makes one of these CPUs, on a machine of which nothing else is known.
    pub fn of_unknown(cpus: Vec<CpuId>) -> Config {
        Config { name: format!("{}-CPU", cpus.len()), cpus, caches: 0 }
    }

    /// Makes one of these CPUs of this machine. A tree that was made up does not say anything about
    /// caches.
    pub fn here(topology: &Topology, is_known: bool, cpus: Vec<CpuId>) -> Config {
        if is_known { Config::of(topology, cpus) } else { Config::of_unknown(cpus) }
    }

    /// Makes one of these CPUs of a machine, with this name. CPUs that the topology does not know
    /// count as a core each.
    pub fn of(topology: &Topology, cpus: Vec<CpuId>) -> Config {
        let known = || cpus.iter().filter_map(|&cpu| topology.cpu(cpu));
        let cores = known().map(|cpu| cpu.core).collect::<BTreeSet<_>>().len();
        let caches = known().map(|cpu| cpu.cache).collect::<BTreeSet<_>>().len();
        let unit = if cores < known().count() { "thread" } else { "core" };
        Config { name: format!("{}-{unit}/{caches}-L3", cpus.len()), cpus, caches }
    }

    /// The configurations of a machine: the cores of one L3, one core of each L3, all cores, and
    /// all hardware threads. Each occurs once, if the machine has more than one L3 or thread.
    pub fn all(topology: &Topology) -> Vec<Config> {
        let cores = || topology.cpus().filter(|cpu| cpu.thread == 0);
        let mut seen = BTreeSet::new();
        let one_cache = cores().filter(|cpu| cpu.cache.get() == 0).map(|cpu| cpu.id).collect();
        let each_cache = cores().filter(|cpu| seen.insert(cpu.cache)).map(|cpu| cpu.id).collect();
        let mut candidates = vec![one_cache, each_cache];
        if topology.cache_count() == 1 {
            candidates.clear();
        }
        candidates.push(cores().map(|cpu| cpu.id).collect());
        candidates.push(topology.cpus().map(|cpu| cpu.id).collect());
        let mut configs: Vec<Config> = Vec::new();
        for config in candidates.into_iter().map(|cpus| Config::of(topology, cpus)) {
            if configs.iter().all(|other| other.name != config.name) {
                configs.push(config);
            }
        }
        configs
    }
}
