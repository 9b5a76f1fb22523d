//! Work: reads the clock again and again.

use core::hint;
use core::time::Duration;

use crate::native::Native;
use crate::{Clock, Work};

impl Work for Native {
    /// Reads the clock until `span` has passed. A read takes tens of nanoseconds, so a shorter span
    /// takes as long as one read. Time during which the thread has no CPU counts as worked.
    /// Async-signal-safe.
    fn work(span: Duration) {
        if span.is_zero() {
            return;
        }
        let start = Native::now();
        while Native::now() - start < span {
            hint::spin_loop();
        }
    }
}
