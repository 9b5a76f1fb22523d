//! A result as text.

use std::io::Write;

use comfy_table::CellAlignment;

use super::result::{FigureRow, Outcome};
use crate::error::Error;
use crate::output::table;
use crate::scenario::metric::Better;

const HEADER: [&str; 10] = [
    "config",
    "params",
    "variant",
    "metric",
    "better",
    "value",
    "low .. high",
    "published",
    "verdict",
    "why",
];

/// The columns of figures.
const NUMBERS: [usize; 3] = [5, 6, 7];

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
    if let Some(samples) = samples(rows) {
        writeln!(out, "{samples}")?;
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

fn line(row: &FigureRow, reason: Option<usize>) -> [String; 10] {
    let params: Vec<String> =
        row.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let figure = |value: f64| match row.unit {
        _ if value.is_nan() => "-".to_owned(),
        "ratio" => format!("{value:.2}x"),
        "rank" => format!("{value:.0}."),
        "transfers" => format!("{value:.2}"),
        "slots" | "per 1000" => format!("{value:.2} {}", row.unit),
        "%" => format!("{value:.2} %"),
        unit => format!("{value:.0} {unit}"),
    };
    [
        row.config.clone(),
        params.join(", "),
        row.variant.to_owned(),
        row.metric.to_owned(),
        match row.better {
            Better::Lower => "lower".to_owned(),
            Better::Higher => "higher".to_owned(),
        },
        figure(row.value),
        match row.low.is_nan() {
            true => String::new(),
            false => format!("{} .. {}", figure(row.low), figure(row.high)),
        },
        row.published.map(figure).unwrap_or_default(),
        row.said(),
        reason.map(|number| format!("({number})")).unwrap_or_default(),
    ]
}

/// What native figures are made of.
fn samples(rows: &[FigureRow]) -> Option<String> {
    let least = rows.iter().filter_map(|row| row.samples).min()?;
    let most = rows.iter().filter_map(|row| row.samples).max()?;
    let discarded = rows.iter().filter_map(|row| row.discarded).max();
    if let (0, Some(rounds)) = (most, discarded) {
        return Some(format!("no figures: other load disturbed all of {rounds} rounds"));
    }
    let count = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let disturbed = match discarded {
        None => "whether other load disturbed them is not known, as this kernel does not say how \
                 long threads wait for a CPU"
            .to_owned(),
        Some(0) => "none was disturbed".to_owned(),
        Some(discarded) => {
            format!("{discarded} at most did not count, as other load disturbed them")
        }
    };
    let none = if least == 0 { "; a figure that is missing has no other" } else { "" };
    Some(format!("medians of {count} samples, taken in turns; {disturbed}{none}"))
}

/// The number of a reason, from 1 on, in the order of first use.
fn number_of<'a>(reasons: &mut Vec<&'a str>, why: &'a str) -> usize {
    let known = reasons.iter().position(|reason| *reason == why);
    known.unwrap_or_else(|| {
        reasons.push(why);
        reasons.len() - 1
    }) + 1
}
