//! The verb `ledger`: every published figure of the scenarios beside ours, with its verdict, and
//! what decides it.
//!
//! A figure that was published with parameters of ours left open stands beside several rows; its
//! verdict is theirs if they agree, and else `undecided`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write;

use clap::Args;
use coreline_scenarios::Scenario;
use coreline_scenarios::metric::FigureKind;
use coreline_scenarios::param::Value;
use coreline_world::native::note_interrupts;
use serde::Serialize;

use crate::error::Error;
use crate::progress::Whole;
use crate::run::result::FigureRow;
use crate::run::verdict::{self, Score, Verdict};
use crate::run::{self, Choice};
use crate::text;
use crate::world::World;

/// How thorough the ledger is.
#[derive(Debug, Args)]
pub(crate) struct Effort {
    /// Run over the request shares only, and skip runs that take minutes; do not commit this ledger
    #[arg(long)]
    quick: bool,
}

/// How much of a scenario runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Over the whole band.
    Band,
    /// Over the request shares.
    Shares,
    /// The quick form, over the request shares: what takes minutes.
    Quick,
}

/// A scenario as it stands in the ledger.
struct Part {
    scenario: &'static str,
    machine: &'static str,
    /// What the source says of parameters, or is known of them.
    values: &'static [(&'static str, &'static [&'static str])],
    form: Form,
}

const PARTS: &[Part] = &[
    Part { scenario: "intermittent", machine: "epyc-9654-2s", values: &[], form: Form::Band },
    // Linpack alternates so.
    Part {
        scenario: "switchstorm",
        machine: "ivybridge-ex-4s",
        values: &[("wake", &["barrier"])],
        form: Form::Band,
    },
    // Its machine is not named: the largest.
    Part {
        scenario: "threadstorm",
        machine: "epyc-9654-2s",
        values: &[("place", &["roaming"])],
        form: Form::Shares,
    },
    // A guest on such a machine; what a life takes elsewhere is known from one CPU.
    Part {
        scenario: "execstorm",
        machine: "epyc-7r13-2s",
        values: &[("outside", &["105"])],
        form: Form::Quick,
    },
    Part { scenario: "filecopy", machine: "kunpeng920-96c-4n", values: &[], form: Form::Shares },
    Part { scenario: "filecopy", machine: "x86-128c-8n", values: &[], form: Form::Shares },
    Part { scenario: "ipistorm", machine: "epyc-7003-2s", values: &[], form: Form::Shares },
    Part { scenario: "ipistorm", machine: "arm64-2x64c", values: &[], form: Form::Shares },
    Part { scenario: "pingserve", machine: "epyc-7003-2s", values: &[], form: Form::Quick },
];

const SCHEMA: &str = "coreline.ledger/2";

#[derive(Debug, Serialize)]
pub(crate) struct Ledger {
    schema: &'static str,
    parts: Vec<Account>,
}

/// A scenario on a machine.
#[derive(Debug, Serialize)]
struct Account {
    scenario: &'static str,
    machine: String,
    command: String,
    sources: Vec<String>,
    entries: Vec<Entry>,
}

/// A published figure.
#[derive(Debug, Serialize)]
struct Entry {
    config: String,
    params: BTreeMap<String, Value>,
    variant: &'static str,
    metric: &'static str,
    unit: &'static str,
    #[serde(skip)]
    kind: FigureKind,
    published: f64,
    /// At the default point; of several rows the first's.
    value: f64,
    low: f64,
    high: f64,
    /// How many rows it stands beside.
    rows: usize,
    verdict: Verdict,
    times: Option<f64>,
    /// What decides it; why it is not better.
    why: Option<String>,
}

