//! The computation of figures from the numbers of runs.

use coreline_sim::Spec;

use super::metric::{FigureKind, Metric};
use super::point::Point;

/// The definition of a figure, as data.
pub struct Figure {
    /// The metric that the figure shows.
    pub metric: Metric,
    /// The computation of the figure from a run's numbers.
    pub made: Made,
    /// A function that returns whether a point has this figure.
    pub when: fn(&Point) -> bool,
}

/// The computation of a figure from numbers, which are counted from 0.
#[derive(Clone, Copy)]
pub enum Made {
    /// The number itself.
    Number(usize),
    /// The number, multiplied by a factor of the simulated machine.
    Scaled(usize, fn(&Spec) -> Option<f64>),
    /// The number, divided by another number of the same run.
    Quotient(usize, usize),
    /// The number, divided by the same number of the named variant.
    Over(usize, &'static str),
    /// The same number of the named variant, divided by the number.
    Under(usize, &'static str),
}

impl Figure {
    /// Creates a figure that all points have.
    pub const fn new(name: &'static str, kind: FigureKind, made: Made) -> Figure {
        Figure { metric: Metric { name, kind }, made, when: |_| true }
    }

    /// Limits the figure to the points for which `when` returns true.
    pub const fn when(self, when: fn(&Point) -> bool) -> Figure {
        Figure { when, ..self }
    }

    /// Returns whether the figure can be computed without the numbers of another variant.
    pub fn is_own(&self) -> bool {
        !matches!(self.made, Made::Over(..) | Made::Under(..))
    }

    /// `op_ns 12.00 ns`, of a number that a run has.
    pub(super) fn tell(&self, numbers: &[f64]) -> Option<String> {
        let Made::Number(number) = self.made else { return None };
        let Metric { name, kind } = self.metric;
        numbers.get(number).map(|value| format!("{name} {value:.2} {}", kind.unit()))
    }
}
