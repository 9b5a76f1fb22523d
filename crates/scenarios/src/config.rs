//! [`Config`]: the CPUs of a machine that take part.

use std::collections::BTreeSet;

use coreline_topology::{CpuId, Topology};

/// A set of CPUs of a machine that take part in a run. The name describes the set. For example,
/// `24-core/24-L3` is 24 cores under 24 L3 caches, with one hardware thread per core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The name of the configuration in results and programs.
    pub name: String,
    /// The CPUs in the order in which they get threads.
    pub cpus: Vec<CpuId>,
    /// The number of last-level caches of these CPUs, or 0 if it is unknown.
    pub caches: usize,
}

impl Config {
    /// Creates a configuration of these CPUs, on a machine whose topology is unknown.
    pub fn of_unknown(cpus: Vec<CpuId>) -> Config {
        Config { name: format!("{}-CPU", cpus.len()), cpus, caches: 0 }
    }

    /// Creates a configuration of these CPUs of this machine. If `is_known` is false, the topology
    /// is a placeholder, which says nothing about caches.
    pub fn here(topology: &Topology, is_known: bool, cpus: Vec<CpuId>) -> Config {
        if is_known { Config::of(topology, cpus) } else { Config::of_unknown(cpus) }
    }

    /// Creates a configuration of these CPUs of a machine. Each CPU that the topology does not
    /// contain counts as one core.
    pub fn of(topology: &Topology, cpus: Vec<CpuId>) -> Config {
        let known = || cpus.iter().filter_map(|&cpu| topology.cpu(cpu));
        let cores = known().map(|cpu| cpu.core).collect::<BTreeSet<_>>().len();
        let caches = known().map(|cpu| cpu.cache).collect::<BTreeSet<_>>().len();
        let unit = if cores < known().count() { "thread" } else { "core" };
        Config { name: format!("{}-{unit}/{caches}-L3", cpus.len()), cpus, caches }
    }

    /// Returns the configurations of a machine: the cores of one L3, one core of each L3, all
    /// cores, and all hardware threads. Equal configurations occur only once. The first two are
    /// left out if the machine has only one L3.
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
