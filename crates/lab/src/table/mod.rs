//! A result as a table that fits its terminal.
//!
//! Values that all rows share appear once, above the table. Rows of one configuration and one value
//! of each parameter stand together below a heading, metric by metric, so that variants follow each
//! other. There are three forms. The first one that fits is used, and no cell is broken:
//!
//! | form | has |
//! |---|---|
//! | [`Layout::Wide`] | a line for each figure, with its metric, unit and verdict |
//! | [`Layout::Blocks`] | a heading for each metric, and below it a line for each variant |
//! | [`Layout::Lines`] | the same, and what was published, with the verdict, on its own line |
//!
//! | module | does |
//! |---|---|
//! | [`grid`] | columns |

use std::collections::BTreeMap;
use std::io::Write;

use crate::error::Error;
use crate::listing::{Column, Listing};
use crate::run::result::{FigureRow, RunResult};
use crate::run::verdict::{Verdict, score};
use crate::text::{Form, Tone, ordinal};

/// Shows a result: the table, the reasons that verdicts number, and what to know about it.
pub(crate) fn show(outcome: &RunResult, form: Form, out: &mut dyn Write) -> Result<(), Error> {
    let RunResult { scenario, world, seed, not_modelled, rows, command, sources, left_out, .. } =
        outcome;
    writeln!(out, "{scenario}, world {world}, seed {seed}")?;
    let published =
        |row: &FigureRow| Some(((*scenario, row.metric), row.kind, row.published?, row.verdict));
    // Natively nothing is judged.
    let score = score(rows.iter().filter(|row| row.samples.is_none()).filter_map(published));
    if score.figures > 0 {
        write!(out, "{}", form.paragraph("", &score.to_string()))?;
    }
    let table = Table::new(rows);
    if !table.shared.is_empty() {
        write!(out, "{}", form.paragraph("all rows: ", &table.shared.join(", ")))?;
    }
    if let Some(row) = table.one_verdict {
        let said = row.said();
        let why = row.why.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        write!(out, "{}", form.paragraph("every verdict: ", &format!("{said}{why}")))?;
    }
    // What was measured nowhere makes no table.
    if rows.iter().any(|row| !row.value.is_nan()) {
        write!(out, "\n{}\n", table.text(form))?;
    }
    for (index, why) in table.reasons.iter().enumerate() {
        write!(out, "{}", form.paragraph(&format!("({}) ", index + 1), why))?;
    }
    if let Some(samples) = samples(rows) {
        write!(out, "{}", form.paragraph("", &samples))?;
    }
    if let Some(warning) = warning(rows) {
        write!(out, "{}", form.paragraph("", &form.toned(Tone::Partly, &warning)))?;
    }
    for source in sources {
        write!(out, "{}", form.paragraph("published: ", &source.to_string()))?;
    }
    for (index, what) in not_modelled.iter().enumerate() {
        let first = if index == 0 { "not modelled: " } else { "              " };
        write!(out, "{}", form.paragraph(first, what))?;
    }
    write!(out, "{}", form.command("again: ", command))?;
    if let Some(left_out) = left_out {
        write!(out, "{}", form.paragraph("", &left_out.to_string()))?;
    }
    Ok(())
}

pub(crate) fn tone(verdict: Verdict) -> Option<Tone> {
    match verdict {
        Verdict::Reached => Some(Tone::Good),
        Verdict::Direction => Some(Tone::Partly),
        Verdict::Against | Verdict::Off => Some(Tone::Bad),
        Verdict::NoEffect | Verdict::Undecided | Verdict::NotTestable | Verdict::None => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Wide,
    Blocks,
    Lines,
}

/// The rows of a result, and what is said of them once.
struct Table<'a> {
    groups: Vec<Group<'a>>,
    /// The configuration and the parameters that all rows share.
    shared: Vec<String>,
    /// Any row, where all have one verdict, for one reason.
    one_verdict: Option<&'a FigureRow>,
    /// The reasons to which verdicts refer by number, from 1.
    reasons: Vec<&'a str>,
}

/// Rows that differ in their metric and variant alone, metric by metric.
struct Group<'a> {
    heading: String,
    metrics: Vec<Vec<&'a FigureRow>>,
}

