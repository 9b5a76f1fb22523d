//! Points in time of std as those of coreline.

use std::time::{Duration, Instant};

use coreline::world::{Clock, Native, Time};

/// So long from now.
pub(crate) fn after(timeout: Duration) -> Time {
    Native::now() + timeout
}

/// The time of an instant; now if it has passed.
pub(crate) fn at(instant: Instant) -> Time {
    after(instant.saturating_duration_since(Instant::now()))
}
