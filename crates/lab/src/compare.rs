//! The verb `compare`: what changed between results of one scenario.
//!
//! | results | a figure changed if |
//! |---|---|
//! | simulated, one of each | it moved the same way at every point of the band |
//! | native, several of each | the test of Mann and Whitney says so |
//!
//! and its values differ by the threshold at least: what differs for certain can still be of no
//! interest. A simulated figure is the same each time, so whatever moved it was changed. Ratios to
//! another figure are left out: that figure is compared itself.
//!
//! The test ("On a Test of Whether one of Two Random Variables is Stochastically Larger than the
//! Other", 1947, <https://doi.org/10.1214/aoms/1177730491>) supposes no distribution. Of 20
//! comparisons of like with like at most one names a figure, however many figures there are
//! (Bonferroni's correction). That takes several results: five of each for 6 figures, and eight for
//! 160. The samples of one run cannot stand for them: a machine whose clock, neighbours or threads'
//! places change is slow for a whole run, and all samples of that run are. On two shared CPUs runs
//! of one program differ by a quarter.
//!
//! A figure that is marked as disturbed is left out and counted: the programs that ran beside it
//! may have made it slow, so it is evidence neither of a change nor of none.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use clap::Args;
use coreline_scenarios::metric::Better;
use coreline_sim::{Arbitration, Overlap};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::listing::Listing;
use crate::run::median;
use crate::run::result::read_back;
use crate::text::{Form, Tone, counted};

/// The part of comparisons of like with like that may name a figure, or several, as changed.
const CHANCE: f64 = 0.05;

#[derive(Args)]
pub(crate) struct Choice {
    /// The earlier results, separated by commas, as `coreline run SCENARIO --json --out FILE`
    /// writes them. Give one simulated result or several native ones. If you can, measure native
    /// ones alternately with the later ones
    #[arg(value_name = "BEFORE,...")]
    before: String,
    /// The later results
    #[arg(value_name = "AFTER,...")]
    after: String,
    /// The percentage by which a figure must change to count
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    #[arg(allow_negative_numbers = true)]
    threshold: f64,
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| (0.0..=1000.0).contains(value));
    value.ok_or_else(|| "expected a number from 0 to 1000, such as 5".to_owned())
}

/// A result of `coreline run`, as far as it is compared.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Run {
    program: Value,
    scenario: String,
    world: String,
    machine_digest: Value,
    here: Value,
    quick: bool,
    spans: String,
    seed: u64,
    seeds: u64,
    /// Older results do not contain this. Their arbitration was first-come.
    #[serde(default = "first_come")]
    arbitrations: Vec<String>,
    /// Older results do not contain this. Their accesses did not overlap.
    overlap: Option<String>,
    rows: Vec<Row>,
}

fn first_come() -> Vec<String> {
    vec![Arbitration::Fifo.to_string()]
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Row {
    config: String,
    params: BTreeMap<String, Value>,
    variant: String,
    metric: String,
    unit: String,
    better: Better,
    derived: bool,
    value: Option<f64>,
    points: Vec<Option<f64>>,
    /// Results of older programs do not say: they left such figures out.
    #[serde(default)]
    disturbed: bool,
}

/// The result of a comparison. The schema is `coreline.compare/1`.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    schema: &'static str,
    scenario: String,
    world: String,
    /// Percent.
    threshold: f64,
    /// How many figures both results have.
    compared: usize,
    /// How many have too few results for a test.
    untested: usize,
    /// How many values of the figures are left out, as other programs used the CPUs.
    disturbed: usize,
    /// How many results of each it takes natively, at the least.
    needed: Option<usize>,
    /// How many only one of the results has.
    unmatched: usize,
    worse: usize,
    better: usize,
    /// Other differences between the runs.
    differences: Vec<String>,
    changes: Vec<Change>,
}

#[derive(Debug, Serialize)]
struct Change {
    config: String,
    params: BTreeMap<String, Value>,
    variant: String,
    metric: String,
    unit: String,
    before: f64,
    after: f64,
    /// The ratio of the figure: after divided by before.
    ratio: f64,
    is_worse: bool,
}