impl Part {
    fn choice(&self, quick: bool, whole: &mut Whole) -> Result<Choice, Error> {
        let scenario = Scenario::named(self.scenario).expect("the ledger names what there is");
        let values = self.values.iter().map(|(name, values)| {
            let param = scenario.param(name);
            let values = values.iter().filter_map(|value| param.parse(value)).collect();
            (param.name, values)
        });
        Ok(Choice {
            values: values.collect(),
            quick: quick || self.form == Form::Quick,
            band: !quick && self.form == Form::Band,
            ..Choice::quick(scenario, World::preset(self.machine)?, whole)
        })
    }
}

/// Runs everything.
///
/// # Errors
///
/// If a run fails, or an interrupt comes: half a ledger is none.
pub(crate) fn ledger(effort: &Effort) -> Result<Ledger, Error> {
    note_interrupts();
    let mut whole = Whole::new(PARTS.len());
    let accounts = PARTS.iter().map(|part| part.account(effort.quick, &mut whole));
    let parts = accounts.collect::<Result<_, _>>()?;
    Ok(Ledger { schema: SCHEMA, parts })
}

impl Part {
    fn account(&self, quick: bool, whole: &mut Whole) -> Result<Account, Error> {
        let choice = self.choice(quick, whole)?;
        let outcome = run::run(&choice)?;
        if outcome.left_out.is_some() {
            return Err(Error::NotWhole);
        }
        let known = choice.scenario.published.map(run::published_params).unwrap_or_default();
        Ok(Account {
            scenario: self.scenario,
            machine: outcome.world.clone(),
            command: outcome.command,
            sources: outcome.sources.iter().map(ToString::to_string).collect(),
            entries: entries(&outcome.rows, &known),
        })
    }
}

/// Each published figure once. Of parameters, those are kept that were published.
fn entries(rows: &[FigureRow], known: &BTreeSet<String>) -> Vec<Entry> {
    let mut entries = Vec::<Entry>::new();
    for row in rows {
        let Some(published) = row.published else { continue };
        let params: BTreeMap<_, _> =
            row.params.iter().filter(|(name, _)| known.contains(*name)).collect();
        let is_it = |entry: &&mut Entry| {
            let of = (&*entry.config, entry.variant, entry.metric);
            of == (&*row.config, row.variant, row.metric) && entry.params.iter().eq(params.clone())
        };
        if let Some(entry) = entries.iter_mut().find(is_it) {
            entry.rows += 1;
            entry.low = entry.low.min(row.low);
            entry.high = entry.high.max(row.high);
            if entry.verdict != row.verdict {
                (entry.verdict, entry.times) = (Verdict::Undecided, None);
            }
            continue;
        }
        entries.push(Entry {
            config: row.config.clone(),
            params: params.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            variant: row.variant,
            metric: row.metric,
            unit: row.unit,
            kind: row.kind,
            published,
            value: row.value,
            low: row.low,
            high: row.high,
            rows: 1,
            verdict: row.verdict,
            times: row.times,
            why: row.why.clone(),
        });
    }
    entries
}

impl Account {
    fn count(&self, verdict: Verdict) -> usize {
        self.entries.iter().filter(|entry| entry.verdict == verdict).count()
    }
}

/// The score of parts, and that of a null model.
fn score(parts: &[&Account]) -> Score {
    let of = |part: &&Account| {
        let scenario = part.scenario;
        let figure = move |entry: &Entry| {
            ((scenario, entry.metric), entry.kind, entry.published, entry.verdict)
        };
        part.entries.iter().map(figure).collect::<Vec<_>>()
    };
    verdict::score(parts.iter().flat_map(of))
}

/// In the order of the conclusion.
const VERDICTS: [Verdict; 6] = [
    Verdict::Reached,
    Verdict::Direction,
    Verdict::Undecided,
    Verdict::Off,
    Verdict::NoEffect,
    Verdict::Against,
];

impl Ledger {
    /// What documents are as wide as.
    fn page() -> text::Form {
        text::Form { width: 118, ..text::Form::plain() }
    }

