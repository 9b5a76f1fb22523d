//! A chart of the rows of a sweep: a figure over a parameter, with a line for each variant and a
//! panel for each machine.

use std::collections::{BTreeMap, BTreeSet};

use coreline_scenarios::Scenario;
use coreline_scenarios::param::Domain;
use serde_json::Value;

use super::figure::{Figure, Line, Mark};
use crate::sweep::{Kind, Row, SweepError};
use crate::sweep_error::unknown;

/// Columns in which the runs of one point differ.
const RUNS: [&str; 6] =
    ["replay", "seed", "request_percent", "arbitration", "cost", "cost_percent"];

/// Returns the chart of a figure over a parameter, as a figure of Plotly. A point is the mean over
/// seeds, arbitrations and costs, and its whiskers reach from the lowest to the highest. The
/// default parameter is the number of threads or, in a scenario without it, of CPUs.
///
/// # Errors
///
/// [`SweepError::Chart`] if the rows have no such figure or parameter, or if they differ in
/// something that the chart does not show.
pub fn chart(rows: &[Row], metric: &str, over: Option<&str>) -> Result<Value, SweepError> {
    let figure = Chart::new(rows, metric, over).and_then(|chart| chart.figure(rows));
    let Figure { data, layout } = figure.map_err(|why| SweepError::Chart { why })?;
    Ok(serde_json::json!({ "data": data, "layout": layout }))
}

struct Chart<'a> {
    scenario: &'static Scenario,
    metric: &'a str,
    /// The name of the figure, its unit and better direction.
    unit: String,
    over: &'a str,
    /// Columns that must have one value.
    fixed: Vec<String>,
}

impl<'a> Chart<'a> {
    fn new(rows: &[Row], metric: &'a str, over: Option<&'a str>) -> Result<Chart<'a>, String> {
        let first = rows.first().ok_or("there are no rows")?;
        let scenario = Scenario::named(first.scenario()).ok_or("the scenario is not known")?;
        let of = |what: &str| format!("{what} of {}", scenario.name);
        let own = || scenario.figures.iter().filter(|it| it.is_own()).map(|it| &it.metric);
        let figures: BTreeSet<&str> = own().map(|it| it.name).collect();
        let shown = own().find(|it| it.name == metric);
        let shown = shown.ok_or_else(|| unknown(&of("figure"), metric, figures.iter().copied()))?;
        let unit = format!("{metric} ({}), {}", shown.kind.unit(), shown.kind.better().words());

        let columns = Row::columns(scenario.name).unwrap_or_default();
        let params: Vec<String> = scenario.params.iter().flat_map(|it| it.row_names()).collect();
        let numbers = || {
            let whole = columns.iter().filter(|(_, kind)| *kind == Kind::Whole);
            let names = whole.map(|(name, _)| name.as_str());
            names.filter(|name| *name == "cpus" || params.iter().any(|param| param == name))
        };
        let threads = scenario.params.iter().find(|it| matches!(it.domain, Domain::Cpus(_)));
        let over = over.unwrap_or_else(|| threads.map_or("cpus", |param| param.name));
        if !numbers().any(|name| name == over) {
            return Err(unknown(&of("numeric parameter"), over, numbers()));
        }
        let is_fixed = |name: &str| {
            let is_shown = ["machine", "digest", "variant", "steps", "error", over].contains(&name);
            // The configuration says how many CPUs there are.
            let is_cpus = name == "cpus" || (name == "config" && over == "cpus");
            !is_shown && !is_cpus && !RUNS.contains(&name) && !figures.contains(name)
        };
        let fixed = columns.iter().filter(|(name, _)| is_fixed(name));
        let fixed = fixed.map(|(name, _)| name.clone()).collect();
        Ok(Chart { scenario, metric, unit, over, fixed })
    }

    fn figure(&self, rows: &[Row]) -> Result<Figure, String> {
        let mut variants: Vec<&str> = Vec::new();
        let mut machines: Vec<(&str, Vec<&Row>)> = Vec::new();
        for row in rows {
            let variant = row.value("variant").as_str().unwrap_or_default();
            if !variants.contains(&variant) {
                variants.push(variant);
            }
            // With the digest, if the machine is the user's own.
            let machine = row.key().and_then(|key| key.split_whitespace().nth(1));
            let machine = machine.unwrap_or_default().trim_start_matches("machine=");
            match machines.iter_mut().find(|(name, _)| *name == machine) {
                Some((_, of)) => of.push(row),
                None => machines.push((machine, vec![row])),
            }
        }
        let Chart { scenario, metric, over, .. } = self;
        let title = format!("{}: {metric} over {over}", scenario.name);
        let (mut panels, mut runs) = (Vec::new(), BTreeSet::new());
        for (machine, rows) in machines {
            for name in &self.fixed {
                has_one_value(&rows, machine, name)?;
            }
            let mut lines = Vec::new();
            for (colour, variant) in variants.iter().enumerate() {
                let points = self.points(&rows, variant);
                runs.extend(points.values().map(Vec::len));
                let marks = points.iter().map(|(at, values)| mark(*at, values)).collect();
                lines.push(Line { name: (*variant).to_owned(), colour, marks });
            }
            panels.push((machine.to_owned(), Figure::lines(&lines, &title, [over, &self.unit])));
        }
        let (Some(least), Some(most)) = (runs.first(), runs.last()) else {
            return Err(format!("no row has a value of {metric}, because all runs failed"));
        };
        let runs = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let says = format!("means of {runs} runs, with whiskers from the lowest to the highest");
        let mut figure = Figure::panels(panels, &title);
        if *most > 1 {
            figure.layout["title"]["subtitle"]["text"] = says.into();
            figure.layout["margin"]["t"] = 120.into();
            figure.layout["title"]["y"] = 0.97.into();
            figure.layout["title"]["yanchor"] = "top".into();
        }
        Ok(figure)
    }

    /// The values of the figure, by the parameter.
    fn points(&self, rows: &[&Row], variant: &str) -> BTreeMap<u64, Vec<f64>> {
        let mut points: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for row in rows.iter().filter(|row| *row.value("variant") == *variant) {
            let (at, value) = (row.value(self.over).as_u64(), row.value(self.metric).as_f64());
            if let (Some(at), Some(value)) = (at, value) {
                points.entry(at).or_default().push(value);
            }
        }
        points
    }
}

