//! Reading a [`Topology`] from a sysfs folder.
//!
//! The files are those of the kernel's `Documentation/admin-guide/cputopology.rst` and
//! `Documentation/ABI/{testing/sysfs-devices-system-cpu,stable/sysfs-devices-node}`. Containers and
//! sandboxes leave some of them out, so each has a fallback. An existing file with wrong content is
//! an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::cpuset::CpuSet;
use crate::files::{FileError, cpu_list, known, numbered, parse_list, text};
use crate::ids::{CacheId, CpuId, MAX_CPUS, NodeId};
use crate::kind::CoreKind;
use crate::node::Nodes;
use crate::topology::{Cpu, Limit, Topology};

/// The error for a sysfs folder that does not describe a machine.
#[derive(Debug, Error)]
pub enum SysfsError {
    /// A file does not have the expected content.
    #[error(transparent)]
    File(#[from] FileError),
    /// No CPU is online.
    #[error("{} names no online CPU; check that sysfs is mounted in this folder", path.display())]
    NoCpus {
        /// The folder of the CPUs.
        path: PathBuf,
    },
}

impl Topology {
    /// Reads the tree of a machine below `root`. `root` is the folder that holds
    /// `devices/system/cpu` (`/sys` on a running Linux).
    ///
    /// | asked | file below `devices/system` | where it is missing |
    /// |---|---|---|
    /// | online CPUs | `cpu/online` | the folders `cpu/cpuN` |
    /// | highest possible CPU | `cpu/possible`, `cpu/kernel_max` | the highest online CPU |
    /// | core | `cpu/cpuN/topology/core_cpus_list`, `thread_siblings_list` | see below |
    /// | second-level cache | `cpu/cpuN/cache/indexM/`, level 2 | each core has its own |
    /// | cluster | `cpu/cpuN/topology/cluster_cpus_list` | the second-level cache |
    /// | last-level cache | `cpu/cpuN/cache/indexM/`, highest level | one cache per socket |
    /// | socket | `cpu/cpuN/topology/physical_package_id` | one socket |
    /// | memory node | `node/nodeN/cpulist` | one node, number 0 |
    /// | nodes with memory | `node/has_memory`, `node/has_normal_memory` | all nodes |
    /// | distance of nodes | `node/nodeN/distance` | 10 to itself, 20 to others |
    /// | kind of core by name | `../cpu_core/cpus`, `cpu_atom`, `cpu_lowpower` | capacity |
    /// | kind by capacity | `cpu/cpuN/cpu_capacity` | all alike |
    ///
    /// If no list states which CPUs are a core's threads, CPUs with the same `core_id` and `die_id`
    /// in one socket count as one core. Without these numbers, every CPU is a core. A cache counts
    /// if its `type` is `Unified` or `Data` and its level at least 2.
    ///
    /// A negative number counts as missing, because the kernel writes it for unknown values. A list
    /// of the CPUs of a second-level cache or a cluster also counts as missing if it lacks some
    /// CPUs of the smaller part within. On a machine without clusters, `cluster_cpus_list` is such
    /// a list. A cluster larger than the last-level cache counts as that cache's domain, as in the
    /// kernel's scheduler (`cpu_coregroup_mask`). An online CPU that no node lists belongs to the
    /// lowest node that lists any CPU.
    ///
    /// The function opens about twenty files for each CPU. It rejects files over 16 MiB and CPU
    /// numbers from [`MAX_CPUS`](crate::MAX_CPUS) on. This limits time and memory.
    ///
    /// # Errors
    ///
    /// An error that names the file, if an existing file cannot be read or has unexpected content.
    /// An error that names the folder of the CPUs, if no CPU is online.
    pub fn from_sysfs(root: &Path) -> Result<Self, SysfsError> {
        let devices = root.join("devices");
        let cpu_dir = devices.join("system/cpu");
        let path = cpu_dir.join("online");
        let online = match text(&path)? {
            Some(list) => parse_list(&path, &list)?,
            None => numbered(&cpu_dir, "cpu")?.into_keys().map(CpuId::new).collect(),
        };
        if online.is_empty() {
            return Err(SysfsError::NoCpus { path: cpu_dir });
        }
        let limit = limit(&cpu_dir)?;
        let kinds = kinds(&devices)?;
        let (nodes, node_of) = nodes(&devices.join("system/node"))?;
        let default_node = node_of.values().min().copied().unwrap_or(NodeId::new(0));

        let mut levels = Levels::new(&online);
        let mut threads = BTreeMap::new();
        let mut cpus = Vec::with_capacity(online.len());
        for id in online.iter() {
            let dir = cpu_dir.join(format!("cpu{}", id.get()));
            let parts = levels.parts(&dir, id)?;
            let siblings = threads.entry(parts.core).or_insert(0);
            let thread = *siblings;
            *siblings += 1;
            let node = node_of.get(&id).copied().unwrap_or(default_node);
            let named = kinds.iter().find(|(_, cpus)| cpus.contains(id)).map(|(kind, _)| *kind);
            let kind = match named {
                Some(kind) => Some(kind),
                None => known(&dir.join("cpu_capacity"))?.map(CoreKind::capacity),
            };
            let kind = kind.unwrap_or_default();
            let Parts { core, l2, cluster, cache, socket } = parts;
            let cache = CacheId::new(cache);
            cpus.push(Cpu { id, core, thread, l2, cluster, cache, node, socket, kind });
        }
        Ok(Self::new(&cpus, limit, nodes))
    }
}

/// How far CPU numbers go.
fn limit(cpu_dir: &Path) -> Result<Limit, FileError> {
    let possible = cpu_list(&cpu_dir.join("possible"))?.and_then(|possible| possible.last());
    let path = cpu_dir.join("kernel_max");
    let last = match possible {
        Some(cpu) => Some(cpu.get()),
        None => known(&path)?,
    };
    match last {
        None => Ok(Limit { cpus: 0, stated: false }),
        Some(last) if last < MAX_CPUS => Ok(Limit { cpus: last as usize + 1, stated: true }),
        Some(last) => {
            let expected = format!("a CPU number below {MAX_CPUS}");
            Err(FileError::malformed(&path, &last.to_string(), expected))
        }
    }
}

/// The CPUs of the kinds that have names.
fn kinds(devices: &Path) -> Result<Vec<(CoreKind, CpuSet)>, FileError> {
    let mut kinds = Vec::new();
    for (name, kind) in [
        ("cpu_core", CoreKind::Performance),
        ("cpu_atom", CoreKind::Efficient),
        ("cpu_lowpower", CoreKind::LowPower),
    ] {
        if let Some(cpus) = cpu_list(&devices.join(name).join("cpus"))? {
            kinds.push((kind, cpus));
        }
    }
    Ok(kinds)
}

/// The nodes with what is known of their memory, and the node of every CPU that a node lists.
fn nodes(dir: &Path) -> Result<(Nodes, BTreeMap<CpuId, NodeId>), FileError> {
    let dirs = numbered(dir, "node")?;
    let mut node_of = BTreeMap::new();
    let mut distances = BTreeMap::new();
    for (&number, dir) in &dirs {
        let from = NodeId::new(number);
        for cpu in cpu_list(&dir.join("cpulist"))?.unwrap_or_default().iter() {
            node_of.entry(cpu).or_insert(from);
        }
        let path = dir.join("distance");
        if let Some(row) = text(&path)? {
            let row = distance_row(&path, &row, dirs.len())?;
            distances.extend(dirs.keys().zip(row).map(|(&to, far)| ((from, NodeId::new(to)), far)));
        }
    }
    let mut with_memory = None;
    for file in ["has_memory", "has_normal_memory"] {
        if with_memory.is_none() {
            with_memory = node_list(&dir.join(file))?;
        }
    }
    let with_memory = with_memory.unwrap_or_else(|| match dirs.is_empty() {
        true => [NodeId::new(0)].into(),
        false => dirs.keys().copied().map(NodeId::new).collect(),
    });
    Ok((Nodes { with_memory, distances, ..Nodes::default() }, node_of))
}

/// The nodes in a file, which have the form of a CPU list.
fn node_list(path: &Path) -> Result<Option<BTreeSet<NodeId>>, FileError> {
    let list = cpu_list(path)?;
    Ok(list.map(|list| list.iter().map(|node| NodeId::new(node.get())).collect()))
}

/// A node's distances to all nodes that are online, by ascending number.
fn distance_row(path: &Path, row: &str, nodes: usize) -> Result<Vec<u32>, FileError> {
    let expected = || format!("a number for each of {nodes} nodes");
    let numbers: Option<Vec<u32>> =
        row.split_whitespace().map(|number| number.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.len() == nodes);
    numbers.ok_or_else(|| FileError::malformed(path, row, expected()))
}

/// The numbers of the parts that one CPU belongs to.
struct Parts {
    core: u32,
    l2: u32,
    cluster: u32,
    cache: u32,
    socket: u32,
}

/// The property that the CPUs of one part have in common and no other CPU has.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Parts of one level share no CPU, so that the lowest online CPU of one names it.
    Lowest(CpuId),
    /// The kernel's number of a socket.
    Socket(Option<u32>),
    /// The kernel's core numbers repeat from die to die and from socket to socket.
    Core { socket: u32, die: Option<u32>, core: u32 },
}

