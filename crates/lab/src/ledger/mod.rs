//! The verb `ledger`: every published figure of the scenarios beside ours, with its verdict, and
//! what decides it; and how many independent facts these figures are.
//!
//! | module | holds |
//! |---|---|
//! | [`entry`] | a published figure beside ours |
//! | [`decides`] | costs without a source that decide a figure |
//! | [`facts`] | which figures are one fact, and the score |
//! | [`page`] | the ledger as Markdown |
//!
//! A figure that was published with parameters of ours left open stands beside several rows; its
//! verdict is theirs if they agree, and else `undecided`.

mod decides;
mod entry;
mod facts;
mod page;

use std::io::Write;

use clap::Args;
use coreline_scenarios::Scenario;
use coreline_world::native::note_interrupts;
use serde::Serialize;

use crate::error::Error;
use crate::progress::Whole;
use crate::run::{self, Choice};
use crate::world::World;

use decides::Deciders;
use facts::{Account, Score};

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
    /// The variants of the published figures, and those by which they are divided.
    variants: &'static [&'static str],
    /// The values of parameters that the source states or that are known.
    values: &'static [(&'static str, &'static [&'static str])],
    form: Form,
}

const KICKED: &[&str] = &["kernel-resched", "kernel-always-kick", "kernel-notify"];

const PARTS: &[Part] = &[
    Part {
        scenario: "intermittent",
        machine: "epyc-9654-2s",
        variants: &["cpu-id", "first-fit", "recent"],
        values: &[],
        form: Form::Band,
    },
    // Linpack alternates so.
    Part {
        scenario: "switchstorm",
        machine: "ivybridge-ex-4s",
        variants: &["always-set", "test-first"],
        values: &[("wake", &["barrier"])],
        form: Form::Band,
    },
    // Its machine is not named: the largest.
    Part {
        scenario: "threadstorm",
        machine: "epyc-9654-2s",
        variants: &["recent", "owned"],
        values: &[("place", &["roaming"])],
        form: Form::Shares,
    },
    // A guest on such a machine; what a life takes elsewhere is known from one CPU. Of the machine
    // with 26 CPUs nothing is known.
    Part {
        scenario: "execstorm",
        machine: "epyc-7r13-2s",
        variants: &["ungrouped", "global-mutex", "ctor-dtor"],
        values: &[("threads", &["26", "192"]), ("outside", &["105"])],
        form: Form::Shares,
    },
    Part {
        scenario: "execstorm",
        machine: "desktop-12c",
        variants: &["global-mutex", "ctor-dtor"],
        values: &[("threads", &["1", "24"]), ("outside", &["105"])],
        form: Form::Shares,
    },
    Part {
        scenario: "filecopy",
        machine: "kunpeng920-96c-4n",
        variants: &["fifo", "per-node"],
        values: &[],
        form: Form::Shares,
    },
    Part {
        scenario: "filecopy",
        machine: "x86-128c-8n",
        variants: &["fifo", "per-node"],
        values: &[],
        form: Form::Shares,
    },
    Part {
        scenario: "ipistorm",
        machine: "epyc-7003-2s",
        variants: KICKED,
        values: &[],
        form: Form::Shares,
    },
    Part {
        scenario: "ipistorm",
        machine: "arm64-2x64c",
        variants: KICKED,
        values: &[],
        form: Form::Shares,
    },
    Part {
        scenario: "pingserve",
        machine: "epyc-7003-2s",
        variants: &["kernel-resched", "kernel-always-kick"],
        values: &[
            ("shape", &["tbench", "netperf"]),
            ("clients", &["1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024"]),
        ],
        form: Form::Quick,
    },
];

const SCHEMA: &str = "coreline.ledger/3";

#[derive(Debug, Serialize)]
pub(crate) struct Ledger {
    schema: &'static str,
    score: Score,
    parts: Vec<Account>,
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
            variants: self.variants.iter().map(ToString::to_string).collect(),
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
    Ok(Ledger::new(accounts.collect::<Result<_, _>>()?))
}

