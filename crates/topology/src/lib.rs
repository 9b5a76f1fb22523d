//! What a machine is made of, as plain values: the numbers of its CPUs, nodes and caches, sets of
//! CPUs, and the tree that says which CPUs share what.
//!
//! | type | is |
//! |---|---|
//! | [`CpuId`], [`NodeId`], [`CacheId`], [`Cid`] | a number that cannot be taken for another kind |
//! | [`CpuSet`] | a set of CPUs, read and written as a Linux CPU list |
//! | [`Topology`] | the tree: sockets, nodes, caches, cores, hardware threads |
//! | [`Shape`] | a regular machine in five counts, for simulation and tests |
//!
//! Nothing here is shared between threads or asks the running system: a tree comes from a
//! [`Shape`] or from the text of a sysfs folder that the caller names.
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

mod cpuset;
mod ids;
mod shape;
mod sysfs;
mod topology;

pub use cpuset::{CpuListProblem, CpuSet, ParseCpuListError};
pub use ids::{CacheId, Cid, CpuId, MAX_CPUS, NodeId};
pub use shape::{Shape, ShapeError};
pub use sysfs::SysfsError;
pub use topology::{Cpu, Distance, Topology};