pub(crate) fn compare(choice: &Choice) -> Result<Comparison, Error> {
    let mut seen = Vec::new();
    let mut read = |files: &str| {
        files.split(',').map(|path| read(Path::new(path), &mut seen)).collect::<Result<_, _>>()
    };
    outcome(read(&choice.before)?, read(&choice.after)?, choice.threshold)
}

/// Reads a result. No native result may occur twice, because a copy is not a second measurement.
fn read(path: &Path, seen: &mut Vec<Vec<u8>>) -> Result<Run, Error> {
    let (text, run): (Vec<u8>, Run) = read_back(path)?;
    if run.is_native() && seen.contains(&text) {
        let why = "it is a copy of another result, and no second measurement".to_owned();
        return Err(Error::Compared { path: path.to_owned(), why });
    }
    seen.push(text);
    Ok(run)
}

fn outcome(before: Vec<Run>, after: Vec<Run>, threshold: f64) -> Result<Comparison, Error> {
    let (earlier, later) = (&before[0], &after[0]);
    for run in before.iter().chain(&after) {
        earlier.is_comparable(run)?;
    }
    let is_native = earlier.is_native();
    if !is_native && before.len() + after.len() > 2 {
        let [before, after] = [before.len(), after.len()].map(|count| counted(count, "result"));
        return Err(Error::Repeated { before, after });
    }
    let figures = earlier.rows.iter().filter(|row| !row.derived).map(|row| {
        let [these, those] =
            [&before, &after].map(|runs| runs.iter().filter_map(|run| run.like(row)).collect());
        Figure { these, those }
    });
    let figures: Vec<Figure<'_>> = figures.filter(|figure| !figure.those.is_empty()).collect();
    let compared = figures.len();
    let level = is_native.then_some(CHANCE / compared.max(1) as f64);
    let disturbed = figures.iter().map(Figure::disturbed).sum();
    let (mut untested, mut changes) = (0, Vec::new());
    for figure in figures {
        match figure.change(level, threshold) {
            Some(change) => changes.extend(change),
            None => untested += 1,
        }
    }
    let alone = |this: &Run, that: &[Run]| {
        let is_alone = |row: &&Row| !row.derived && that.iter().all(|it| it.like(row).is_none());
        this.rows.iter().filter(is_alone).count()
    };
    let worse = changes.iter().filter(|change| change.is_worse).count();
    let mut differences: Vec<String> = Vec::new();
    for line in before.iter().chain(&after).flat_map(|run| earlier.differences(run)) {
        if !differences.contains(&line) {
            differences.push(line);
        }
    }
    Ok(Comparison {
        schema: "coreline.compare/1",
        threshold,
        compared,
        untested,
        disturbed,
        needed: level.and_then(|level| (2..=100).find(|count| at_best(*count, *count) < level)),
        unmatched: alone(earlier, &after) + alone(later, &before),
        worse,
        better: changes.len() - worse,
        differences,
        changes,
        scenario: earlier.scenario.clone(),
        world: earlier.world.clone(),
    })
}

impl Run {
    fn is_native(&self) -> bool {
        self.spans == "samples"
    }

    /// Of contended lines; nothing natively.
    fn arbitration(&self) -> String {
        if self.is_native() { String::new() } else { self.arbitrations.join(" and ") }
    }

    /// Of the accesses of a thread; nothing natively.
    fn overlap(&self) -> String {
        let serial = Overlap::Serial.to_string();
        if self.is_native() { String::new() } else { self.overlap.clone().unwrap_or(serial) }
    }

    fn is_comparable(&self, other: &Run) -> Result<(), Error> {
        let number = |of: u64| of.to_string();
        for (what, before, after) in [
            ("scenario", self.scenario.clone(), other.scenario.clone()),
            ("world", self.world.clone(), other.world.clone()),
            ("span", self.spans.clone(), other.spans.clone()),
            ("form (quick)", self.quick.to_string(), other.quick.to_string()),
            ("seed", number(self.seed), number(other.seed)),
            ("number of seeds", number(self.seeds), number(other.seeds)),
            ("arbitration", self.arbitration(), other.arbitration()),
            ("overlap", self.overlap(), other.overlap()),
        ] {
            if before != after {
                return Err(Error::NotComparable { what, before, after });
            }
        }
        Ok(())
    }

