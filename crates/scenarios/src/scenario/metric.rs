//! The quantities that figures measure, and their format.

use serde::{Deserialize, Serialize};

/// The quantity that a figure measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name of the metric in results.
    pub name: &'static str,
    /// The kind of the metric's figures.
    pub kind: FigureKind,
}

/// The kind of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureKind {
    /// An absolute time.
    Nanoseconds,
    /// An absolute time, in cycles of a machine's clock.
    Cycles,
    /// A part of a whole that should be small.
    Percent,
    /// A part of a whole that should be large.
    Part,
    /// The cost of one alternative, divided by the cost of another alternative.
    Ratio,
    /// The speedup of one alternative over another.
    Gain,
    /// The speedup of one alternative over another, for operations on one contended line.
    ContendedRatio,
    /// A rank. Rank 1 is the hottest line.
    Rank,
    /// A number per second.
    Rate,
    /// A number of line transfers.
    Transfers,
    /// An amount of memory, in bytes.
    Bytes,
    /// A number of slots.
    Slots,
    /// A number of events per thousand operations.
    PerThousand,
    /// A number of consecutive turns.
    Turns,
}

impl FigureKind {
    /// The unit, how many decimals are shown, which way is better, and the factor within which a
    /// figure is claimed to be right. A line is better off the farther it is from the hottest.
    const fn facts(self) -> (&'static str, i32, Better, f64) {
        match self {
            Self::Nanoseconds => ("ns", 1, Better::Lower, 2.0),
            Self::Cycles => ("cycles", 0, Better::Lower, 2.0),
            Self::Percent => ("%", 2, Better::Lower, 2.0),
            Self::Part => ("%", 2, Better::Higher, 2.0),
            Self::Ratio => ("ratio", 2, Better::Lower, 2.0),
            Self::Gain => ("ratio", 2, Better::Higher, 2.0),
            Self::ContendedRatio => ("ratio", 2, Better::Higher, 1.5),
            Self::Rank => ("rank", 0, Better::Higher, 2.0),
            Self::Rate => ("1/s", 0, Better::Higher, 2.0),
            Self::Transfers => ("transfers", 2, Better::Lower, 2.0),
            Self::Bytes => ("bytes", 0, Better::Lower, 2.0),
            Self::Slots => ("slots", 2, Better::Lower, 2.0),
            Self::PerThousand => ("per 1000", 2, Better::Lower, 2.0),
            Self::Turns => ("turns", 0, Better::Lower, 2.0),
        }
    }

    /// Returns the name of the unit in results.
    pub fn unit(self) -> &'static str {
        self.facts().0
    }

    /// Returns which of two figures of this kind is better.
    pub fn better(self) -> Better {
        self.facts().2
    }

    /// Returns the factor within which a figure is claimed to be correct.
    pub fn factor(self) -> f64 {
        self.facts().3
    }

    /// Rounds a figure to the decimals of its kind, but to no fewer than two significant digits. So
    /// a nonzero figure does not become zero.
    pub fn round(self, value: f64) -> f64 {
        let leading = value.abs().log10().floor();
        let needed = if leading.is_finite() { 1 - leading as i32 } else { 0 };
        let unit = 10f64.powi(self.facts().1.max(needed));
        (value * unit).round() / unit
    }
}

/// The direction in which figures are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// A lower figure is better.
    Lower,
    /// A higher figure is better.
    Higher,
}

impl Better {
    /// Returns `less` or `more`.
    pub fn word(self) -> &'static str {
        match self {
            Better::Lower => "less",
            Better::Higher => "more",
        }
    }

    /// Returns `less is better` or `more is better`.
    pub fn words(self) -> &'static str {
        match self {
            Better::Lower => "less is better",
            Better::Higher => "more is better",
        }
    }
}
