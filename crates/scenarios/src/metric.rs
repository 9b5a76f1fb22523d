//! What a figure measures, and how it is shown.

use serde::{Deserialize, Serialize};

/// What a figure measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name in results.
    pub name: &'static str,
    /// The kind of its figures.
    pub kind: FigureKind,
}

/// The kind of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureKind {
    /// An absolute time.
    Nanoseconds,
    /// The same, by a machine's clock.
    Cycles,
    /// A part of a whole that should be small.
    Percent,
    /// A part of a whole that should be large.
    Part,
    /// The cost of one alternative divided by that of another.
    Ratio,
    /// How much better one alternative is than another.
    Gain,
    /// The same, for operations on one contended line.
    ContendedRatio,
    /// A rank; 1 is the hottest.
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
    /// How many turns in a row.
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

    /// The name in results.
    pub fn unit(self) -> &'static str {
        self.facts().0
    }

    /// Which of two such figures is the better one.
    pub fn better(self) -> Better {
        self.facts().2
    }

    /// The factor within which we claim a figure to be right.
    pub fn factor(self) -> f64 {
        self.facts().3
    }

    /// The text of a figure: it has the decimals of its kind, and at least two digits, so that a
    /// figure that is not zero does not become zero.
    pub fn round(self, value: f64) -> f64 {
        let leading = value.abs().log10().floor();
        let needed = if leading.is_finite() { 1 - leading as i32 } else { 0 };
        let unit = 10f64.powi(self.facts().1.max(needed));
        (value * unit).round() / unit
    }
}

/// Which of two figures is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
}

impl Better {
    /// `less` or `more`.
    pub fn word(self) -> &'static str {
        match self {
            Better::Lower => "less",
            Better::Higher => "more",
        }
    }

    /// The same in a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Better::Lower => "less is better",
            Better::Higher => "more is better",
        }
    }
}
