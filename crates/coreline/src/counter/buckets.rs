//! [`Buckets`]: which values a histogram counts together.
//!
//! Log-linear buckets are those of Gil Tene's [HdrHistogram][hdr]: a value keeps its `b` highest
//! bits, counted from the leading one, and its magnitude. So each range from 2^k to 2^(k+1) has
//! 2^(b-1) buckets of equal width.
//!
//! ```text
//! value, of 4 bits and more:  1 m m x x x x     b = 3: 1 m m is kept, x is not
//! shift:                            \_____/     the number of bits x
//! index:                      shift * 2^(b-1) + 1 m m
//! ```
//!
//! Values below 2^b have no bits to lose: the shift is 0, and the index is the value. With the next
//! shift the index continues, because `1 m m` begins at 2^(b-1).
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `MOST_BOUNDS`, `MOST_BITS` | less than documented | memory | `buckets_that_do_not_exist_..` |
//!
//! [hdr]: https://github.com/HdrHistogram/HdrHistogram

use std::sync::Arc;

/// The most bounds that a program may give.
const MOST_BOUNDS: usize = 1 << 16;
/// The most significant bits.
const MOST_BITS: u32 = 13;

/// The reason why buckets cannot be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BucketsError {
    /// The caller gave no bounds.
    #[error("a histogram needs a bucket: give one bound or more")]
    Empty,
    /// A bound is not above the bound before it.
    #[error(
        "bound {index} of the buckets is not above the previous bound: sort the bounds, and give \
         each bound once"
    )]
    NotSorted {
        /// The index of the bound.
        index: usize,
    },
    /// There are more bounds than a histogram may have.
    #[error("there are more than {most} bounds: give fewer bounds, or use log-linear buckets")]
    TooMany {
        /// The largest possible number of bounds.
        most: usize,
    },
    /// The requested precision is not possible.
    #[error("buckets of {asked} significant bits are not possible: give 1 to {most}")]
    Bits {
        /// The requested number of bits.
        asked: u32,
        /// The largest possible number of bits.
        most: u32,
    },
}

/// The buckets of a [`Histogram`](super::Histogram). The histogram counts the values of a bucket
/// together. Clones share their memory.
///
/// ```
/// use coreline::counter::{Buckets, BucketsError};
///
/// let by_size = Buckets::bounds([100, 1_000, 10_000])?;
/// let by_latency = Buckets::log_linear(8)?;
/// assert_eq!(Buckets::bounds([2, 2]), Err(BucketsError::NotSorted { index: 1 }));
/// # Ok::<(), BucketsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets(Rule);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    /// The greatest value of each bucket, rising up to `u64::MAX`.
    Bounds(Arc<[u64]>),
    /// How many bits below the leading one a value keeps.
    Below(u32),
}

