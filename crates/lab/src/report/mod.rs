//! The verb `report`: results of `coreline run` as one page that needs no network, as JSON, or one
//! chart of it as a picture.
//!
//! | module | does |
//! |---|---|
//! | [`read`] | results, read back |
//! | [`figure`] | charts: figures of Plotly as JSON |
//! | [`charts`] | charts of results |
//! | [`cells`] | a chart of a sweep's rows, for the Python package |
//! | [`machine`] | a simulated machine: boxes, heat map, costs |
//! | [`hottest`] | one point of a result, run again: where its time goes |
//! | [`changes`] | the table that the page begins with |
//! | [`page`] | the page |
//! | [`picture`] | a chart as SVG or PNG |
//!
//! The code of plotly.js comes with the package `plotly`, which is built for nothing else: figures
//! are written as JSON, so that nothing has to compile for the kinds of charts that we do not have.

mod cells;
mod changes;
mod charts;
mod figure;
mod hottest;
mod html;
mod machine;
mod page;
mod picture;
mod read;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use coreline_scenarios::CHANGES;
use coreline_world::native::{note_interrupts, was_interrupted};
use serde::Serialize;

pub use self::cells::chart;
use self::changes::Change;
use self::figure::{Chart, Figure, Line, Mark, Section, slug};
use self::hottest::{HotPlace, Hottest};
use self::machine::Shown;
use self::read::Run;
use crate::error::Error;
use crate::listing::Listing;
use crate::output::{Stdout, Target};
use crate::overview::{all_simulated, natively};
use crate::progress::Whole;
use crate::provenance::Program;
use crate::text;

#[derive(Args)]
pub(crate) struct Choice {
    /// Results of `coreline run SCENARIO --json --out FILE`. Without a result, the command first
    /// runs the scenarios of the five kernel changes, simulated and on this machine
    #[arg(value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// The file to write; the default is report.html, and NAME.png or NAME.svg for a picture. JSON
    /// goes to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

/// The output, instead of the page.
#[derive(Args)]
#[group(multiple = false)]
struct Form {
    /// Print one JSON object, whose charts are figures for plotly.py
    #[arg(long)]
    json: bool,
    /// List the charts by name
    #[arg(long)]
    list: bool,
    /// Write this chart as PNG, with its title, machine and replay line
    #[arg(long, value_name = "NAME")]
    png: Option<String>,
    /// Write this chart as SVG
    #[arg(long, value_name = "NAME")]
    svg: Option<String>,
}

/// All that a page shows. The schema is `coreline.report/1`.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    program: Program,
    changes: Vec<Change>,
    results: Vec<Result_>,
    hottest: Vec<HotPlaces>,
    charts: Vec<Chart>,
    /// The effects that the simulator leaves out, in all results.
    not_modelled: Vec<String>,
    #[serde(skip)]
    machines: Vec<Shown>,
}

#[derive(Serialize)]
struct Result_ {
    /// The part of the name that tells it from the others, in the names of its charts.
    name: String,
    scenario: String,
    world: String,
    machine: String,
    command: String,
    rows: usize,
    #[serde(skip)]
    run: Run,
}

#[derive(Serialize)]
struct HotPlaces {
    result: String,
    replay: String,
    places: Vec<HotPlace>,
}

pub(crate) fn report(choice: &Choice) -> Result<(), Error> {
    let Form { json, list, png, svg } = &choice.form;
    let picture = png.as_ref().map(|name| (name, "png")).or(svg.as_ref().map(|it| (it, "svg")));
    let usual = match picture {
        Some((name, end)) => Some(format!("{name}.{end}")),
        None => (!json && !list).then(|| "report.html".to_owned()),
    };
    let out = choice.out.clone().or(usual.map(PathBuf::from));
    let read = |path: &PathBuf| Run::file(path);
    let runs: Vec<Run> = choice.results.iter().map(read).collect::<Result<_, _>>()?;
    let target = out.as_deref().map(Target::new).transpose()?;
    let runs = if runs.is_empty() { usual_runs()? } else { runs };
    let report = Report::new(runs)?;
    let (text, told) = match picture {
        Some((name, end)) => {
            let chart = report.chart(name)?;
            let picture = if end == "png" { picture::png(chart)? } else { picture::svg(chart)? };
            (picture, chart.title.clone())
        }
        None if *json => {
            let mut text = serde_json::to_vec_pretty(&report).map_err(io::Error::from)?;
            text.push(b'\n');
            (text, "the figures".to_owned())
        }
        None if *list => (report.list().into_bytes(), "the names of the charts".to_owned()),
        None => (page::page(&report).into_bytes(), report.told()),
    };
    let stdout = &mut Stdout;
    match target {
        Some(target) => {
            target.write(&text)?;
            let path = out.as_deref().unwrap_or(Path::new("")).display();
            Ok(writeln!(stdout, "{path}: {told}")?)
        }
        None => Ok(stdout.write_all(&text)?),
    }
}

