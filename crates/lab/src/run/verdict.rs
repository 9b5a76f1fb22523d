//! What may be said of a figure beside a published one.
//!
//! **The side comes first.** A ratio says which of two alternatives is better: it lies above 1,
//! below it, or, nearer than 5 %, at 1. A rank lies among the two hottest, or not. The size of such
//! a figure counts only where the side is right (and of a rank only among the hottest). The whole
//! band counts, from its lowest point to its highest:
//!
//! | the band lies | beside a published figure that | verdict |
//! |---|---|---|
//! | wholly on one side | lies there, within the factor all along | `reached` |
//! | wholly on one side | lies there | `direction`, and by how much the size is off |
//! | wholly on one side | lies on the other side, or at 1 | `against` |
//! | wholly at 1 | - | `no-effect`: nothing happens here |
//! | partly on one side, partly on the other or at 1 | - | `undecided` |
//!
//! All other figures (nanoseconds, cycles, percent, rates, counts) have no side:
//!
//! | the band lies | verdict |
//! |---|---|
//! | within the factor all along | `reached` |
//! | else | `off`, and by how much |
//!
//! **The factor** is that of the simulator's stated fidelity, and is never bent for a row: one and
//! a half for ratios on one contended line, two for all else. A ratio must be within it in two
//! ways: as a quotient, and by its distance from 1 (of the logarithms). The second is what counts
//! near 1: 1.22 is 1.13 times 1.08, and 2.6 times as much of an effect.
//!
//! **Limited** is a figure where what was published contains something that decides it and that is
//! not modelled, such as sleep states, or where a parameter that we declare decides it. Then the
//! right size is no evidence: instead of `reached` it says `direction`, or of a figure without a
//! side `undecided`.
//!
//! Where nothing is published for the machine the verdict is `none`. Natively, with all CPUs under
//! one L3, it is `not-testable`: scenarios ask how far memory is, and nothing is far.

use coreline_scenarios::metric::FigureKind;
use serde::Serialize;

/// What may be said. Serialises as in the result's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// On the published side, and within the fidelity that the simulator claims.
    Reached,
    /// On the published side, and of another size.
    Direction,
    /// On the other side, or on one side where none was published.
    Against,
    /// Nothing happens here: the alternatives are alike.
    NoEffect,
    /// A figure without a side is of another size.
    Off,
    /// What is uncertain or declared decides.
    Undecided,
    /// This machine cannot tell.
    NotTestable,
    /// Nothing is published to compare with, or nothing was measured.
    None,
}

/// A verdict, and by which factor the size is off if that is what the verdict is about: the
/// factor of the value, or of the farthest end where the value alone would be near enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    pub(crate) times: Option<f64>,
}

impl From<Verdict> for Judged {
    fn from(verdict: Verdict) -> Judged {
        Judged { verdict, times: None }
    }
}

impl Verdict {
    /// As it is shown; nothing where nothing is published.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Verdict::Reached => "reached",
            Verdict::Direction => "direction",
            Verdict::Against => "against",
            Verdict::NoEffect => "no effect",
            Verdict::Off => "off",
            Verdict::Undecided => "undecided",
            Verdict::NotTestable => "not testable",
            Verdict::None => "",
        }
    }
}

/// A ratio that is nearer to 1 than this has no side.
const AT_ONE: f64 = 1.05;

/// On which side a figure lies, if its kind has sides: 0 is at 1.
fn side(kind: FigureKind, figure: f64) -> Option<i32> {
    match kind {
        FigureKind::Rank => Some(if figure <= 2.0 { -1 } else { 1 }),
        FigureKind::Ratio | FigureKind::Gain | FigureKind::ContendedRatio => Some(match figure {
            above if above >= AT_ONE => 1,
            below if below <= 1.0 / AT_ONE => -1,
            _ => 0,
        }),
        _ => None,
    }
}

