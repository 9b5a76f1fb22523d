//! Scenarios: what to run, as data and as programs that are generic over their world.

pub(crate) mod intermittent;

use std::collections::BTreeSet;
use std::fmt;

use clap::ValueEnum;
use coreline::cid::Policy;
use coreline_sim::Kernel;
use coreline_topology::{CpuId, Topology};

use crate::kernel::{Clustered, FirstFit, Owned, Recent, Scan, Space};

/// The scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Bursts of increments on per-CPU memory, far apart in time (seed 000)
    Intermittent,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_name(self, f)
    }
}

/// The alternatives that a scenario compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Variant {
    /// Per-CPU memory indexed by the CPU's number
    CpuId,
    /// Natively only: indexed by the concurrency ID of this machine's kernel, whatever its policy
    KernelCid,
    /// Simulated only: indexed by a concurrency ID, the lowest that is free
    FirstFit,
    /// Simulated only: indexed by a concurrency ID, the CPU's recent one if that is free
    Recent,
    /// Simulated only: indexed by a concurrency ID that the thread owns, or its CPU where threads
    /// are many
    Owned,
    /// Simulated only: indexed by a concurrency ID of the CPU's last-level cache
    Clustered,
}

impl Variant {
    /// Those of the native world.
    pub(crate) const NATIVE: [Variant; 2] = [Variant::CpuId, Variant::KernelCid];

    /// Those of a simulated world, whose kernel's policy is ours.
    pub(crate) const SIMULATED: [Variant; 5] =
        [Variant::CpuId, Variant::FirstFit, Variant::Recent, Variant::Owned, Variant::Clustered];

    /// The simulated kernel that the variant runs under, on such a machine. `cpu-id` has the one of
    /// the seed's "before" and does not ask it. `None` for a native variant, or a machine that is
    /// too large.
    pub(crate) fn kernel(self, topology: &Topology, scan: Scan) -> Option<Box<dyn Kernel>> {
        fn of<P: Policy>(topology: &Topology, scan: Scan) -> Option<Box<dyn Kernel>> {
            Some(Box::new(Space::<P>::new(topology, scan).ok()?))
        }
        match self {
            Variant::CpuId | Variant::FirstFit => of::<FirstFit>(topology, scan),
            Variant::Recent => of::<Recent>(topology, scan),
            Variant::Owned => of::<Owned>(topology, scan),
            Variant::Clustered => of::<Clustered>(topology, scan),
            Variant::KernelCid => None,
        }
    }

    /// What a replay line calls that kernel.
    pub(crate) fn kernel_name(self, scan: Scan) -> Option<String> {
        match self {
            Variant::CpuId | Variant::FirstFit => Some(Space::<FirstFit>::name_with(scan)),
            Variant::Recent => Some(Space::<Recent>::name_with(scan)),
            Variant::Owned => Some(Space::<Owned>::name_with(scan)),
            Variant::Clustered => Some(Space::<Clustered>::name_with(scan)),
            Variant::KernelCid => None,
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_name(self, f)
    }
}

/// The name on the command line is the name everywhere.
fn fmt_name<T: ValueEnum>(value: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    value.to_possible_value().map_or(Ok(()), |name| f.write_str(name.get_name()))
}

/// Which CPUs of a machine take part. Named after them: `24-core/24-L3` is 24 cores under 24 L3
/// caches, one hardware thread of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) cpus: Vec<CpuId>,
    /// How many last-level caches these CPUs have.
    pub(crate) caches: usize,
}

impl Config {
    /// These CPUs of a machine, and their name. CPUs that the topology does not know count as a
    /// core each.
    pub(crate) fn of(topology: &Topology, cpus: Vec<CpuId>) -> Config {
        let known = || cpus.iter().filter_map(|&cpu| topology.cpu(cpu));
        let cores = known().map(|cpu| cpu.core).collect::<BTreeSet<_>>().len();
        let caches = known().map(|cpu| cpu.cache).collect::<BTreeSet<_>>().len();
        let unit = if cores < known().count() { "thread" } else { "core" };
        Config { name: format!("{}-{unit}/{caches}-L3", cpus.len()), cpus, caches }
    }

    /// What is run on a machine: the cores of one L3, one core of each L3, all cores, all hardware
    /// threads; each once, where the machine has more than one L3 or thread.
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