    /// In what two runs differ, beside their figures and the day.
    fn differences(&self, other: &Run) -> Vec<String> {
        let of = |run: &Run| {
            let program = ["version", "commit"].map(|key| (key, run.program[key].clone()));
            let here = ["processor", "kernel", "cpus"].map(|key| (key, run.here[key].clone()));
            let machine = ("machine file", run.machine_digest.clone());
            program.into_iter().chain(here).chain([machine])
        };
        let pairs = of(self).zip(of(other)).filter(|(this, that)| this != that);
        let line = |((what, this), (_, that)): ((&str, Value), (&str, Value))| {
            format!("{what}: {} and {}", shown(&this), shown(&that))
        };
        pairs.map(line).collect()
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Run {
    /// The row of the same figure.
    fn like(&self, row: &Row) -> Option<&Row> {
        self.rows.iter().find(|other| {
            (&row.config, &row.params, &row.variant)
                == (&other.config, &other.params, &other.variant)
                && (&row.metric, &row.unit) == (&other.metric, &other.unit)
        })
    }
}

/// The rows of a figure, earlier and later ones: at least one of each.
struct Figure<'a> {
    these: Vec<&'a Row>,
    those: Vec<&'a Row>,
}

impl Figure<'_> {
    /// How the later figure differs, if it does: a native one if chance comes to less than the
    /// level. `None` if that cannot be said.
    fn change(&self, level: Option<f64>, threshold: f64) -> Option<Option<Change>> {
        let [these, those] = self.values();
        if these.is_empty() || those.is_empty() {
            return None;
        }
        let (before, after) = (median(&these), median(&those));
        let is_certain = match level {
            Some(level) if at_best(these.len(), those.len()) >= level => return None,
            Some(level) => {
                let (smaller, larger) = orders(&these, &those);
                let chance = by_chance(these.len(), those.len(), smaller.min(larger));
                // Else medians and ranks contradict each other.
                chance < level && (after > before) == (larger > smaller)
            }
            None => {
                let [these, those] = [&self.these[0].points, &self.those[0].points];
                let way = |(this, that): (&Option<f64>, &Option<f64>)| that.partial_cmp(this);
                let ways: Vec<_> = these.iter().zip(those).map(way).collect();
                let is_one_way = ways.iter().all(|way| *way == after.partial_cmp(&before));
                (these.len() == those.len()).then_some(is_one_way)?
            }
        };
        let is_large = (after - before).abs() >= threshold / 100.0 * before.abs();
        let change = || {
            let row = self.these[0];
            Change {
                config: row.config.clone(),
                params: row.params.clone(),
                variant: row.variant.clone(),
                metric: row.metric.clone(),
                unit: row.unit.clone(),
                before,
                after,
                ratio: after / before,
                is_worse: (after > before) == (row.better == Better::Lower),
            }
        };
        Some((is_certain && is_large && after != before).then(change))
    }

    /// Without the disturbed ones.
    fn values(&self) -> [Vec<f64>; 2] {
        let values = |rows: &Vec<&Row>| {
            let calm = rows.iter().filter(|row| !row.disturbed);
            calm.filter_map(|row| row.value).collect()
        };
        [values(&self.these), values(&self.those)]
    }

    fn disturbed(&self) -> usize {
        self.these.iter().chain(&self.those).filter(|row| row.disturbed).count()
    }
}

/// Mann and Whitney's statistic, both ways: in how many pairs of an earlier and a later value the
/// later is the smaller one, and in how many the larger. A tie counts both ways, which makes
/// certainty harder.
fn orders(these: &[f64], those: &[f64]) -> (usize, usize) {
    let pairs = || these.iter().flat_map(|this| those.iter().map(move |that| (this, that)));
    let count = |is: fn(&f64, &f64) -> bool| pairs().filter(|(this, that)| is(this, that)).count();
    (count(|this, that| that <= this), count(|this, that| that >= this))
}

/// The least that [`by_chance`] can come to: all of one before all of the other.
fn at_best(these: usize, those: usize) -> f64 {
    let orders = (1..=these).map(|at| (those + at) as f64 / at as f64).product::<f64>();
    2.0 / orders
}

