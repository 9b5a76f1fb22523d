//! Two calls of the operating system that the native world does not have: a rival, and a clock.

/// The CPU that runs the caller, as the C library says.
#[inline]
pub(crate) fn sched_getcpu() -> u32 {
    // SAFETY: it takes no pointer, and only returns a number.
    unsafe { libc::sched_getcpu() }.cast_unsigned()
}

/// For how many nanoseconds the calling thread has run.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live; the call writes nothing else. It cannot fail: every kernel has
    // this clock, for the calling thread in any case.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_uses_its_time() {
        let before = thread_cpu_ns();
        let used = (0..1_000_000).map(|_| thread_cpu_ns()).find(|&now| now > before);
        assert!(used.is_some());
    }
}
