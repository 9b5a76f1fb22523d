//! The machines that can be simulated and the scenarios, as JSON: for other languages.

use coreline_scenarios::metric::Better;
use coreline_scenarios::{ALL, Scenario};
use coreline_sim::presets;
use serde_json::{Value, json};

use crate::sweep::SweepError;
use crate::world;

/// Returns the names of the machines that the program brings.
pub fn machines() -> Vec<&'static str> {
    presets().collect()
}

/// Returns the facts of a machine, given by the name of a preset or by the path of its file: its
/// name, a summary, the counts of its parts, its costs with their sources, and its tree as text.
/// The `digest` is null for a preset.
///
/// # Errors
///
/// [`SweepError::Spec`] if there is no such machine, or if the file is not valid.
pub fn machine(asked: &str) -> Result<Value, SweepError> {
    let wrong = |why: String| SweepError::Spec { of: "the machine".to_owned(), why };
    let spec = world::machine(asked).map_err(|error| wrong(error.to_string()))?;
    crate::machines::facts(&spec).map_err(|error| wrong(error.to_string()))
}

/// Returns the scenarios, each with its parameters, the variants that simulated machines have, and
/// the figures that rows have.
pub fn scenarios() -> Value {
    ALL.iter().map(|it| scenario(it)).collect()
}

fn scenario(scenario: &Scenario) -> Value {
    let params = scenario.options().map(|param| {
        json!({
            "name": param.name,
            "about": param.help(),
            "form": param.form(),
        })
    });
    let variants = scenario.variants(false).into_iter().filter_map(|name| scenario.variant(name));
    let variants = variants.map(|variant| json!({ "name": variant.name, "about": variant.about }));
    let mut figures: Vec<Value> = Vec::new();
    for figure in scenario.figures.iter().filter(|figure| figure.is_own()) {
        let kind = figure.metric.kind;
        let better = if kind.better() == Better::Lower { "lower" } else { "higher" };
        let figure = json!({ "name": figure.metric.name, "unit": kind.unit(), "better": better });
        if !figures.contains(&figure) {
            figures.push(figure);
        }
    }
    json!({
        "name": scenario.name,
        "about": scenario.about,
        "params": params.collect::<Vec<_>>(),
        "variants": variants.collect::<Vec<_>>(),
        "figures": figures,
    })
}