    /// As Markdown: the page `docs/fidelity.md`.
    pub(crate) fn show(&self, out: &mut dyn Write) -> Result<(), Error> {
        let parts: Vec<&Account> = self.parts.iter().collect();
        let kernel: Vec<&Account> = parts
            .iter()
            .copied()
            .filter(|it| ["intermittent", "switchstorm"].contains(&it.scenario))
            .collect();
        let form = Self::page();
        let mut text = "# fidelity\n\n".to_owned();
        let conclusion = format!(
            "{}. For the figures of [Desnoyers 2024](https://lore.kernel.org/lkml/\
             20240904013127.75064-2-mathieu.desnoyers@efficios.com) and [van Riel 2013](\
             https://lore.kernel.org/r/20130731221421.616d3d20@annuminas.surriel.com), over the \
             whole [band](glossary.md#words-of-the-simulator): {}. The simulator is calibrated on \
             none of these figures. None is a prediction, because we knew them when we wrote the \
             scenarios. [Validate](validate/README.md) has true predictions.",
            score(&parts),
            score(&kernel),
        );
        let what = "`coreline ledger --out docs/fidelity.md` writes this page. *Value* is the \
                    figure at the [default point](glossary.md#words-of-the-simulator). *Band* is \
                    its range over request shares, seeds and uncertain costs (the whole band), or \
                    over request shares alone. A quick run has no band. `coreline explain \
                    verdicts` defines the verdicts and the null model. If a figure's source leaves \
                    parameters open, several rows compare with it. The figure is `undecided` if \
                    these rows disagree.";
        for paragraph in [&conclusion, what] {
            text += &form.paragraph("", paragraph);
            text.push('\n');
        }
        text += "| scenario | machine | figures |";
        VERDICTS.iter().for_each(|it| _ = write!(text, " {} |", it.words()));
        text += " null model |\n|---|---|---|---|";
        VERDICTS.iter().for_each(|_| text += "---|");
        for part in &self.parts {
            let Account { scenario, machine, entries, .. } = part;
            _ = write!(text, "\n| `{scenario}` | `{machine}` | {} |", entries.len());
            VERDICTS.iter().for_each(|it| _ = write!(text, " {} |", part.count(*it)));
            _ = write!(text, " {} |", score(&[part]).null);
        }
        text.push('\n');
        self.parts.iter().for_each(|part| part.write(&mut text));
        Ok(out.write_all(text.as_bytes())?)
    }
}

impl Entry {
    fn band(&self) -> String {
        if self.low.is_nan() { "-".to_owned() } else { format!("{} to {}", self.low, self.high) }
    }
}

