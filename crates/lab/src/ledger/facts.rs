//! The published figures that are one fact, and how many facts are reached: by the simulator, and
//! by models that know no machine.
//!
//! Figures are **one fact** if the simulator cannot be right about one of them and wrong about the
//! other for a reason of its own: it says the same of both at every point of the band, as for each
//! area of memory that did not move. A **quotient** of two other listed figures is not a fact. A
//! fact is as good as its worst figure. If a declared parameter decides a fact, its size proves
//! nothing, and it is not judged.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use coreline_scenarios::Scenario;
use coreline_scenarios::figure::{Figure, Made};
use serde::Serialize;

use super::entry::Entry;
use crate::run::verdict::{self, Null, Verdict};

/// Values that differ by less than this share are the same.
const SAME: f64 = 0.02;

/// A scenario on a machine.
#[derive(Debug, Serialize)]
pub(super) struct Account {
    pub(super) scenario: &'static str,
    pub(super) machine: String,
    pub(super) command: String,
    pub(super) sources: Vec<String>,
    pub(super) score: Score,
    #[serde(skip)]
    pub(super) facts: Vec<Fact>,
    pub(super) entries: Vec<Entry>,
}

/// Figures that are one fact, as places among the entries.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) figures: Vec<usize>,
    /// Whether a declared parameter decides it.
    pub(super) declared: bool,
    /// That of the worst figure.
    pub(super) verdict: Verdict,
}

/// The verdicts, from the best to the worst.
pub(super) const VERDICTS: [Verdict; 6] = [
    Verdict::Reached,
    Verdict::Direction,
    Verdict::Undecided,
    Verdict::Off,
    Verdict::NoEffect,
    Verdict::Against,
];

/// The totals of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct Score {
    pub(super) figures: usize,
    pub(super) facts: usize,
    /// The facts that a declared parameter decides.
    pub(super) declared: usize,
    /// Of those, the ones that lie on the published side.
    pub(super) declared_directed: usize,
    /// The other facts, which are judged.
    pub(super) judged: usize,
    pub(super) reached: usize,
    /// The judged facts that are reached, or lie on the published side at least.
    pub(super) directed: usize,
    /// The judged facts that [`Null::Same`] reaches.
    pub(super) null_same: usize,
    /// The judged facts that [`Null::Mean`] reaches.
    pub(super) null_mean: usize,
}

impl AddAssign for Score {
    fn add_assign(&mut self, more: Score) {
        let Score { figures, facts, declared, declared_directed, judged, reached, .. } = more;
        self.figures += figures;
        self.facts += facts;
        self.declared += declared;
        self.declared_directed += declared_directed;
        self.judged += judged;
        self.reached += reached;
        self.directed += more.directed;
        self.null_same += more.null_same;
        self.null_mean += more.null_mean;
    }
}

/// Whether a figure is a quotient of two others that are listed.
fn is_quotient(scenario: &Scenario, entry: &Entry, all: &[Entry]) -> bool {
    let of_metric = |it: &&Figure| it.metric.name == entry.metric;
    let Some(&Figure { made: Made::Over(number, other) | Made::Under(number, other), .. }) =
        scenario.figures.iter().find(of_metric)
    else {
        return false;
    };
    let is_base = |it: &&Figure| match it.made {
        Made::Number(of) | Made::Scaled(of, _) => of == number,
        _ => false,
    };
    let is_listed = |metric: &str, variant: &str| {
        let is_it = |it: &Entry| {
            it.metric == metric
                && it.variant == variant
                && it.config == entry.config
                && it.params == entry.params
        };
        all.iter().any(is_it)
    };
    let has_both = |base: &Figure| {
        is_listed(base.metric.name, entry.variant) && is_listed(base.metric.name, other)
    };
    scenario.figures.iter().filter(is_base).any(has_both)
}

/// Whether the simulator says the same of two figures, and knows equally much of them.
fn are_one(one: &Entry, other: &Entry) -> bool {
    let same = |(one, other): (&f64, &f64)| (one / other - 1.0).abs() < SAME;
    one.unit == other.unit
        && one.declared.is_empty() == other.declared.is_empty()
        && one.points.len() == other.points.len()
        && one.points.iter().zip(&other.points).all(same)
}

/// Finds the facts of a scenario on a machine, and numbers them in their figures.
pub(super) fn group(scenario: &Scenario, entries: &mut [Entry]) -> Vec<Fact> {
    let mut facts = Vec::<Fact>::new();
    for at in 0..entries.len() {
        if is_quotient(scenario, &entries[at], entries) {
            continue;
        }
        let is_of = |fact: &Fact| are_one(&entries[fact.figures[0]], &entries[at]);
        let known = facts.iter().position(is_of);
        let declared = !entries[at].declared.is_empty();
        let number = known.unwrap_or_else(|| {
            facts.push(Fact { figures: Vec::new(), declared, verdict: Verdict::Reached });
            facts.len() - 1
        });
        facts[number].figures.push(at);
        entries[at].fact = Some(number + 1);
    }
    let rank = |verdict| VERDICTS.iter().position(|it| *it == verdict);
    for fact in &mut facts {
        let verdicts = fact.figures.iter().map(|&at| entries[at].verdict);
        fact.verdict = verdicts.max_by_key(|it| rank(*it)).unwrap_or(Verdict::None);
    }
    facts
}