/// By which factor the size is off.
fn times(kind: FigureKind, found: f64, published: f64) -> f64 {
    let either_way = |quotient: f64| quotient.max(1.0 / quotient);
    let quotient = either_way(found / published);
    match (kind, side(kind, found), side(kind, published)) {
        // Two lines that are hot, or two that are not.
        (FigureKind::Rank, ..) => 1.0,
        (_, Some(there), Some(here)) if there == here && there != 0 => {
            quotient.max(either_way(found.ln() / published.ln()))
        }
        _ => quotient,
    }
}

/// Judges a figure that may lie between `low` and `high`, and is `value` at the default point.
/// `limited`: its size is no evidence.
pub(crate) fn judge(
    kind: FigureKind,
    value: f64,
    (low, high): (f64, f64),
    published: f64,
    limited: bool,
) -> Judged {
    if [value, low, high].into_iter().any(f64::is_nan) {
        return Verdict::Undecided.into();
    }
    let times = |found| times(kind, found, published);
    let farthest = times(low).max(times(high));
    let within = farthest <= kind.factor();
    let size = |verdict| {
        let of_value = times(value);
        let times = if of_value > kind.factor() { of_value } else { farthest };
        Judged { verdict, times: (kind != FigureKind::Rank).then_some(times) }
    };
    let [low, high, published] = [low, high, published].map(|figure| side(kind, figure));
    // How far down a line is that is not among the hottest is a matter of all other lines.
    let has_size = kind != FigureKind::Rank || published == Some(-1);
    match (low, high) {
        (None, _) if within && limited => Verdict::Undecided.into(),
        (None, _) if within => Verdict::Reached.into(),
        (None, _) => size(Verdict::Off),
        _ if low != high => Verdict::Undecided.into(),
        (Some(0), _) => Verdict::NoEffect.into(),
        _ if low != published => Verdict::Against.into(),
        _ if within && !limited && has_size => Verdict::Reached.into(),
        _ => size(Verdict::Direction),
    }
}