fn mark(at: u64, values: &[f64]) -> Mark {
    let value = values.iter().sum::<f64>() / values.len() as f64;
    let (low, high) = super::figure::ends(values);
    let (low, high) = (values.len() > 1).then_some((low, high)).unzip();
    Mark { at: at.into(), value, low, high }
}

/// Rows that differ in what the chart does not show would be mixed.
fn has_one_value(rows: &[&Row], machine: &str, name: &str) -> Result<(), String> {
    let mut values: Vec<&Value> = Vec::new();
    for row in rows {
        let value = row.value(name);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let [first, _, ..] = values[..] else { return Ok(()) };
    let all: Vec<String> = values.iter().map(ToString::to_string).collect();
    Err(format!(
        "the rows of {machine} differ in {name}, whose values are {}; choose one, as in \
         rows.where({name}={first})",
        all.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{Sweep, TaskRows};

    /// Two machines, two variants, three seeds, and both sections for the asked ones.
    fn rows(sections: &str) -> Vec<Row> {
        let spec = format!(
            "{{\"scenario\": \"lockscale\", \"machine\": [\"host-2c\", \"desktop-12c\"], \
             \"variant\": [\"fifo\", \"near\"], \"seed\": \"0..3\", \"quick\": true, \
             \"params\": {{\"outside\": 500, \"threads\": [2, 1], \"section\": {sections}}}}}"
        );
        let sweep = Sweep::from_json(&spec).unwrap();
        let mut rows = Vec::new();
        while rows.len() < sweep.keys().len() {
            let rest = sweep.keys()[rows.len()..].to_vec();
            let TaskRows { rows: more, .. } = sweep.task(rest, 1).run(|| false).unwrap();
            rows.extend(more);
        }
        rows
    }

    #[test]
    fn a_point_is_the_mean_of_its_runs_with_a_band_from_the_lowest_to_the_highest() {
        let rows = rows("100");
        let chart = chart(&rows, "turns", None).unwrap();
        let traces = chart["data"].as_array().unwrap();
        assert_eq!(traces.len(), 4, "two machines, two variants");
        let of = |name: &str, trace: usize| super::super::figure::numbers(&traces[trace][name]);
        for (trace, (machine, variant)) in [
            ("host-2c", "fifo"),
            ("host-2c", "near"),
            ("desktop-12c", "fifo"),
            ("desktop-12c", "near"),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(of("x", trace), [1.0, 2.0]);
            for (index, threads) in [1, 2].into_iter().enumerate() {
                let is_run = |row: &&Row| {
                    *row.value("machine") == *machine
                        && *row.value("variant") == *variant
                        && *row.value("threads") == threads
                };
                let runs = rows.iter().filter(is_run);
                let runs: Vec<f64> = runs.filter_map(|row| row.value("turns").as_f64()).collect();
                assert_eq!(runs.len(), 3);
                let mean = runs.iter().sum::<f64>() / 3.0;
                assert_eq!(of("y", trace)[index], mean);
                let (low, high) = super::super::figure::ends(&runs);
                let whiskers = |name: &str| {
                    super::super::figure::numbers(&traces[trace]["error_y"][name])[index]
                };
                assert_eq!((whiskers("arrayminus"), whiskers("array")), (mean - low, high - mean));
            }
        }
        let told = chart["layout"]["title"]["subtitle"]["text"].as_str().unwrap();
        assert!(told.starts_with("means of 3 runs"), "{told}");
        let shown: Vec<_> = traces.iter().map(|it| it["showlegend"].as_bool().unwrap()).collect();
        assert_eq!(shown, [true, true, false, false]);
    }

    #[test]
    fn rows_that_differ_in_what_is_not_shown_are_refused() {
        let rows = rows("[100, 500]");
        let told = |metric, over| chart(&rows, metric, over).unwrap_err().to_string();
        let mixed = told("turns", None);
        assert!(mixed.contains("section_ns, whose values are 100, 500; choose one"), "{mixed}");
        assert!(mixed.contains("rows.where(section_ns=100)"), "{mixed}");
        assert!(told("turn", None).contains("did you mean turns"));
        assert!(told("turns", Some("thread")).contains("did you mean threads"));
        assert!(told("turns", Some("variant")).contains("numeric parameter"));
        assert!(chart(&[], "turns", None).is_err());
        // Over the sections, the numbers of threads differ.
        assert!(told("turns", Some("section_ns")).contains("differ in threads, whose values are "));
        let one = |row: &&Row| *row.value("threads") == 2;
        let of_two: Vec<Row> = rows.iter().filter(one).cloned().collect();
        let chart = chart(&of_two, "turns", Some("section_ns")).unwrap();
        assert_eq!(super::super::figure::numbers(&chart["data"][0]["x"]), [100.0, 500.0]);
    }
}
