//! The table that a page begins with: a change, what it brings in our simulation, what was
//! published.

use coreline_scenarios::Scenario;
use serde::Serialize;

use super::read::{Row, Run, number};

/// A line of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Change {
    /// The question, or the change.
    pub(crate) what: String,
    /// What is compared, in a sentence.
    pub(crate) ours: String,
    /// The published figure.
    pub(crate) published: Option<String>,
    /// Where that is from.
    pub(crate) source: Option<String>,
    /// In words; empty where nothing is published.
    pub(crate) verdict: String,
    /// The command that brings it back.
    pub(crate) replay: String,
}

/// The answers to the questions of those scenarios whose results are there.
pub(super) fn of(runs: &[Run]) -> Vec<Change> {
    runs.iter().filter(|run| !run.is_native()).filter_map(answer).collect()
}

fn answer(run: &Run) -> Option<Change> {
    let question = &Scenario::named(&run.scenario)?.question;
    let (metric, variant) = question.answer;
    let is_asked = |row: &&Row| {
        row.metric == metric
            && row.variant == variant
            && question.config.is_none_or(|config| row.config == config)
            && question.param.is_none_or(|(name, value)| {
                row.params.get(name).is_some_and(|param| param.to_string() == value)
            })
    };
    let row = run.rows.iter().filter(|_| question.is_asked()).find(is_asked)?;
    let [value, low, high] = [row.value?, row.low?, row.high?].map(number);
    let band = format!("{value} times ({low} to {high})");
    Some(Change {
        what: run.title(),
        ours: question.sentence.replace("{}", &band),
        published: row.published.map(number),
        source: row.source.clone(),
        verdict: row.said(),
        replay: run.command(),
    })
}
