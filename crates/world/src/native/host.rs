//! The requests to the host that the Linux world and the simulator's hooks share.

/// Keeps `errno`: a program that a signal handler interrupted may be about to read it.
pub(super) fn keeping_errno<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the word is the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let result = f();
    // SAFETY: the word is the thread's own.
    unsafe { *libc::__errno_location() = errno };
    result
}

/// The alignment of the kernel's `mmap`.
pub(super) fn page() -> usize {
    // SAFETY: asks for a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
