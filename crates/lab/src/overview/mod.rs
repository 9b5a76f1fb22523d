//! What the program says if nothing was asked: what this machine is, and for each scenario that
//! asks one, a question, its answer and how far that is from the published figure; 45 lines at
//! most, and 80 columns where the terminal has no more.
//!
//! | module | does |
//! |---|---|
//! | [`chart`] | bars and figures as text |
//!
//! Questions are data of the scenarios ([`Question`]). All figures are those of
//! `coreline run SCENARIO --quick`.

mod chart;

use std::collections::BTreeMap;
use std::io::Write;

use coreline_scenarios::{ALL, Only, Question, Scenario};
use coreline_world::native::{note_interrupts, was_interrupted};

use self::chart::{Bars, band, figure};
use crate::doctor;
use crate::error::Error;
use crate::progress::Whole;
use crate::run::result::{FigureRow, Outcome};
use crate::run::verdict::Verdict;
use crate::run::{self, Choice};
use crate::table;
use crate::text::{Form, Tone};
use crate::world::World;

/// Charts are no wider, however wide the terminal is.
const MOST: usize = 100;

/// Runs the quick form of each scenario in both worlds, and shows each answer as soon as it is
/// there. An interrupt leaves those that are, and says that the rest is left out.
pub(crate) fn show(tables: bool, form: Form, out: &mut dyn Write) -> Result<(), Error> {
    note_interrupts();
    let form = Form { width: if tables { form.width } else { form.width.min(MOST) }, ..form };
    let machine = doctor::Report::new();
    if tables {
        machine.show_summary(form, out)?
    } else {
        machine.show_in_brief(out)?
    };
    let (mut verdicts, mut not_modelled, mut finished) = (BTreeMap::new(), 0, 0);
    let (asked, others): (Vec<_>, Vec<_>) =
        ALL.iter().copied().partition(|it| it.question.is_asked());
    let mut whole = Whole::new(2 * asked.len());
    for scenario in asked.iter().copied() {
        // What was finished is to be there, whatever becomes of the rest.
        out.flush()?;
        let mut run = |world| run::run(&Choice::quick(scenario, world, &mut whole));
        let natively = run(World::Native)?;
        let simulated = run(World::preset(scenario.question.machine)?)?;
        let is_whole = [&natively, &simulated].iter().all(|it| it.left_out.is_none());
        if tables {
            for outcome in [&natively, &simulated].into_iter().filter(|it| !it.rows.is_empty()) {
                writeln!(out)?;
                table::show(outcome, form, out)?;
            }
        } else if is_whole {
            writeln!(out)?;
            answer(scenario, [&natively, &simulated], form, out)?;
        }
        for row in simulated.rows.iter().filter(|row| is_whole && row.published.is_some()) {
            *verdicts.entry(row.verdict).or_insert(0) += 1;
        }
        not_modelled = simulated.not_modelled.len();
        finished += usize::from(is_whole);
        if was_interrupted() {
            break;
        }
    }
    writeln!(out)?;
    if !tables && !verdicts.is_empty() {
        tally(&verdicts, form, out)?;
    }
    if finished < asked.len() {
        let text = format!(
            "interrupted: {finished} of {} scenarios were finished, and the rest was left out",
            asked.len()
        );
        write!(out, "{}", form.paragraph("", &text))?;
        out.flush()?;
        return Err(Error::Interrupted);
    }
    let others: Vec<_> = others.iter().map(|it| it.name).collect();
    let next = format!("Next: coreline run {}; coreline --help", others.join(", "));
    let end = match tables {
        true => next,
        false => format!("Not modelled: {not_modelled} things (--table lists them). {next}"),
    };
    Ok(write!(out, "{}", form.paragraph("", &end))?)
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
    [natively, simulated]: [&Outcome; 2],
    form: Form,
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
    let head = format!("{} on {}:", simulated.scenario, simulated.world);
    let head = format!("{} {}, {better}", form.toned(Tone::Heading, &head), question.about);
    write!(out, "{}", form.paragraph("", &head))?;
    let bars = drawn.iter().map(|row| (row.variant, row.value, row.unit));
    write!(out, "{}", Bars::new(bars.collect(), form))?;
    let (metric, variant) = question.answer;
    if let Some(row) = find(metric, variant) {
        let answer = question.sentence.replace("{}", &band(row));
        let beside = match row.published {
            Some(published) => {
                let said = table::tone(row.verdict)
                    .map_or_else(|| row.said(), |tone| form.toned(tone, &row.said()));
                format!("published {published}: {said}")
            }
            None => "unpublished".to_owned(),
        };
        write!(out, "{}", form.paragraph("=> ", &format!("{answer}; {beside}")))?;
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
    write!(out, "{}", form.paragraph("here: ", &measured(&here)))?;
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
        rows.iter().map(|row| (row.variant, figure(row.value, row.unit))).collect();
    format!("{} ({samples} samples)", in_one_unit(&figures))
}

/// Figures in a line; the unit once, after the last, if all have the same.
fn in_one_unit(figures: &[(&str, String)]) -> String {
    let unit = figures.first().and_then(|(_, figure)| figure.split_once(' ')).map(|it| it.1);
    let shared = unit.filter(|unit| {
        figures.iter().all(|(_, figure)| figure.split_once(' ').is_some_and(|it| it.1 == *unit))
    });
    let last = figures.len().saturating_sub(1);
    let shown = |(at, (name, figure)): (usize, &(&str, String))| {
        let bare = shared.filter(|_| at < last).and_then(|_| figure.split_once(' '));
        format!("{name} {}", bare.map_or(figure.as_str(), |it| it.0))
    };
    figures.iter().enumerate().map(shown).collect::<Vec<_>>().join(", ")
}

fn tally(
    verdicts: &BTreeMap<Verdict, usize>,
    form: Form,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let all: usize = verdicts.values().sum();
    let each = |(verdict, count): (&Verdict, &usize)| {
        let words = verdict.words();
        let words = table::tone(*verdict).map_or(words.to_owned(), |tone| form.toned(tone, words));
        format!("{count} {words}")
    };
    let each: Vec<_> = verdicts.iter().map(each).collect();
    let text = format!("{all} published figures: {}", each.join(", "));
    Ok(write!(out, "{}", form.paragraph("Of ", &text))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_all_share_is_said_once() {
        let line = |figures: &[(&'static str, &str)]| {
            let figures = figures.iter().map(|(name, figure)| (*name, (*figure).to_owned()));
            in_one_unit(&figures.collect::<Vec<_>>())
        };
        assert_eq!(line(&[("one", "17.9 ns"), ("two", "101 ns")]), "one 17.9, two 101 ns");
        assert_eq!(line(&[("one", "17.9 ns"), ("two", "10.1 us")]), "one 17.9 ns, two 10.1 us");
        assert_eq!(line(&[("one", "17.9 ns")]), "one 17.9 ns");
        assert_eq!(line(&[]), "");
    }

    #[test]
    fn documents_say_how_many_scenarios_there_are_and_how_many_are_asked() {
        let words = "none one two three four five six seven eight nine ten eleven twelve thirteen \
                     fourteen fifteen sixteen seventeen eighteen nineteen twenty";
        let word = |count: usize| words.split(' ').nth(count).unwrap();
        let all = format!("{} scenarios", word(ALL.len()));
        let asked = ALL.iter().filter(|it| it.question.is_asked()).count();
        let asked = format!("an answer for each of {} scenarios", word(asked));
        for text in [
            include_str!("../../../../README.md"),
            include_str!("../../../../CHANGELOG.md"),
            include_str!("../../README.md"),
        ] {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(&all) && text.contains(&asked), "{all}, {asked}: {text}");
        }
        let library = include_str!("../../../scenarios/README.md");
        assert!(library.contains(&all), "{all}: {library}");
        let help = include_str!("../cli/mod.rs").replace("\n///", "");
        assert!(help.contains(&asked), "{asked}: {help}");
    }
}