/// Sets the scores of all accounts: what a null model says of a metric depends on all that was
/// published of it.
pub(super) fn score(accounts: &mut [Account]) {
    let mut published = BTreeMap::<_, Vec<f64>>::new();
    for account in &*accounts {
        for entry in &account.entries {
            let of_metric = published.entry((account.scenario, entry.metric)).or_default();
            of_metric.push(entry.published);
        }
    }
    for account in accounts {
        let Account { scenario, entries, facts, score, .. } = account;
        let reaches = |null: Null, fact: &Fact| {
            fact.figures.iter().all(|&at| {
                let Entry { metric, kind, published: figure, .. } = entries[at];
                let constant = verdict::predicted(null, kind, &published[&(*scenario, metric)]);
                verdict::is_reached(kind, constant, figure)
            })
        };
        let directed = |fact: &&Fact| matches!(fact.verdict, Verdict::Reached | Verdict::Direction);
        let (declared, judged): (Vec<&Fact>, Vec<&Fact>) =
            facts.iter().partition(|fact| fact.declared);
        let count = |is_it: &dyn Fn(&Fact) -> bool| judged.iter().filter(|it| is_it(it)).count();
        *score = Score {
            figures: entries.len(),
            facts: facts.len(),
            declared: declared.len(),
            declared_directed: declared.iter().copied().filter(directed).count(),
            judged: judged.len(),
            reached: count(&|it| it.verdict == Verdict::Reached),
            directed: count(&|it| directed(&it)),
            null_same: count(&|it| reaches(Null::Same, it)),
            null_mean: count(&|it| reaches(Null::Mean, it)),
        };
    }
}

#[cfg(test)]
mod tests {
    use coreline_scenarios::metric::FigureKind::{Gain, Nanoseconds};

    use super::*;
    use crate::ledger::entry::tests::{entries, row};
    use crate::run::result::FigureRow;

    /// A time of a variant, at each point of the band.
    fn time(variant: &'static str, points: &[f64], published: f64, verdict: Verdict) -> FigureRow {
        FigureRow {
            variant,
            metric: "ns_per_burst",
            kind: Nanoseconds,
            unit: "ns",
            points: points.to_vec(),
            published: Some(published),
            ..row(1, "tick", verdict)
        }
    }

    fn account(rows: &[FigureRow]) -> Account {
        let mut entries = entries(rows);
        let facts = group(Scenario::named("intermittent").unwrap(), &mut entries);
        let mut all = [Account {
            scenario: "intermittent",
            machine: String::new(),
            command: String::new(),
            sources: Vec::new(),
            score: Score::default(),
            facts,
            entries,
        }];
        super::score(&mut all);
        let [account] = all;
        account
    }

    #[test]
    fn figures_of_which_the_simulator_says_the_same_are_one_fact() {
        let same = [907.0, 776.0];
        let speedup =
            FigureRow { variant: "recent", kind: Gain, ..row(1, "tick", Verdict::Reached) };
        let account = account(&[
            time("cpu-id", &same, 662.0, Verdict::Reached),
            time("recent", &[906.0, 777.0], 2423.0, Verdict::Off),
            time("first-fit", &[907.0, 1500.0], 900.0, Verdict::Reached),
            // Of two times that are listed.
            speedup,
        ]);
        let facts: Vec<_> = account.entries.iter().map(|it| it.fact).collect();
        assert_eq!(facts, [Some(1), Some(1), Some(2), None]);
        assert_eq!(account.facts[0].verdict, Verdict::Off, "as good as its worst figure");
        let Score { figures, facts, judged, reached, .. } = account.score;
        assert_eq!((figures, facts, judged, reached), (4, 2, 2, 1));
        // The mean of the times is 1121, and within 2 times of the last one only.
        assert_eq!((account.score.null_same, account.score.null_mean), (1, 1));
    }

    #[test]
    fn what_a_declared_parameter_decides_is_no_fact_that_is_judged() {
        let limited = |verdict| FigureRow {
            limited: true,
            ..time("recent", &[907.0, 776.0], 2423.0, verdict)
        };
        let known = time("cpu-id", &[907.0, 776.0], 662.0, Verdict::Reached);
        let account = account(&[known, limited(Verdict::Undecided)]);
        let Score { facts, declared, declared_directed, judged, reached, .. } = account.score;
        assert_eq!((facts, declared, declared_directed, judged, reached), (2, 1, 0, 1, 1));
    }

    #[test]
    fn a_quotient_alone_is_a_fact_and_a_null_model_may_know_the_mean_of_ratios() {
        let ratio = |delay| FigureRow { variant: "recent", ..row(delay, "tick", Verdict::Against) };
        let score = account(&[ratio(1), ratio(9)]).score;
        assert_eq!((score.facts, score.judged, score.reached, score.directed), (2, 2, 0, 0));
        assert_eq!((score.null_same, score.null_mean), (0, 2));
    }
}
