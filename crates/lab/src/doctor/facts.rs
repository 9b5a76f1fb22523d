//! The facts about the machine, as plain data. The names of the fields are the keys of the JSON
//! report.

use std::collections::{BTreeMap, BTreeSet};

use coreline_scenarios::Change;
use coreline_topology::{CacheId, CgroupLimits, CpuSet, NodeId, Topology};
use coreline_world::native::{HugePool, NoSections, Probe};
use serde::Serialize;

use super::fast_paths;

#[derive(Debug, Serialize)]
pub(super) struct Kernel {
    /// Empty if not known.
    pub(super) release: String,
    /// How it hands out concurrency IDs, by its release; `null` if that is not known.
    pub(super) cid_policy: Option<&'static str>,
}

/// How kernels hand out concurrency IDs: from which release on, and how. As docs/concurrency-ids.md
/// has it.
const CID_POLICIES: [((u32, u32), &str); 5] = [
    ((6, 19), "owned by threads, or by CPUs if there are more threads than IDs"),
    ((6, 13), "recent: a CPU gets the ID that it had last, if that ID is free"),
    ((6, 4), "the lowest free ID; a CPU keeps an unused ID for 100 ms"),
    ((6, 3), "the lowest free ID"),
    ((0, 0), "none before 6.3"),
];

impl Kernel {
    pub(super) fn of(probe: &Probe) -> Kernel {
        let release = probe.kernel.clone();
        let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(|it| it.parse().ok());
        let version = numbers.next().flatten().zip(numbers.next().flatten());
        let is_since = |version| move |it: &&((u32, u32), &str)| it.0 <= version;
        let policy = version.and_then(|version| CID_POLICIES.iter().find(is_since(version)));
        Kernel { cid_policy: policy.map(|it| it.1), release }
    }