impl Account {
    fn write(&self, page: &mut String) {
        let Account { scenario, machine, command, sources, entries } = self;
        _ = writeln!(page, "\n## {scenario}, {machine}\n");
        for source in sources {
            _ = writeln!(page, "- Published: {source}");
        }
        // The command in a line of its own, to be copied.
        _ = write!(page, "- Ours: `{command}`\n\n");
        *page += "| configuration | variant | figure | published | value | band | verdict | |\n\
                  |---|---|---|---|---|---|---|---|\n";
        let mut notes = Vec::<&str>::new();
        for entry in entries {
            let Entry { config, params, variant, metric, unit, published, .. } = entry;
            let params: String = params.iter().map(|(name, it)| format!(", {name} {it}")).collect();
            let note = entry.why.as_deref().map(|why| {
                let known = notes.iter().position(|it| *it == why);
                known.unwrap_or_else(|| {
                    notes.push(why);
                    notes.len() - 1
                }) + 1
            });
            let note = note.map(|it| it.to_string()).unwrap_or_default();
            let rows =
                if entry.rows > 1 { format!(" ({} rows)", entry.rows) } else { String::new() };
            _ = writeln!(
                page,
                "| {config}{params} | `{variant}` | {metric}, {unit} | {published} | {} | {} | \
                 {}{rows} | {note} |",
                entry.value,
                entry.band(),
                verdict::said(entry.verdict, entry.times),
            );
        }
        for (number, note) in notes.iter().enumerate() {
            let form = Ledger::page();
            *page +=
                &format!("\n{}", form.paragraph(&format!("{}. ", number + 1), note).trim_end());
        }
        page.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields;
    use coreline_scenarios::metric::Better;

    /// A row of a figure that was published as 2.
    fn row(delay: u64, scan: &str, verdict: Verdict) -> FigureRow {
        let params = [
            ("delay_ms".to_owned(), Value::Number(delay)),
            ("scan".to_owned(), Value::Name(scan.to_owned())),
        ];
        FigureRow {
            config: "all".to_owned(),
            params: params.into(),
            variant: "first-fit",
            metric: "speedup",
            value: delay as f64,
            low: delay as f64 - 1.0,
            high: delay as f64 + 1.0,
            points: Vec::new(),
            samples: None,
            discarded: None,
            disturbed: false,
            disturbed_rounds: None,
            unit: "ratio",
            kind: FigureKind::Gain,
            derived: true,
            better: Better::Higher,
            published: Some(2.0),
            source: None,
            verdict,
            times: Some(3.0),
            why: None,
        }
    }

    #[test]
    fn a_figure_stands_once_and_is_undecided_where_its_rows_disagree() {
        let known = BTreeSet::from(["delay_ms".to_owned()]);
        let unpublished = FigureRow { published: None, ..row(9, "tick", Verdict::None) };
        let rows = [
            row(1, "tick", Verdict::Reached),
            row(2, "tick", Verdict::Direction),
            row(1, "switch", Verdict::Reached),
            row(2, "switch", Verdict::Against),
            unpublished,
        ];
        let entries = entries(&rows, &known);
        assert_eq!(entries.len(), 2);
        let [one, two] = [&entries[0], &entries[1]];
        assert_eq!((one.verdict, one.rows, one.times), (Verdict::Reached, 2, Some(3.0)));
        assert_eq!((two.verdict, two.rows, two.times), (Verdict::Undecided, 2, None));
        assert_eq!(one.params, BTreeMap::from([("delay_ms".to_owned(), Value::Number(1))]));
    }

    /// Of one row: a whole one takes minutes.
    fn small() -> Ledger {
        let known = BTreeSet::from(["delay_ms".to_owned()]);
        let account = Account {
            scenario: "intermittent",
            machine: "desktop-12c".to_owned(),
            command: "a command".to_owned(),
            sources: vec!["a source".to_owned()],
            entries: entries(&[row(1, "tick", Verdict::Reached)], &known),
        };
        Ledger { schema: SCHEMA, parts: vec![account] }
    }

    #[test]
    fn the_page_of_json_lists_what_a_ledger_has() {
        fields::assert_listed(&serde_json::to_value(small()).unwrap());
    }

    #[test]
    fn the_command_has_a_line_of_its_own() {
        let mut page = Vec::new();
        small().show(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains("\n- Published: a source\n- Ours: `a command`\n\n|"), "{page}");
    }

    #[test]
    fn the_ledger_names_scenarios_machines_and_values_that_are_there() {
        let mut whole = Whole::new(PARTS.len());
        for part in PARTS {
            let choice = part.choice(false, &mut whole).unwrap();
            assert!(choice.scenario.published.is_some(), "{}", part.scenario);
            let values = choice.values.values().map(Vec::len).sum::<usize>();
            assert_eq!(values, part.values.iter().map(|(_, it)| it.len()).sum::<usize>());
        }
        let parts: BTreeSet<_> = PARTS.iter().map(|part| part.scenario).collect();
        let published = coreline_scenarios::ALL.iter().filter(|it| it.published.is_some());
        assert_eq!(parts, published.map(|it| it.name).collect(), "each that has figures");
    }
}
