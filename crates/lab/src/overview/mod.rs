//! The output of the program without a verb: this machine, the five kernel changes beside their
//! published gains, and the costs of the library's types beside those of the usual alternatives.
//! Fits a terminal of 80 columns and 50 lines.
//!
//! | module | does |
//! |---|---|
//! | [`change`] | a row for each change: simulated, published, here |
//! | [`pairs`] | times of common operations here, in pairs |
//! | [`chart`] | bars and figures as text |
//!
//! A row's simulated figures are those of `coreline run`, of the row's command.

mod change;
mod chart;
mod pairs;

use std::io::Write;

use coreline_scenarios::{ALL, CHANGES};
use coreline_sim::NOT_MODELLED;
use coreline_world::native::{note_interrupts, was_interrupted};
use serde::Serialize;

use self::change::Row;
#[cfg(test)]
pub(crate) use self::change::simulated;
pub(crate) use self::change::{all_simulated, as_gain, kernel, natively};
use self::chart::{Bars, figure};
use self::pairs::{Pair, Place};
use crate::doctor;
use crate::error::Error;
use crate::output::Output;
use crate::progress::Whole;
use crate::provenance::{Here, Program};
use crate::text::{self, Form, Tone};

const SCHEMA: &str = "coreline.overview/1";

/// Lines are no longer, however wide the terminal is.
const MOST: usize = 100;

/// All that it says. The schema is `coreline.overview/1`.
#[derive(Debug, Serialize)]
pub(crate) struct Overview {
    schema: &'static str,
    program: Program,
    here: Here,
    pub(crate) changes: Vec<Row>,
    /// The CPUs that the pairs ran on, as a CPU list.
    cpus: String,
    pairs: Vec<Pair>,
    not_modelled: &'static [&'static str],
    /// That an interrupt came before all was done. Not data: such a result is not serialised.
    #[serde(skip)]
    is_cut: bool,
}

/// A part of the overview, as soon as it is ready.
enum Part<'a> {
    Change(&'a Row),
    Pair(&'a Pair),
}

impl Overview {
    /// Runs everything, and reports each part when it is ready. An interrupt leaves those that are.
    fn make(
        place: &Place,
        tell: &mut dyn FnMut(Part<'_>) -> Result<(), Error>,
    ) -> Result<Overview, Error> {
        let mut whole = Whole::new(change::runs() + 1);
        let mut overview = Overview {
            schema: SCHEMA,
            program: Program::THIS,
            here: Here::now(),
            changes: Vec::new(),
            cpus: place.cpus().to_string(),
            pairs: Vec::new(),
            not_modelled: NOT_MODELLED,
            is_cut: false,
        };
        let simulated = all_simulated(|change| &change.shown.variants, &mut whole)?;
        for (change, simulated) in CHANGES.iter().zip(&simulated) {
            let row = change::row(change, simulated, &mut whole)?;
            let Some(row) = row.filter(|_| !was_interrupted()) else { break };
            tell(Part::Change(&row))?;
            overview.changes.push(row);
        }
        if !was_interrupted() {
            overview.pairs = pairs::measure(place, whole.next())?;
            for pair in &overview.pairs {
                tell(Part::Pair(pair))?;
            }
        }
        overview.is_cut = was_interrupted();
        Ok(overview)
    }
}

/// Shows each part as soon as it is there, or all of it as JSON or in a file.
pub(crate) fn show(output: &Output, out: &mut dyn Write) -> Result<(), Error> {
    note_interrupts();
    let place = Place::here()?;
    if output.is_kept() {
        let make = || {
            let overview = Overview::make(&place, &mut |_| Ok(()))?;
            if overview.is_cut { Err(Error::NotWhole) } else { Ok(overview) }
        };
        return output.show(make, |overview, out| {
            let mut page = Page::begin(&place, output.form(), out)?;
            overview.changes.iter().try_for_each(|row| page.show(Part::Change(row)))?;
            overview.pairs.iter().try_for_each(|pair| page.show(Part::Pair(pair)))?;
            overview.foot(page.form, page.out)
        });
    }
    let form = Form::of_output();
    let form = Form { width: form.width.min(MOST), ..form };
    let mut page = Page::begin(&place, form, out)?;
    let overview = Overview::make(&place, &mut |part| page.show(part))?;
    if overview.is_cut {
        let (done, all) = (overview.changes.len(), CHANGES.len());
        let text = format!("interrupted: {done} of {all} changes were run; the rest is left out");
        write!(out, "\n{}", form.paragraph("", &text))?;
        out.flush()?;
        return Err(Error::Interrupted);
    }
    overview.foot(form, out)?;
    Ok(out.flush()?)
}

struct Page<'a> {
    place: &'a Place,
    form: Form,
    out: &'a mut dyn Write,
    has_pairs: bool,
}

impl<'a> Page<'a> {
    fn begin(place: &'a Place, form: Form, out: &'a mut dyn Write) -> Result<Page<'a>, Error> {
        head(form, out)?;
        changes_head(form, out)?;
        Ok(Page { place, form, out, has_pairs: false })
    }

    fn show(&mut self, part: Part<'_>) -> Result<(), Error> {
        let Page { place, form, out, has_pairs } = self;
        match part {
            Part::Change(row) => row.show(*form, out)?,
            Part::Pair(pair) => {
                if !*has_pairs {
                    changes_foot(*form, out)?;
                    pairs_head(place, *form, out)?;
                    *has_pairs = true;
                }
                show_pair(pair, *form, out)?;
            }
        }
        // Flush the finished part now, because the rest may fail.
        Ok(out.flush()?)
    }
}