/// The probability that this many values of one distribution have a statistic as small as this.
fn by_chance(these: usize, those: usize, statistic: usize) -> f64 {
    // By the number of values that are dealt: in what part of all orders the statistic is how
    // large. The last one dealt is one of `these`, which is larger than all of `those`, or not.
    let pairs = these * those;
    let mut parts = vec![vec![0.0; pairs + 1]; those + 1];
    parts.iter_mut().for_each(|of| of[0] = 1.0);
    for this in 1..=these {
        for that in 1..=those {
            let share = this as f64 / (this + that) as f64;
            for sum in (0..=this * that).rev() {
                let with_this = if sum >= that { parts[that][sum - that] } else { 0.0 };
                let with_that = parts[that - 1][sum];
                parts[that][sum] = share * with_this + (1.0 - share) * with_that;
            }
        }
    }
    let tail: f64 = parts[those].iter().take(statistic + 1).sum();
    (2.0 * tail).min(1.0)
}

impl Comparison {
    pub(crate) fn end(&self) -> Result<(), Error> {
        match self {
            Comparison { worse: 1.., .. } => Err(Error::Worse { count: self.worse }),
            Comparison { needed: Some(needed), .. } if self.untested == self.compared => {
                Err(Error::TooFew { needed: *needed })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn show(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        let Comparison { compared, untested, unmatched, worse, better, threshold, .. } = self;
        let (tone, conclusion) = match (worse, better) {
            (0, 0) if *untested > 0 && untested == compared => {
                (Tone::Partly, "too few results to compare".to_owned())
            }
            (0, 0) => (Tone::Good, "no figure changed".to_owned()),
            (0, _) => (Tone::Good, format!("{} better, none is worse", figures(*better))),
            (_, 0) => (Tone::Bad, format!("{} worse, none is better", figures(*worse))),
            _ => (Tone::Bad, format!("{} worse, {} better", figures(*worse), figures(*better))),
        };
        let of = format!("{} on {}", self.scenario, self.world);
        write!(out, "{}", form.paragraph("", &format!("{of}: {}", form.toned(tone, &conclusion))))?;
        let mut about = format!(
            "{} compared; only a difference of {threshold} % or more counts as a change",
            counted(*compared, "figure")
        );
        if *untested > 0 {
            about += &format!("; {untested} of the figures have too few results");
            if let Some(needed) = self.needed {
                about += &format!(", and each side needs at least {needed} undisturbed ones");
            }
        }
        if self.disturbed > 0 {
            let values = counted(self.disturbed, "value");
            let are = if self.disturbed == 1 { "is" } else { "are" };
            about += &format!("; {values} {are} left out because other programs used the CPUs");
        }
        if *unmatched > 0 {
            about += &format!("; figures in only one of the results: {unmatched}");
        }
        write!(out, "{}", form.paragraph("", &about))?;
        for difference in &self.differences {
            write!(out, "{}", form.paragraph("the runs differ: ", difference))?;
        }
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut listing = Listing::new(&[
            ("where", false),
            ("figure", false),
            ("before", true),
            ("after", true),
            ("change", true),
        ]);
        for change in &self.changes {
            let percent = (change.ratio - 1.0) * 100.0;
            let tone = if change.is_worse { Tone::Bad } else { Tone::Good };
            listing.row([
                change.place(),
                format!("{}, {}", change.variant, change.metric),
                number(change.before),
                format!("{} {}", number(change.after), change.unit),
                form.toned(tone, &format!("{percent:+.1} %")),
            ]);
        }
        write!(out, "\n{}", listing.text(form))?;
        Ok(())
    }
}

/// To thousandths.
fn number(value: f64) -> String {
    ((value * 1000.0).round() / 1000.0).to_string()
}

fn figures(count: usize) -> String {
    format!("{} {}", counted(count, "figure"), if count == 1 { "is" } else { "are" })
}

impl Change {
    fn place(&self) -> String {
        let params = self.params.iter().map(|(name, value)| format!("{name} {}", shown(value)));
        [self.config.clone()].into_iter().chain(params).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests;