/// The parts of one level that were met so far: their numbers, and the first CPU of each.
#[derive(Default)]
struct Level {
    numbers: BTreeMap<Key, u32>,
    first: Vec<CpuId>,
}

impl Level {
    /// The number of the part that holds this CPU. CPUs come in ascending order.
    fn number(&mut self, key: Key, id: CpuId) -> u32 {
        let Self { numbers, first } = self;
        *numbers.entry(key).or_insert_with(|| {
            first.push(id);
            first.len() as u32 - 1
        })
    }

    /// The key of a part of the next level that is one part of this level.
    fn same(&self, number: u32) -> Key {
        Key::Lowest(self.first[number as usize])
    }
}

/// The parts of a machine that were met so far.
struct Levels<'a> {
    online: &'a CpuSet,
    sockets: Level,
    cores: Level,
    l2s: Level,
    clusters: Level,
    caches: Level,
}

impl<'a> Levels<'a> {
    fn new(online: &'a CpuSet) -> Self {
        let [sockets, cores, l2s, clusters, caches] = Default::default();
        Self { online, sockets, cores, l2s, clusters, caches }
    }

    /// The parts of one CPU, from the smallest to the largest. `within` are the CPUs known to be in
    /// the part at hand, which the next larger part must hold.
    fn parts(&mut self, dir: &Path, id: CpuId) -> Result<Parts, FileError> {
        let topology = dir.join("topology");
        let lowest = |cpus: &CpuSet| Key::Lowest(cpus.first().unwrap_or(id));
        let mut within: CpuSet = [id].into_iter().collect();

        let socket = Key::Socket(known(&topology.join("physical_package_id"))?);
        let socket = self.sockets.number(socket, id);

        let core = match self.sharing(&topology, &["core_cpus_list", "thread_siblings_list"], id)? {
            Some(core) => {
                within = core;
                lowest(&within)
            }
            None => match known(&topology.join("core_id"))? {
                Some(core) => Key::Core { socket, die: known(&topology.join("die_id"))?, core },
                None => Key::Lowest(id),
            },
        };
        let core = self.cores.number(core, id);

        let mut caches = self.data_caches(&dir.join("cache"), id)?;
        let last = caches.last_key_value().map(|(_, last)| last.clone());
        let l2 = match caches.remove(&2).filter(|l2| within.is_subset(l2)) {
            Some(l2) => {
                within = l2;
                lowest(&within)
            }
            None => self.cores.same(core),
        };
        let l2 = self.l2s.number(l2, id);

        let cluster = self.sharing(&topology, &["cluster_cpus_list"], id)?;
        let cluster = match cluster.filter(|cluster| within.is_subset(cluster)) {
            Some(cluster) => {
                within = cluster;
                lowest(&within)
            }
            None => self.l2s.same(l2),
        };
        let cluster = self.clusters.number(cluster, id);

        let cache = match last {
            Some(last) if last.is_subset(&within) => self.clusters.same(cluster),
            Some(last) => lowest(&last),
            None => self.sockets.same(socket),
        };
        let cache = self.caches.number(cache, id);
        Ok(Parts { core, l2, cluster, cache, socket })
    }

