//! The numbers of points, and the figures computed from them.

use coreline_scenarios::figure::{Figure, Made};
use coreline_scenarios::metric::Metric;
use coreline_scenarios::point::Point;
use coreline_sim::{Spec, claim};
use serde::Serialize;

use super::published::Published;

/// A number of a point: at the band's default, and all over the band; natively the median, and the
/// number of each round that was kept. Those of two points correspond.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) value: f64,
    pub(super) points: Vec<f64>,
}

/// Why a figure has no value at its default, or somewhere in its band.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Lack {
    /// It is a ratio to a variant that completed no operation in its window: the window is too
    /// short for one operation.
    NoOperation,
}

impl Lack {
    /// In words, of a ratio to this variant.
    pub(super) fn said(self, beside: &str) -> String {
        match self {
            Lack::NoOperation => format!(
                "`{beside}` completed no operation in its window, so a ratio to it has no value; \
                 choose shorter operations, or leave out --quick"
            ),
        }
    }
}

impl Series {
    /// One over another, and point by point. A rate of 0 has no ratio to it, which is not a ratio
    /// of infinity.
    fn over(&self, that: &Series) -> Series {
        let ratio = |this: f64, that: f64| if that == 0.0 { f64::NAN } else { this / that };
        let points = self.points.iter().zip(&that.points).map(|(this, that)| ratio(*this, *that));
        Series { value: ratio(self.value, that.value), points: points.collect() }
    }

    fn is_zero_somewhere(&self) -> bool {
        self.points.iter().chain([&self.value]).any(|it| *it == 0.0)
    }

    fn times(&self, factor: f64) -> Series {
        let points = self.points.iter().map(|point| point * factor).collect();
        Series { value: self.value * factor, points }
    }

    /// The lowest and the highest; NaN if one of them is.
    pub(super) fn range(&self) -> (f64, f64) {
        claim::range(self.points.iter().copied().chain([self.value]))
    }
}

pub(super) struct Measured {
    pub(super) point: Point,
    /// How many last-level caches its CPUs have; 0 where that is not known.
    pub(super) caches: usize,
    pub(super) numbers: Vec<Series>,
    /// Which native rounds count. `None` if it is not known whether they were disturbed.
    pub(super) rounds: Option<Rounds>,
}

/// How many of a point's rounds were disturbed, as other programs used their CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rounds {
    /// How many do not count.
    pub(super) discarded: u32,
    /// How many were disturbed, of all.
    pub(super) disturbed: u32,
    /// Whether disturbed ones count, as there are too few others.
    pub(super) are_disturbed: bool,
}

/// The references for all figures of a result.
pub(super) struct Beside<'a> {
    /// None natively.
    pub(super) machine: Option<&'a Spec>,
    /// The published figures about the machine that this runs on.
    pub(super) published: Option<&'a Published>,
}

/// A figure of a point, and what was published of it.
pub(super) struct Shown<'a> {
    pub(super) of: &'a Measured,
    pub(super) metric: Metric,
    /// Whether it is computed from a figure of another variant.
    pub(super) derived: bool,
    pub(super) series: Series,
    /// Why it has no value somewhere, and the variant that lacks it.
    pub(super) lack: Option<(Lack, &'static str)>,
    pub(super) published: Option<(f64, String)>,
}

/// The figures of points that differ in their variant alone.
pub(super) fn figures<'a>(beside: &Beside<'_>, variants: &'a [Measured]) -> Vec<Shown<'a>> {
    let shown = |of: &'a Measured, figure: &Figure| {
        let series =
            (figure.when)(&of.point).then(|| beside.series(figure.made, of, variants))??;
        let published = beside.figure(figure, &of.point);
        let derived = !figure.is_own();
        let lack = lack(figure.made, of, variants);
        Some(Shown { of, metric: figure.metric, derived, series, lack, published })
    };
    let of =
        |of: &'a Measured| of.point.scenario.figures.iter().filter_map(move |it| shown(of, it));
    variants.iter().flat_map(of).collect()
}

/// The reason why a ratio of rates has no value. A variant has a rate of 0 if nothing was
/// completed.
fn lack(made: Made, this: &Measured, variants: &[Measured]) -> Option<(Lack, &'static str)> {
    let (number, by) = match made {
        Made::Over(number, beside) => (number, beside),
        Made::Under(number, _) => (number, this.point.variant),
        Made::Number(_) | Made::Scaled(..) | Made::Quotient(..) => return None,
    };
    let of = variants.iter().find(|it| it.point.variant == by)?;
    of.numbers.get(number)?.is_zero_somewhere().then_some((Lack::NoOperation, by))
}

/// The figures of one run on a machine, which need no run of another variant, by metric.
pub(crate) fn own_figures(spec: &Spec, point: &Point, numbers: &[f64]) -> Vec<(&'static str, f64)> {
    let series = |&value: &f64| Series { value, points: vec![value] };
    let numbers = numbers.iter().map(series).collect();
    let run = [Measured { point: point.clone(), caches: 0, numbers, rounds: None }];
    let shown = figures(&Beside { machine: Some(spec), published: None }, &run);
    shown.into_iter().map(|shown| (shown.metric.name, shown.series.value)).collect()
}

impl Beside<'_> {
    /// The values of a figure at a point; none if it cannot be computed.
    fn series(&self, made: Made, this: &Measured, variants: &[Measured]) -> Option<Series> {
        let of = |variant: &str| {
            let other = variants.iter().find(|other| other.point.variant == variant);
            other.filter(|_| this.point.variant != variant)
        };
        Some(match made {
            Made::Number(number) => this.numbers.get(number)?.clone(),
            Made::Scaled(number, factor) => this.numbers[number].times(factor(self.machine?)?),
            Made::Quotient(one, other) => this.numbers[one].over(&this.numbers[other]),
            Made::Over(number, beside) => this.numbers[number].over(&of(beside)?.numbers[number]),
            Made::Under(number, beside) => of(beside)?.numbers[number].over(&this.numbers[number]),
        })
    }

    /// The published value of a figure, and its source. If the ratio of two variants is not
    /// published, it follows from the two published numbers.
    fn figure(&self, figure: &Figure, point: &Point) -> Option<(f64, String)> {
        let published = self.published?;
        if let Some(found) = published.figure(figure.metric, point) {
            return Some(found);
        }
        let Made::Over(number, variant) = figure.made else { return None };
        let is_it = |it: &&Figure| matches!(it.made, Made::Number(of) if of == number);
        let of = point.scenario.figures.iter().find(is_it)?.metric;
        let (time, source) = published.figure(of, point)?;
        let ratio = time / published.figure(of, &point.of(variant))?.0;
        let source = format!("computed from the times of {source}");
        Some((figure.metric.kind.round(ratio), source))
    }
}
