//! Many samples in few numbers.

/// The middle and the least of some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    /// The middle sample; of an even number the mean of the two in the middle.
    pub(crate) median: f64,
    /// The least sample.
    pub(crate) min: f64,
    /// The range of the median of many more samples, with 95 % confidence: between two of the
    /// samples, whatever their distribution. `None` of fewer than 6, which do not say.
    pub(crate) interval: Option<(f64, f64)>,
}

impl Summary {
    /// `None` of no samples.
    pub(crate) fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let upper = *sorted.get(sorted.len() / 2)?;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[sorted.len() / 2 - 1], upper),
            _ => upper,
        };
        let interval = outside(sorted.len())
            .map(|outside| (sorted[outside], sorted[sorted.len() - 1 - outside]));
        Some(Summary { median, min: sorted[0], interval })
    }
}

/// How many of this many sorted samples may be left out at either end, so that the median of what
/// they are drawn from is among the others with a probability of 95 %; `None` if all of them are
/// too few.
///
/// As many samples are below it as tosses of a coin show heads: the binomial distribution.
fn outside(samples: usize) -> Option<usize> {
    let mut heads = 0.5_f64.powi(samples as i32);
    let mut at_most = heads;
    let mut outside = 0;
    while at_most <= 0.025 {
        outside += 1;
        heads *= (samples + 1 - outside) as f64 / outside as f64;
        at_most += heads;
    }
    // The last one is too many: so few samples are below the median more often than allowed.
    outside.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let summary = |samples: &[f64]| Summary::of(samples).map(|s| (s.median, s.min));
        assert_eq!(summary(&[]), None);
        assert_eq!(summary(&[3.0]), Some((3.0, 3.0)));
        assert_eq!(summary(&[9.0, 1.0]), Some((5.0, 1.0)));
        assert_eq!(summary(&[100.0, 2.0, 3.0]), Some((3.0, 2.0)), "an outlier moves nothing");
        assert_eq!(summary(&[4.0, 1.0, 3.0, 2.0]), Some((2.5, 1.0)));
    }

    #[test]
    fn the_interval_is_that_of_the_tables() {
        // The usual tables count from 1 and name the sample itself: 1 of 6, 2 of 9, 6 of 21.
        for (samples, place) in [(1, 0), (5, 0), (6, 1), (8, 1), (9, 2), (15, 4), (21, 6)] {
            assert_eq!(outside(samples), usize::checked_sub(place, 1), "{samples}");
        }
        let samples: Vec<_> = (1..=21).map(f64::from).collect();
        assert_eq!(Summary::of(&samples).unwrap().interval, Some((6.0, 16.0)));
    }
}
