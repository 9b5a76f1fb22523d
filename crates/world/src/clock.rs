//! Time.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in a world's time, in nanoseconds since the world's own beginning.
///
/// Times of different worlds, machines or processes cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// Creates the time that is `nanos` nanoseconds after the world's beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// Returns the nanoseconds since the world's beginning.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// Returns the later time. It saturates at the end of time (584 years).
    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// Returns the span between two times; zero if `earlier` is later.
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

/// The capability *clock*.
pub trait Clock {
    /// Whether time passes in this world. This is false in the model, where [`now`](Clock::now) is
    /// constant.
    const RUNS: bool;

    /// The type in which programs of this world state points in time. Natively, this is std's
    /// `Instant`.
    type Instant: Copy + Into<Time>;

    /// Returns the current time. The time never goes backwards for one thread, or between two
    /// threads that are ordered.
    fn now() -> Time;
}
