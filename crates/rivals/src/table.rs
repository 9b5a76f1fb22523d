//! The result for people: a table with bars for each form and thread count, and the goals.

use std::io::{self, Write};

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use crate::class::{Bench, Form, Goal, Most};
use crate::report::Row;

/// The columns of figures.
const NUMBERS: [usize; 5] = [2, 3, 4, 5, 6];

/// The longest bar, in characters.
const BAR_MAX: usize = 24;

/// Shows all tables of a class, and which goals were reached.
pub(crate) fn show(bench: &Bench, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    for form in &bench.forms {
        for &threads in bench.threads {
            let of = |row: &&Row| row.form == form.title && row.threads == threads;
            let rows: Vec<_> = rows.iter().filter(of).collect();
            let plural = if threads == 1 { "" } else { "s" };
            let (title, reference) = (form.title, &form.reference);
            writeln!(out, "\n{title}, {threads} thread{plural}; ratio to {reference}")?;
            writeln!(out, "{}", table(&rows, form).trim_fmt())?;
            for goal in &form.goals {
                writeln!(out, "goal {}", verdict(goal, &rows))?;
            }
        }
    }
    Ok(())
}

fn table(rows: &[&Row], form: &Form) -> Table {
    let line = LineStyle::none().fill('-').junction('-');
    let mut table = Table::new();
    let header = ["candidate", "role", "median ns", "min ns", "ratio", "samples", "discarded", ""];
    table.load_style(TableStyle::new().header_separator(line)).set_header(header);
    let reference = median(rows, &form.reference);
    let slowest = rows.iter().filter_map(|row| row.ns_median).fold(0.0, f64::max);
    for row in rows {
        let ns = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.2}"));
        let times = row.ns_median.zip(reference).map(|(ns, reference)| ns / reference);
        table.add_row([
            row.name.clone(),
            format!("{:?}", row.role).to_lowercase(),
            ns(row.ns_median),
            ns(row.ns_min),
            times.map_or_else(|| "-".to_owned(), |times| format!("{times:.2}x")),
            row.samples.to_string(),
            row.discarded.to_string(),
            row.ns_median.map(|ns| bar(ns / slowest)).unwrap_or_default(),
        ]);
    }
    for column in NUMBERS {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn median(rows: &[&Row], name: &str) -> Option<f64> {
    rows.iter().find(|row| row.name == name)?.ns_median
}

/// A bar of this part of the longest, to an eighth of a character.
fn bar(part: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    // At least a trace.
    let eighths = ((part * (BAR_MAX * 8) as f64).round() as usize).clamp(1, BAR_MAX * 8);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// A goal, and whether it was reached.
fn verdict(goal: &Goal, rows: &[&Row]) -> String {
    let Goal { candidate, most } = goal;
    let ours = median(rows, candidate);
    let (found, bound, unit) = match most {
        Most::Ns(bound) => (ours, *bound, " ns".to_owned()),
        Most::Times(bound, other) => {
            let times = ours.zip(median(rows, other)).map(|(ours, other)| ours / other);
            (times, *bound, format!("x {other}"))
        }
    };
    match found {
        None => format!("not measured: {candidate}: at most {bound}{unit}"),
        Some(found) => {
            let reached = if found <= bound { "reached" } else { "not reached" };
            format!("{reached}: {candidate}: {found:.2}{unit}; at most {bound}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Class, Params, Role};

    fn row(name: &str, ns: Option<f64>) -> Row {
        Row {
            class: Class::Counters,
            name: name.to_owned(),
            ours: false,
            role: Role::Rival,
            threads: 1,
            params: Params::default(),
            ns_median: ns,
            ns_min: ns,
            samples: 1,
            discarded: 0,
            share_min_max: None,
            form: "hot",
        }
    }

    #[test]
    fn a_goal_is_reached_up_to_its_bound() {
        let rows = [row("ours", Some(1.0)), row("theirs", Some(2.0)), row("spoiled", None)];
        let rows: Vec<_> = rows.iter().collect();
        let verdict = |name: &str, most| {
            let goal = Goal { candidate: name.to_owned(), most };
            verdict(&goal, &rows)
        };
        let times = |bound| Most::Times(bound, "theirs".to_owned());
        assert_eq!(verdict("ours", times(0.5)), "reached: ours: 0.50x theirs; at most 0.5");
        assert_eq!(verdict("ours", times(0.4)), "not reached: ours: 0.50x theirs; at most 0.4");
        assert_eq!(verdict("ours", Most::Ns(1.0)), "reached: ours: 1.00 ns; at most 1");
        assert_eq!(verdict("ours", Most::Ns(0.9)), "not reached: ours: 1.00 ns; at most 0.9");
        for name in ["spoiled", "absent"] {
            assert!(verdict(name, times(1.0)).starts_with("not measured: "));
        }
    }

    #[test]
    fn bars_are_as_long_as_what_they_show() {
        assert_eq!(bar(1.0), "█".repeat(BAR_MAX));
        assert_eq!(bar(0.5), "█".repeat(BAR_MAX / 2));
        assert_eq!(bar(1.0 / BAR_MAX as f64 * 1.5), "█▌");
        assert_eq!(bar(0.0), "▏", "never nothing");
    }
}
