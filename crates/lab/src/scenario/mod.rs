//! Scenarios: what to run, as data and as programs that are generic over their world.

pub(crate) mod intermittent;
pub(crate) mod shootdown;
pub(crate) mod switchstorm;
pub(crate) mod tenants;
pub(crate) mod threadstorm;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::SplitWhitespace;

use clap::ValueEnum;
use coreline::cid::Policy;
use coreline_sim::Kernel;
use coreline_topology::{CpuId, Topology};
use coreline_world::SpawnError;
use rand_core::Rng;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use crate::kernel::{Clustered, FirstFit, Owned, Recent, Scan, Space};

/// The scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Bursts of increments on per-CPU memory, far apart in time (seed 000)
    Intermittent,
    /// Threads of one domain, one on each CPU, that alternate with idle (seed 003)
    Switchstorm,
    /// Updates that must reach all present contexts, among others that are away (seed 003)
    Shootdown,
    /// Threads created and ended at a high rate: what their concurrency IDs cost (Linux 6.19)
    Threadstorm,
    /// Counters of ten thousand tenants with few tasks each (seed 000)
    Tenants,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_name(self, f)
    }
}

/// The alternatives that scenarios compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Variant {
    /// intermittent, tenants: per-CPU memory indexed by the CPU's number
    CpuId,
    /// intermittent, natively: indexed by the concurrency ID of this machine's kernel. threadstorm,
    /// natively: threads of this machine's kernel
    KernelCid,
    /// intermittent, simulated: indexed by a concurrency ID, the lowest that is free.
    /// threadstorm, as the next three: IDs are handed out so
    FirstFit,
    /// intermittent, simulated: indexed by a concurrency ID, the CPU's recent one if that is free
    Recent,
    /// intermittent, simulated: indexed by a concurrency ID that the thread owns, or its CPU where
    /// threads are many
    Owned,
    /// intermittent, simulated: indexed by a concurrency ID of the CPU's last-level cache
    Clustered,
    /// switchstorm: the CPU's bit is set by a locked instruction at each switch-in
    AlwaysSet,
    /// switchstorm: the same mask; the bit is tested first
    TestFirst,
    /// switchstorm: as test-first, and flushes clear bits once a second at most. shootdown: bits
    /// of contexts that are away are cleared, so that updates pass them by
    Lazy,
    /// switchstorm: as lazy, with a reference to the domain for each CPU that idles
    Refcounted,
    /// switchstorm: as test-first, on the library's mask of two levels
    TwoLevel,
    /// shootdown: bits are never cleared, so that updates reach every context that registered
    Eager,
    /// threadstorm: no IDs are handed out
    #[value(name = "none")]
    NoIds,
    /// tenants: a slot for each concurrency ID of the tenant's domain, handed out as by recent
    Domain,
    /// tenants: the same, as by clustered
    DomainClustered,
    /// tenants: entries of a map in parts with a lock each
    Sharded,
    /// tenants: a line that all CPUs add to
    Atomic,
}

impl Variant {
    /// The simulated kernel that the variant runs under, on such a machine. `cpu-id` has that of
    /// the seed's "before" and does not use it. `None` where none is installed, and on a machine
    /// that is too large.
    pub(crate) fn kernel(self, topology: &Topology, scan: Scan) -> Option<Box<dyn Kernel>> {
        fn of<P: Policy>(topology: &Topology, scan: Scan) -> Option<Box<dyn Kernel>> {
            Some(Box::new(Space::<P>::new(topology, scan).ok()?))
        }
        match self {
            Variant::CpuId | Variant::FirstFit => of::<FirstFit>(topology, scan),
            Variant::Recent => of::<Recent>(topology, scan),
            Variant::Owned => of::<Owned>(topology, scan),
            Variant::Clustered => of::<Clustered>(topology, scan),
            _ => None,
        }
    }

    /// What a replay line calls that kernel.
    pub(crate) fn kernel_name(self, scan: Scan) -> Option<String> {
        match self {
            Variant::CpuId | Variant::FirstFit => Some(Space::<FirstFit>::name_with(scan)),
            Variant::Recent => Some(Space::<Recent>::name_with(scan)),
            Variant::Owned => Some(Space::<Owned>::name_with(scan)),
            Variant::Clustered => Some(Space::<Clustered>::name_with(scan)),
            _ => None,
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_name(self, f)
    }
}

/// The name on the command line is the name everywhere.
pub(crate) fn fmt_name<T: ValueEnum>(value: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    value.to_possible_value().map_or(Ok(()), |name| f.write_str(name.get_name()))
}

/// A value that a figure depends on, besides its configuration and variant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Param {
    Number(u64),
    Name(String),
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Param::Number(number) => write!(f, "{number}"),
            Param::Name(name) => f.write_str(name),
        }
    }
}

/// By name, with the unit in it: `delay_ms`.
pub(crate) type Params = BTreeMap<&'static str, Param>;

/// What a replay line calls one run of a scenario: all that the run depends on besides what the
/// line says itself. Displays as it is parsed.
pub(crate) trait Program: Clone + fmt::Display + Send + Sync + 'static {
    /// How a program is written.
    const FORM: &str;

    /// `None` if the text names another scenario, or is not written as [`FORM`](Program::FORM).
    fn parse(text: &str) -> Option<Self>;

    /// The configuration's name.
    fn config(&self) -> &str;

    fn variant(&self) -> Variant;

    fn params(&self) -> Params;
}

/// The words of a program: the scenario's name, then `key=value` in a fixed order.
pub(crate) struct Keys<'a>(SplitWhitespace<'a>);

impl<'a> Keys<'a> {
    /// `None` if the program is not one of this scenario.
    pub(crate) fn of(scenario: Scenario, text: &'a str) -> Option<Self> {
        let mut words = text.split_whitespace();
        (words.next()? == scenario.to_string()).then_some(Keys(words))
    }

    pub(crate) fn text(&mut self, key: &str) -> Option<&'a str> {
        self.0.next()?.strip_prefix(key)?.strip_prefix('=')
    }

    pub(crate) fn number(&mut self, key: &str, most: u64) -> Option<u64> {
        self.text(key)?.parse().ok().filter(|&number| number <= most)
    }

    pub(crate) fn name<T: ValueEnum>(&mut self, key: &str) -> Option<T> {
        T::from_str(self.text(key)?, false).ok()
    }

    pub(crate) fn end(mut self) -> Option<()> {
        self.0.next().is_none().then_some(())
    }
}

/// Puts items into a random order (Fisher and Yates).
pub(crate) fn shuffle<T>(items: &mut [T], dice: &mut Pcg64) {
    for last in (1..items.len()).rev() {
        // The high half of a 64 x 64 bit product: below `last + 1`, and biased by less than 2^-51.
        let drawn = (u128::from(dice.next_u64()) * (last as u128 + 1)) >> 64;
        items.swap(last, drawn as usize);
    }
}

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The world cannot do this.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The world cannot do this.
    #[error("{0}")]
    Lack(String),
    /// The run's own check failed.
    #[error("{0}")]
    Check(String),
}

impl From<intermittent::IntermittentError> for RunError {
    fn from(broken: intermittent::IntermittentError) -> RunError {
        if broken.is_lack() {
            RunError::Lack(broken.to_string())
        } else {
            RunError::Check(broken.to_string())
        }
    }
}

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
