//! Features of the kernel and the processor beyond the world's capabilities, for
//! [`Probe`](super::Probe).

use core::alloc::Layout;
use core::ptr::NonNull;
use std::path::Path;
use std::{fs, io};

use coreline_topology::Topology;

use crate::native::Native;
use crate::native::host::keeping_errno;
use crate::{Lacking, Memory, Why, World};

/// A pool of huge pages of one size that the kernel reserves (`hugetlb`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePool {
    /// The size of one page in KiB.
    pub page_kib: u64,
    /// The number of pages in the pool.
    pub pages: u64,
    /// The number of free pages in the pool.
    pub free: u64,
}

/// When the kernel backs ordinary memory by huge pages: `always`, `madvise` or `never`; `None` if
/// it does not say.
pub(crate) fn transparent_huge_pages(mm: &Path) -> Option<String> {
    chosen(&fs::read_to_string(mm.join("transparent_hugepage/enabled")).ok()?)
}

/// Whether huge pages can be asked for and are given, where the kernel's [mode] is this.
///
/// [mode]: transparent_huge_pages
pub(crate) fn huge_pages(mode: Option<&str>) -> Result<(), Lacking> {
    const CAPABILITY: &str = "huge pages";
    /// `PR_GET_THP_DISABLE` says: not even where asked for.
    const NEVER: libc::c_int = 1;
    const UNUSED: libc::c_ulong = 0;
    // SAFETY: fresh memory of this size.
    let advised = on_a_page(CAPABILITY, |at, len| unsafe { Native::advise_huge(at, len) });
    if let (Err(lacking), Some(_)) = (&advised, mode) {
        // Not the kernel, which has a mode.
        let remedy = "let madvise through the system-call filter";
        return Err(Lacking { remedy, ..lacking.clone() });
    }
    advised?;
    let lacking = |why, remedy| Lacking {
        world: Native::NAME,
        capability: CAPABILITY,
        why: Why::new(why),
        remedy,
    };
    // SAFETY: asks for a number.
    if unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, UNUSED, UNUSED, UNUSED, UNUSED) } == NEVER {
        let why = "huge pages were switched off for this process (PR_SET_THP_DISABLE)";
        return Err(lacking(
            why,
            "start the process from another program, or without that setting",
        ));
    }
    // The kernel still accepts the advice, without effect.
    if mode == Some("never") {
        let why = "/sys/kernel/mm/transparent_hugepage/enabled says `never`";
        return Err(lacking(why, "as root, write `madvise` to that file"));
    }
    Ok(())
}

/// Whether memory can be placed on every node that has CPUs.
pub(crate) fn placement(tree: &Topology) -> Result<(), Lacking> {
    on_a_page("placement of memory on a node", |at, len| {
        // SAFETY: fresh memory of this size.
        tree.nodes().try_for_each(|node| unsafe { Native::place(at, len, node) })
    })
}

/// Tries something on fresh memory.
fn on_a_page(
    capability: &'static str,
    test: impl FnOnce(NonNull<u8>, usize) -> Result<(), Lacking>,
) -> Result<(), Lacking> {
    let page = Layout::new::<[u8; 4096]>();
    let at = Native::map(page).map_err(|error| Lacking {
        world: Native::NAME,
        capability,
        why: error.why,
        remedy: error.remedy,
    })?;
    let result = test(at, page.size());
    // SAFETY: mapped above, and not used any more.
    unsafe { Native::unmap(at, page) };
    result
}

/// The word in brackets, of a sysfs file that lists all and marks one.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

/// The pools of huge pages, by ascending size.
pub(crate) fn huge_pools(mm: &Path) -> Vec<HugePool> {
    let Ok(folders) = fs::read_dir(mm.join("hugepages")) else { return Vec::new() };
    let mut pools: Vec<HugePool> = folders.flatten().filter_map(|f| pool(&f.path())).collect();
    pools.sort_by_key(|pool| pool.page_kib);
    pools
}

fn pool(folder: &Path) -> Option<HugePool> {
    let size = folder.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?;
    let count = |file| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
    Some(HugePool {
        page_kib: size.parse().ok()?,
        pages: count("nr_hugepages")?,
        free: count("free_hugepages")?,
    })
}

