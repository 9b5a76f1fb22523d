//! The verdicts on a figure beside a published one.
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
//! right size proves nothing: instead of `reached` it says `direction`, or of a figure without a
//! side `undecided`.
//!
//! If nothing is published for the machine, the verdict is `none`. Natively, with all CPUs under
//! one L3, it is `not-testable`: scenarios ask how far memory is, and nothing is far.

use std::collections::BTreeMap;
use std::fmt;

use coreline_scenarios::metric::FigureKind;
use serde::{Deserialize, Serialize};

/// A verdict. Serialises as in the result's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// On the published side, and within the fidelity that the simulator claims.
    Reached,
    /// On the published side, and of another size.
    Direction,
    /// On the other side of 1, or on one side although the published figure is on none.
    Against,
    /// Nothing happens here: the alternatives are alike.
    NoEffect,
    /// A figure without a side is of another size.
    Off,
    /// An uncertain or declared parameter decides.
    Undecided,
    /// This machine cannot tell.
    NotTestable,
    /// Nothing is published to compare with, or nothing was measured.
    None,
}

/// A verdict, and by which factor the size is off if that is what the verdict is about: the
/// factor of the value, or of the farthest end where the value alone would be near enough, as it is
/// where the published figure is reached.
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
    /// The verdict as it is shown; empty if nothing is published.
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

/// The factor by which the size is off.
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
/// `limited`: its size proves nothing.
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
        (None, _) if within => size(Verdict::Reached),
        (None, _) => size(Verdict::Off),
        _ if low != high => Verdict::Undecided.into(),
        (Some(0), _) => Verdict::NoEffect.into(),
        _ if low != published => Verdict::Against.into(),
        _ if within && !limited && has_size => size(Verdict::Reached),
        _ => size(Verdict::Direction),
    }
}

/// A verdict in words: `direction, 5x off`, `reached within 1.3x`.
pub(crate) fn said(verdict: Verdict, times: Option<f64>) -> String {
    let words = verdict.words();
    let Some(times) = times else { return words.to_owned() };
    // Upwards: what is reached within 1.26 times is not reached within 1.2.
    let times = (times * 10.0 - 1e-9).ceil() / 10.0;
    let times = if times < 9.95 { format!("{times:.1}") } else { format!("{times:.0}") };
    let times = times.strip_suffix(".0").unwrap_or(&times);
    match verdict {
        Verdict::Reached => format!("{words} within {times}x"),
        Verdict::Off => format!("{times}x off"),
        _ => format!("{words}, {times}x off"),
    }
}

/// How many published figures have verdicts, and how many a constant prediction would reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Score {
    pub(crate) figures: usize,
    pub(crate) reached: usize,
    /// Reached, or in direction at least.
    pub(crate) directed: usize,
    /// The number that [`Null::Same`] would reach.
    pub(crate) null: usize,
}

/// A model that knows no machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Null {
    /// Every ratio is 1, and any other metric always the mean of what was published of it.
    Same,
    /// Every figure is the mean of what was published of its metric.
    Mean,
}

/// The prediction of a null model for a metric that has these published figures. Means are
/// geometric.
pub(crate) fn predicted(null: Null, kind: FigureKind, published: &[f64]) -> f64 {
    match (null, side(kind, 1.0)) {
        (Null::Same, Some(_)) => 1.0,
        _ => (published.iter().map(|it| it.ln()).sum::<f64>() / published.len() as f64).exp(),
    }
}

/// Whether a figure without a band reaches a published one.
pub(crate) fn is_reached(kind: FigureKind, found: f64, published: f64) -> bool {
    judge(kind, found, (found, found), published, false).verdict == Verdict::Reached
}

/// The score of published figures: the scenario and metric, its kind, the figure and the verdict.
pub(crate) fn score<'a>(
    figures: impl Iterator<Item = ((&'a str, &'a str), FigureKind, f64, Verdict)>,
) -> Score {
    let mut score = Score::default();
    let mut published = BTreeMap::<_, (Vec<f64>, Option<FigureKind>)>::new();
    for (metric, kind, figure, verdict) in figures {
        score.figures += 1;
        score.reached += usize::from(verdict == Verdict::Reached);
        score.directed += usize::from(matches!(verdict, Verdict::Reached | Verdict::Direction));
        let of = published.entry(metric).or_default();
        of.0.push(figure);
        of.1 = Some(kind);
    }
    for (figures, kind) in published.values() {
        let Some(kind) = *kind else { continue };
        let constant = predicted(Null::Same, kind, figures);
        score.null += figures.iter().filter(|it| is_reached(kind, constant, **it)).count();
    }
    score
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Score { figures, reached, directed, null } = self;
        let more = directed - reached;
        write!(
            f,
            "{reached} of {figures} published figures are reached in size, {more} more in \
             direction; a null model (every ratio 1, every time the same) would reach {null}"
        )
    }
}

