//! How each curve changed since it was blessed.
//!
//! A curve is worse if its throughput with some number of threads fell by the tolerance, and fell
//! at every point of the band. The least number of threads that is worse says where two curves
//! part.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::baseline::{Baseline, Curve};
use super::record::{Hottest, Key, Record};
use super::{Choice, build};

/// The curves of both sides, and whether they pass.
#[derive(Debug, Serialize)]
pub(super) struct Gate {
    schema: &'static str,
    /// The version of coreline-sim that simulated the curves.
    pub(super) simulator: String,
    /// Percent.
    pub(super) tolerance: f64,
    /// How many fail.
    pub(super) failing: usize,
    pub(super) curves: Vec<Compared>,
    /// How the tests ended, if one failed.
    pub(super) tests: Option<String>,
    /// Why the curves were blessed, if they were.
    pub(super) blessed: Option<String>,
}

/// A curve before and now.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    #[serde(flatten)]
    pub(super) key: Key,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
    /// The highest numbers of threads to which the curve scaled and scales, if it existed and
    /// exists.
    pub(super) scaled_to: Option<usize>,
    pub(super) scales_to: Option<usize>,
    pub(super) rows: Vec<Compare>,
    /// Of the number of threads from which it is worse.
    pub(super) hottest: Option<Hottest>,
    /// The command that repeats that run and prints its report.
    pub(super) again: Option<String>,
}

/// The throughput with a number of threads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Compare {
    pub(super) threads: usize,
    /// Operations per simulated second at the default point.
    pub(super) before: Option<f64>,
    pub(super) now: Option<f64>,
    /// Now over before: at the default point, the lowest and the highest of all points.
    pub(super) ratio: Option<[f64; 3]>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(into = "Flat")]
pub(super) enum Verdict {
    /// It is as it was, within the tolerance.
    Same,
    /// It is better with this number of threads and perhaps others, and worse with none.
    Better { from: usize },
    /// It is worse from this number of threads on.
    Worse { from: usize },
    /// The baseline does not have it.
    New,
    /// No test measured it.
    Gone,
    /// It cannot be compared.
    Other { why: String },
}

/// A verdict as JSON, whose fields are always there.
#[derive(Serialize)]
struct Flat {
    verdict: &'static str,
    from: Option<usize>,
    why: Option<String>,
}

impl From<Verdict> for Flat {
    fn from(verdict: Verdict) -> Flat {
        let (verdict, from, why) = match verdict {
            Verdict::Same => ("same", None, None),
            Verdict::Better { from } => ("better", Some(from), None),
            Verdict::Worse { from } => ("worse", Some(from), None),
            Verdict::New => ("new", None, None),
            Verdict::Gone => ("gone", None, None),
            Verdict::Other { why } => ("other", None, Some(why)),
        };
        Flat { verdict, from, why }
    }
}

impl Verdict {
    pub(super) fn fails(&self) -> bool {
        !matches!(self, Verdict::Same | Verdict::Better { .. })
    }
}

impl Gate {
    /// Compares. Curves that no test measured are left out of a `partial` comparison, and if a test
    /// failed: Cargo stops at the first program with such a test.
    pub(super) fn new(
        baseline: &Baseline,
        records: &BTreeMap<Key, Record>,
        choice: &Choice,
        tests: Option<String>,
    ) -> Gate {
        let Choice { tolerance, partial, ref cargo, .. } = *choice;
        let options = build::options(cargo);
        let keys: BTreeSet<&Key> = match partial || tests.is_some() {
            true => records.keys().collect(),
            false => baseline.curves.keys().chain(records.keys()).collect(),
        };
        let simulator = records.values().next().map(|record| record.simulator.clone());
        let simulator = simulator.unwrap_or_default();
        let compared = keys.into_iter().map(|key| {
            let now = records.get(key);
            let was = &baseline.simulator;
            let other = now.filter(|now| now.simulator != *was);
            let other =
                other.map(|now| format!("coreline-sim changed from {was} to {}", now.simulator));
            let then = baseline.curves.get(key);
            Compared::new(key.clone(), then, now, tolerance / 100.0, &options, other)
        });
        let curves: Vec<Compared> = compared.collect();
        Gate {
            schema: "coreline.scale/1",
            simulator,
            tolerance,
            failing: curves.iter().filter(|curve| curve.verdict.fails()).count(),
            curves,
            tests,
            blessed: None,
        }
    }
}

impl Compared {
    fn new(
        key: Key,
        then: Option<&Curve>,
        record: Option<&Record>,
        tolerance: f64,
        options: &[String],
        other: Option<String>,
    ) -> Compared {
        let now = record.map(|record| Curve::new(record, ""));
        let rows = rows(then, now.as_ref());
        let verdict = match (then, &now) {
            (None, _) => Verdict::New,
            (_, None) => Verdict::Gone,
            (Some(then), Some(now)) => match other.or_else(|| differs(then, now)) {
                Some(why) => Verdict::Other { why },
                None => judged(then, now, tolerance),
            },
        };
        let at = match verdict {
            Verdict::Worse { from } => Some(from),
            _ => None,
        };
        let row = record.zip(at).and_then(|(record, at)| {
            record.rows.iter().find(|row| row.threads == at).map(|row| (record, row))
        });
        let again = row.map(|(record, row)| {
            let package = Some(&key.package).filter(|package| !package.is_empty());
            let package = package.map_or(String::new(), |it| format!(" -p {}", quoted(it)));
            // The runner of tests calls a thread so if it runs all tests on one.
            let test = Some(&record.test).filter(|test| !test.is_empty() && *test != "main");
            let test = test.map_or(String::new(), |it| format!(" {}", quoted(it)));
            let line = quoted(&row.replay);
            let options: String = options.iter().map(|it| format!(" {}", quoted(it))).collect();
            format!("CORELINE_REPLAY={line} cargo test{options}{package}{test} -- --nocapture")
        });
        Compared {
            scaled_to: then.map(|curve| curve.scales_to),
            scales_to: now.as_ref().map(|curve| curve.scales_to),
            hottest: row.and_then(|(_, row)| row.hottest.clone()),
            key,
            verdict,
            rows,
            again,
        }
    }
}