    pub(super) fn shown(&self) -> &str {
        if self.release.is_empty() { "of an unknown release" } else { &self.release }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct KernelChange {
    name: &'static str,
    pub(super) title: &'static str,
    year: u16,
    /// Whether this kernel has it, by its release: `yes`, `no`, `newer` or `?`.
    kernel: &'static str,
}

impl KernelChange {
    pub(super) fn of(change: &Change, release: &str) -> KernelChange {
        KernelChange {
            name: change.name,
            title: change.title,
            year: change.published().year,
            kernel: change.of_kernel(release, std::env::consts::ARCH).word(),
        }
    }

    pub(super) fn shown(&self) -> String {
        let KernelChange { name, title, year, kernel } = self;
        format!("{title} ({year}): {kernel} (coreline explain {name})")
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Tree {
    /// CPUs that are online.
    cpus: usize,
    /// One more than the highest number that a CPU can have.
    cpu_limit: usize,
    /// The CPUs that this process may use, as a CPU list; `null` if not known.
    allowed: Option<String>,
    allowed_error: Option<String>,
    cores: usize,
    l2: usize,
    clusters: usize,
    /// Nodes that have CPUs.
    nodes: usize,
    sockets: usize,
    caches: Vec<Cache>,
    memory_nodes: Vec<Node>,
    kinds: Vec<CoreKind>,
    /// Why the tree is made up.
    error: Option<String>,
}

/// A last-level cache.
#[derive(Debug, Serialize)]
struct Cache {
    id: u32,
    cpus: String,
}

/// A node with CPUs, memory or both.
#[derive(Debug, Serialize)]
struct Node {
    id: u32,
    cpus: String,
    memory: bool,
    /// By the other node's number; 10 is local.
    distances: BTreeMap<u32, u32>,
}

#[derive(Debug, Serialize)]
struct CoreKind {
    name: String,
    cpus: String,
}

impl Tree {
    pub(super) fn of(probe: &Probe, allowed: &Result<CpuSet, String>) -> Tree {
        let tree: &Topology = &probe.topology;
        let cache = |id| Cache { id, cpus: tree.cpus_of_cache(CacheId::new(id)).to_string() };
        let kind =
            |kind| CoreKind { name: format!("{kind}"), cpus: tree.cpus_of_kind(kind).to_string() };
        let nodes: BTreeSet<NodeId> = tree.nodes().chain(tree.memory_nodes()).collect();
        let distances = |from| {
            let far = |&to: &NodeId| Some((to.get(), tree.node_distance(from, to)?));
            nodes.iter().filter_map(far).collect()
        };
        let node = |&id: &NodeId| Node {
            id: id.get(),
            cpus: tree.cpus_of_node(id).to_string(),
            memory: tree.memory_nodes().any(|with| with == id),
            distances: distances(id),
        };
        Tree {
            cpus: tree.cpu_count(),
            cpu_limit: tree.cpu_limit(),
            allowed: allowed.as_ref().ok().map(ToString::to_string),
            allowed_error: allowed.as_ref().err().cloned(),
            cores: tree.core_count(),
            l2: tree.l2_count(),
            clusters: tree.cluster_count(),
            nodes: tree.node_count(),
            sockets: tree.socket_count(),
            caches: (0..tree.cache_count() as u32).map(cache).collect(),
            memory_nodes: nodes.iter().map(node).collect(),
            kinds: tree.kinds().into_iter().map(kind).collect(),
            error: probe.topology_error.map(ToString::to_string),
        }
    }
}

/// The limits of control groups.
#[derive(Debug, Serialize)]
pub(super) struct Limits {
    /// A CPU list; `null` where there is none.
    cpuset: Option<String>,
    quota: Option<Quota>,
    /// Why the two are not known.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Quota {
    cpus: f64,
    /// Rounded up.
    whole_cpus: u64,
    time_us: u128,
    period_us: u128,
}

impl Limits {
    pub(super) fn of(cgroup: &Result<CgroupLimits, String>) -> Limits {
        let known = cgroup.as_ref().ok();
        let quota = known.and_then(|limits| limits.quota).map(|quota| Quota {
            cpus: quota.cpus(),
            whole_cpus: quota.whole_cpus(),
            time_us: quota.time.as_micros(),
            period_us: quota.period.as_micros(),
        });
        let cpuset = known.and_then(|limits| limits.cpus.as_ref()).map(ToString::to_string);
        Limits { cpuset, quota, error: cgroup.as_ref().err().cloned() }
    }

    pub(super) fn quota_said(&self) -> String {
        match (&self.quota, &self.error) {
            (Some(quota), _) => format!("{:.2} CPUs", quota.cpus),
            (None, Some(why)) => format!("not known: {why}"),
            (None, None) => "none that can be seen".to_owned(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Rseq {
    /// `libc`, `coreline` or `none`.
    pub(super) registered_by: String,
    /// `legacy` or `V2`.
    pub(super) abi: Option<String>,
    /// What would change `legacy` to `V2`; `null` if that is so, or if the kernel has no V2.
    pub(super) abi_remedy: Option<&'static str>,
    /// Bytes, as the kernel says; `null` if it does not, or if the thread is not registered.
    pub(super) registered_bytes: Option<u32>,
    /// Bytes, as the C library says; 0 if it registers nothing, `null` if it knows no rseq.
    pub(super) size: Option<u32>,
    /// Bytes that the kernel fills in; 0 if it does not say.
    pub(super) feature_size: u64,
    /// The alignment of such an area, in bytes; 0 if the kernel does not say.
    pub(super) align: u64,
    /// Whether restartable operations run in rseq sections.
    pub(super) usable: bool,
    /// `passed`, or why not or not run.
    pub(super) self_test: String,
    /// The calling thread's concurrency ID.
    pub(super) mm_cid: Option<u32>,
    pub(super) mm_cid_error: Option<String>,
    pub(super) slice_extension: bool,
    /// `CORELINE_RSEQ` in the environment.
    pub(super) coreline_rseq: Option<String>,
}

impl Rseq {
    pub(super) fn of(probe: &Probe) -> Rseq {
        let registrar = probe.registered_by.map(|by| by.to_string());
        Rseq {
            registered_by: registrar.unwrap_or_else(|| "none".to_owned()),
            abi: probe.rseq_abi.map(|abi| abi.to_string()),
            abi_remedy: fast_paths::to_v2(probe),
            registered_bytes: probe.registered_bytes,
            size: probe.registration.map(|area| area.size),
            feature_size: probe.feature_size,
            align: probe.area_align,
            usable: probe.sections.is_ok(),
            self_test: match &probe.sections {
                Ok(()) => "passed".to_owned(),
                Err(NoSections::SelfTest(error)) => error.to_string(),
                Err(why) => format!("not run: {}", fast_paths::why_no_sections(why)),
            },
            mm_cid: probe.mm_cid.map(|cid| cid.get()),
            mm_cid_error: fast_paths::no_cid(probe).map(|(why, _)| why),
            slice_extension: probe.slice_extension,
            coreline_rseq: probe.switch.clone(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Membarrier {
    pub(super) commands: Vec<&'static str>,
    asymmetric_fences: bool,
    restartable_fence: bool,
}

impl Membarrier {
    pub(super) fn of(probe: &Probe) -> Membarrier {
        Membarrier {
            commands: probe.membarrier.clone(),
            asymmetric_fences: probe.asymmetric_fences,
            restartable_fence: probe.restartable_fence,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Futex {
    pub(super) works: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct HugePages {
    /// When ordinary memory gets them: `always`, `madvise`, `never`; `null` if not known.
    pub(super) transparent: Option<String>,
    pub(super) pools: Vec<Pool>,
}

/// Huge pages that the kernel keeps ready, of one size.
#[derive(Debug, Serialize)]
pub(super) struct Pool {
    pub(super) page_kib: u64,
    pub(super) pages: u64,
    pub(super) free: u64,
}

impl HugePages {
    pub(super) fn of(probe: &Probe) -> HugePages {
        let pool = |&HugePool { page_kib, pages, free }: &HugePool| Pool { page_kib, pages, free };
        HugePages {
            transparent: probe.transparent_huge_pages.clone(),
            pools: probe.huge_pools.iter().map(pool).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Processor {
    /// Instructions that wait for a store to a line, and that user programs may run.
    pub(super) wait_instructions: Vec<&'static str>,
}
