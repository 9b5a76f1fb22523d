//! What this machine offers to the native world, as the world itself found it.
//!
//! Everything but the kernel's release, which is there for the reader, was found by trying.

use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use std::env;
use std::sync::Arc;

use coreline_topology::{Cid, CpuSet, SysfsError, Topology};

use crate::native::rseq::{self, NoSections, Registration};
use crate::native::{Native, affinity, fences, place};
use crate::{Parked, Sleep};

/// What this machine offers, from [`probe`]. Plain data, for reports.
///
/// ```
/// let machine = coreline_world::native::probe();
/// match &machine.sections {
///     Ok(()) => println!("restartable operations run in rseq sections"),
///     Err(why) => println!("restartable operations run on atomics: {why}"),
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Probe {
    /// The kernel's release, as `uname -r` prints it. Nothing is derived from it.
    pub kernel: String,
    /// The rseq area that the C library registers for each thread; `None` if it knows no rseq. Only
    /// glibc, from version 2.35 on, does.
    pub registration: Option<Registration>,
    /// How many bytes of an rseq area the kernel fills in; 0 if it does not say.
    pub feature_size: u64,
    /// The alignment in bytes that the kernel asks of an rseq area; 0 if it does not say.
    pub area_align: u64,
    /// The value of `CORELINE_RSEQ` in the environment. `off` switches rseq off, and nothing else
    /// does anything.
    pub switch: Option<String>,
    /// Whether restartable operations run in rseq sections (the self-test passed), or why they run
    /// on atomics.
    pub sections: Result<(), NoSections>,
    /// The calling thread's concurrency ID, if the kernel keeps them.
    pub mm_cid: Option<Cid>,
    /// The commands of `membarrier` that the kernel has.
    pub membarrier: Vec<&'static str>,
    /// Whether the light fence is a compiler fence and the heavy one `membarrier`; else both are
    /// full.
    pub asymmetric_fences: bool,
    /// Whether restartable operations can be fenced where they run in rseq sections.
    pub restartable_fence: bool,
    /// Whether the futex compares, sleeps not, and wakes nobody when it should.
    pub futex: bool,
    /// The CPUs that the calling thread may use, or why they are not known.
    pub allowed: Result<CpuSet, String>,
    /// The machine's tree.
    pub topology: Arc<Topology>,
    /// Why the tree is a flat one of one node, where sysfs could not be read.
    pub topology_error: Option<&'static SysfsError>,
}

/// Asks this machine what it offers.
///
/// Settles the process's choices (rseq or atomics, the fences) if nothing did before; a first call
/// takes some milliseconds, for the self-test of rseq.
pub fn probe() -> Probe {
    let (feature_size, area_align) = rseq::auxiliary();
    let (topology, topology_error) = place::tree();
    Probe {
        kernel: kernel_release(),
        registration: rseq::registration(),
        feature_size,
        area_align,
        switch: env::var_os(rseq::SWITCH).map(|value| value.to_string_lossy().into_owned()),
        sections: rseq::sections().map(drop).map_err(NoSections::clone),
        mm_cid: rseq::cid(),
        membarrier: fences::commands(),
        asymmetric_fences: fences::by_membarrier(),
        restartable_fence: fences::aborts_sections(),
        futex: futex_compares(),
        allowed: affinity::allowed().map_err(|error| error.to_string()),
        topology: Arc::clone(topology),
        topology_error: topology_error.as_ref(),
    }
}

fn kernel_release() -> String {
    // SAFETY: zeros are a valid `utsname`, which the call fills with C strings. It cannot fail, and
    // if it did, the release would be the empty string.
    let release = unsafe {
        let mut names: libc::utsname = core::mem::zeroed();
        libc::uname(&raw mut names);
        CStr::from_ptr(names.release.as_ptr()).to_owned()
    };
    release.to_string_lossy().into_owned()
}

fn futex_compares() -> bool {
    let word = AtomicU32::new(0);
    Native::park(&word, 1, None) == Parked::Changed && Native::wake(&raw const word, 1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_agrees_with_what_is_used() {
        let machine = probe();
        assert_eq!(machine.sections.is_ok(), rseq::sections().is_ok());
        assert_eq!(machine.mm_cid.is_some(), rseq::cid().is_some());
        assert!(machine.futex);
        assert!(machine.allowed.is_ok_and(|cpus| !cpus.is_empty()));
        assert!(!machine.kernel.is_empty());
        if machine.asymmetric_fences {
            assert!(machine.membarrier.contains(&"PRIVATE_EXPEDITED"), "{:?}", machine.membarrier);
        }
        // What the C library did not register cannot be used.
        if machine.registration.is_none_or(|area| area.size == 0) {
            assert!(machine.sections.is_err() && machine.mm_cid.is_none());
        }
    }
}
