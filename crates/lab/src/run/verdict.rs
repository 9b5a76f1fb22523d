//! What may be said of a figure beside a published one.
//!
//! The rule is that of the simulator's stated fidelity, and is never bent for a row: passes over
//! memory within a factor of two. A figure counts only if the whole band does, from its lowest to
//! its highest point:
//!
//! | kind | `reached` | `direction-only` | `not-reached` |
//! |---|---|---|---|
//! | nanoseconds | within a factor of two | - | else |
//! | ratio | within a factor of two | on the same side of 1, by 10 % at least | else |
//! | nanoseconds, with sleep states in what was published | - | within a factor of two | else |
//! | ratio, with sleep states in what was published | - | on the same side of 1 | else |
//!
//! Where nothing is published for the machine the verdict is `none`. Natively, with all CPUs under
//! one L3, it is `not-testable`: the scenario asks how far memory is, and nothing is far.

use serde::Serialize;

/// What may be said. Serialises as in the result's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Within the fidelity that the simulator claims.
    Reached,
    /// The alternatives come in the published order, but not as far apart.
    DirectionOnly,
    /// Neither.
    NotReached,
    /// This world cannot tell.
    NotTestable,
    /// Nothing is published to compare with.
    None,
}

/// What a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An absolute time.
    Nanoseconds,
    /// One alternative's time over another's.
    Ratio,
}

/// The factor that passes over memory are claimed to be right within.
const STREAM_FACTOR: f64 = 2.0;

/// How far from 1 a ratio must be to have a direction.
const DIRECTION: f64 = 1.1;

/// Judges a figure that may lie between `low` and `high`. `asleep`: sleep states are in the
/// published figure.
pub(crate) fn judge(kind: Kind, low: f64, high: f64, published: f64, asleep: bool) -> Verdict {
    let ends = [low, high];
    let within = ends.iter().all(|end| (end / published).max(published / end) <= STREAM_FACTOR);
    let side = |ratio: f64| match ratio {
        above if above >= DIRECTION => 1,
        below if below <= 1.0 / DIRECTION => -1,
        _ => 0,
    };
    let same_side = ends.iter().all(|&end| side(end) == side(published));
    match kind {
        _ if within && !asleep => Verdict::Reached,
        Kind::Nanoseconds if within => Verdict::DirectionOnly,
        Kind::Ratio if same_side && (within || side(published) != 0) => Verdict::DirectionOnly,
        _ => Verdict::NotReached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_band_must_be_within_the_factor() {
        for (low, high, verdict) in [
            (50.0, 200.0, Verdict::Reached),
            (49.0, 200.0, Verdict::NotReached),
            (50.0, 201.0, Verdict::NotReached),
        ] {
            assert_eq!(judge(Kind::Nanoseconds, low, high, 100.0, false), verdict, "{low}..{high}");
        }
    }

    #[test]
    fn sleep_states_in_the_published_figure_allow_no_more_than_a_direction() {
        for kind in [Kind::Nanoseconds, Kind::Ratio] {
            assert_eq!(judge(kind, 50.0, 90.0, 60.0, true), Verdict::DirectionOnly);
            assert_eq!(judge(kind, 0.1, 90.0, 60.0, true), Verdict::NotReached);
        }
        assert_eq!(judge(Kind::Nanoseconds, 10.0, 20.0, 60.0, true), Verdict::NotReached);
        // No direction is one of its own, and 1.0 is not less than 1, however near.
        assert_eq!(judge(Kind::Ratio, 0.95, 1.0, 1.05, true), Verdict::DirectionOnly);
        assert_eq!(judge(Kind::Ratio, 1.0, 1.0, 0.66, true), Verdict::NotReached);
    }

    #[test]
    fn a_ratio_beyond_the_factor_may_keep_its_direction() {
        for (low, high, published, verdict) in [
            (3.0, 9.0, 14.0, Verdict::DirectionOnly),
            (1.05, 9.0, 14.0, Verdict::NotReached),
            (0.1, 0.2, 0.8, Verdict::DirectionOnly),
            (0.9, 1.2, 1.14, Verdict::Reached),
            (4.0, 5.0, 1.05, Verdict::NotReached),
        ] {
            assert_eq!(judge(Kind::Ratio, low, high, published, false), verdict, "{low}..{high}");
        }
    }
}