/// A word of a shell's command.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-:./".contains(letter);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Why two curves cannot be compared.
fn differs(then: &Curve, now: &Curve) -> Option<String> {
    let threads = |curve: &Curve| {
        let numbers: Vec<String> = curve.rates.keys().map(usize::to_string).collect();
        numbers.join(", ")
    };
    if threads(then) != threads(now) {
        return Some(format!(
            "the numbers of threads changed from {} to {}",
            threads(then),
            threads(now)
        ));
    }
    let is_other = then.band != now.band
        || then.rates.values().map(Vec::len).ne(now.rates.values().map(Vec::len));
    is_other.then(|| "the machine file, the band or the seed has changed".to_owned())
}

fn judged(then: &Curve, now: &Curve, tolerance: f64) -> Verdict {
    let ratios: Vec<(usize, Vec<f64>)> = then
        .rates
        .iter()
        .map(|(&threads, rates)| (threads, ratios(rates, &now.rates[&threads])))
        .collect();
    let first = |is_so: &dyn Fn(&[f64]) -> bool| {
        ratios.iter().find(|(_, ratios)| is_so(ratios)).map(|(threads, _)| *threads)
    };
    let worse = |ratios: &[f64]| {
        ratios.iter().all(|&it| it < 1.0) && ratios.first().is_some_and(|&it| it <= 1.0 - tolerance)
    };
    let better = |ratios: &[f64]| {
        ratios.iter().all(|&it| it > 1.0)
            && ratios.first().is_some_and(|&it| it >= 1.0 / (1.0 - tolerance))
    };
    match (first(&worse), first(&better)) {
        (Some(from), _) => Verdict::Worse { from },
        (None, Some(from)) => Verdict::Better { from },
        (None, None) => Verdict::Same,
    }
}

fn ratios(before: &[f64], now: &[f64]) -> Vec<f64> {
    before.iter().zip(now).map(|(before, now)| now / before).collect()
}

fn rows(then: Option<&Curve>, now: Option<&Curve>) -> Vec<Compare> {
    let rates = |curve: Option<&Curve>, threads: &usize| curve?.rates.get(threads).cloned();
    let all = then.into_iter().chain(now).flat_map(|curve| curve.rates.keys());
    let all: BTreeSet<usize> = all.copied().collect();
    let row = |threads| {
        let (before, now) = (rates(then, &threads), rates(now, &threads));
        let ratio = before.as_ref().zip(now.as_ref()).and_then(|(before, now)| {
            let ratios = ratios(before, now);
            let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let high = ratios.iter().copied().fold(0.0, f64::max);
            Some([*ratios.first()?, low, high]).filter(|_| before.len() == now.len())
        });
        let first = |rates: Option<Vec<f64>>| rates.and_then(|rates| rates.first().copied());
        Compare { threads, before: first(before), now: first(now), ratio }
    };
    all.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(rates: &[(usize, [f64; 2])]) -> Curve {
        let rates = rates.iter().map(|(threads, rates)| (*threads, rates.to_vec())).collect();
        Curve { band: "b".to_owned(), reason: String::new(), scales_to: 1, rates }
    }

    #[test]
    fn a_curve_is_worse_if_it_fell_everywhere_and_by_the_tolerance() {
        let then = curve(&[(1, [100.0, 100.0]), (24, [2000.0, 1800.0])]);
        for (first, second, verdict) in [
            ([100.0, 100.0], [2000.0, 1800.0], Verdict::Same),
            ([100.0, 100.0], [1801.0, 1000.0], Verdict::Same),
            ([100.0, 100.0], [1799.0, 1799.0], Verdict::Worse { from: 24 }),
            ([100.0, 100.0], [1000.0, 1801.0], Verdict::Same),
            ([90.0, 99.0], [9000.0, 9000.0], Verdict::Worse { from: 1 }),
            ([112.0, 101.0], [2000.0, 1800.0], Verdict::Better { from: 1 }),
            ([112.0, 100.0], [2000.0, 1800.0], Verdict::Same),
        ] {
            let now = curve(&[(1, first), (24, second)]);
            assert_eq!(judged(&then, &now, 0.1), verdict, "{now:?}");
        }
    }

    #[test]
    fn what_cannot_be_compared_says_why() {
        let then = curve(&[(1, [1.0; 2]), (24, [1.0; 2])]);
        let why = differs(&then, &curve(&[(1, [1.0; 2])])).expect("other threads");
        assert_eq!(why, "the numbers of threads changed from 1, 24 to 1");
        let other = Curve { band: "c".to_owned(), ..then.clone() };
        assert!(differs(&then, &other).is_some_and(|why| why.contains("the band")));
        assert_eq!(differs(&then, &then), None);
    }
}
