//! The first table of a page: a kernel change, its gain in our simulation, and the published gain.

use coreline_scenarios::{Change as KernelChange, Scenario};
use serde::Serialize;

use super::read::{Row, Run, number};
use crate::overview::as_gain;

/// A line of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Change {
    /// The change, and the result that shows it.
    pub(crate) what: String,
    /// The compared value, with its range.
    pub(crate) ours: String,
    pub(crate) published: Option<String>,
    pub(crate) source: Option<String>,
    /// In words; empty where nothing is published.
    pub(crate) verdict: String,
    pub(crate) replay: String,
}

pub(super) fn of(runs: &[Run]) -> Vec<Change> {
    runs.iter().filter(|run| !run.is_native()).filter_map(of_run).collect()
}

fn of_run(run: &Run) -> Option<Change> {
    let change = KernelChange::shown_by(&run.scenario)?;
    let row = run.rows.iter().find(|row| shows(change, row))?;
    // As the program's first page has it: above 1 if the change is an improvement.
    let gain = |value| as_gain(row.better, value);
    let value = number(gain(row.value?));
    let range = match (row.low.map(gain), row.high.map(gain)) {
        (Some(one), Some(other)) => {
            format!(" ({} to {})", number(one.min(other)), number(one.max(other)))
        }
        _ => String::new(),
    };
    Some(Change {
        what: format!("{}: {}", change.title, run.title()),
        ours: format!("{} over {}: {value}x{range}", row.variant, change.shown.variants[0]),
        published: row.published.map(|it| format!("{}x", number(gain(it)))),
        source: row.source.clone(),
        verdict: row.said(),
        replay: run.command(),
    })
}

/// Whether a row is the comparison that a change is judged by.
fn shows(change: &KernelChange, row: &Row) -> bool {
    let shown = &change.shown;
    let is_of = |(name, value): &(&str, &str)| {
        let param = Scenario::param(shown.scenario, name);
        // A parameter of the simulated kernel is in rows, too.
        param.of_row(&row.params) == param.parse(value)
    };
    (row.metric == shown.comparison && row.variant == shown.variants[1])
        && row.config == shown.config
        && shown.values.iter().all(is_of)
}

#[cfg(test)]
mod tests {
    use coreline_scenarios::CHANGES;

    use super::*;
    use crate::overview::simulated;
    use crate::progress::Whole;

    #[test]
    fn a_change_is_the_gain_of_the_first_page() {
        // Its ratio is one of which less is better, and it takes half a second.
        let change = &CHANGES[1];
        let variants = change.shown.variants;
        let outcome = simulated(change, &variants, Whole::HIDDEN).unwrap();
        let shown = of(&[Run::of(&outcome)]);
        assert_eq!(shown.len(), 1);
        assert!(shown[0].ours.starts_with("kernel-notify over kernel-resched: 1."), "{shown:?}");
        assert_eq!(shown[0].published.as_deref(), Some("5x"));
    }
}
