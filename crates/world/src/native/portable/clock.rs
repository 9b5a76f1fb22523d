//! The clock: std's monotonic one, counted from when the process first asked.

use std::sync::OnceLock;
use std::time::Instant;

use crate::native::Native;
use crate::{Clock, Time};

impl Clock for Native {
    const RUNS: bool = true;

    type Instant = Instant;

    fn now() -> Time {
        static BEGINNING: OnceLock<Instant> = OnceLock::new();
        let beginning = *BEGINNING.get_or_init(Instant::now);
        // The end of time is 584 years after the beginning.
        Time::from_nanos(u64::try_from(beginning.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