impl<'a> Table<'a> {
    fn new(rows: &'a [FigureRow]) -> Table<'a> {
        // What a row says of where it is from, by name; the configuration comes first.
        let of = |row: &FigureRow| -> Vec<(String, String)> {
            let params = row.params.iter().map(|(name, value)| (name.clone(), value.to_string()));
            [("config".to_owned(), row.config.clone())].into_iter().chain(params).collect()
        };
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in rows.iter().flat_map(of) {
            values.entry(name).or_default().push(value);
        }
        let is_shared = |(name, _): &(String, String)| {
            let of_rows = &values[name];
            of_rows.len() == rows.len() && of_rows.iter().all(|value| *value == of_rows[0])
        };
        let said = |pairs: Vec<(String, String)>| -> Vec<String> {
            let said = |(name, value)| match name {
                name if name == "config" => value,
                name => format!("{name}={value}"),
            };
            pairs.into_iter().map(said).collect()
        };
        let (mut shared, mut reasons) = (Vec::new(), Vec::new());
        let is_alike = |this: &FigureRow, that: &FigureRow| {
            this.config == that.config && this.params == that.params
        };
        let mut groups = Vec::new();
        for rows in rows.chunk_by(is_alike) {
            let (of_all, own) = of(&rows[0]).into_iter().partition(is_shared);
            shared = of_all;
            groups.push(Group { heading: said(own).join(", "), metrics: by_metric(rows) });
        }
        let one_verdict = rows.first().filter(|first| {
            let is_same = |row: &FigureRow| (row.verdict, &row.why) == (first.verdict, &first.why);
            !first.said().is_empty()
                && first.times.is_none()
                && first.published.is_none()
                && rows.iter().all(is_same)
        });
        if one_verdict.is_none() {
            for why in groups.iter().flat_map(Group::rows).filter_map(|row| row.why.as_deref()) {
                if !reasons.contains(&why) {
                    reasons.push(why);
                }
            }
        }
        Table { groups, shared: said(shared), one_verdict, reasons }
    }

    /// In the first form that fits.
    fn text(&self, form: Form) -> String {
        let listing = |layout| Some(self.listing(layout, form)).filter(|it| it.fits(form));
        let listing = listing(Layout::Wide).or_else(|| listing(Layout::Blocks));
        listing.unwrap_or_else(|| self.listing(Layout::Lines, form)).text(form)
    }

    fn listing(&self, layout: Layout, form: Form) -> Listing<'static> {
        let mut listing = match layout {
            Layout::Wide => {
                let columns = [&[("metric, better", false)], &COLUMNS[..]].concat();
                Listing::new(&columns).indented(2)
            }
            Layout::Blocks => Listing::new(&COLUMNS).indented(4),
            Layout::Lines => Listing::new(&COLUMNS[..3]).indented(4),
        };
        for (index, group) in self.groups.iter().enumerate() {
            if !group.heading.is_empty() {
                // A group stands apart from what is above it.
                if index > 0 {
                    listing.line(0, String::new());
                }
                listing.line(0, form.toned(Tone::Heading, &group.heading));
            }
            for rows in &group.metrics {
                self.metric(&mut listing, layout, form, rows);
            }
        }
        listing
    }

    fn metric(&self, listing: &mut Listing<'_>, layout: Layout, form: Form, rows: &[&FigureRow]) {
        let FigureRow { metric, unit, better, .. } = rows[0];
        if layout != Layout::Wide {
            let unit = match *unit {
                "ratio" => ", times".to_owned(),
                // The metric's name says it.
                unit if metric.ends_with(unit) => String::new(),
                unit => format!(", {unit}"),
            };
            let heading = format!("{metric}{unit}, {}", better.words());
            listing.line(2, form.toned(Tone::Heading, &heading));
        }
        for (index, row) in rows.iter().enumerate() {
            let verdict = self.verdict(row, form);
            let published = row.published.map(|it| number(it, row.unit)).unwrap_or_default();
            let value = match (layout, row.value.is_nan()) {
                (_, true) => "-".to_owned(),
                (Layout::Wide, _) => mark(row).to_owned() + &with_unit(row),
                _ => mark(row).to_owned() + &number(row.value, row.unit),
            };
            let band = match row.low.is_nan() {
                true => String::new(),
                false => format!("{} .. {}", number(row.low, row.unit), number(row.high, row.unit)),
            };
            let variant = row.variant.to_owned();
            match layout {
                Layout::Wide => {
                    let metric = format!("{metric}, {}", better.word());
                    let metric = if index == 0 { metric } else { String::new() };
                    listing.row([metric, variant, value, band, published, verdict]);
                }
                Layout::Blocks => listing.row([variant, value, band, published, verdict]),
                Layout::Lines => {
                    listing.row([variant, value, band]);
                    let published = match published.as_str() {
                        "" => String::new(),
                        published => format!("published {published}: "),
                    };
                    if !verdict.is_empty() {
                        listing.line(6, published + &verdict);
                    }
                }
            }
        }
    }

