//! The bounds of histograms, and which histogram has which.

use std::sync::Arc;

use coreline::world::{Native, Word, Words};

use crate::name;

/// The histograms that get some [bounds](crate::Builder::bounds_for).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matcher {
    /// The histogram with this name.
    Name(String),
    /// All histograms whose names begin with this prefix. If several prefixes match, the longest
    /// one applies.
    Prefix(String),
}

/// The reason why bounds were refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BoundsError {
    /// The list of bounds is empty.
    #[error("a histogram needs at least one bound, and got none; add one")]
    Empty,
    /// A bound is not a finite number.
    #[error("bound {index} is {value}, which is not finite; leave it out: the last bucket is +Inf")]
    NotFinite {
        /// The position of the bound, from 0.
        index: usize,
        /// The bound.
        value: f64,
    },
    /// A bound is not greater than the one before.
    #[error(
        "bound {index} is {value}, and the previous one is {before}; sort the bounds, and give \
         each one once"
    )]
    NotAscending {
        /// The position of the bound, from 0.
        index: usize,
        /// The bound.
        value: f64,
        /// The bound before.
        before: f64,
    },
}

/// The default bounds of a histogram: those of Prometheus's client libraries, for seconds.
pub const DEFAULT_BOUNDS: [f64; 11] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

pub(crate) fn checked(bounds: &[f64]) -> Result<Arc<[f64]>, BoundsError> {
    if bounds.is_empty() {
        return Err(BoundsError::Empty);
    }
    for (index, &value) in bounds.iter().enumerate() {
        if !value.is_finite() {
            return Err(BoundsError::NotFinite { index, value });
        }
        if let Some(&before) = index.checked_sub(1).map(|index| &bounds[index])
            && before >= value
        {
            return Err(BoundsError::NotAscending { index, value, before });
        }
    }
    Ok(bounds.into())
}

/// The bounds of all histograms.
#[derive(Debug, Clone)]
pub(crate) struct AllBounds {
    pub(crate) default: Arc<[f64]>,
    /// How many values were refused, in all histograms.
    pub(crate) nans: Arc<<Native as Words>::U64>,
    by_name: Vec<(Matcher, Arc<[f64]>)>,
}

impl Default for AllBounds {
    fn default() -> Self {
        let nans = Arc::new(Word::new_in(0));
        AllBounds { default: DEFAULT_BOUNDS.into(), nans, by_name: Vec::new() }
    }
}

impl AllBounds {
    /// Adds some. They replace those of the same matcher.
    pub(crate) fn add(&mut self, matcher: Matcher, bounds: Arc<[f64]>) {
        let matcher = match matcher {
            Matcher::Name(it) => Matcher::Name(name::metric(&it).into_owned()),
            // No name is empty, so this prefix would become that of some names.
            Matcher::Prefix(it) if it.is_empty() => Matcher::Prefix(it),
            Matcher::Prefix(it) => Matcher::Prefix(name::metric(&it).into_owned()),
        };
        self.by_name.retain(|(other, _)| *other != matcher);
        self.by_name.push((matcher, bounds));
    }

    /// The bounds of a family: by its name, else by the longest prefix, else the default.
    pub(crate) fn of(&self, family: &str) -> Arc<[f64]> {
        let fits = |matcher: &Matcher| match matcher {
            Matcher::Name(name) => (name == family).then_some(usize::MAX),
            Matcher::Prefix(prefix) => family.starts_with(prefix.as_str()).then_some(prefix.len()),
        };
        let fitting = self.by_name.iter().filter_map(|(it, bounds)| Some((fits(it)?, bounds)));
        let best = fitting.max_by_key(|(length, _)| *length).map(|(_, bounds)| bounds);
        Arc::clone(best.unwrap_or(&self.default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_found_by_name_then_by_the_longest_prefix() {
        let mut all = AllBounds::default();
        let some = |bound: f64| checked(&[bound]).unwrap();
        all.add(Matcher::Prefix(String::new()), some(0.5));
        all.add(Matcher::Prefix("http".into()), some(1.0));
        all.add(Matcher::Prefix("http.get".into()), some(2.0));
        all.add(Matcher::Name("http.get.time".into()), some(3.0));
        all.add(Matcher::Prefix("http.get.time.of".into()), some(4.0));
        for (name, bound) in
            [("http_x", 1.0), ("http_get_x", 2.0), ("http_get_time", 3.0), ("x", 0.5)]
        {
            assert_eq!(all.of(name)[0], bound, "{name}");
        }
        all.add(Matcher::Name("http_get_time".into()), some(5.0));
        assert_eq!(all.of("http_get_time")[0], 5.0);
    }

    #[test]
    fn bad_bounds_are_refused() {
        assert_eq!(checked(&[]), Err(BoundsError::Empty));
        assert!(matches!(checked(&[1.0, f64::NAN]), Err(BoundsError::NotFinite { index: 1, .. })));
        let infinite = Err(BoundsError::NotFinite { index: 0, value: f64::INFINITY });
        assert_eq!(checked(&[f64::INFINITY]), infinite);
        let error = checked(&[1.0, 1.0]).unwrap_err();
        assert_eq!(error, BoundsError::NotAscending { index: 1, value: 1.0, before: 1.0 });
        assert!(error.to_string().contains("sort the bounds"));
    }
}
