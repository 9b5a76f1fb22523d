//! How a figure is made of the numbers of runs.

use coreline_sim::Spec;

use super::metric::{FigureKind, Metric};
use super::point::Point;

/// A figure of a point, as data.
pub struct Figure {
    /// What it is of.
    pub metric: Metric,
    /// How it is made of a run's numbers.
    pub made: Made,
    /// Of which points; nothing is said of the others.
    pub when: fn(&Point) -> bool,
}

/// How a figure is made of numbers, which count from 0.
#[derive(Clone, Copy)]
pub enum Made {
    /// The number itself.
    Number(usize),
    /// Times a factor that the simulated machine has.
    Scaled(usize, fn(&Spec) -> Option<f64>),
    /// Over another one of the same run.
    Quotient(usize, usize),
    /// Over that of a variant.
    Over(usize, &'static str),
    /// That of a variant over it.
    Under(usize, &'static str),
}

impl Figure {
    /// Of all points.
    pub const fn new(name: &'static str, kind: FigureKind, made: Made) -> Figure {
        Figure { metric: Metric { name, kind }, made, when: |_| true }
    }

    /// Of such points only.
    pub const fn when(self, when: fn(&Point) -> bool) -> Figure {
        Figure { when, ..self }
    }

    /// `op_ns 12.00 ns`, of a number that a run has.
    pub(super) fn tell(&self, numbers: &[f64]) -> Option<String> {
        let Made::Number(number) = self.made else { return None };
        let Metric { name, kind } = self.metric;
        numbers.get(number).map(|value| format!("{name} {value:.2} {}", kind.unit()))
    }
}
