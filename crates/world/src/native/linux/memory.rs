//! Memory: `mmap`, `mbind`, `madvise`.

use core::alloc::Layout;
use core::ffi::{c_int, c_ulong};
use core::ptr::{self, NonNull};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use coreline_topology::NodeId;

use crate::native::Native;
use crate::native::host::{keeping_errno, page};
use crate::{Lacking, MapError, Memory, Why, World};

/// `MPOL_PREFERRED`: from this node, and from others when it has none left.
const PREFERRED: c_int = 1;
/// Nodes that a mask here can name. Linux is built for at most 1024.
const NODES: usize = 1024;

/// The layout in whole pages; `None` if that is more than can be.
fn whole_pages(layout: Layout) -> Option<Layout> {
    layout.align_to(page()).ok().map(|layout| layout.pad_to_align())
}

/// The system's answer to a call. Leaves `errno` alone: memory may be needed in a signal handler.
fn succeeds(call: impl FnOnce() -> bool) -> io::Result<()> {
    keeping_errno(|| if call() { Ok(()) } else { Err(io::Error::last_os_error()) })
}

/// Whole pages of nothing, or of a file from its beginning on.
fn map(layout: Layout, file: Option<c_int>) -> Result<NonNull<u8>, MapError> {
    let fail = |why| MapError {
        layout,
        why,
        remedy: "raise the limit on address space (ulimit -v), or ask for less",
    };
    let pages = whole_pages(layout).filter(|pages| pages.size() > 0);
    let pages = pages.ok_or_else(|| fail(Why::new("there is no such range of pages")))?;
    if cfg!(miri) {
        // Miri knows no parts of mappings.
        // SAFETY: the layout has a size.
        let at = unsafe { std::alloc::alloc_zeroed(pages) };
        return NonNull::new(at).ok_or_else(|| fail(Why::new("Miri has none left")));
    }
    // A range of this size with room to choose an aligned part.
    let slack = pages.align() - page();
    let whole = pages.size().checked_add(slack);
    let whole = whole.ok_or_else(|| fail(Why::new("it is more than the address space")))?;
    let anonymous = if file.is_none() { libc::MAP_ANONYMOUS } else { 0 };
    let flags = libc::MAP_PRIVATE | anonymous | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, wherever the kernel likes, replaces none.
    let mapped = keeping_errno(|| unsafe {
        match libc::mmap(ptr::null_mut(), whole, access, flags, file.unwrap_or(-1), 0) {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            begin => Ok(begin),
        }
    });
    let begin = mapped.map_err(|error| fail(Why::new("mmap").because(&error)))?;
    let before = begin.addr().wrapping_neg() % pages.align();
    let at = begin.wrapping_byte_add(before);
    // SAFETY: the parts before and behind the aligned one were mapped above, and no thread knows
    // them. A length of zero is refused and changes nothing.
    keeping_errno(|| unsafe {
        libc::munmap(begin, before);
        libc::munmap(at.wrapping_byte_add(pages.size()), slack - before);
    });
    NonNull::new(at.cast()).ok_or_else(|| fail(Why::new("the kernel mapped address 0")))
}

/// Whether the process may have a file of this length. The kernel ends a process that makes one
/// longer than its limit, by a signal, so it is not asked to.
fn fits_limit(len: libc::off_t) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel fills in a live value of the type that it expects.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // No limit is the largest number.
    match limit.rlim_cur >= len.cast_unsigned() {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EFBIG)),
    }
}