/// A line of a picture: a figure by the number of threads.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(usize, f64)>,
}

/// Throughput over threads, as a picture of the form `png` or `svg`.
pub(crate) fn curves(
    title: &str,
    machine: &str,
    replay: &str,
    curves: &[Curve],
    form: &str,
) -> Result<Vec<u8>, Error> {
    let line = |(colour, curve): (usize, &Curve)| {
        let mark =
            |&(at, value): &(usize, f64)| Mark { at: at.into(), value, low: None, high: None };
        let marks = curve.points.iter().map(mark).collect();
        Line { name: curve.name.clone(), colour, marks }
    };
    let lines: Vec<Line> = curves.iter().enumerate().map(line).collect();
    let chart = Chart {
        id: String::new(),
        section: Section::Scaling,
        title: title.to_owned(),
        says: title.to_owned(),
        machine: machine.to_owned(),
        replay: replay.to_owned(),
        figure: Figure::lines(&lines, title, ["threads", "operations per second"]),
    };
    if form == "png" { picture::png(&chart) } else { picture::svg(&chart) }
}

/// The runs that show the five changes, in all variants.
fn usual_runs() -> Result<Vec<Run>, Error> {
    note_interrupts();
    let mut whole = Whole::new(1 + CHANGES.len());
    let simulated = all_simulated(|_| &[], &mut whole)?;
    let mut runs = Vec::new();
    for (change, simulated) in CHANGES.iter().zip(simulated) {
        for outcome in [simulated, natively(change, &[], &mut whole)?] {
            if outcome.left_out.is_some() || was_interrupted() {
                return Err(Error::NotWhole);
            }
            runs.push(Run::of(&outcome));
        }
    }
    // Natively a scenario may have nothing to measure.
    runs.retain(|run| !run.rows.is_empty());
    Ok(runs)
}

impl Report {
    fn new(runs: Vec<Run>) -> Result<Report, Error> {
        let machines = machine::of(&runs)?;
        let changes = changes::of(&runs);
        let mut not_modelled: Vec<String> = Vec::new();
        for line in runs.iter().flat_map(|run| &run.not_modelled) {
            if !not_modelled.contains(line) {
                not_modelled.push(line.clone());
            }
        }
        let names = names(&runs);
        let (mut charts, mut hottest, mut explained) = (Vec::new(), Vec::new(), Vec::new());
        for (run, name) in runs.iter().zip(&names) {
            charts.extend(charts::of(run, name));
            let spec = machine::spec(run)?;
            let Some(hot) = spec.map(|spec| Hottest::of(run, &spec)).transpose()?.flatten() else {
                continue;
            };
            charts.extend(hot.charts(name));
            let replay = format!("coreline replay {}", hot.replay);
            hottest.push(HotPlaces { result: name.clone(), replay, places: hot.places() });
            explained.push((run.world.clone(), hot));
        }
        for shown in &machines {
            let of = explained.iter().find(|(world, _)| world == shown.spec.name());
            charts.push(shown.boxes(of.map(|(_, hot)| hot)));
            charts.push(shown.heat_map());
        }
        let result = |(run, name): (Run, String)| Result_ {
            name,
            scenario: run.scenario.clone(),
            world: run.world.clone(),
            machine: run.machine(),
            command: run.command(),
            rows: run.rows.len(),
            run,
        };
        Ok(Report {
            schema: "coreline.report/1",
            program: Program::THIS,
            changes,
            results: runs.into_iter().zip(names).map(result).collect(),
            hottest,
            charts,
            not_modelled,
            machines,
        })
    }

    fn chart(&self, asked: &str) -> Result<&Chart, Error> {
        let names = || self.charts.iter().map(|chart| chart.id.clone());
        let found = self.charts.iter().find(|chart| chart.id == asked);
        found.ok_or_else(|| Error::Chart { asked: asked.to_owned(), has: names().collect() })
    }

    fn list(&self) -> String {
        let mut listing = Listing::new(&[("chart", false), ("what it shows", false)]);
        for chart in &self.charts {
            listing.row([chart.id.clone(), chart.title.clone()]);
        }
        // Names are options of other commands: they stay whole.
        listing.text(text::Form { width: usize::MAX, ..text::Form::plain() })
    }

    fn told(&self) -> String {
        let rows: usize = self.results.iter().map(|result| result.rows).sum();
        let count = |count, what| text::counted(count, what);
        format!(
            "{}, {}, {}; open it in a browser",
            count(self.results.len(), "result"),
            count(rows, "row"),
            count(self.charts.len(), "chart")
        )
    }
}

/// A name for each result that no other has.
fn names(runs: &[Run]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for run in runs {
        let name = slug(&format!("{} {}", run.scenario, run.world));
        let others =
            names.iter().filter(|it| **it == name || it.starts_with(&format!("{name}-no-")));
        let others = others.count();
        names.push(if others == 0 { name } else { format!("{name}-no-{}", others + 1) });
    }
    names
}
