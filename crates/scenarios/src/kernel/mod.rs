//! The simulated kernel's work at a thread switch. The kernel hands out concurrency IDs, as
//! [`coreline::cid`] does in programs. That module has the policies and their laws. This module
//! builds a [`Kernel`] from a policy, and defines when it scans ([`Scan`]).

mod space;

use coreline::cid::{Clustered, FirstFit, Owned, Policy, Recent};
use coreline_sim::Kernel;
use coreline_topology::Topology;

pub use space::{Scan, Space};

/// Returns the names of the kernels that have this policy, the default first.
pub fn names(policy: &str) -> Vec<String> {
    [Scan::Tick, Scan::Switch].map(|scan| format!("{policy}:{scan}")).to_vec()
}

/// Creates the kernel with this name for a machine. Returns `None` if there is no such kernel, or
/// if the machine is too large.
pub fn named(name: &str, topology: &Topology) -> Option<Box<dyn Kernel>> {
    fn of<P: Policy>(topology: &Topology, scan: Scan) -> Option<Box<dyn Kernel>> {
        Some(Box::new(Space::<P>::new(topology, scan).ok()?))
    }
    let (policy, scan) = name.split_once(':')?;
    let scan = [Scan::Tick, Scan::Switch].into_iter().find(|it| it.to_string() == scan)?;
    match policy {
        FirstFit::NAME => of::<FirstFit>(topology, scan),
        Recent::NAME => of::<Recent>(topology, scan),
        Owned::NAME => of::<Owned>(topology, scan),
        Clustered::NAME => of::<Clustered>(topology, scan),
        _ => None,
    }
}
