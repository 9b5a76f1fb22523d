//! The result for people: a table with bars for each form and thread count, and the goals.

use std::io::{self, Write};

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use crate::class::{Bench, Form, Goal, Most};
use crate::report::Row;

/// The columns of figures.
const NUMBERS: [usize; 7] = [2, 3, 4, 5, 6, 7, 8];

/// The longest bar, in characters.
const BAR_MAX: usize = 24;

/// Shows all tables of a class, and which goals were reached.
pub(crate) fn show(bench: &Bench, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    for form in &bench.forms {
        for &threads in &form.threads {
            let of = |row: &&Row| row.form == form.title && row.threads == threads;
            let rows: Vec<_> = rows.iter().filter(of).collect();
            let plural = if threads == 1 { "" } else { "s" };
            let (title, reference) = (form.title, &form.reference);
            writeln!(out, "\n{title}, {threads} thread{plural}; ratio to {reference}")?;
            writeln!(out, "{}", table(&rows, form).trim_fmt())?;
            if let Some(lost) = lost(&rows) {
                writeln!(out, "records lost: {lost}")?;
            }
            let here = |goal: &&Goal| goal.threads.is_none_or(|at| at == threads);
            for goal in form.goals.iter().filter(here) {
                writeln!(out, "goal {}", verdict(goal, &rows))?;
            }
        }
    }
    Ok(())
}

fn table(rows: &[&Row], form: &Form) -> Table {
    let line = LineStyle::none().fill('-').junction('-');
    let mut table = Table::new();
    let header = [
        "candidate",
        "role",
        "median ns",
        "min ns",
        "CPU ns",
        "ratio",
        "share",
        "samples",
        "discarded",
        "",
    ];
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
            ns(row.cpu_ns_median),
            times.map_or_else(|| "-".to_owned(), |times| format!("{}x", figure(times))),
            row.share_min_max.map_or_else(|| "-".to_owned(), |share| format!("{share:.2}")),
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

/// The part of its records that each candidate lost; `None` if there are no records.
fn lost(rows: &[&Row]) -> Option<String> {
    let lost = |row: &&Row| row.lost.map(|lost| format!("{} {:.1} %", row.name, 100.0 * lost));
    let all: Vec<_> = rows.iter().filter_map(lost).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn median(rows: &[&Row], name: &str) -> Option<f64> {
    rows.iter().find(|row| row.name == name)?.ns_median
}

/// With two digits after the point, or with enough digits to show two that are not zero.
fn figure(value: f64) -> String {
    let more = if value > 0.0 { (-value.log10()).ceil() as usize } else { 0 };
    format!("{value:.digits$}", digits = 2.max(1 + more))
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
    let Goal { candidate, most, share, .. } = goal;
    let ours = rows.iter().find(|row| row.name == *candidate);
    let ns = ours.and_then(|row| row.ns_median);
    let times = |other: &str| ns.zip(median(rows, other)).map(|(ours, other)| ours / other);
    let mut overlap = false;
    let (found, bound, unit) = match most {
        Most::Ns(bound) => (ns, *bound, " ns".to_owned()),
        Most::Times(bound, other) => (times(other), *bound, format!("x {other}")),
        Most::Best(bound, others) => match best(&as_safe(rows, ours), others) {
            Some(best) => {
                let intervals = ours.and_then(|row| row.ns_interval).zip(best.ns_interval);
                // As fast as the best, as far as can be told: no reason where more is asked for.
                overlap = *bound >= 1.0 && intervals.is_some_and(|(ours, best)| ours.0 <= best.1);
                (times(&best.name), *bound, format!("x {}, the best", best.name))
            }
            None => (None, *bound, "x the best".to_owned()),
        },
    };
    let least = share.map(|share| format!(", share at least {share}")).unwrap_or_default();
    let had = ours.and_then(|row| row.share_min_max);
    match found {
        None => format!("not measured: {candidate}: at most {bound}{unit}{least}"),
        Some(found) => {
            let fair = share.is_none_or(|least| had.is_some_and(|had| had >= least));
            let reached = (found <= bound || overlap) && fair;
            let reached = if reached { "reached" } else { "not reached" };
            let mut said = format!("{reached}: {candidate}: {}{unit}", figure(found));
            if overlap && found > bound {
                said += " (the 95 % intervals overlap)";
            }
            if let (Some(_), Some(had)) = (share, had) {
                said += &format!(", share {had:.2}");
            }
            said + &format!("; at most {bound}{least}")
        }
    }
}

/// How much more of its records a rival may lose than ours, and still be compared: what chance
/// makes of equals.
const LOST_MORE: f64 = 0.01;

/// The rows that do what ours does: a log that loses more is not faster for that.
fn as_safe<'a>(rows: &[&'a Row], ours: Option<&&Row>) -> Vec<&'a Row> {
    let most = ours.and_then(|row| row.lost).unwrap_or_default() + LOST_MORE;
    rows.iter().copied().filter(|row| row.lost.is_none_or(|lost| lost <= most)).collect()
}