impl Part {
    fn account(&self, quick: bool, whole: &mut Whole) -> Result<Account, Error> {
        let choice = self.choice(quick, whole)?;
        let outcome = run::run(&choice)?;
        if outcome.left_out.is_some() {
            return Err(Error::NotWhole);
        }
        let known = choice.scenario.published.map(run::published_params).unwrap_or_default();
        let deciders = match &choice.world {
            World::Simulated { spec, .. } if choice.band => Deciders::of_band(spec, choice.seed),
            _ => Deciders::none(),
        };
        let mut entries = entry::entries(&outcome.rows, &known, &deciders);
        let facts = facts::group(choice.scenario, &mut entries);
        Ok(Account {
            scenario: self.scenario,
            machine: outcome.world.clone(),
            command: outcome.command,
            sources: outcome.sources.iter().map(ToString::to_string).collect(),
            score: Score::default(),
            facts,
            entries,
        })
    }
}

impl Ledger {
    fn new(mut parts: Vec<Account>) -> Ledger {
        facts::score(&mut parts);
        let mut score = Score::default();
        parts.iter().for_each(|part| score += part.score);
        Ledger { schema: SCHEMA, score, parts }
    }

    /// As Markdown: the page `docs/fidelity.md`.
    pub(crate) fn show(&self, out: &mut dyn Write) -> Result<(), Error> {
        Ok(out.write_all(page::write(self).as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use coreline_scenarios::config::Config;

    use super::*;
    use crate::fields;
    use crate::run::Published;
    use crate::run::verdict::Verdict;
    use entry::tests::{entries, row};

    /// A table of two rows, because a whole one takes minutes.
    pub(super) fn small() -> Ledger {
        let rows = [row(1, "tick", Verdict::Reached), row(9, "tick", Verdict::Direction)];
        let mut entries = entries(&rows);
        let facts = facts::group(Scenario::named("intermittent").unwrap(), &mut entries);
        Ledger::new(vec![Account {
            scenario: "intermittent",
            machine: "desktop-12c".to_owned(),
            command: "a command".to_owned(),
            sources: vec!["a source".to_owned()],
            score: Score::default(),
            facts,
            entries,
        }])
    }

    #[test]
    fn the_page_of_json_lists_what_a_ledger_has() {
        fields::assert_listed(&serde_json::to_value(small()).unwrap());
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

    #[test]
    fn every_published_figure_stands_beside_a_row() {
        let mut listed = BTreeSet::new();
        let mut whole = Whole::new(PARTS.len());
        for part in PARTS {
            let choice = part.choice(false, &mut whole).unwrap();
            let (scenario, World::Simulated { spec, .. }) = (choice.scenario, &choice.world) else {
                panic!("{} runs natively", part.scenario);
            };
            let file = scenario.published.unwrap();
            let (published, known) =
                (Published::about(file, spec).unwrap(), run::published_params(file));
            for (_, point) in choice.points(Config::all(spec.topology())).unwrap() {
                let params = point.params().into_iter().filter(|(name, _)| known.contains(name));
                let params: Vec<_> = params.collect();
                let has = |it: &&coreline_scenarios::figure::Figure| {
                    (it.when)(&point) && published.figure(it.metric, &point).is_some()
                };
                for figure in scenario.figures.iter().filter(has) {
                    let (name, metric) = (scenario.name, figure.metric.name);
                    listed.insert(format!(
                        "{name} {} {params:?} {} {metric}",
                        point.config, point.variant
                    ));
                }
            }
        }
        // Each row of a file has metrics, each of which has a figure for each variant.
        let mut in_files = 0;
        for file in coreline_scenarios::ALL.iter().filter_map(|it| it.published) {
            let file: toml::Table = file.parse().unwrap();
            let rows = file["row"].as_array().unwrap().iter().filter_map(toml::Value::as_table);
            let metrics = rows.flat_map(toml::Table::values).filter_map(toml::Value::as_table);
            in_files += metrics.map(toml::Table::len).sum::<usize>();
        }
        assert_eq!((listed.len(), in_files), (in_files, 85), "{listed:#?}");
    }
}