impl Buckets {
    /// Creates buckets with these upper bounds. A value belongs to the first bucket whose bound it
    /// does not exceed, as with the `le` of Prometheus. Values above all bounds belong to one more
    /// bucket, whose bound is `u64::MAX`.
    ///
    /// A record finds its bucket by a binary search of the bounds.
    ///
    /// # Errors
    ///
    /// [`BucketsError`] if there are no bounds or more than 65,536, or if a bound is not above the
    /// bound before it.
    pub fn bounds(bounds: impl IntoIterator<Item = u64>) -> Result<Self, BucketsError> {
        // No more than show that they are too many: the iterator may have no end.
        let mut bounds: Vec<u64> = bounds.into_iter().take(MOST_BOUNDS + 1).collect();
        if bounds.len() > MOST_BOUNDS {
            return Err(BucketsError::TooMany { most: MOST_BOUNDS });
        }
        if let Some(before) = bounds.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(BucketsError::NotSorted { index: before + 1 });
        }
        match bounds.last() {
            None => return Err(BucketsError::Empty),
            Some(&u64::MAX) => {}
            Some(_) => bounds.push(u64::MAX),
        }
        Ok(Buckets(Rule::Bounds(bounds.into())))
    }

    /// Creates buckets for all values of a `u64`. The values of one bucket agree in their `bits`
    /// most significant bits. They differ by less than one part in 2^(`bits` - 1):
    ///
    /// | bits | values of a bucket differ by less than | buckets | memory, and per CPU at most |
    /// |---|---|---|---|
    /// | 1 | 100 % (powers of two) | 65 | 1.4 KB, 0.5 KB |
    /// | 5 | 6.25 % | 976 | 20 KB, 7.8 KB |
    /// | 8 | 0.79 % (HdrHistogram's 2 digits) | 7,424 | 153 KB, 60 KB |
    /// | 11 | 0.098 % (HdrHistogram's 3 digits) | 56,320 | 1.2 MB, 0.45 MB |
    /// | 13 | 0.025 % | 217,088 | 4.5 MB, 1.7 MB |
    ///
    /// # Errors
    ///
    /// [`BucketsError::Bits`] if `bits` is less than 1 or more than 13.
    pub fn log_linear(bits: u32) -> Result<Self, BucketsError> {
        if !(1..=MOST_BITS).contains(&bits) {
            return Err(BucketsError::Bits { asked: bits, most: MOST_BITS });
        }
        Ok(Buckets(Rule::Below(bits - 1)))
    }

    /// Returns the number of buckets.
    pub(super) fn number(&self) -> usize {
        self.index(u64::MAX) + 1
    }

    /// Returns the bucket of a value.
    #[inline]
    pub(super) fn index(&self, value: u64) -> usize {
        match &self.0 {
            Rule::Bounds(bounds) => bounds.partition_point(|bound| *bound < value),
            Rule::Below(below) => {
                // Below 2^bits nothing is lost.
                let leading = (value | 1 << below).ilog2();
                let shift = leading - below;
                // At most 64 shifts of 2^12: it fits.
                ((u64::from(shift) << below) + (value >> shift)) as usize
            }
        }
    }

    /// Returns the lowest and the greatest value of a bucket.
    pub(super) fn range(&self, index: usize) -> (u64, u64) {
        match &self.0 {
            Rule::Bounds(bounds) => {
                let low = index.checked_sub(1).map_or(0, |before| bounds[before] + 1);
                (low, bounds[index])
            }
            Rule::Below(below) => {
                let shift = (index >> below).saturating_sub(1);
                let low = ((index - (shift << below)) as u64) << shift;
                (low, low + ((1 << shift) - 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Buckets> {
        let mut all: Vec<_> = (1..=8).map(|bits| Buckets::log_linear(bits).unwrap()).collect();
        all.push(Buckets::bounds([0]).unwrap());
        all.push(Buckets::bounds([u64::MAX]).unwrap());
        all.push(Buckets::bounds([7, 8, 1000, u64::MAX - 1]).unwrap());
        all
    }

    #[test]
    fn buckets_cover_every_value_once_and_in_order() {
        for buckets in some() {
            let mut next = Some(0);
            for index in 0..buckets.number() {
                let (low, high) = buckets.range(index);
                assert_eq!(Some(low), next, "bucket {index} of {buckets:?}");
                assert_eq!((buckets.index(low), buckets.index(high)), (index, index));
                next = high.checked_add(1);
            }
            assert_eq!(next, None, "{buckets:?}");
        }
    }

    #[test]
    fn log_linear_buckets_are_as_narrow_as_they_say() {
        let numbers = [65, 976, 7_424, 56_320, 217_088];
        for (bits, number) in [1, 5, 8, 11, 13].into_iter().zip(numbers) {
            let buckets = Buckets::log_linear(bits).unwrap();
            assert_eq!(buckets.number(), number);
            for index in 0..number {
                let (low, high) = buckets.range(index);
                let apart = u128::from(high - low) << (bits - 1);
                assert!(apart < u128::from(low.max(1)), "{low} to {high} with {bits} bits");
            }
        }
    }

    #[test]
    fn buckets_that_do_not_exist_are_refused() {
        assert_eq!(Buckets::bounds([]), Err(BucketsError::Empty));
        assert_eq!(Buckets::bounds([1, 3, 2]), Err(BucketsError::NotSorted { index: 2 }));
        let most = 1 << 16;
        assert!(Buckets::bounds(0..most).is_ok());
        let too_many = BucketsError::TooMany { most: 1 << 16 };
        assert_eq!(Buckets::bounds(0..most + 1), Err(too_many));
        for asked in [0, 14, u32::MAX] {
            assert_eq!(Buckets::log_linear(asked), Err(BucketsError::Bits { asked, most: 13 }));
        }
    }
}
