//! Charts of results: beside published figures, over the values of a parameter, by variant.

use std::collections::BTreeMap;

use coreline_scenarios::param::Value as Param;
use serde_json::Value;

use super::figure::{self, Chart, Figure, Line, Mark, Section, slug};
use super::read::{Row, Run, number};

/// Figures that say how evenly threads or nodes share.
const FAIRNESS: [&str; 4] = ["share", "share_of_nodes", "longest_wait", "longest_run_on_a_node"];

/// Columns side by side in a chart of variants: more cannot be read.
const MOST_PLACES: usize = 8;

/// All charts of a result. `name` tells the result from the others.
///
/// There is none of a figure that is 0 everywhere and was not published: the rows say as much.
pub(super) fn of(run: &Run, name: &str) -> Vec<Chart> {
    let mut metrics: Vec<&str> = Vec::new();
    let says = |row: &Row| row.value.is_some_and(|value| value != 0.0) || row.published.is_some();
    for row in run.rows.iter().filter(|row| says(row)) {
        if !metrics.contains(&&*row.metric) {
            metrics.push(&row.metric);
        }
    }
    metrics.into_iter().flat_map(|metric| Of { run, name, metric }.charts()).collect()
}

/// The charts of one figure of a result.
struct Of<'a> {
    run: &'a Run,
    name: &'a str,
    metric: &'a str,
}

impl<'a> Of<'a> {
    fn charts(&self) -> Vec<Chart> {
        let published = self.published();
        let scaling = self.scaling();
        // A ratio is shown beside what was published for it; otherwise its parts say as much.
        let is_derived = self.rows().any(|row| row.derived);
        if published.is_none() && scaling.is_empty() && !is_derived {
            return self.variants().into_iter().collect();
        }
        published.into_iter().chain(scaling.into_iter().filter(|_| !is_derived)).collect()
    }

