//! A result as text.

use std::io::Write;

use comfy_table::CellAlignment;

use super::result::{FigureRow, Outcome};
use super::verdict::Verdict;
use crate::error::Error;
use crate::output::table;

const HEADER: [&str; 9] = [
    "config",
    "params",
    "variant",
    "metric",
    "value",
    "low .. high",
    "published",
    "verdict",
    "why",
];

/// The columns of figures.
const NUMBERS: [usize; 3] = [4, 5, 6];

/// Shows a result: the table, the reasons that its last column numbers, and what to know about it.
pub(crate) fn show(outcome: &Outcome, out: &mut dyn Write) -> Result<(), Error> {
    let Outcome { scenario, world, seed, not_modelled, rows, command, file, .. } = outcome;
    writeln!(out, "{scenario}, world {world}, seed {seed}")?;
    let mut reasons: Vec<&str> = Vec::new();
    let mut table = table(HEADER);
    for row in rows {
        let reason = row.why.as_deref().map(|why| number_of(&mut reasons, why));
        table.add_row(line(row, reason));
    }
    for column in NUMBERS {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(out, "{}", table.trim_fmt())?;
    for (index, why) in reasons.iter().enumerate() {
        writeln!(out, "({}) {why}", index + 1)?;
    }
    if let Some(file) = file {
        writeln!(out, "published: {file}")?;
    }
    if !not_modelled.is_empty() {
        writeln!(out, "not modelled: {}", not_modelled.join(", "))?;
    }
    writeln!(out, "again: {command}")?;
    Ok(())
}

fn line(row: &FigureRow, reason: Option<usize>) -> [String; 9] {
    let params: Vec<String> =
        row.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let figure = |value: f64| match row.unit {
        "ratio" => format!("{value:.2}x"),
        "rank" => format!("{value:.0}."),
        "transfers" => format!("{value:.2}"),
        "slots" | "per 1000" => format!("{value:.2} {}", row.unit),
        "%" => format!("{value:.2} %"),
        unit => format!("{value:.0} {unit}"),
    };
    let verdict = match row.verdict {
        Verdict::Reached => "reached",
        Verdict::DirectionOnly => "direction only",
        Verdict::NotReached => "not reached",
        Verdict::NotTestable => "not testable",
        Verdict::None => "",
    };
    [
        row.config.clone(),
        params.join(", "),
        row.variant.clone(),
        row.metric.to_owned(),
        figure(row.value),
        format!("{} .. {}", figure(row.low), figure(row.high)),
        row.published.map(figure).unwrap_or_default(),
        verdict.to_owned(),
        reason.map(|number| format!("({number})")).unwrap_or_default(),
    ]
}

/// The number of a reason, from 1 on, in the order of first use.
fn number_of<'a>(reasons: &mut Vec<&'a str>, why: &'a str) -> usize {
    let known = reasons.iter().position(|reason| *reason == why);
    known.unwrap_or_else(|| {
        reasons.push(why);
        reasons.len() - 1
    }) + 1
}
