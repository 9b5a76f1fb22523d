//! The auxiliary vector: what the kernel told the process about itself when it started it.

use crate::native::host::keeping_errno;

/// `AT_RSEQ_FEATURE_SIZE`: how many bytes of an rseq area the kernel fills in.
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
/// `AT_RSEQ_ALIGN`: the alignment that the kernel asks of an rseq area of that size.
const AT_RSEQ_ALIGN: libc::c_ulong = 28;
/// The end of `mm_cid` in an rseq area.
pub(crate) const MM_CID_END: u64 = 28;

/// How many bytes of an rseq area the kernel fills in; 0 if it does not say.
pub(crate) fn rseq_feature_size() -> u64 {
    entry(AT_RSEQ_FEATURE_SIZE)
}

/// The alignment in bytes that the kernel asks of an rseq area of the feature size; 0 if it does
/// not say.
pub(crate) fn rseq_align() -> u64 {
    entry(AT_RSEQ_ALIGN)
}

/// The processor's second word of capabilities.
#[cfg(target_arch = "aarch64")]
pub(crate) fn hwcap2() -> u64 {
    entry(libc::AT_HWCAP2)
}

/// Whether the program runs with other rights than its caller's. Then the caller must not control
/// it.
pub(crate) fn is_secure() -> bool {
    entry(libc::AT_SECURE) != 0
}

/// Leaves `errno` alone: a thread without an index may ask in a signal handler.
fn entry(key: libc::c_ulong) -> u64 {
    // SAFETY: reads the auxiliary vector; an unknown entry reads as zero.
    keeping_errno(|| unsafe { libc::getauxval(key) })
}

// Miri does not know the call.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_not_there_leaves_the_error_number_alone() {
        const NO_ENTRY: libc::c_ulong = 1 << 30;
        // SAFETY: the word is the thread's own.
        unsafe {
            *libc::__errno_location() = libc::EXDEV;
            assert_eq!(entry(NO_ENTRY), 0);
            assert_eq!(*libc::__errno_location(), libc::EXDEV);
        }
    }
}
