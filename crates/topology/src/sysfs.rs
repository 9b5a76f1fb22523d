//! Reading a [`Topology`] from a sysfs folder.
//!
//! The files are those of the kernel's `Documentation/admin-guide/cputopology.rst` and
//! `Documentation/ABI/{testing/sysfs-devices-system-cpu,stable/sysfs-devices-node}`. Containers and
//! sandboxes leave some of them out, so each has a fallback; a file that is there and wrong is an
//! error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;

use crate::cpuset::{CpuListProblem, CpuSet, ParseCpuListError, number};
use crate::ids::{CacheId, CpuId, MAX_CPUS, NodeId};
use crate::topology::{Cpu, Topology};

/// A sysfs folder does not describe a machine.
#[derive(Debug, Error)]
pub enum SysfsError {
    /// A file or folder is there but cannot be read as text.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// What was read.
        path: PathBuf,
        /// Why that failed.
        source: io::Error,
    },
    /// A file should hold a CPU list and holds something else.
    #[error("{} is no CPU list: {source}", path.display())]
    CpuList {
        /// The file.
        path: PathBuf,
        /// The part that is wrong.
        source: ParseCpuListError,
    },
    /// A file, or the name of a folder, should hold a number and holds something else.
    #[error("{}: found {found:?}, expected {expected}", path.display())]
    Number {
        /// The file or folder.
        path: PathBuf,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: String,
    },
    /// No CPU is online.
    #[error("{} names no online CPU; is this the folder where sysfs is mounted?", path.display())]
    NoCpus {
        /// The folder of the CPUs.
        path: PathBuf,
    },
}

impl Topology {
    /// Reads the tree of a machine below `root`, the folder that holds `devices/system/cpu` (`/sys`
    /// on a running Linux).
    ///
    /// | asked | file below `devices/system` | where it is missing |
    /// |---|---|---|
    /// | online CPUs | `cpu/online` | the folders `cpu/cpuN` |
    /// | highest possible CPU | `cpu/possible` | the highest online CPU |
    /// | core | `cpu/cpuN/topology/{core_id,die_id}` | every CPU is a core |
    /// | socket | `cpu/cpuN/topology/physical_package_id` | one socket |
    /// | last-level cache | `cpu/cpuN/cache/indexM/` | one cache per socket |
    /// | memory node | `node/nodeN/cpulist` | one node, number 0 |
    ///
    /// The last-level cache is the one of the highest `level` whose `type` is `Unified` or `Data`.
    /// A negative number counts as missing: the kernel writes it where it does not know.
    /// An online CPU that no node lists is counted to the lowest node that lists any.
    ///
    /// # Errors
    ///
    /// Where no CPU is online, or a file that is there cannot be read or does not hold what it
    /// should; the error names the file.
    pub fn from_sysfs(root: &Path) -> Result<Self, SysfsError> {
        let system = root.join("devices/system");
        let cpu_dir = system.join("cpu");
        let online = match cpu_list(&cpu_dir.join("online"))? {
            Some(online) => online,
            None => numbered(&cpu_dir, "cpu")?.into_keys().map(CpuId::new).collect(),
        };
        if online.is_empty() {
            return Err(SysfsError::NoCpus { path: cpu_dir });
        }
        let possible = cpu_list(&cpu_dir.join("possible"))?.unwrap_or_default();
        let limit = possible.last().map_or(0, |cpu| cpu.index() + 1);

        let node_of = nodes(&system.join("node"))?;
        let default_node = node_of.values().min().copied().unwrap_or(NodeId::new(0));
        let mut sockets = Dense::default();
        let mut caches = Dense::default();
        let mut cores = Dense::default();
        let mut threads = BTreeMap::new();
        let mut cpus = Vec::with_capacity(online.len());
        for id in online.iter() {
            let dir = cpu_dir.join(format!("cpu{}", id.get()));
            let socket = sockets.number(known(&dir.join("topology/physical_package_id"))?);
            let core = cores.number(core_key(&dir.join("topology"), id, socket)?);
            let cache = caches.number(cache_key(&dir.join("cache"), socket)?);
            let siblings = threads.entry(core).or_insert(0);
            let thread = *siblings;
            *siblings += 1;
            let node = node_of.get(&id).copied().unwrap_or(default_node);
            cpus.push(Cpu { id, core, thread, cache: CacheId::new(cache), node, socket });
        }
        Ok(Self::new(&cpus, limit))
    }
}

