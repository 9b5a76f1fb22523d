//! A row for each kernel change.

use std::io::Write;
use std::panic::resume_unwind;
use std::thread;

use coreline_scenarios::metric::{Better, FigureKind};
use coreline_scenarios::param::Value;
use coreline_scenarios::point::Chosen;
use coreline_scenarios::{CHANGES, Change, Has, Scenario};
use coreline_world::native::probe;
use serde::Serialize;

use super::figure;
use crate::error::Error;
use crate::progress::Whole;
use crate::run::result::{FigureRow, RunResult};
use crate::run::verdict::{Verdict, score};
use crate::run::{self, Choice};
use crate::table;
use crate::text::Form;
use crate::world::World;

/// A change: simulated, published, and here. Gains are above 1 where the change is an improvement,
/// whichever way the metric is counted.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) source: String,
    year: u16,
    /// Whether this kernel has it, by its release: `yes`, `no`, `newer` or `?`.
    kernel: &'static str,
    scenario: &'static str,
    machine: &'static str,
    config: String,
    metric: &'static str,
    unit: &'static str,
    /// Of the gain. Not data.
    #[serde(skip)]
    kind: FigureKind,
    better: Better,
    variants: [&'static str; 2],
    before: f64,
    after: f64,
    gain: f64,
    /// The least and the greatest gain over the request shares.
    gain_range: [f64; 2],
    published_gain: Option<f64>,
    pub(crate) verdict: Verdict,
    times: Option<f64>,
    why: Option<String>,
    /// The command that gives the simulated figures again, and their reasons.
    pub(crate) command: String,
    /// The times of two variants on this machine; null where it can show no difference.
    here: Option<Vec<Here>>,
    /// The library's types that do the same.
    types: &'static str,
}

#[derive(Debug, Serialize)]
struct Here {
    variant: &'static str,
    /// Null where nothing was measured.
    value: f64,
    unit: &'static str,
    disturbed: bool,
}

/// How many runs there are: those on this machine, and all simulations as one.
pub(super) fn runs() -> usize {
    1 + CHANGES.iter().filter(|change| is_shown_here(change)).count()
}

/// Simulates all changes at the same time, with these variants of each: the last machine of a
/// change alone would leave CPUs of this host unused.
pub(crate) fn all_simulated(
    variants: fn(&Change) -> &[&str],
    whole: &mut Whole,
) -> Result<Vec<RunResult>, Error> {
    let bar = &whole.next().progress("simulations", CHANGES.len());
    thread::scope(|scope| {
        let run = |change: &'static Change| {
            scope.spawn(move || {
                let run = simulated(change, variants(change), Whole::HIDDEN);
                bar.inc(1);
                run
            })
        };
        let runs: Vec<_> = CHANGES.iter().map(run).collect();
        runs.into_iter().map(|run| run.join().unwrap_or_else(|it| resume_unwind(it))).collect()
    })
}

/// Whether this machine can show the change at all.
fn is_shown_here(change: &Change) -> bool {
    let probe = probe();
    let is_near = probe.topology_error.is_some() || probe.topology.cache_count() < 2;
    !(change.natively.takes_distance && is_near)
}

