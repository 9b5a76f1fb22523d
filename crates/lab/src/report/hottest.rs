//! The places where a run spent its time: one point of a result, run again with full statistics.

use std::collections::BTreeMap;

use coreline_scenarios::config::Config;
use coreline_scenarios::point::{Chosen, Point};
use coreline_scenarios::{Scenario, default_line, explain};
use coreline_sim::{AccessCost, Replay, Report, Spec};
use serde::Serialize;

use super::figure::{self, Chart, Figure, Mark, Section, slug};
use super::read::{Row, Run, number};
use crate::error::Error;

/// How many lines and places are shown.
const MOST: usize = 10;

/// A point that was run again.
pub(super) struct Hottest {
    pub(super) scenario: String,
    pub(super) replay: Replay,
    machine: String,
    report: Report,
}

/// The cost of accesses from one place in the source to one line.
#[derive(Debug, Clone, Serialize)]
pub(super) struct HotPlace {
    /// The line's name, or else its address.
    pub(super) line: String,
    /// The file and the line there.
    pub(super) site: String,
    pub(super) time_ns: u64,
    /// The part of that time that was spent waiting for a turn at the line.
    pub(super) queue_ns: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

/// The point of a row, if this program knows it, and the line that brings its first run back.
pub(super) fn line(run: &Run, spec: &Spec, row: &Row) -> Option<(Point, Replay)> {
    let scenario = Scenario::named(&run.scenario)?;
    let variant = scenario.variant(&row.variant)?.name;
    let configs = Config::all(spec.topology());
    let config = configs.into_iter().find(|config| config.name == row.config)?;
    let value = |param: &coreline_scenarios::param::Param| param.of_row(&row.params);
    let chosen = scenario.options().filter_map(|it| Some((it.name, vec![value(it)?])));
    let chosen: Chosen = chosen.collect();
    let points = scenario.points(&config, &[variant], &chosen, (run.quick, false)).ok()?;
    let point = points.into_iter().find(|point| point.params() == row.params)?;
    let arbitration = run.arbitration().unwrap_or_default();
    let overlap = run.overlap();
    let line = Replay { arbitration, overlap, ..default_line(spec, run.seed, &point) };
    Some((point, line))
}

impl Hottest {
    /// Runs a point again: of the last configuration and parameters, the first variant.
    pub(super) fn of(run: &Run, spec: &Spec) -> Result<Option<Hottest>, Error> {
        let last = run.rows.iter().rfind(|row| !row.derived);
        let is_beside = |row: &&Row| {
            last.is_some_and(|last| (&row.config, &row.params) == (&last.config, &last.params))
        };
        let first = run.rows.iter().find(is_beside);
        let Some((point, replay)) = first.and_then(|row| line(run, spec, row)) else {
            return Ok(None);
        };
        let report = explain(spec, &replay, &point)?;
        let (scenario, machine) = (run.scenario.clone(), run.machine());
        Ok(Some(Hottest { scenario, replay, machine, report }))
    }

    fn command(&self) -> String {
        format!("coreline replay {}", self.replay)
    }

    pub(super) fn says(&self) -> String {
        let each = self.report.transfers.by_name();
        let each = each.map(|(name, count)| format!("{} {name}", number(count as f64)));
        format!("Accesses by what served them: {}.", each.join(", "))
    }

    /// The time for which each CPU waited for lines, in nanoseconds.
    pub(super) fn waits(&self) -> BTreeMap<u32, u64> {
        let cpus = self.report.details.iter().flat_map(|details| &details.cpus);
        cpus.map(|cpu| (cpu.cpu, cpu.miss_ns + cpu.queue_ns)).collect()
    }

    /// The places that took the most time, of lines that were missed more than once.
    pub(super) fn places(&self) -> Vec<HotPlace> {
        let lines = self.report.details.iter().flat_map(|details| &details.lines);
        let words = lines.flat_map(|line| line.words.iter().map(move |word| (line, word)));
        let hot = |cost: &AccessCost| cost.transfers.misses() > 1;
        let mut all: Vec<HotPlace> = words
            .filter(|(_, word)| hot(&word.cost))
            .map(|(line, word)| {
                let names = if word.names.is_empty() { &line.names } else { &word.names };
                let address = || format!("{:#x}", line.address);
                HotPlace {
                    line: if names.is_empty() { address() } else { names.join(", ") },
                    site: word.site.to_string(),
                    time_ns: word.cost.time_ns,
                    queue_ns: word.cost.queue_ns,
                    hits: word.cost.transfers.private,
                    misses: word.cost.transfers.misses(),
                }
            })
            .collect();
        all.sort_by_key(|place| std::cmp::Reverse(place.time_ns));
        all.truncate(MOST);
        all
    }

    /// Accesses by distance, and the hottest places. `name` tells the result from the others.
    pub(super) fn charts(&self, name: &str) -> Vec<Chart> {
        let chart = |id: &str, title: String, says: String, figure| Chart {
            id: slug(&format!("{id} {name}")),
            section: Section::Machine,
            title,
            says,
            machine: self.machine.clone(),
            replay: self.command(),
            figure,
        };
        let program = &self.replay.program;
        // The core's own cache serves most accesses, without a transfer.
        let transfers = self.report.transfers.by_name().into_iter().skip(1);
        let mark = |at: &str, value: f64| Mark { at: at.into(), value, low: None, high: None };
        let marks: Vec<_> = transfers.map(|(name, count)| mark(name, count as f64)).collect();
        let title = format!("{}: line transfers by distance", self.scenario);
        let data = vec![figure::bars("transfers", 0, &marks)];
        let figure = Figure::axes(data, &title, ["from", "transfers"]);
        let says = format!("One run of {program}. {}", self.says());
        let mut charts = vec![chart("transfers", title, says, figure)];
        let places = self.places();
        let Some(hottest) = places.first() else { return charts };
        let title = format!("{}: hottest lines by source line", self.scenario);
        let at = |place: &HotPlace| {
            let file = place.site.rsplit('/').next().unwrap_or(&place.site);
            format!("{}<br>{}", figure::plain(&place.line), figure::plain(file))
        };
        let us = |ns: u64| ns as f64 / 1000.0;
        let marks = |of: fn(&HotPlace) -> u64| -> Vec<Mark> {
            places.iter().map(|place| mark(&at(place), us(of(place)))).collect()
        };
        let data = vec![
            figure::bars("waiting for a turn at the line", 1, &marks(|it| it.queue_ns)),
            figure::bars("the rest", 0, &marks(|it| it.time_ns - it.queue_ns)),
        ];
        let mut figure =
            Figure::axes(data, &title, ["line, and where it is accessed", "us, all CPUs"]);
        figure.layout["barmode"] = "stack".into();
        let says = format!(
            "One run of {program}. The hottest place is {}, line {}: {} us of all CPUs, {} of them \
             waiting for a turn.",
            hottest.site,
            hottest.line,
            number(us(hottest.time_ns)),
            number(us(hottest.queue_ns))
        );
        charts.push(chart("hottest", title, says, figure));
        charts
    }
}
