//! Pages at addresses that the program chooses. They are for the simulator, whose programs see the
//! same addresses in every process.

use core::alloc::Layout;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use std::io;

use crate::native::host::{self, keeping_errno};
use crate::{MapError, Why};

/// The reason why pages at an address are not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FixedError {
    /// Another mapping is already at this address.
    #[error("something else is mapped at {at:#x}")]
    Taken {
        /// The requested address.
        at: usize,
    },
    /// The host has no such addresses, or no memory left.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// Maps zeroed memory at `at`, in whole pages. Its first `guard` bytes cannot be accessed. The host
/// does not reserve memory for the range. [`unmap`] unmaps the range.
///
/// The call never replaces an existing mapping. It does not work under Miri, which has no fixed
/// addresses.
///
/// # Errors
///
/// [`FixedError::Taken`] if a part of the range is already mapped. [`FixedError::Map`] if the host
/// refuses, for example because its addresses have fewer bits, or because a limit is reached.
pub fn map(at: NonZeroUsize, size: usize, guard: usize) -> Result<NonNull<u8>, FixedError> {
    let fail = |why| {
        let layout = Layout::from_size_align(size, 1).unwrap_or(Layout::new::<()>());
        let remedy = "raise the limit on address space (ulimit -v), or ask for less";
        FixedError::Map(MapError { layout, why, remedy })
    };
    if cfg!(miri) {
        return Err(fail(Why::new("Miri has no fixed addresses")));
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let flags = flags | libc::MAP_FIXED_NOREPLACE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, which replaces none. A kernel older than the flag takes the address
    // as a hint; what it maps elsewhere is given back immediately.
    keeping_errno(|| unsafe {
        let hint = ptr::without_provenance_mut(at.get());
        let begin = libc::mmap(hint, size, access, flags, -1, 0);
        if begin == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::EEXIST) => FixedError::Taken { at: at.get() },
                _ => fail(Why::new("mmap").because(&error)),
            });
        }
        if begin.addr() != at.get() {
            libc::munmap(begin, size);
            return Err(FixedError::Taken { at: at.get() });
        }
        if guard > 0 && libc::mprotect(begin, guard, libc::PROT_NONE) != 0 {
            let error = io::Error::last_os_error();
            libc::munmap(begin, size);
            return Err(fail(Why::new("mprotect").because(&error)));
        }
        // What is mapped is not at address 0, as `at` is not.
        Ok(NonNull::new_unchecked(begin.cast()))
    })
}

/// Returns the number of bytes of a page.
pub fn page() -> usize {
    host::page()
}

/// Unmaps the memory.
///
/// # Safety
///
/// The memory came from [`map`] with this size, and no thread uses it any more.
pub unsafe fn unmap(at: NonNull<u8>, size: usize) {
    // SAFETY: the caller's promise.
    keeping_errno(|| unsafe { libc::munmap(at.as_ptr().cast(), size) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_lie_where_they_were_asked_for_and_replace_none() {
        let at = NonZeroUsize::new(0x0f00_0000_0000).unwrap();
        let (page, size) = (4096, 3 * 4096);
        let pages = match map(at, size, page) {
            // A host with fewer addresses.
            Err(FixedError::Map(_)) => return,
            pages => pages.unwrap(),
        };
        assert_eq!(pages.addr(), at);
        // SAFETY: behind the guard, of the size asked for.
        unsafe { pages.as_ptr().add(page).write_bytes(7, size - page) };
        let inside = NonZeroUsize::new(at.get() + 2 * page).unwrap();
        let taken = FixedError::Taken { at: inside.get() };
        assert_eq!(map(inside, size, 0), Err(taken));
        // SAFETY: mapped above, and given back once.
        unsafe { unmap(pages, size) };
        let again = map(at, size, 0).unwrap();
        // SAFETY: mapped, and zeroed.
        assert_eq!(unsafe { again.as_ptr().add(page).read() }, 0);
        // SAFETY: mapped above, and given back once.
        unsafe { unmap(again, size) };
    }
}
