//! What may be said of a figure beside a published one.
//!
//! The rule is that of the simulator's stated fidelity, and is never bent for a row: a factor of
//! two for passes over memory and for absolute figures, of one and a half for ratios on one
//! contended line. A figure counts only if the whole band does, from its lowest to its highest
//! point:
//!
//! | kind | `reached` | `direction-only` | `not-reached` |
//! |---|---|---|---|
//! | absolute: nanoseconds, cycles, percent, rates, counts | within the factor | - | else |
//! | ratio | within the factor | on the same side of 1, by 10 % at least | else |
//! | rank: of the two hottest, or not | the same one or two | neither is of the two | else |
//! | absolute, limited | - | within the factor | else |
//! | ratio, limited | - | on the same side of 1 | else |
//! | rank, limited | - | as both above | else |
//!
//! *Limited* is a figure where what was published contains something that decides it and that is
//! not modelled, such as sleep states, or where a parameter that we declare decides it.
//!
//! Where nothing is published for the machine the verdict is `none`. Natively, with all CPUs under
//! one L3, it is `not-testable`: scenarios ask how far memory is, and nothing is far.

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
pub(crate) enum FigureKind {
    /// An absolute time.
    Nanoseconds,
    /// The same, by a machine's clock.
    Cycles,
    /// A part of a whole.
    Percent,
    /// One alternative over another.
    Ratio,
    /// The same, of what is done with one line that many want.
    ContendedRatio,
    /// A place among others; 1 is the hottest.
    Rank,
    /// A number per second.
    Rate,
    /// How many line transfers.
    Transfers,
    /// Memory.
    Bytes,
    /// How many slots.
    Slots,
    /// How often in a thousand operations.
    PerThousand,
}

impl FigureKind {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Cycles => "cycles",
            Self::Percent => "%",
            Self::Ratio | Self::ContendedRatio => "ratio",
            Self::Rank => "rank",
            Self::Rate => "1/s",
            Self::Transfers => "transfers",
            Self::Bytes => "bytes",
            Self::Slots => "slots",
            Self::PerThousand => "per 1000",
        }
    }

    fn decimals(self) -> i32 {
        match self {
            Self::Nanoseconds => 1,
            Self::Percent | Self::Ratio | Self::ContendedRatio | Self::Transfers => 2,
            Self::Slots | Self::PerThousand => 2,
            Self::Cycles | Self::Rank | Self::Rate | Self::Bytes => 0,
        }
    }

    /// The factor within which a figure is claimed to be right.
    fn factor(self) -> f64 {
        match self {
            Self::ContendedRatio => 1.5,
            _ => 2.0,
        }
    }
}

/// As it is shown: with the decimals of its kind, and two digits at least, so that a figure that is
/// not zero does not become zero.
pub(crate) fn round(value: f64, kind: FigureKind) -> f64 {
    let leading = value.abs().log10().floor();
    let needed = if leading.is_finite() { 1 - leading as i32 } else { 0 };
    let unit = 10f64.powi(kind.decimals().max(needed));
    (value * unit).round() / unit
}

/// How far from 1 a ratio must be to have a direction.
const DIRECTION: f64 = 1.1;