/// Gives dense numbers to keys, in the order in which they are first seen.
struct Dense<K>(BTreeMap<K, u32>);

impl<K> Default for Dense<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Dense<K> {
    fn number(&mut self, key: K) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(key).or_insert(next)
    }
}

/// What the CPUs of one core have in common and no other CPU has.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CoreKey {
    /// The kernel's core numbers repeat from die to die and from socket to socket.
    Numbered {
        socket: u32,
        die: Option<u32>,
        core: u32,
    },
    Alone(CpuId),
}

fn core_key(topology: &Path, cpu: CpuId, socket: u32) -> Result<CoreKey, SysfsError> {
    let die = known(&topology.join("die_id"))?;
    Ok(match known(&topology.join("core_id"))? {
        Some(core) => CoreKey::Numbered { socket, die, core },
        None => CoreKey::Alone(cpu),
    })
}

/// What the CPUs of one last-level cache have in common and no other CPU has.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CacheKey {
    /// Last-level caches share no CPU, so that the lowest CPU of one names it.
    Lowest(CpuId),
    WholeSocket(u32),
}

fn cache_key(caches: &Path, socket: u32) -> Result<CacheKey, SysfsError> {
    let mut last = CacheKey::WholeSocket(socket);
    let mut last_level = 0;
    for dir in numbered(caches, "index")?.into_values() {
        let kind = text(&dir.join("type"))?;
        let level = known(&dir.join("level"))?.unwrap_or(0);
        let shared = cpu_list(&dir.join("shared_cpu_list"))?.unwrap_or_default();
        if let (Some("Unified" | "Data"), Some(cpu)) = (kind.as_deref(), shared.first())
            && level > last_level
        {
            last = CacheKey::Lowest(cpu);
            last_level = level;
        }
    }
    Ok(last)
}

/// The node of every CPU that a node lists.
fn nodes(dir: &Path) -> Result<BTreeMap<CpuId, NodeId>, SysfsError> {
    let mut node_of = BTreeMap::new();
    for (number, dir) in numbered(dir, "node")? {
        for cpu in cpu_list(&dir.join("cpulist"))?.unwrap_or_default().iter() {
            node_of.entry(cpu).or_insert(NodeId::new(number));
        }
    }
    Ok(node_of)
}

/// The entries of a folder whose names are `prefix` and a number, by that number; none where there
/// is no such folder.
fn numbered(dir: &Path, prefix: &str) -> Result<BTreeMap<u32, PathBuf>, SysfsError> {
    let failed = |source| SysfsError::Read { path: dir.to_owned(), source };
    let Some(entries) = present(fs::read_dir(dir)).map_err(failed)? else {
        return Ok(BTreeMap::new());
    };
    let mut found = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name.strip_prefix(prefix).map(number) {
            Some(Ok(number)) => {
                found.insert(number, path);
            }
            Some(Err(CpuListProblem::TooLarge)) => {
                let expected = format!("{prefix} and a number below {MAX_CPUS}");
                return Err(SysfsError::Number { found: name.to_owned(), expected, path });
            }
            // Other names start alike: `cpufreq` stands among the folders `cpuN`.
            _ => {}
        }
    }
    Ok(found)
}

/// The number in a file; `None` where the file is missing or the number is negative.
fn known(path: &Path) -> Result<Option<u32>, SysfsError> {
    let Some(found) = text(path)? else {
        return Ok(None);
    };
    match found.parse::<i64>() {
        Ok(number) if number < 0 => Ok(None),
        Ok(number) if number <= i64::from(u32::MAX) => Ok(Some(number as u32)),
        _ => {
            let expected = "a number of at most 32 bits".to_owned();
            Err(SysfsError::Number { path: path.to_owned(), found, expected })
        }
    }
}

/// The CPU list in a file; `None` where the file is missing.
fn cpu_list(path: &Path) -> Result<Option<CpuSet>, SysfsError> {
    let list = text(path)?.map(|list| list.parse()).transpose();
    list.map_err(|source| SysfsError::CpuList { path: path.to_owned(), source })
}

/// The text of a file without white space around it; `None` where the file is missing.
fn text(path: &Path) -> Result<Option<String>, SysfsError> {
    match present(fs::read_to_string(path)) {
        Ok(text) => Ok(text.map(|text| text.trim().to_owned())),
        Err(source) => Err(SysfsError::Read { path: path.to_owned(), source }),
    }
}

/// `None` for what is not there, so that only what is there and unreadable is an error.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
