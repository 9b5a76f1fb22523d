//! The features that this machine offers to the native world, as the world itself detected them.
//!
//! Everything except the kernel's release, which is for the reader, was detected by a trial.

use core::ffi::CStr;
use core::fmt;
use core::sync::atomic::AtomicU32;
use std::path::Path;
use std::sync::Arc;

use coreline_topology::{Cid, CpuSet, SysfsError, Topology};

use crate::arch::Area;
use crate::native::Native;
use crate::native::linux::machine::{self, HugePool};
use crate::native::linux::rseq::{self, NoSections, Registration};
use crate::native::linux::{affinity, auxv, extension, fences, place};
use crate::{Lacking, Parked, Sleep};

/// The component that registers the threads of this process for rseq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registrar {
    /// The C library, which registers each thread at its start.
    Libc,
    /// coreline, which registers each thread when the thread first needs rseq.
    Coreline,
}

impl fmt::Display for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Registrar::Libc => "libc",
            Registrar::Coreline => "coreline",
        })
    }
}

/// The kernel's two treatments of a registration, selected by the registration's length.
///
/// Source: `kernel/rseq.c` and `include/linux/rseq.h` of Linux 7.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RseqAbi {
    /// The treatment of a registration of 32 bytes. The kernel writes IDs and checks sections on
    /// every switch and signal.
    Legacy,
    /// The treatment of a registration of more than 32 bytes, on a kernel whose feature size is
    /// larger. The kernel writes IDs only when they change, and checks sections only after an
    /// interrupt or a fault of user code. This ABI includes slice extensions, and a process that
    /// writes an ID field is killed. (On processors without the kernel's generic interrupt entry,
    /// the kernel treats such a registration as a legacy one.)
    V2,
}

impl fmt::Display for RseqAbi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RseqAbi::Legacy => "legacy",
            RseqAbi::V2 => "V2",
        })
    }
}

/// The features that this machine offers, from [`probe`]. It is plain data, for reports.
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
    /// The kernel's release, as `uname -r` prints it. The library derives nothing from it.
    pub kernel: String,
    /// The rseq area that the C library publishes for each thread, or `None` if the C library does
    /// not support rseq.
    pub registration: Option<Registration>,
    /// The component that registers the threads, or `None` if no such component is known.
    pub registered_by: Option<Registrar>,
    /// The kernel's treatment of the registration.
    pub rseq_abi: Option<RseqAbi>,
    /// The number of bytes that are registered for the calling thread, or `None` if none are, or if
    /// the kernel does not answer. This can be more than the C library says are in use.
    pub registered_bytes: Option<u32>,
    /// The number of bytes of an rseq area that the kernel fills in, or 0 if the kernel does not
    /// state it.
    pub feature_size: u64,
    /// The alignment in bytes that the kernel requires of an rseq area of that size, or 0 if the
    /// kernel does not state it.
    pub area_align: u64,
    /// The value of `CORELINE_RSEQ` in the environment: `off` switches rseq off.
    pub switch: Option<String>,
    /// Whether restartable operations run in rseq sections (the self-test passed), or the reason
    /// why they run on atomics.
    pub sections: Result<(), NoSections>,
    /// The calling thread's concurrency ID, if the kernel keeps them.
    pub mm_cid: Option<Cid>,
    /// Whether the calling thread could have time slice extensions: the kernel has them, they are
    /// not switched off, and the thread is registered for the second ABI. No lock of
    /// coreline asks for them.
    pub slice_extension: bool,
    /// The commands of `membarrier` that the kernel supports.
    pub membarrier: Vec<&'static str>,
    /// Whether the light fence is a compiler fence and the heavy fence is `membarrier`. Otherwise,
    /// both are full fences.
    pub asymmetric_fences: bool,
    /// Whether restartable operations can be fenced if they run in rseq sections.
    pub restartable_fence: bool,
    /// Whether the futex works: a wait returns immediately if the word differs from the expected
    /// value, and a wake without waiters returns zero.
    pub futex: bool,
    /// The kernel's policy of backing ordinary memory by huge pages: `always`, `madvise` or
    /// `never`. It is `None` if the kernel does not state the policy.
    pub transparent_huge_pages: Option<String>,
    /// The pools of huge pages, ordered by page size.
    pub huge_pools: Vec<HugePool>,
    /// Whether memory may get huge pages on request, or the reason why not.
    pub huge_pages: Result<(), Lacking>,
    /// Whether memory can be placed on each node that has CPUs, or the reason why not. It is `Ok`
    /// if there is only one node.
    pub placement: Result<(), Lacking>,
    /// The processor's instructions that wait for a store, and that user space may use.
    pub wait_instructions: Vec<&'static str>,
    /// The CPUs that the calling thread may use, or the reason why they are unknown.
    pub allowed: Result<CpuSet, String>,
    /// The machine's tree.
    pub topology: Arc<Topology>,
    /// The reason why sysfs could not be read. It is `None` if sysfs could be read. Otherwise, the
    /// tree is flat and has one node.
    pub topology_error: Option<&'static SysfsError>,
    /// The CPUs of the tree that the caller may use but sysfs does not name.
    pub hidden: CpuSet,
}

