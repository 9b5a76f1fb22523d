//! [`Pace`]: the arithmetic of the generic cell rate algorithm, without shared words.
//!
//! Its times are units of 2^-`fraction` nanoseconds in a word that wraps. A rate of less than a
//! million a second needs no fraction, and its times wrap after 584 years. The highest rates have a
//! fraction of 10 bits, and their times wrap after 208 days. So a time is judged by how far it is
//! ahead of the clock:
//!
//! | ahead of the clock | meaning |
//! |---|---|
//! | up to the tolerance | the limiter is full only then |
//! | up to [`SLACK`] more | the same, seen by a CPU whose clock is behind |
//! | else | that time is over: the limiter is full |
//!
//! | constant | why this value | test here |
//! |---|---|---|
//! | `LONGEST` | two of them fit into a word | `what_no_limiter_can_keep_is_refused` |
//! | `PRECISE`, `LEAST`, `MOST_FRACTION` | promised precision | `rates_are_never_exceeded_..` |
//! | `SLACK` | clocks differ by less | `a_bucket_fills_at_its_rate`, `times_wrap` |
//! | `STOCK`, `PART` | stocks are few | `stocks_are_a_small_part_of_the_burst` |
//!
//! A limiter that no thread uses for as long as its times take to wrap may once seem to be empty.
//! It then refuses for up to a second, and fills at its rate. It never lets more through.

use core::time::Duration;

use super::LimitError;

/// Most time that a limiter may take to fill, and most time for one permit.
const LONGEST: u64 = 1 << 62;
/// Units of a permit that make a rate precise to one part in a thousand.
const PRECISE: u128 = 1 << 10;
/// The most bits of a fraction.
const MOST_FRACTION: u32 = 10;
/// Units of a permit at the highest rate: it is precise to 1 %.
const LEAST: u128 = 102;
/// How far apart the clocks of two CPUs may seem to be, in nanoseconds: a second.
const SLACK: u64 = 1 << 30;
/// How many nanoseconds of the rate a CPU may have in stock.
const STOCK: u64 = 20_000;
/// All stocks together are at most one part in this many of the burst.
const PART: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    fraction: u32,
    /// How long it takes to earn a permit, in units; rounded up: the rate is never exceeded.
    interval: u64,
    /// How many permits one call may ask for: the burst without all stocks.
    pub(super) capacity: u64,
    /// How many permits a CPU's stock is filled with; 0: there are no stocks.
    pub(super) batch: u64,
}

impl Pace {
    pub(super) fn new(
        permits: u64,
        per: Duration,
        burst: u64,
        cpus: u64,
    ) -> Result<Self, LimitError> {
        if permits == 0 || per.is_zero() || burst == 0 {
            return Err(LimitError::Nothing);
        }
        // A `Duration` is below 2^94 nanoseconds, so nothing overflows here.
        let units = |fraction: u32| (per.as_nanos() << fraction).div_ceil(u128::from(permits));
        let precise = |fraction: &u32| units(*fraction) >= PRECISE;
        let fraction = (0..MOST_FRACTION).find(precise).unwrap_or(MOST_FRACTION);
        if units(fraction) < LEAST {
            return Err(LimitError::TooFast { permits, per });
        }
        let interval = u64::try_from(units(fraction)).unwrap_or(u64::MAX);
        let most = LONGEST / interval;
        if most == 0 {
            return Err(LimitError::TooSlow { permits, per });
        }
        if burst > most {
            return Err(LimitError::BurstTooLong { burst, most });
        }
        let batch = ((STOCK << fraction) / interval).min(burst / (PART * cpus));
        // A stock of one permit saves nothing.
        let batch = if batch < 2 { 0 } else { batch };
        Ok(Pace { fraction, interval, capacity: burst - batch * cpus, batch })
    }

    /// A time of the clock in units.
    pub(super) fn units(&self, nanos: u64) -> u64 {
        nanos << self.fraction
    }

    /// How long the limiter took to earn this many permits, in units.
    pub(super) fn earned(&self, permits: u64) -> u64 {
        permits.saturating_mul(self.interval)
    }

    /// How many permits the limiter earns in this many units, rounded up.
    pub(super) fn permits(&self, units: u64) -> u64 {
        units.div_ceil(self.interval)
    }

    /// This many units as a time to wait, rounded up.
    pub(super) fn wait(&self, units: u64) -> Duration {
        Duration::from_nanos(units.div_ceil(1 << self.fraction))
    }

