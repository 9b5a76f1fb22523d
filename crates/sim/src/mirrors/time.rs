//! `std::time`, simulated: [`Instant`] is the machine's clock.
//!
//! Reading the clock costs the machine file's `clock`. A simulated machine has no date.
//! [`SystemTime`] reports that every machine starts at [`UNIX_EPOCH`], the beginning of 1970.

use core::ops::{Add, AddAssign, Sub, SubAssign};

pub use core::time::Duration;

use coreline_world::{Clock as _, Time};

use crate::Sim;

/// Like [`std::time::Instant`], but on the machine's clock, which counts nanoseconds since the
/// machine's start.
///
/// # Panics
///
/// [`now`](Instant::now) and [`elapsed`](Instant::elapsed) panic outside of a machine. Additions
/// and subtractions panic beyond the range, like std's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Returns the current time of the machine.
    pub fn now() -> Instant {
        Instant(Sim::now().as_nanos())
    }

    /// Returns the time since this instant, or zero if this instant is in the future.
    pub fn elapsed(&self) -> Duration {
        Instant::now() - *self
    }

    /// Returns the time from `earlier` to this instant, or zero if `earlier` is later.
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }

    /// Returns the time from `earlier` to this instant, or `None` if `earlier` is later.
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// Returns the time from `earlier` to this instant, or zero if `earlier` is later.
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns this instant plus `span`, or `None` if the sum is beyond the clock's range.
    pub fn checked_add(&self, span: Duration) -> Option<Instant> {
        self.0.checked_add(u64::try_from(span.as_nanos()).ok()?).map(Instant)
    }

    /// Returns this instant minus `span`, or `None` if the result is before the machine's start.
    pub fn checked_sub(&self, span: Duration) -> Option<Instant> {
        self.0.checked_sub(u64::try_from(span.as_nanos()).ok()?).map(Instant)
    }

    /// When a wait that begins now and takes `span` is over; `None`: never.
    pub(crate) fn deadline(span: Duration) -> Option<Time> {
        Instant::now().checked_add(span).map(|Instant(at)| Time::from_nanos(at))
    }
}

/// Like [`std::time::SystemTime`], but on the machine's clock.
///
/// # Panics
///
/// The same panics as for [`Instant`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemTime(Instant);

/// The time at which every machine starts.
pub const UNIX_EPOCH: SystemTime = SystemTime::UNIX_EPOCH;

/// The error of [`SystemTime::duration_since`] if the other time is later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("second time provided was later than self")]
pub struct SystemTimeError(Duration);

impl SystemTimeError {
    /// Returns the time by which the other time is later.
    pub fn duration(&self) -> Duration {
        self.0
    }
}

impl SystemTime {
    /// The time at which every machine starts.
    pub const UNIX_EPOCH: SystemTime = SystemTime(Instant(0));

    /// Returns the current time of the machine.
    pub fn now() -> SystemTime {
        SystemTime(Instant::now())
    }

    /// Returns the time from `earlier` to this time.
    ///
    /// # Errors
    ///
    /// An error with the difference, if `earlier` is later.
    pub fn duration_since(&self, earlier: SystemTime) -> Result<Duration, SystemTimeError> {
        let later = || SystemTimeError(earlier.0.saturating_duration_since(self.0));
        self.0.checked_duration_since(earlier.0).ok_or_else(later)
    }

    /// Returns the time since this time.
    ///
    /// # Errors
    ///
    /// An error with the difference, if this time is in the future.
    pub fn elapsed(&self) -> Result<Duration, SystemTimeError> {
        SystemTime::now().duration_since(*self)
    }

    /// Returns this time plus `span`, or `None` if the sum is beyond the clock's range.
    pub fn checked_add(&self, span: Duration) -> Option<SystemTime> {
        self.0.checked_add(span).map(SystemTime)
    }

    /// Returns this time minus `span`, or `None` if the result is before 1970.
    pub fn checked_sub(&self, span: Duration) -> Option<SystemTime> {
        self.0.checked_sub(span).map(SystemTime)
    }
}

impl Add<Duration> for SystemTime {
    type Output = SystemTime;

    fn add(self, span: Duration) -> SystemTime {
        SystemTime(self.0 + span)
    }
}

impl AddAssign<Duration> for SystemTime {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl SubAssign<Duration> for SystemTime {
    fn sub_assign(&mut self, span: Duration) {
        *self = *self - span;
    }
}

impl Sub<Duration> for SystemTime {
    type Output = SystemTime;

    fn sub(self, span: Duration) -> SystemTime {
        SystemTime(self.0 - span)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, span: Duration) -> Instant {
        self.checked_add(span).expect("overflow when adding duration to instant")
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, span: Duration) -> Instant {
        self.checked_sub(span).expect("overflow when subtracting duration from instant")
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, span: Duration) {
        *self = *self - span;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}