/// The instructions of this processor that wait for a store to a line, in user mode.
pub(crate) fn waits() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let found = {
        use core::arch::x86_64::{__cpuid_count, CpuidResult};

        /// Asks for a leaf, and for its first sub-leaf where it has some.
        #[allow(unused_unsafe, reason = "since Rust 1.94 the call is safe, and before it was not")]
        fn leaf(number: u32) -> CpuidResult {
            // SAFETY: every processor of this architecture has the instruction.
            unsafe { __cpuid_count(number, 0) }
        }

        // Leaf 7, sub-leaf 0, and leaf 0x8000_0001: ECX has one bit for each.
        let features = if leaf(0).eax >= 7 { leaf(7).ecx } else { 0 };
        let extended = if leaf(0x8000_0000).eax > 0x8000_0000 { leaf(0x8000_0001).ecx } else { 0 };
        [("WAITPKG", features & 1 << 5 != 0), ("MONITORX", extended & 1 << 29 != 0)]
    };
    // The second has bit 31 of the auxiliary vector's second word, `HWCAP2_WFXT`.
    #[cfg(target_arch = "aarch64")]
    let found = [("WFE", true), ("WFET", super::auxv::hwcap2() & 1 << 31 != 0)];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let found = [("", false)];
    found.into_iter().filter(|&(_, has)| has).map(|(name, _)| name).collect()
}

/// `PR_RSEQ_SLICE_EXTENSION`.
const SLICE_EXTENSION: libc::c_int = 79;
const UNUSED: libc::c_ulong = 0;

/// Whether the kernel has time slice extensions, asked without switching them on. It has none also
/// if a filter refuses the question.
pub(crate) fn has_slice_extension() -> bool {
    /// `PR_RSEQ_SLICE_EXTENSION_GET`.
    const GET: libc::c_ulong = 1;
    // Miri does not know the call.
    // SAFETY: asks for a number. A kernel that does not know the question answers with an error.
    let get = || unsafe { libc::prctl(SLICE_EXTENSION, GET, UNUSED, UNUSED, UNUSED) >= 0 };
    !cfg!(miri) && keeping_errno(get)
}

/// Asks the kernel to let the calling thread request extensions, or not to. The thread's area says
/// whether it may.
pub(crate) fn switch_slice_extension(on: bool) -> io::Result<()> {
    /// `PR_RSEQ_SLICE_EXTENSION_SET`.
    const SET: libc::c_ulong = 2;
    /// `PR_RSEQ_SLICE_EXT_ENABLE`.
    const ENABLE: libc::c_ulong = 1;
    let how = if on { ENABLE } else { 0 };
    // SAFETY: sets a bit in the thread's registered area, which is the kernel's to write. A kernel
    // that does not know the call answers with an error.
    keeping_errno(|| match unsafe { libc::prctl(SLICE_EXTENSION, SET, how, UNUSED, UNUSED) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marked_word_is_found() {
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        for text in ["", "always", "a [b", "a] b"] {
            assert_eq!(chosen(text), None, "{text:?}");
        }
    }

    #[test]
    fn never_is_never() {
        let lacking = huge_pages(Some("never")).unwrap_err();
        assert_eq!(lacking.capability, "huge pages");
        // Another mode lacks nothing that this one has.
        assert!(huge_pages(Some("madvise")).is_ok() || !lacking.to_string().contains("`never`"));
    }

    #[test]
    fn a_node_that_is_not_there_is_named() {
        let everywhere = Topology::uniform(coreline_topology::Shape {
            sockets: 2048,
            ..coreline_topology::Shape::default()
        });
        let lacking = placement(&everywhere.unwrap()).unwrap_err();
        assert!(lacking.to_string().contains("mbind to node"), "{lacking}");
    }

    #[test]
    fn only_pools_are_pools() {
        assert_eq!(pool(Path::new("hugepages-kB")), None);
        assert_eq!(pool(Path::new("/")), None);
        assert!(huge_pools(Path::new("no such folder")).is_empty());
        let pools = huge_pools(Path::new("/sys/kernel/mm"));
        assert!(pools.iter().all(|pool| pool.free <= pool.pages && pool.page_kib > 0), "{pools:?}");
    }
}