/// Judges a figure that may lie between `low` and `high`. `limited`: no more than a direction can
/// be confirmed.
pub(crate) fn judge(
    kind: FigureKind,
    low: f64,
    high: f64,
    published: f64,
    limited: bool,
) -> Verdict {
    let ends = [low, high];
    let factor = kind.factor();
    let within = ends.iter().all(|end| (end / published).max(published / end) <= factor);
    let side = |ratio: f64| match ratio {
        above if above >= DIRECTION => 1,
        below if below <= 1.0 / DIRECTION => -1,
        _ => 0,
    };
    let same_side = ends.iter().all(|&end| side(end) == side(published));
    let hottest = |rank: f64| rank <= 2.0;
    let as_hot = ends.iter().all(|&end| hottest(end) == hottest(published));
    match kind {
        FigureKind::Rank if as_hot && hottest(published) && !limited => Verdict::Reached,
        FigureKind::Rank if as_hot => Verdict::DirectionOnly,
        FigureKind::Rank => Verdict::NotReached,
        _ if within && !limited => Verdict::Reached,
        FigureKind::Ratio | FigureKind::ContendedRatio
            if same_side && (within || side(published) != 0) =>
        {
            Verdict::DirectionOnly
        }
        FigureKind::Ratio | FigureKind::ContendedRatio => Verdict::NotReached,
        _ if within => Verdict::DirectionOnly,
        _ => Verdict::NotReached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zero_is_shown_as_zero() {
        for (value, kind, shown) in [
            (0.004_36, FigureKind::Ratio, 0.0044),
            (0.0, FigureKind::Ratio, 0.0),
            (1.2345, FigureKind::Ratio, 1.23),
            (-0.0123, FigureKind::Nanoseconds, -0.012),
            (1234.56, FigureKind::Nanoseconds, 1234.6),
            (0.4, FigureKind::Cycles, 0.4),
            (350.4, FigureKind::Cycles, 350.0),
        ] {
            assert!((round(value, kind) - shown).abs() < 1e-9, "{value} {kind:?}");
        }
        assert!(
            round(f64::NAN, FigureKind::Ratio).is_nan()
                && round(f64::INFINITY, FigureKind::Ratio) > 1e9
        );
    }

    #[test]
    fn the_whole_band_must_be_within_the_factor() {
        for (low, high, verdict) in [
            (50.0, 200.0, Verdict::Reached),
            (49.0, 200.0, Verdict::NotReached),
            (50.0, 201.0, Verdict::NotReached),
        ] {
            assert_eq!(
                judge(FigureKind::Nanoseconds, low, high, 100.0, false),
                verdict,
                "{low}..{high}"
            );
        }
    }

    #[test]
    fn sleep_states_in_the_published_figure_allow_no_more_than_a_direction() {
        for kind in [FigureKind::Nanoseconds, FigureKind::Rate, FigureKind::Ratio] {
            assert_eq!(judge(kind, 50.0, 90.0, 60.0, true), Verdict::DirectionOnly);
            assert_eq!(judge(kind, 0.1, 90.0, 60.0, true), Verdict::NotReached);
        }
        assert_eq!(judge(FigureKind::Nanoseconds, 10.0, 20.0, 60.0, true), Verdict::NotReached);
        // No direction is one of its own, and 1.0 is not less than 1, however near.
        assert_eq!(judge(FigureKind::Ratio, 0.95, 1.0, 1.05, true), Verdict::DirectionOnly);
        assert_eq!(judge(FigureKind::Ratio, 1.0, 1.0, 0.66, true), Verdict::NotReached);
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
            assert_eq!(
                judge(FigureKind::Ratio, low, high, published, false),
                verdict,
                "{low}..{high}"
            );
        }
    }

    #[test]
    fn one_contended_line_has_a_narrower_factor() {
        assert_eq!(judge(FigureKind::Ratio, 1.9, 1.9, 1.0, false), Verdict::Reached);
        assert_eq!(judge(FigureKind::ContendedRatio, 14.0, 30.0, 20.0, false), Verdict::Reached);
        assert_eq!(
            judge(FigureKind::ContendedRatio, 13.0, 30.0, 20.0, false),
            Verdict::DirectionOnly
        );
        assert_eq!(judge(FigureKind::ContendedRatio, 0.9, 30.0, 20.0, false), Verdict::NotReached);
    }

    #[test]
    fn a_rank_says_whether_a_line_is_of_the_hottest() {
        for (low, high, published, limited, verdict) in [
            (1.0, 2.0, 1.0, false, Verdict::Reached),
            (1.0, 2.0, 1.0, true, Verdict::DirectionOnly),
            (1.0, 3.0, 1.0, false, Verdict::NotReached),
            (5.0, 9.0, 84.0, false, Verdict::DirectionOnly),
            (2.0, 9.0, 84.0, false, Verdict::NotReached),
        ] {
            assert_eq!(
                judge(FigureKind::Rank, low, high, published, limited),
                verdict,
                "{low}..{high}"
            );
        }
    }
}