    fn rows(&self) -> impl Iterator<Item = &'a Row> {
        let metric = self.metric;
        self.run.rows.iter().filter(move |row| row.metric == metric && row.value.is_some())
    }

    /// Its name, unit and better direction.
    fn unit(&self) -> String {
        let unit = self.rows().next().map(|row| (row.unit.clone(), row.better.words()));
        let (unit, better) = unit.unwrap_or_default();
        format!("{} ({unit}), {better}", self.metric)
    }

    fn chart(&self, id: &str, section: Section, title: String, says: String, of: Figure) -> Chart {
        let fair = FAIRNESS.contains(&self.metric) && section != Section::Published;
        Chart {
            id: slug(&format!("{id} {} {}", self.name, self.metric)),
            section: if fair { Section::Fairness } else { section },
            title,
            says,
            machine: self.run.machine(),
            replay: self.run.command(),
            figure: of,
        }
    }

    /// Published figures beside ours, with their bands.
    fn published(&self) -> Option<Chart> {
        let rows: Vec<_> = self.rows().filter(|row| row.published.is_some()).collect();
        if rows.is_empty() {
            return None;
        }
        let at = |row: &Row| {
            let place = row.place().replace(", ", "<br>");
            Value::from(format!("{}<br>{}", figure::plain(&row.variant), clean(&place)))
        };
        let ours: Vec<_> = rows.iter().filter_map(|row| mark(row, at(row))).collect();
        let mark =
            |row: &&Row| Some(Mark { at: at(row), value: row.published?, low: None, high: None });
        let theirs: Vec<_> = rows.iter().filter_map(mark).collect();
        let title = format!("{}: {}, published and ours", self.run.title(), self.metric);
        let data =
            vec![figure::points(self.ours(), 0, &ours), figure::published("published", &theirs)];
        let mut verdicts = BTreeMap::new();
        for row in &rows {
            *verdicts.entry(row.verdict.words()).or_insert(0) += 1;
        }
        let verdicts: Vec<_> =
            verdicts.iter().map(|(words, count)| format!("{count} {words}")).collect();
        let says = format!(
            "The {} figures next to the published ones, with {}. Verdicts: {}.",
            self.ours(),
            self.run.span(),
            verdicts.join(", ")
        );
        let figure = Figure::axes(data, &title, ["", &self.unit()]);
        Some(self.chart("published", Section::Published, title, says, figure))
    }

    fn ours(&self) -> &'static str {
        if self.run.is_native() { "measured" } else { "simulated" }
    }

    /// A line for each variant over each parameter that has two numbers or more, on the largest
    /// configuration.
    fn scaling(&self) -> Vec<Chart> {
        let Some(config) = self.rows().last().map(|row| &row.config) else { return Vec::new() };
        let rows: Vec<_> = self.rows().filter(|row| row.config == *config).collect();
        let Some(first) = rows.first() else { return Vec::new() };
        first.params.keys().filter_map(|param| self.over(param, config, &rows)).collect()
    }

    fn over(&self, param: &str, config: &str, rows: &[&Row]) -> Option<Chart> {
        let value = |row: &Row| match row.params.get(param) {
            Some(Param::Number(value)) => Some(*value),
            _ => None,
        };
        let others = |row: &Row| {
            let mut params = row.params.clone();
            params.remove(param);
            params
        };
        // The combination of the other parameters that has the most values of this one.
        let mut groups: Vec<(_, Vec<&Row>)> = Vec::new();
        for row in rows.iter().copied().filter(|row| value(row).is_some()) {
            match groups.iter_mut().find(|(of, _)| *of == others(row)) {
                Some((_, group)) => group.push(row),
                None => groups.push((others(row), vec![row])),
            }
        }
        let values = |group: &[&Row]| {
            let mut values: Vec<_> = group.iter().filter_map(|row| value(row)).collect();
            values.sort_unstable();
            values.dedup();
            values
        };
        let most = groups.iter().map(|(_, group)| values(group).len()).max()?;
        let (fixed, group) = groups.iter().find(|(_, group)| values(group).len() == most)?;
        if most < 2 {
            return None;
        }
        let lines = variants(group).into_iter().enumerate().map(|(colour, name)| {
            let mut of: Vec<_> = group.iter().filter(|row| row.variant == name).collect();
            of.sort_by_key(|row| value(row));
            let marks = of.iter().filter_map(|row| mark(row, value(row)?.into())).collect();
            Line { name, colour, marks }
        });
        let lines: Vec<_> = lines.collect();
        let fixed: Vec<_> = fixed.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let with = if fixed.is_empty() { String::new() } else { format!(", {}", fixed.join(", ")) };
        let title = format!("{}: {} over {param}", self.run.title(), self.metric);
        let mut says = format!("On {config}{with}, with {}.", self.run.span());
        if groups.len() > 1 {
            says += &format!(
                " This is one of {} combinations of the other parameters; the rows have them all.",
                groups.len()
            );
        }
        let most = values(group).last().copied();
        let at_most = group.iter().filter(|row| value(row) == most);
        let ends: Vec<_> = at_most
            .filter_map(|row| Some(format!("{} {}", row.variant, number(row.value?))))
            .collect();
        says += &format!(" At {}: {}.", most?, ends.join(", "));
        let figure = Figure::lines(&lines, &title, [param, &self.unit()]);
        Some(self.chart(&format!("over {param}"), Section::Scaling, title, says, figure))
    }

    /// Columns of the variants side by side, in the last places.
    fn variants(&self) -> Option<Chart> {
        let rows: Vec<_> = self.rows().collect();
        let mut places: Vec<String> = Vec::new();
        for row in &rows {
            if !places.contains(&row.place()) {
                places.push(row.place());
            }
        }
        let left = places.len().saturating_sub(MOST_PLACES);
        let shown = places.split_off(left);
        let variants = variants(&rows);
        let data = variants.iter().enumerate().map(|(colour, variant)| {
            let of = rows.iter().filter(|row| row.variant == *variant);
            let marks: Vec<_> = of
                .filter(|row| shown.contains(&row.place()))
                .filter_map(|row| mark(row, clean(&row.place().replace(", ", "<br>")).into()))
                .collect();
            figure::bars(variant, colour, &marks)
        });
        let data: Vec<_> = data.collect();
        let title = format!("{}: {} by variant", self.run.title(), self.metric);
        let mut says = format!("Columns for each variant, with {}.", self.run.span());
        if left > 0 {
            says += &format!(
                " The last {MOST_PLACES} of {} places; the rows have them all.",
                left + MOST_PLACES
            );
        }
        let last = shown.last()?;
        let of_last = rows.iter().filter(|row| row.place() == *last);
        let each: Vec<_> = of_last.map(|row| format!("{} {}", row.variant, row.figure())).collect();
        says += &format!(" {last}: {}.", each.join("; "));
        let mut figure = Figure::axes(data, &title, ["", &self.unit()]);
        figure.layout["barmode"] = "group".into();
        Some(self.chart("variants", Section::Other, title, says, figure))
    }
}

/// As [`figure::plain`], of text whose only tags are line breaks of ours.
fn clean(text: &str) -> String {
    let lines: Vec<_> = text.split("<br>").map(figure::plain).collect();
    lines.join("<br>")
}

fn variants(rows: &[&Row]) -> Vec<String> {
    let mut variants: Vec<String> = Vec::new();
    for row in rows {
        if !variants.contains(&row.variant) {
            variants.push(row.variant.clone());
        }
    }
    variants
}

fn mark(row: &Row, at: Value) -> Option<Mark> {
    Some(Mark { at, value: row.value?, low: row.low, high: row.high })
}
