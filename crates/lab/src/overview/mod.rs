//! What the program says if nothing was asked: what this machine is, and for each scenario one
//! question, its answer and how far that is from the published figure; 45 lines of 80 columns at
//! most.
//!
//! | module | does |
//! |---|---|
//! | [`chart`] | bars, figures and paragraphs as text |
//!
//! Questions are data of the scenarios ([`Question`]). All figures are those of
//! `coreline run SCENARIO --quick`.

mod chart;

pub(crate) use chart::is_unicode;

use std::collections::BTreeMap;
use std::io::Write;

use self::chart::{Bars, band, figure, paragraph};
use crate::doctor;
use crate::error::Error;
use crate::progress::Whole;
use crate::run::result::{FigureRow, Outcome};
use crate::run::verdict::Verdict;
use crate::run::{self, Choice};
use crate::scenario::{ALL, Only, Question, Scenario};
use crate::world::World;

/// Runs the quick form of each scenario in both worlds, and shows each answer as soon as it is
/// there: an interrupt leaves those that are.
pub(crate) fn show(tables: bool, out: &mut dyn Write) -> Result<(), Error> {
    let machine = doctor::Report::new();
    if tables {
        machine.show_summary(out)?
    } else {
        machine.show_in_brief(out)?
    };
    let (mut verdicts, mut not_modelled) = (BTreeMap::new(), 0);
    let mut whole = Whole::new(2 * ALL.len());
    for scenario in ALL {
        let mut run = |world| run::run(&Choice::quick(scenario, world, &mut whole));
        let natively = run(World::Native)?;
        let simulated = run(World::preset(scenario.question.machine)?)?;
        writeln!(out)?;
        if tables {
            run::show(&natively, out)?;
            writeln!(out)?;
            run::show(&simulated, out)?;
        } else {
            answer(scenario, &natively, &simulated, out)?;
        }
        // What was finished is to be there if the rest is interrupted.
        out.flush()?;
        for row in simulated.rows.iter().filter(|row| row.published.is_some()) {
            *verdicts.entry(row.verdict).or_insert(0) += 1;
        }
        not_modelled = simulated.not_modelled.len();
    }
    writeln!(out)?;
    if !tables {
        tally(&verdicts, out)?;
        write!(out, "Not modelled: {not_modelled} things (--table lists them). ")?;
    }
    writeln!(out, "Next: coreline --help")?;
    Ok(())
}

/// The rows of a result that a question is about; natively there is one configuration.
fn rows<'a>(question: &Question, outcome: &'a Outcome) -> Vec<&'a FigureRow> {
    let natively = outcome.rows.iter().any(|row| row.samples.is_some());
    let is_asked = |row: &&FigureRow| {
        let config = question.config.is_none_or(|config| natively || row.config == config);
        config
            && question.param.is_none_or(|(name, value)| {
                row.params.get(name).is_some_and(|param| param.to_string() == value)
            })
    };
    outcome.rows.iter().filter(is_asked).collect()
}

/// One chart, the answer in a sentence, and what this machine measured.
fn answer(
    scenario: &Scenario,
    natively: &Outcome,
    simulated: &Outcome,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let question = &scenario.question;
    let [here, there] = [natively, simulated].map(|outcome| rows(question, outcome));
    let find = |metric, variant: &str| {
        there.iter().find(|row| row.metric == metric && row.variant == variant)
    };
    let drawn: Vec<_> =
        question.variants.iter().filter_map(|it| find(question.metric, it)).collect();
    let better = drawn.first().map_or("", |row| row.better.words());
    writeln!(out, "{} on {}: {}, {better}", simulated.scenario, simulated.world, question.about)?;
    let bars = drawn.iter().map(|row| (row.variant, row.value, row.unit));
    write!(out, "{}", Bars::new(bars.collect()))?;
    let (metric, variant) = question.answer;
    if let Some(row) = find(metric, variant) {
        let answer = question.sentence.replace("{}", &band(row));
        let beside = match row.published {
            Some(published) => format!("published {published}: {}", row.said()),
            None => "unpublished".to_owned(),
        };
        write!(out, "{}", paragraph("=> ", &format!("{answer}; {beside}")))?;
    }
    // What is drawn, and what only this machine has.
    let is_native = |variant: &str| {
        scenario.variant(variant).is_some_and(|variant| variant.only == Only::Native)
    };
    let is_shown = |row: &&FigureRow| {
        let drawn = question.variants.contains(&row.variant) || is_native(row.variant);
        row.metric == question.metric && drawn
    };
    let here: Vec<_> = here.into_iter().filter(is_shown).collect();
    write!(out, "{}", paragraph("here: ", &measured(&here)))?;
    Ok(())
}

/// What this machine measured, in a line.
fn measured(rows: &[&FigureRow]) -> String {
    let rounds = rows.iter().filter_map(|row| row.discarded).max().unwrap_or(0);
    let samples = rows.iter().filter_map(|row| row.samples).min().unwrap_or(0);
    if samples == 0 {
        return match rounds {
            0 => "nothing to measure".to_owned(),
            _ => format!("no figures, as other load disturbed all of {rounds} rounds"),
        };
    }
    let figures: Vec<_> =
        rows.iter().map(|row| format!("{} {}", row.variant, figure(row.value, row.unit))).collect();
    format!("{} ({samples} samples)", figures.join(", "))
}

fn tally(verdicts: &BTreeMap<Verdict, usize>, out: &mut dyn Write) -> Result<(), Error> {
    let all: usize = verdicts.values().sum();
    let each: Vec<_> =
        verdicts.iter().map(|(verdict, count)| format!("{count} {}", verdict.words())).collect();
    let text = format!("{all} published figures: {}", each.join(", "));
    Ok(write!(out, "{}", paragraph("Of ", &text))?)
}
