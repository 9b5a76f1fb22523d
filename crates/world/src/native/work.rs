//! Work: reads the clock again and again.

use core::hint;
use core::time::Duration;

use crate::native::Native;
use crate::{Clock, Work};

impl Work for Native {
    /// Looks at the clock until `span` has passed: tens of nanoseconds a look, so a shorter span
    /// takes as long as one. Time during which the thread has no CPU counts as worked.
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