    /// The online CPUs that share something with this one: the list in the first of these files
    /// that is there.
    fn sharing(&self, dir: &Path, files: &[&str], id: CpuId) -> Result<Option<CpuSet>, FileError> {
        for file in files {
            let path = dir.join(file);
            if let Some(cpus) = cpu_list(&path)? {
                if !cpus.contains(id) {
                    let expected = format!("a CPU list with {}, the CPU of this file", id.get());
                    return Err(FileError::malformed(&path, &cpus.to_string(), expected));
                }
                return Ok(Some(cpus.intersection(self.online)));
            }
        }
        Ok(None)
    }

    /// The CPUs that share a CPU's caches of data, by level, from the second on: a first-level
    /// cache is shared within a core at most.
    fn data_caches(&self, dir: &Path, id: CpuId) -> Result<BTreeMap<u32, CpuSet>, FileError> {
        let mut caches = BTreeMap::new();
        for dir in numbered(dir, "index")?.into_values() {
            let kind = text(&dir.join("type"))?;
            let level = known(&dir.join("level"))?.unwrap_or(0);
            let cpus = self.sharing(&dir, &["shared_cpu_list"], id)?;
            if let (Some("Unified" | "Data"), Some(cpus), 2..) = (kind.as_deref(), cpus, level) {
                caches.insert(level, cpus);
            }
        }
        Ok(caches)
    }
}