/// A file of zeros in memory, of this length.
fn file_of(len: usize) -> io::Result<OwnedFd> {
    keeping_errno(|| {
        // SAFETY: the name is a string, and the kernel copies it.
        let file = unsafe { libc::memfd_create(c"coreline".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened it, for this caller alone.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let len = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        fits_limit(len)?;
        // SAFETY: changes the length of a file that no other thread knows.
        match unsafe { libc::ftruncate(file.as_raw_fd(), len) } {
            0 => Ok(file),
            _ => Err(io::Error::last_os_error()),
        }
    })
}

impl Memory for Native {
    /// Whole pages.
    fn map(layout: Layout) -> Result<NonNull<u8>, MapError> {
        map(layout, None)
    }

    /// Whole pages of a private mapping of a file in memory, each of which is read.
    fn map_copy_on_write(layout: Layout) -> Result<NonNull<u8>, MapError> {
        let fail = |why, remedy| MapError { layout, why, remedy };
        if !layout.size().is_multiple_of(page()) {
            let why = Why::new("the request is not for whole pages");
            return Err(fail(why, "ask for a multiple of the page's size"));
        }
        if cfg!(miri) {
            return map(layout, None);
        }
        // Wherever in it the aligned part begins, the file has all pages of that part.
        let len = whole_pages(layout).and_then(|it| it.size().checked_add(it.align() - page()));
        let file = file_of(len.unwrap_or(usize::MAX)).map_err(|error| {
            let remedy =
                "allow the process to create files and to grow them (ulimit -n, ulimit -f)";
            fail(Why::new("a file in memory").because(&error), remedy)
        })?;
        // The mapping keeps the file.
        let at = map(layout, Some(file.as_raw_fd()))?;
        for offset in (0..layout.size()).step_by(page()) {
            // SAFETY: inside of the mapping; volatile, so that the page is looked at.
            unsafe { at.byte_add(offset).read_volatile() };
        }
        Ok(at)
    }

    unsafe fn unmap(at: NonNull<u8>, layout: Layout) {
        if let Some(pages) = whole_pages(layout) {
            if cfg!(miri) {
                // SAFETY: `map` allocated it with this layout, as the caller promises.
                return unsafe { std::alloc::dealloc(at.as_ptr(), pages) };
            }
            // SAFETY: the range is that of `map`, and unused, as the caller promises.
            keeping_errno(|| unsafe {
                let at = at.as_ptr().cast();
                if libc::munmap(at, pages.size()) != 0 {
                    // The range is in the midst of a larger mapping, and the process may have no
                    // more of them: then its pages go, and its addresses stay.
                    libc::madvise(at, pages.size(), libc::MADV_DONTNEED);
                }
            });
        }
    }

    /// The pages that touch the range.
    unsafe fn place(at: NonNull<u8>, len: usize, node: NodeId) -> Result<(), Lacking> {
        let mut mask = [0 as c_ulong; NODES / c_ulong::BITS as usize];
        let (word, bit) = (node.index() / c_ulong::BITS as usize, node.get() % c_ulong::BITS);
        let placed = match mask.get_mut(word) {
            Some(word) => {
                *word = 1 << bit;
                let before = at.addr().get() % page();
                let begin = at.as_ptr().wrapping_sub(before);
                let (len, mask) = (len + before, mask.as_ptr());
                // SAFETY: a policy changes where pages come from, not what is in them. The mask is
                // live; the kernel takes one off its length in bits.
                let bind = || unsafe {
                    libc::syscall(libc::SYS_mbind, begin, len, PREFERRED, mask, NODES + 1, 0)
                };
                succeeds(|| bind() == 0)
            }
            // What the kernel says of a number beyond its own.
            None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        placed.map_err(|error| Lacking {
            world: Native::NAME,
            capability: "placement of memory on a node",
            why: Why::new("mbind to").node(node).because(&error),
            remedy: "use a kernel with NUMA, and let mbind through the system-call filter",
        })
    }

    unsafe fn advise_huge(at: NonNull<u8>, len: usize) -> Result<(), Lacking> {
        let before = at.addr().get() % page();
        let begin = at.as_ptr().wrapping_sub(before);
        // SAFETY: changes the size of pages, not what is in them.
        let advise = || unsafe { libc::madvise(begin.cast(), len + before, libc::MADV_HUGEPAGE) };
        succeeds(|| advise() == 0).map_err(|error| Lacking {
            world: Native::NAME,
            capability: "huge pages",
            why: Why::new("madvise").because(&error),
            remedy: "use a kernel with transparent huge pages, and do not set `never` in \
                     /sys/kernel/mm/transparent_hugepage/enabled",
        })
    }

    /// Leaves pages that are locked where they are.
    unsafe fn discard(at: NonNull<u8>, len: usize) {
        let before = at.addr().get().wrapping_neg() % page();
        let len = len.saturating_sub(before) / page() * page();
        if len == 0 || cfg!(miri) {
            return;
        }
        let begin = at.as_ptr().wrapping_add(before);
        // SAFETY: whole pages of a private mapping, which the caller says no thread uses.
        keeping_errno(|| unsafe { libc::madvise(begin.cast(), len, libc::MADV_DONTNEED) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_goes_back() {
        for align in [1, page(), 16 * page(), 2 << 20] {
            let layout = Layout::from_size_align(3 * page() + 1, align).unwrap();
            let at = Native::map(layout).unwrap();
            assert_eq!(at.addr().get() % align, 0);
            // SAFETY: mapped above, and given back once.
            unsafe {
                let bytes = core::slice::from_raw_parts_mut(at.as_ptr(), layout.size());
                assert!(bytes.iter().all(|byte| *byte == 0));
                bytes.fill(7);
                Native::unmap(at, layout);
            }
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn whole_pages_are_discarded_and_no_others() {
        let layout = Layout::from_size_align(4 * page(), 1).unwrap();
        let at = Native::map(layout).unwrap();
        let ranges = [(0, 4 * page(), 4), (1, 4 * page() - 2, 2), (7, page(), 0), (3, 0, 0)];
        for (begin, len, pages) in ranges {
            // SAFETY: mapped above, and used by nothing else.
            let bytes = unsafe {
                core::slice::from_raw_parts_mut(at.as_ptr(), layout.size()).fill(7);
                Native::discard(at.byte_add(begin), len);
                core::slice::from_raw_parts(at.as_ptr(), layout.size())
            };
            let zeros = bytes.iter().filter(|byte| **byte == 0).count();
            assert_eq!(zeros, pages * page(), "{len} bytes from byte {begin} on");
            assert!(len == layout.size() || bytes[0] == 7 && bytes[layout.size() - 1] == 7);
        }
        // SAFETY: mapped above, and not used any more.
        unsafe { Native::unmap(at, layout) };
    }

    #[test]
    fn memory_that_is_copied_on_write_is_zeroed_and_its_own() {
        for align in [1, page(), 16 * page()] {
            let layout = Layout::from_size_align(3 * page(), align).unwrap();
            let [one, other] = [0, 1].map(|_| Native::map_copy_on_write(layout).unwrap());
            assert_eq!(one.addr().get() % align, 0);
            // SAFETY: mapped above, and given back once.
            unsafe {
                let bytes = core::slice::from_raw_parts_mut(one.as_ptr(), layout.size());
                assert!(bytes.iter().all(|byte| *byte == 0));
                bytes.fill(7);
                assert_eq!(other.byte_add(page()).read(), 0, "each has a file of its own");
                Native::unmap(one, layout);
                Native::unmap(other, layout);
            }
        }
        let layout = Layout::from_size_align(isize::MAX as usize - (2 << 20), 2 << 20).unwrap();
        let error = Native::map_copy_on_write(layout).unwrap_err();
        assert!(error.to_string().contains("cannot map"), "{error}");
        assert!(Native::map_copy_on_write(Layout::from_size_align(0, 1).unwrap()).is_err());
    }

    #[test]
    fn memory_that_is_copied_on_write_is_whole_pages() {
        for size in [1, page() - 1, 3 * page() + 1] {
            let layout = Layout::from_size_align(size, 1).unwrap();
            let error = Native::map_copy_on_write(layout).unwrap_err();
            assert!(error.to_string().contains("whole pages"), "{error}");
        }
        // All that the mapping has, up to the next multiple of the alignment, can be read.
        let layout = Layout::from_size_align(3 * page(), 64 * page()).unwrap();
        let all = [(); 8].map(|()| Native::map_copy_on_write(layout).unwrap());
        for at in all {
            for offset in (0..64 * page()).step_by(page()) {
                // SAFETY: mapped in whole multiples of its alignment.
                assert_eq!(unsafe { at.byte_add(offset).read_volatile() }, 0);
            }
        }
        // SAFETY: mapped above, and given back once.
        all.into_iter().for_each(|at| unsafe { Native::unmap(at, layout) });
    }

    #[cfg(not(miri))]
    #[test]
    fn a_limit_on_files_is_an_error_and_ends_no_process() {
        use crate::native::linux::signals::tests::in_a_child;

        let [fits, is_more] =
            [2, 3].map(|pages| Layout::from_size_align(pages * page(), 1).unwrap());
        let told = in_a_child(|| {
            let two = fits.size() as libc::rlim_t;
            let limit = libc::rlimit { rlim_cur: two, rlim_max: two };
            // SAFETY: sets a limit of this child, and its own `errno`.
            unsafe {
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                *libc::__errno_location() = 77;
            }
            let both = [fits, is_more].map(|layout| Native::map_copy_on_write(layout).is_ok());
            // SAFETY: the word is the thread's own.
            let errno = unsafe { *libc::__errno_location() };
            u8::from(both == [true, false]) + 2 * u8::from(errno == 77)
        });
        assert_eq!(told, 3);
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        let layout = Layout::from_size_align(isize::MAX as usize - (2 << 20), 2 << 20).unwrap();
        let error = Native::map(layout).unwrap_err();
        assert!(error.to_string().contains("cannot map"), "{error}");
        assert!(Native::map(Layout::from_size_align(0, 1).unwrap()).is_err());
    }

    #[test]
    fn an_impossible_node_is_refused() {
        let layout = Layout::from_size_align(page(), 1).unwrap();
        let at = Native::map(layout).unwrap();
        for node in [1000, NODES as u32, u32::MAX] {
            // SAFETY: mapped above.
            let error = unsafe { Native::place(at, layout.size(), NodeId::new(node)) }.unwrap_err();
            assert!(error.to_string().contains(&format!("node {node}")), "{error}");
        }
        // SAFETY: mapped above, and not used any more.
        unsafe { Native::unmap(at, layout) };
    }
}