/// The text of `coreline explain verdicts`.
pub(crate) const EXPLAINED: &str = "\
A verdict compares a simulated figure with the published one. It takes every
point of the band into account, from the lowest to the highest.

A figure that says which of two alternatives is better (a ratio, a gain) is
judged by its side first: above 1, below 1, or within 5 % of 1.

  reached within Nx        on the published side, and at every point of the band
                           within N times of the published figure. N is at most
                           1.5 for ratios on one contended line, and 2 for all
                           other ratios. Near 1, N compares the logarithms of
                           the two ratios: log 1.22 is 2.6 times log 1.08.
  direction, Nx off        on the published side, but of another size
  against                  on the other side
  no effect                the two alternatives are alike in the simulation
  undecided                the band lies on both sides

A figure without sides (a time, a rate, a percentage):

  reached within Nx        within N times at every point of the band; N is at
                           most 2
  Nx off                   farther away at some point of the band
  undecided                near, but a parameter that we chose decides it

A figure that a parameter of ours decides is never \"reached\": a ratio is called
\"direction\" at best, any other figure \"undecided\".

  not testable             all CPUs of this machine share one cache: it has no
                           distances to measure
  (nothing)                nothing is published for this machine

The null model shows how much a score is worth. It knows no machine. It predicts
1 for every ratio. For every other metric, it always predicts the geometric mean
of the published figures. Each score is shown next to the null model's score.
";

#[cfg(test)]
mod tests {
    use super::*;

    /// FigureKind, value, band and published figure; the expected verdict, and the factor or 0.
    type Case = (FigureKind, f64, (f64, f64), f64, Verdict, f64);

    fn check(limited: bool, cases: &[Case]) {
        for &(kind, value, band, published, verdict, times) in cases {
            let judged = judge(kind, value, band, published, limited);
            let case = format!("{kind:?} {value} {band:?} for {published}, limited: {limited}");
            assert_eq!(judged.verdict, verdict, "{case}: {judged:?}");
            let said = judged.times.unwrap_or(0.0);
            if verdict == Reached && times == 0.0 {
                assert!(said <= kind.factor(), "{case}: {judged:?}");
            } else {
                assert!((said - times).abs() < 0.05, "{case}: {judged:?}");
            }
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
            (Verdict::Direction, Some(4.96), "direction, 5x off"),
            (Verdict::Direction, Some(2.51), "direction, 2.6x off"),
            (Verdict::Off, Some(63.91), "64x off"),
            (Verdict::Off, Some(9.97), "10x off"),
            (Verdict::Reached, Some(1.3), "reached within 1.3x"),
            (Verdict::Reached, Some(1.31), "reached within 1.4x"),
            (Verdict::Reached, None, "reached"),
            (Verdict::NoEffect, None, "no effect"),
            (Verdict::None, None, ""),
        ] {
            assert_eq!(said(verdict, times), words);
        }
    }

    #[test]
    fn a_null_model_reaches_times_that_are_alike_and_no_ratio() {
        let gain = |published, verdict| (("a", "gain"), Gain, published, verdict);
        let time = |published| (("a", "ns"), Nanoseconds, published, Off);
        let gains = [gain(1.3, Reached), gain(7.0, Direction), gain(0.9, Against)];
        let score = |figures: &[_]| score(figures.iter().copied());
        let of_gains = Score { figures: 3, reached: 1, directed: 2, null: 0 };
        assert_eq!(score(&gains), of_gains);
        // The mean of 100 and 200 is within 2 times of both; that of 100 and 1000 of neither.
        assert_eq!(score(&[time(100.0), time(200.0)]).null, 2);
        assert_eq!(score(&[time(100.0), time(1000.0)]).null, 0);
        // Two metrics have a constant each.
        let other = (("b", "ns"), Nanoseconds, 1000.0, Off);
        assert_eq!(score(&[time(100.0), other]).null, 2);
    }

    #[test]
    fn the_explanation_has_every_verdict_and_fits_a_page() {
        for verdict in [Reached, Direction, Against, NoEffect, Off, Undecided, Verdict::NotTestable]
        {
            assert!(EXPLAINED.contains(verdict.words()), "{verdict:?}");
        }
        assert!(EXPLAINED.lines().all(|line| line.len() <= 80));
        assert!(EXPLAINED.contains("1.5 for ratios") && ContendedRatio.factor() == 1.5);
    }
}