/// The values that a change names.
fn chosen(scenario: &Scenario, values: &[(&'static str, &str)]) -> Chosen {
    let parse = |(name, text): &(&'static str, &str)| -> (&'static str, Vec<Value>) {
        (name, scenario.param(name).parse(text).into_iter().collect())
    };
    values.iter().map(parse).collect()
}

/// Runs a change here, beside its simulation; nothing is left of one that an interrupt cut.
pub(super) fn row(
    change: &'static Change,
    simulated: &RunResult,
    whole: &mut Whole,
) -> Result<Option<Row>, Error> {
    let shown = &change.shown;
    let here = here(change, whole)?;
    let find = |metric: &str, variant: &str| {
        let is_it = |row: &&FigureRow| row.metric == metric && row.variant == variant;
        simulated.rows.iter().find(is_it)
    };
    let figures = shown.variants.map(|variant| find(shown.metric, variant));
    let (Some(before), Some(after), Some(gain)) =
        (figures[0], figures[1], find(shown.comparison, shown.variants[1]))
    else {
        return Ok(None);
    };
    let turned = |value| as_gain(gain.better, value);
    let [one, other] = [gain.low, gain.high].map(turned);
    let source = change.published();
    Ok(Some(Row {
        name: change.name,
        title: change.title,
        source: source.to_string(),
        year: source.year,
        kernel: kernel(change).word(),
        scenario: shown.scenario.name,
        machine: shown.machine,
        config: gain.config.clone(),
        metric: shown.metric,
        unit: before.unit,
        kind: gain.kind,
        better: before.better,
        variants: shown.variants,
        before: before.value,
        after: after.value,
        gain: turned(gain.value),
        gain_range: [one.min(other), one.max(other)],
        published_gain: gain.published.map(turned),
        verdict: gain.verdict,
        times: gain.times,
        why: gain.why.clone(),
        command: simulated.command.clone(),
        here,
        types: change.types,
    }))
}

/// A ratio as a gain: the inverse, if less is better.
pub(crate) fn as_gain(better: Better, ratio: f64) -> f64 {
    if better == Better::Lower { 1.0 / ratio } else { ratio }
}

pub(crate) fn kernel(change: &Change) -> Has {
    change.of_kernel(&probe().kernel, std::env::consts::ARCH)
}

/// The run that shows a change, of these variants; all of them if none is named.
pub(crate) fn simulated(
    change: &'static Change,
    variants: &[&str],
    whole: Whole,
) -> Result<RunResult, Error> {
    let shown = &change.shown;
    run::run(&Choice {
        scenario: shown.scenario,
        world: World::preset(shown.machine)?,
        seed: 1,
        band: false,
        arbitration: None,
        overlap: None,
        quick: false,
        configs: vec![shown.config.to_owned()],
        variants: variants.iter().copied().map(str::to_owned).collect(),
        values: chosen(shown.scenario, shown.values),
        whole: Some(whole),
    })
}

/// The same on this machine, in the quick form.
pub(crate) fn natively(
    change: &'static Change,
    variants: &[&str],
    whole: &mut Whole,
) -> Result<RunResult, Error> {
    let scenario = change.shown.scenario;
    let variants = variants.iter().copied().map(str::to_owned).collect();
    let values = chosen(scenario, change.natively.values);
    let choice = Choice::quick(scenario, World::Native, whole);
    run::run(&Choice { variants, values, ..choice })
}

fn here(change: &'static Change, whole: &mut Whole) -> Result<Option<Vec<Here>>, Error> {
    if !is_shown_here(change) {
        return Ok(None);
    }
    let variants = change.natively.variants;
    let outcome = natively(change, &variants, whole)?;
    // The last of a variant: of all CPUs.
    let last = |variant: &&str| {
        let is_it =
            |row: &&FigureRow| row.metric == change.natively.metric && row.variant == *variant;
        outcome.rows.iter().rev().find(is_it)
    };
    let here = |row: &FigureRow| Here {
        variant: row.variant,
        value: row.value,
        unit: row.unit,
        disturbed: row.disturbed,
    };
    Ok(Some(variants.iter().filter_map(last).map(here).collect()))
}

/// A line of the table: of 80 columns.
pub(super) fn line(cells: [String; 7]) -> String {
    let [title, year, kernel, before, after, gain, published] = cells;
    format!("{title:25}{year:>5} {kernel:6}{before:>12}{after:>12}{gain:>8}{published:>11}")
}

fn gain(value: f64) -> String {
    if value < 9.95 { format!("{value:.2}x") } else { format!("{value:.1}x") }
}

impl Row {
    pub(super) fn is_disturbed(&self) -> bool {
        self.here.iter().flatten().any(|here| here.disturbed)
    }

    pub(super) fn show(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        let cells = [
            self.title.to_owned(),
            self.year.to_string(),
            self.kernel.to_owned(),
            figure(self.before, self.unit),
            figure(self.after, self.unit),
            gain(self.gain),
            self.published_gain.map_or_else(|| "-".to_owned(), gain),
        ];
        writeln!(out, "{}", line(cells))?;
        let said = run::verdict::said(self.verdict, self.times);
        let said = table::tone(self.verdict).map_or(said.clone(), |tone| form.toned(tone, &said));
        let [low, high] = self.gain_range.map(gain);
        let text = format!(
            "{}: {low} to {high}, {said}; here: {}; use {}",
            self.name,
            self.measured(),
            self.types
        );
        Ok(write!(out, "{}", form.paragraph("  ", &text))?)
    }

    /// The measurement on this machine.
    fn measured(&self) -> String {
        let Some(here) = &self.here else { return "one L3, no evidence".to_owned() };
        let figure = |here: &Here| {
            let mark = if here.disturbed { "~" } else { "" };
            format!("{} {mark}{}", here.variant, figure(here.value, here.unit))
        };
        match &here[..] {
            [] => "nothing to measure".to_owned(),
            here => here.iter().map(figure).collect::<Vec<_>>().join(", "),
        }
    }
}

pub(super) fn tally(rows: &[Row]) -> String {
    let figure = |row: &Row| {
        let published = row.published_gain?;
        Some(((row.name, row.metric), row.kind, published, row.verdict))
    };
    let score = score(rows.iter().filter_map(figure));
    format!("{score}. All figures: coreline ledger")
}
