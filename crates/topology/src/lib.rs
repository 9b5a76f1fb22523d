//! The parts of a machine as plain values. These are the numbers of CPUs, nodes and caches, sets of
//! CPUs, the tree of shared parts, and the limits of a process.
//!
//! | type | is |
//! |---|---|
//! | [`CpuId`], [`NodeId`], [`CacheId`], [`Cid`] | numbers that cannot be confused |
//! | [`CpuSet`] | a set of CPUs, read and written as a Linux CPU list |
//! | [`Topology`] | the tree: sockets, nodes, caches, clusters, cores, hardware threads |
//! | [`CoreKind`] | the kind of core that a CPU belongs to, if a machine mixes several |
//! | [`Shape`] | a regular machine in five counts, for simulation and tests |
//! | [`allowed_cpus`] | the CPUs on which the kernel lets a process run |
//! | [`CgroupLimits`], [`Quota`] | the CPUs and the processor time that control groups let it use |
//!
//! No type shares data between threads or queries the running system. Values are created from a
//! [`Shape`], or from the text of files below a folder that the caller names. The folder is `/sys`
//! or `/` for the running machine, or a copy of `/sys` or `/`.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use coreline_topology::{CacheId, Topology};
//!
//! let machine = Topology::from_sysfs(Path::new("/sys"))?;
//! for cache in 0..machine.cache_count() as u32 {
//!     let cache = CacheId::new(cache);
//!     println!("{cache} is shared by CPUs {}", machine.cpus_of_cache(cache));
//! }
//! # Ok::<(), coreline_topology::SysfsError>(())
//! ```

#![forbid(unsafe_code)]

mod affinity;
mod cgroup;
mod cpuset;
mod files;
mod ids;
mod kind;
mod node;
mod shape;
mod sysfs;
mod topology;

pub use affinity::{allowed_cpus, possible_cpus, resident_memory, thread_time};
pub use cgroup::{CgroupLimits, Quota};
pub use cpuset::{CpuListProblem, CpuSet, ParseCpuListError};
pub use files::FileError;
pub use ids::{CacheId, Cid, CpuId, MAX_CPUS, NodeId};
pub use kind::CoreKind;
pub use shape::{Shape, ShapeError};
pub use sysfs::SysfsError;
pub use topology::{Cpu, Distance, Topology};

/// The example of README.md, unchanged.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