fn head(form: Form, out: &mut dyn Write) -> Result<(), Error> {
    let version = env!("CARGO_PKG_VERSION");
    doctor::Report::new().show_in_brief(&format!("coreline {version} on "), form, out)
}

fn changes_head(form: Form, out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out)?;
    let head = change::line(
        ["FIVE KERNEL CHANGES", "year", "kernel", "before", "after", "gain", "published"]
            .map(str::to_owned),
    );
    Ok(writeln!(out, "{}", form.toned(Tone::Heading, &head))?)
}

fn changes_foot(form: Form, out: &mut dyn Write) -> Result<(), Error> {
    let text = "Before, after and gain are simulated on the machine that the change's author \
                measured; the range spans the request shares of the band. Your kernel's release \
                tells whether it has the change. More: coreline explain NAME";
    Ok(write!(out, "{}", form.paragraph("", text))?)
}

fn pairs_head(place: &Place, form: Form, out: &mut dyn Write) -> Result<(), Error> {
    // Times of a program that is not optimised are those of no program that anybody runs.
    let slow = if cfg!(debug_assertions) { "; NOT OPTIMISED: add --release" } else { "" };
    let head = format!("IN YOUR PROGRAM, HERE: {}, time per operation{slow}", place.shown());
    Ok(write!(out, "\n{}", form.toned(Tone::Heading, &form.paragraph("", &head)))?)
}

fn show_pair(pair: &Pair, form: Form, out: &mut dyn Write) -> Result<(), Error> {
    let Some(sides) = &pair.sides else {
        return Ok(writeln!(out, "{:SUBJECT$} takes two CPUs", pair.subject)?);
    };
    let subjects = [pair.subject, ""];
    let bar = |(subject, side): (&str, &pairs::Timed)| {
        let mark = if side.disturbed { "~" } else { "" };
        (format!("{subject:SUBJECT$} {:SIDE$}", side.name), side.ns, mark)
    };
    let bars = subjects.into_iter().zip(sides).map(bar).collect();
    Ok(write!(out, "{}", Bars::new(bars, form))?)
}

/// The widths of the columns for the subject of a pair and for the name of each side.
const SUBJECT: usize = 16;
const SIDE: usize = 20;

impl Overview {
    /// The summary, and where to go on.
    fn foot(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        writeln!(out)?;
        if self.pairs.iter().any(Pair::is_disturbed) || self.changes.iter().any(Row::is_disturbed) {
            let text = "~ other programs used these CPUs: these are the least disturbed samples. \
                        For better ones, retry on an idle machine, or choose idle CPUs: taskset -c \
                        CPUS coreline";
            write!(out, "{}", form.paragraph("", text))?;
        }
        write!(out, "{}", form.paragraph("", &change::tally(&self.changes)))?;
        let not_modelled = text::counted(self.not_modelled.len(), "thing");
        let text = format!(
            "Not modelled: {not_modelled} (coreline run lists them). What a verdict means: \
             coreline explain verdicts"
        );
        write!(out, "{}", form.paragraph("", &text))?;
        let names: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
        let next = format!(
            "coreline explain {} | coreline doctor | coreline run NAME, of {}",
            CHANGES[1].name,
            names.join(", ")
        );
        Ok(write!(out, "{}", form.paragraph("Next: ", &next))?)
    }
}

#[cfg(test)]
mod tests {
    use coreline_scenarios::Change;

    use super::*;
    use crate::fields;

    fn made(name: &str) -> Row {
        let change = Change::named(name).unwrap();
        let simulated = simulated(change, &change.shown.variants, Whole::HIDDEN).unwrap();
        change::row(change, &simulated, &mut Whole::new(4)).unwrap().unwrap()
    }

    #[test]
    fn a_change_is_a_gain_however_its_metric_is_counted() {
        // Of copies a second more is better, of nanoseconds less.
        for name in ["numa-queue", "notify-bit"] {
            let row = made(name);
            let row = serde_json::to_value(row).unwrap();
            let [gain, low, high] = [&row["gain"], &row["gain_range"][0], &row["gain_range"][1]]
                .map(|it| it.as_f64().unwrap());
            assert!(1.0 < low && low <= gain && gain <= high, "{row}");
            assert!(row["published_gain"].as_f64().unwrap() > 1.0, "{row}");
            assert!(row["source"].as_str().unwrap().contains("https://"), "{row}");
            assert!(row["command"].as_str().unwrap().starts_with("coreline run "), "{row}");
        }
    }

    #[test]
    fn the_page_of_json_lists_what_an_overview_has() {
        // Of two: a change that this machine may be unable to show, and one that any can.
        let rows = ["numa-queue", "notify-bit"].map(made);
        let place = Place::here().unwrap();
        let overview = Overview {
            schema: SCHEMA,
            program: Program::THIS,
            here: Here::now(),
            changes: rows.into(),
            cpus: place.cpus().to_string(),
            pairs: vec![pairs::made_up()],
            not_modelled: NOT_MODELLED,
            is_cut: false,
        };
        fields::assert_listed(&serde_json::to_value(overview).unwrap());
    }
}