    /// With the number of its reason; nothing where it is said once for all.
    fn verdict(&self, row: &FigureRow, form: Form) -> String {
        if self.one_verdict.is_some() {
            return String::new();
        }
        let number = |why| self.reasons.iter().position(|it| *it == why).map(|index| index + 1);
        let reason = row.why.as_deref().and_then(number).map(|number| format!(" ({number})"));
        let text = row.said() + &reason.unwrap_or_default();
        match tone(row.verdict) {
            Some(tone) if !text.is_empty() => form.toned(tone, &text),
            _ => text,
        }
    }
}

impl<'a> Group<'a> {
    fn rows(&self) -> impl Iterator<Item = &'a FigureRow> {
        self.metrics.iter().flatten().copied()
    }
}

/// The columns after the metric.
const COLUMNS: [Column<'_>; 5] = [
    ("variant", false),
    ("value", true),
    ("low .. high", true),
    ("published", true),
    ("verdict", false),
];

/// Metrics in the order of their first row.
fn by_metric(rows: &[FigureRow]) -> Vec<Vec<&FigureRow>> {
    let mut metrics: Vec<Vec<&FigureRow>> = Vec::new();
    for row in rows {
        match metrics.iter_mut().find(|rows| rows[0].metric == row.metric) {
            Some(rows) => rows.push(row),
            None => metrics.push(vec![row]),
        }
    }
    metrics
}

/// A figure without its unit, in few digits.
fn number(value: f64, unit: &str) -> String {
    match unit {
        "rank" => format!("{value:.0}"),
        _ if value.abs() >= 100.0 => format!("{value:.0}"),
        // As it was rounded: one decimal, and two digits at least.
        "ns" if value >= 1.0 => format!("{value:.1}"),
        _ if value != 0.0 && value.abs() < 0.01 => format!("{value}"),
        "ns" | "cycles" | "bytes" | "1/s" => format!("{value}"),
        _ => format!("{value:.2}"),
    }
}

fn with_unit(row: &FigureRow) -> String {
    let number = number(row.value, row.unit);
    match row.unit {
        "ratio" => format!("{number}x"),
        "rank" => ordinal(row.value.round() as u64),
        "transfers" => number,
        unit => format!("{number} {unit}"),
    }
}

/// The mark before a figure from disturbed samples.
pub(crate) fn mark(row: &FigureRow) -> &'static str {
    if row.disturbed { "~" } else { "" }
}

/// The number of samples in native figures.
fn samples(rows: &[FigureRow]) -> Option<String> {
    let least = rows.iter().filter_map(|row| row.samples).min()?;
    let most = rows.iter().filter_map(|row| row.samples).max()?;
    let calm = rows.iter().filter(|row| !row.disturbed);
    let discarded = calm.map(|row| row.discarded).max();
    let of = match (least, most) {
        (1, 1) => "each value is one sample".to_owned(),
        _ if least == most => format!("each value is the median of {most} samples"),
        _ => format!("each value is the median of {least} to {most} samples"),
    };
    let disturbed = match discarded {
        // The warning says it.
        None => "",
        Some(None) => {
            "; whether other programs disturbed them is unknown, because this kernel does not say \
             how long threads wait for a CPU"
        }
        Some(Some(0)) => "; none was disturbed",
        Some(Some(1)) => "; one more was dropped, because other programs used the CPUs",
        Some(Some(count)) => {
            return Some(format!(
                "{of}; up to {count} more were dropped, because other programs used the CPUs"
            ));
        }
    };
    Some(of + disturbed)
}

/// The warning that figures come from disturbed samples, and what to do.
fn warning(rows: &[FigureRow]) -> Option<String> {
    let disturbed = || rows.iter().filter(|row| row.disturbed);
    let worst = disturbed().max_by_key(|row| row.disturbed_rounds)?;
    let rounds = worst.disturbed_rounds?;
    let (least, most) = (
        disturbed().filter_map(|row| row.samples).min()?,
        disturbed().filter_map(|row| row.samples).max()?,
    );
    let of = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let all = worst.samples.unwrap_or(0) + worst.discarded.unwrap_or(0) as usize;
    Some(format!(
        "other programs used these CPUs in {rounds} of {all} rounds: the figures marked ~ are of \
         the {of} least disturbed; retry on an idle machine, or choose idle CPUs: \
         taskset -c CPUS coreline run ..."
    ))
}

#[cfg(test)]
mod tests;
