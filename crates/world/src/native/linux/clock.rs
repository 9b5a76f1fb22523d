//! The clock: `CLOCK_MONOTONIC`, unshifted, so that a futex deadline needs no conversion.

use std::time::Instant;

use crate::native::Native;
use crate::{Clock, Time};

impl Clock for Native {
    const RUNS: bool = true;

    type Instant = Instant;

    /// Async-signal-safe; no system call where the kernel maps the clock (vdso).
    #[inline]
    fn now() -> Time {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is a live timespec that the call may write. It cannot fail: Linux always
        // has this clock.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        // Neither part of the monotonic clock is ever negative.
        Time::from_nanos(now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned())
    }
}