/// The fastest of the rows of these names.
fn best<'a>(rows: &[&'a Row], names: &[&str]) -> Option<&'a Row> {
    let named = rows.iter().copied().filter(|row| names.contains(&row.name.as_str()));
    let measured = named.filter_map(|row| row.ns_median.map(|ns| (ns, row)));
    measured.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, row)| row)
}

#[cfg(test)]
mod tests {
    use super::verdict as verdict_of;
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
            lost: None,
            beside: 0,
            cpu_ns_median: None,
            ns_interval: None,
            form: "hot",
        }
    }

    #[test]
    fn a_goal_is_reached_up_to_its_bound() {
        let rows = [row("ours", Some(1.0)), row("theirs", Some(2.0)), row("spoiled", None)];
        let rows: Vec<_> = rows.iter().collect();
        let verdict = |name: &str, most| {
            let goal = Goal::everywhere(name, most);
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
    fn a_goal_among_several_is_relative_to_the_best() {
        const OTHERS: &[&str] = &["slow", "fast", "spoiled", "absent"];
        let with = |name: &str, ns, interval, share| Row {
            ns_interval: Some(interval),
            share_min_max: share,
            ..row(name, Some(ns))
        };
        let verdict = |low, share: Option<f64>, least, others| {
            let ours = with("ours", 3.0, (low, 4.0), share);
            let (fast, slow) = (with("fast", 2.0, (1.9, 2.2), None), row("slow", Some(9.0)));
            let spoiled = row("spoiled", None);
            let goal = Goal { share: least, ..Goal::everywhere("ours", Most::Best(1.4, others)) };
            verdict(&goal, &[&ours, &slow, &fast, &spoiled])
        };
        assert_eq!(
            verdict(2.3, Some(0.9), Some(0.8), OTHERS),
            "not reached: ours: 1.50x fast, the best, share 0.90; at most 1.4, share at least 0.8"
        );
        assert_eq!(
            verdict(2.2, Some(0.8), Some(0.8), OTHERS),
            "reached: ours: 1.50x fast, the best (the 95 % intervals overlap), share 0.80; \
             at most 1.4, share at least 0.8"
        );
        assert!(verdict(2.2, Some(0.7), Some(0.8), OTHERS).starts_with("not reached: "));
        assert!(verdict(2.2, None, Some(0.8), OTHERS).starts_with("not reached: "));
        let (ours, fast) =
            (with("ours", 1.2, (0.9, 2.0), None), with("fast", 2.0, (1.8, 2.2), None));
        assert_eq!(
            verdict_of(&Goal::everywhere("ours", Most::Best(0.5, OTHERS)), &[&ours, &fast]),
            "not reached: ours: 0.60x fast, the best; at most 0.5"
        );
        assert_eq!(
            verdict(2.3, Some(0.1), None, &["slow"]),
            "reached: ours: 0.33x slow, the best; at most 1.4"
        );
        assert_eq!(
            verdict(2.3, None, Some(0.5), &["absent", "spoiled"]),
            "not measured: ours: at most 1.4x the best, share at least 0.5"
        );
    }

    #[test]
    fn a_log_that_loses_more_is_not_the_best() {
        let log = |name, ns, lost| Row { lost: Some(lost), ..row(name, Some(ns)) };
        let ours = log("ours", 3.0, 0.1);
        let rivals = [log("safe", 6.0, 0.105), log("hasty", 1.0, 0.5)];
        let rows = [&ours, &rivals[0], &rivals[1]];
        let goal = |others| Goal::everywhere("ours", Most::Best(0.5, others));
        assert_eq!(
            verdict(&goal(&["safe", "hasty"]), &rows),
            "reached: ours: 0.50x safe, the best; at most 0.5"
        );
        assert!(verdict(&goal(&["hasty"]), &rows).starts_with("not measured: "));
        assert_eq!(lost(&rows).unwrap(), "ours 10.0 %; safe 10.5 %; hasty 50.0 %");
        assert_eq!(lost(&[&row("no log", None)]), None);
    }

    #[test]
    fn small_figures_have_two_digits() {
        let figures = [23.456, 0.1, 0.0999, 0.0138, 0.01, 0.0].map(figure);
        assert_eq!(figures, ["23.46", "0.10", "0.100", "0.014", "0.010", "0.00"]);
    }

    #[test]
    fn bars_are_as_long_as_what_they_show() {
        assert_eq!(bar(1.0), "█".repeat(BAR_MAX));
        assert_eq!(bar(0.5), "█".repeat(BAR_MAX / 2));
        assert_eq!(bar(1.0 / BAR_MAX as f64 * 1.5), "█▌");
        assert_eq!(bar(0.0), "▏", "never nothing");
    }
}