/// Detects the features of this machine.
///
/// The call also decides for the whole process whether operations run in rseq sections or on
/// atomics, and whether the heavy fence is `membarrier`. This takes a few milliseconds.
pub fn probe() -> Probe {
    let place::Tree { topology, error, hidden } = place::tree();
    let sections = rseq::sections();
    let registration = rseq::published();
    let feature_size = auxv::rseq_feature_size();
    // Registers the calling thread, if that is up to us.
    let mm_cid = rseq::cid();
    let registered_bytes = rseq::registered_bytes();
    let (registered_by, rseq_abi) = match registration {
        Some(Registration { size: size @ 1.., .. }) => {
            let is_v2 = registered_bytes.unwrap_or(size) > 32 && feature_size > 32;
            (Some(Registrar::Libc), Some(if is_v2 { RseqAbi::V2 } else { RseqAbi::Legacy }))
        }
        _ if sections == Ok(Area::own()) => (Some(Registrar::Coreline), Some(RseqAbi::Legacy)),
        _ => (None, None),
    };
    let mm = Path::new("/sys/kernel/mm");
    let transparent_huge_pages = machine::transparent_huge_pages(mm);
    let several_nodes = topology.node_count() > 1;
    Probe {
        kernel: kernel_release(),
        registration,
        registered_by,
        rseq_abi,
        registered_bytes,
        feature_size,
        area_align: auxv::rseq_align(),
        switch: rseq::switch().map(|value| value.to_string_lossy().into_owned()),
        sections: sections.map(drop).map_err(|why| *why),
        mm_cid,
        slice_extension: registered_by.is_some() && extension::is_available(Area::of_cpu()),
        membarrier: fences::commands(),
        asymmetric_fences: fences::by_membarrier(),
        restartable_fence: fences::aborts_sections(),
        futex: futex_compares(),
        huge_pages: machine::huge_pages(transparent_huge_pages.as_deref()),
        transparent_huge_pages,
        huge_pools: machine::huge_pools(mm),
        placement: if several_nodes { machine::placement(topology) } else { Ok(()) },
        wait_instructions: machine::waits(),
        allowed: affinity::allowed().map_err(|error| error.to_string()),
        topology: Arc::clone(topology),
        topology_error: error.as_ref(),
        hidden: hidden.clone(),
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
        // An area that is not registered cannot be used, and only the legacy ABI is ours.
        assert_eq!(machine.registered_by.is_some(), machine.rseq_abi.is_some());
        if machine.registered_by.is_none() {
            assert!(machine.sections.is_err() && machine.mm_cid.is_none());
            assert_eq!(machine.registered_bytes, None);
        }
        // The kernel knows at least the first area's bytes; more are the second ABI's.
        if let Some(bytes) = machine.registered_bytes {
            assert!(bytes >= 32);
            assert_eq!(machine.rseq_abi == Some(RseqAbi::V2), bytes > 32);
        }
        if machine.registered_by == Some(Registrar::Coreline) {
            assert_eq!(machine.rseq_abi, Some(RseqAbi::Legacy));
            assert!(machine.sections.is_ok());
        }
    }
}