/// A verdict in words: `direction, 5 times`.
pub(crate) fn said(verdict: Verdict, times: Option<f64>) -> String {
    let verdict = verdict.words();
    let Some(times) = times else { return verdict.to_owned() };
    let times = if times < 9.95 { format!("{times:.1}") } else { format!("{times:.0}") };
    format!("{verdict}, {} times", times.strip_suffix(".0").unwrap_or(&times))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FigureKind, value, band and published figure; what is to be said of it, and the factor or 0.
    type Case = (FigureKind, f64, (f64, f64), f64, Verdict, f64);

    fn check(limited: bool, cases: &[Case]) {
        for &(kind, value, band, published, verdict, times) in cases {
            let judged = judge(kind, value, band, published, limited);
            let case = format!("{kind:?} {value} {band:?} for {published}, limited: {limited}");
            assert_eq!(judged.verdict, verdict, "{case}: {judged:?}");
            assert!((judged.times.unwrap_or(0.0) - times).abs() < 0.05, "{case}: {judged:?}");
        }
    }

    use FigureKind::{ContendedRatio, Cycles, Gain, Nanoseconds, Rank, Rate, Ratio};
    use Verdict::{Against, Direction, NoEffect, Off, Reached, Undecided};

    #[test]
    fn the_side_of_a_ratio_comes_before_its_size() {
        check(
            false,
            &[
                // Nothing happens here: however near, that is not what was published.
                (Ratio, 1.0, (1.0, 1.0), 0.75, NoEffect, 0.0),
                (Ratio, 1.0, (1.0, 1.0), 1.04, NoEffect, 0.0),
                (Gain, 1.0, (0.96, 1.04), 14.0, NoEffect, 0.0),
                // The size.
                (Gain, 33.7, (33.7, 33.7), 6.8, Direction, 5.0),
                (Gain, 33.7, (16.1, 49.3), 6.8, Direction, 5.0),
                (Gain, 1.22, (1.22, 1.22), 1.08, Direction, 2.6),
                (Gain, 13.1, (13.1, 28.9), 7.3, Direction, 4.0),
                (Ratio, 0.9, (0.9, 0.9), 0.75, Direction, 2.7),
                (Ratio, 0.15, (0.1, 0.2), 0.8, Direction, 8.5),
                (Gain, 1.18, (1.18, 1.24), 1.15, Reached, 0.0),
                (Gain, 10.0, (7.0, 28.0), 14.0, Reached, 0.0),
                (Ratio, 0.7, (0.6, 0.8), 0.66, Reached, 0.0),
                // The other side.
                (Gain, 0.7, (0.7, 0.7), 1.35, Against, 0.0),
                (Ratio, 1.2, (1.1, 1.3), 0.9, Against, 0.0),
                (Ratio, 4.5, (4.0, 5.0), 1.04, Against, 0.0),
                // A band on both sides decides nothing.
                (Gain, 1.3, (0.7, 1.6), 1.35, Undecided, 0.0),
                (Gain, 1.3, (1.0, 1.6), 1.35, Undecided, 0.0),
                (Gain, 0.8, (0.7, 1.0), 1.35, Undecided, 0.0),
                (Gain, 1.1, (0.9, 1.2), 1.14, Undecided, 0.0),
                (Gain, f64::NAN, (f64::NAN, f64::NAN), 1.14, Undecided, 0.0),
                (Rank, 1.0, (1.0, 3.0), 1.0, Undecided, 0.0),
                (Rank, 9.0, (2.0, 9.0), 84.0, Undecided, 0.0),
                // One contended line has a narrower factor.
                (ContendedRatio, 20.0, (14.0, 30.0), 20.0, Reached, 0.0),
                (ContendedRatio, 20.0, (13.0, 30.0), 20.0, Direction, 1.5),
                (ContendedRatio, 32.1, (32.1, 46.3), 20.8, Direction, 1.5),
                (ContendedRatio, 20.0, (0.9, 30.0), 20.0, Undecided, 0.0),
                // A figure without a side is near or off.
                (Nanoseconds, 100.0, (50.0, 200.0), 100.0, Reached, 0.0),
                (Nanoseconds, 100.0, (49.0, 200.0), 100.0, Off, 2.04),
                (Nanoseconds, 300.0, (50.0, 301.0), 100.0, Off, 3.0),
                (Cycles, 320.0, (264.0, 320.0), 600.0, Off, 2.3),
                (Rate, 10.0, (10.0, 10.0), 45.0, Off, 4.5),
                // A rank says whether a line is of the hottest.
                (Rank, 1.0, (1.0, 2.0), 1.0, Reached, 0.0),
                (Rank, 6.0, (5.0, 9.0), 84.0, Direction, 0.0),
                (Rank, 6.0, (5.0, 9.0), 2.0, Against, 0.0),
                (Rank, 1.0, (1.0, 1.0), 84.0, Against, 0.0),
            ],
        );
    }

    #[test]
    fn the_size_of_what_something_declared_decides_is_no_evidence() {
        check(
            true,
            &[
                (Gain, 1.22, (1.22, 1.28), 1.08, Direction, 2.6),
                (Gain, 1.18, (1.18, 1.24), 1.15, Direction, 1.5),
                (Gain, 0.7, (0.7, 0.7), 1.35, Against, 0.0),
                (Ratio, 1.0, (1.0, 1.0), 0.66, NoEffect, 0.0),
                (Rank, 1.0, (1.0, 2.0), 1.0, Direction, 0.0),
                (Nanoseconds, 60.0, (50.0, 90.0), 60.0, Undecided, 0.0),
                (Nanoseconds, 10.0, (10.0, 20.0), 60.0, Off, 6.0),
            ],
        );
    }

    #[test]
    fn a_verdict_says_by_how_much_the_size_is_off() {
        for (verdict, times, words) in [
            (Verdict::Direction, Some(4.96), "direction, 5 times"),
            (Verdict::Direction, Some(2.58), "direction, 2.6 times"),
            (Verdict::Off, Some(63.9), "off, 64 times"),
            (Verdict::Off, Some(9.97), "off, 10 times"),
            (Verdict::NoEffect, None, "no effect"),
            (Verdict::None, None, ""),
        ] {
            assert_eq!(said(verdict, times), words);
        }
    }
}