    /// Takes permits at a time from a limiter that is full at another time. Returns when it is full
    /// then, or how long it takes until there are this many.
    ///
    /// This many permits are at most the capacity and a batch.
    pub(super) fn take(&self, full_at: u64, now: u64, permits: u64) -> Result<u64, u64> {
        let tolerance = self.capacity * self.interval;
        let ahead = full_at.wrapping_sub(now);
        let ahead = if ahead > tolerance + self.units(SLACK) { 0 } else { ahead };
        // Below 2^62 + 2^40 each: it fits.
        let then = ahead + permits * self.interval;
        if then <= tolerance { Ok(now.wrapping_add(then)) } else { Err(then - tolerance) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pace(permits: u64, burst: u64) -> Pace {
        Pace::new(permits, SECOND, burst, 1).unwrap()
    }

    #[test]
    fn what_no_limiter_can_keep_is_refused() {
        for (permits, per, burst) in [(0, SECOND, 1), (1, Duration::ZERO, 1), (1, SECOND, 0)] {
            assert_eq!(Pace::new(permits, per, burst, 1), Err(LimitError::Nothing));
        }
        let too_fast = Pace::new(11_000_000_000, SECOND, 1, 1);
        assert_eq!(too_fast, Err(LimitError::TooFast { permits: 11_000_000_000, per: SECOND }));
        assert!(matches!(Pace::new(u64::MAX, SECOND, 1, 1), Err(LimitError::TooFast { .. })));
        assert!(Pace::new(u64::MAX, Duration::MAX, 1, 1).is_ok());
        let too_slow = Pace::new(1, Duration::MAX, 1, 1);
        assert_eq!(too_slow, Err(LimitError::TooSlow { permits: 1, per: Duration::MAX }));
        let most = (1 << 62) / 1_000_000_000;
        assert!(Pace::new(1, SECOND, most, 1).is_ok());
        let burst = u64::MAX;
        assert_eq!(Pace::new(1, SECOND, burst, 1), Err(LimitError::BurstTooLong { burst, most }));
    }

    #[test]
    fn rates_are_never_exceeded_and_met_to_one_percent() {
        for permits in [1, 3, 7, 999, 1_000_003, 77_777_777, 999_999_999, 10_000_000_000] {
            let pace = pace(permits, 1);
            let (units, exact) = (u128::from(pace.interval) * u128::from(permits), 1_000_000_000);
            let exact = exact << pace.fraction;
            assert!(units >= exact, "{permits} are exceeded");
            let most = if permits < 1_000_000_000 { exact / 1000 } else { exact / 100 };
            assert!(units - exact <= most, "{permits}: {units} of {exact}");
        }
    }

    #[test]
    fn stocks_are_a_small_part_of_the_burst() {
        for (permits, burst, cpus, batch) in [
            (1_000, 1 << 40, 2, 0),
            (99_999, 1 << 30, 2, 0),
            (100_000, 1 << 30, 2, 2),
            (1_000_000, 1 << 30, 384, 20),
            (1_000_000, 63, 2, 0),
            (1_000_000, 64, 2, 2),
            (1_000_000_000, 1_000, 4, 15),
        ] {
            let pace = Pace::new(permits, SECOND, burst, cpus).unwrap();
            assert_eq!(pace.batch, batch, "of {burst} for {cpus} CPUs");
            assert_eq!(pace.capacity, burst - batch * cpus);
            assert!(pace.capacity >= burst - burst / PART);
        }
    }

    /// At each moment, the number of permits is the same as in a bucket of real numbers.
    #[test]
    fn a_bucket_fills_at_its_rate() {
        let pace = pace(1_000, 3);
        let mut full_at = 5_000_000;
        for (now, permits, expected) in [
            (5_000_000, 4, Err(1_000_000)),
            (5_000_000, 2, Ok(7_000_000)),
            (5_000_000, 2, Err(1_000_000)),
            (5_999_999, 2, Err(1)),
            (6_000_000, 2, Ok(9_000_000)),
            // A clock that is behind by one step.
            (5_000_000, 1, Err(2_000_000)),
            (5_000_000, 0, Err(1_000_000)),
            (6_500_000, 1, Err(500_000)),
            (20_000_000, 3, Ok(23_000_000)),
        ] {
            let taken = pace.take(full_at, now, permits);
            assert_eq!(taken, expected, "{permits} at {now}");
            full_at = taken.unwrap_or(full_at);
        }
    }

    #[test]
    fn times_wrap() {
        for permits in [1_000, 1_000_000_000] {
            let pace = pace(permits, 2);
            for now in [0, u64::MAX - 2, u64::MAX - pace.interval, 1 << 63] {
                let first = pace.take(now, now, 1).unwrap();
                let second = pace.take(first, now, 1).unwrap();
                assert_eq!(pace.take(second, now, 1), Err(pace.interval));
                let later = now.wrapping_add(pace.interval);
                assert_eq!(pace.take(second, later, 1), Ok(second.wrapping_add(pace.interval)));
                // Any time later it is full, except for a second at the end.
                let far = later.wrapping_add(u64::MAX - 2 * pace.units(SLACK));
                assert_eq!(pace.take(second, far, 2), Ok(far.wrapping_add(2 * pace.interval)));
            }
        }
    }
}
