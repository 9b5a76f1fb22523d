//! Many samples in few numbers.

/// The middle and the least of some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    /// The middle sample; of an even number the mean of the two in the middle.
    pub(crate) median: f64,
    /// The least sample.
    pub(crate) min: f64,
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
        Some(Summary { median, min: sorted[0] })
    }
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
}
