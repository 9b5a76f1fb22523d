//! [`Config`]: which CPUs of a machine take part.

use std::collections::BTreeSet;

use coreline_topology::{CpuId, Topology};

/// The CPUs of a machine that take part. Its name says them: `24-core/24-L3` is 24 cores under 24
/// L3 caches, one hardware thread of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) cpus: Vec<CpuId>,
    /// How many last-level caches these CPUs have; 0 where that is not known.
    pub(crate) caches: usize,
}

impl Config {
    /// These CPUs of a machine of which nothing else is known.
    pub(crate) fn of_unknown(cpus: Vec<CpuId>) -> Config {
        Config { name: format!("{}-CPU", cpus.len()), cpus, caches: 0 }
    }

    /// These CPUs of this machine. A tree that was made up says nothing of caches.
    pub(crate) fn here(topology: &Topology, is_known: bool, cpus: Vec<CpuId>) -> Config {
        if is_known { Config::of(topology, cpus) } else { Config::of_unknown(cpus) }
    }

    /// These CPUs of a machine, and their name. CPUs that the topology does not know count as a
    /// core each.
    pub(crate) fn of(topology: &Topology, cpus: Vec<CpuId>) -> Config {
        let known = || cpus.iter().filter_map(|&cpu| topology.cpu(cpu));
        let cores = known().map(|cpu| cpu.core).collect::<BTreeSet<_>>().len();
        let caches = known().map(|cpu| cpu.cache).collect::<BTreeSet<_>>().len();
        let unit = if cores < known().count() { "thread" } else { "core" };
        Config { name: format!("{}-{unit}/{caches}-L3", cpus.len()), cpus, caches }
    }

    /// The configurations of a machine: the cores of one L3, one core of each L3, all cores, all
    /// hardware threads; each once, where the machine has more than one L3 or thread.
    pub(crate) fn all(topology: &Topology) -> Vec<Config> {
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

#[cfg(test)]
mod tests {
    use coreline_sim::Spec;

    use super::*;

    #[test]
    fn a_tree_that_was_made_up_says_nothing_of_caches() {
        let topology = Topology::flat(&"0-1".parse().unwrap()).unwrap();
        let cpus = || [0, 1].map(CpuId::new).to_vec();
        let known = Config::here(&topology, true, cpus());
        assert_eq!((known.name.as_str(), known.caches), ("2-core/1-L3", 1));
        let unknown = Config::here(&topology, false, cpus());
        assert_eq!((unknown.name.as_str(), unknown.caches), ("2-CPU", 0));
    }

    #[test]
    fn the_published_configurations_are_those_of_the_machine() {
        let spec = Spec::preset("epyc-9654-2s").unwrap();
        let configs = Config::all(spec.topology());
        let names: Vec<_> = configs.iter().map(|config| config.name.as_str()).collect();
        assert_eq!(names, ["8-core/1-L3", "24-core/24-L3", "192-core/24-L3", "384-thread/24-L3"]);
        assert_eq!(configs[1].cpus[..3], [0, 8, 16].map(CpuId::new));
        assert_eq!(configs[2].cpus.last(), Some(&CpuId::new(191)));
        let caches: Vec<_> = configs.iter().map(|config| config.caches).collect();
        assert_eq!(caches, [1, 24, 24, 24]);
    }

    #[test]
    fn a_machine_with_one_cache_is_run_whole_and_once() {
        let spec = Spec::preset("host-2c").unwrap();
        let configs = Config::all(spec.topology());
        assert_eq!(configs.len(), 1);
        assert_eq!(configs[0].name, "2-core/1-L3");
    }
}
