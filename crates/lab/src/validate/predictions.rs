//! The file of predictions: written before anything but a ping-pong is measured, and kept.

use std::fmt::Write;

use coreline_sim::{NOT_MODELLED, Spec};
use serde::{Deserialize, Serialize};

use super::experiment;
use super::simulated::{self, Predicted};
use crate::error::Error;
use crate::progress::progress;

/// The machine on which the project is developed, and to which the file refers.
pub(super) const MACHINE: &str = "host-2c";

/// The file, as it was when the program was built.
#[cfg(test)]
pub(super) const FILE: &str = include_str!("../../host-2c.predictions.toml");

const SCHEMA: &str = "coreline.validate.predictions/1";

const HEADER: &str = "\
# What the simulator predicts for this machine. It is calibrated by a ping-pong, an addition alone
# and a pause. Made by `coreline validate --predict COMMIT`; see README.md beside it.
#
# All figures are nanoseconds. `value` is the mean over seeds at the usual request share; `low` and
# `high` are the ends of the band. A measured median is a hit from low / tolerance to
# high * tolerance.
";

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Predictions {
    schema: String,
    /// The commit of the engine and of the machine file that say so.
    pub(super) engine: String,
    pub(super) machine: String,
    not_modelled: Vec<String>,
    #[serde(rename = "prediction")]
    predictions: Vec<Prediction>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Prediction {
    name: String,
    what: String,
    value: f64,
    low: f64,
    high: f64,
    tolerance: f64,
}

impl Predictions {
    /// The present predictions of the code; `engine` is the file's name for it.
    pub(crate) fn now(engine: &str) -> Result<Predictions, Error> {
        let spec = Spec::preset(MACHINE).map_err(Error::Machine)?;
        let mut predictions = Vec::new();
        let bar = progress("predictions", experiment::ALL.len());
        for experiment in experiment::ALL {
            let predicted = simulated::predict(&spec, experiment)?;
            bar.inc(1);
            let Some(Predicted { value, low, high }) = predicted else { continue };
            let (name, what) = (experiment.name.to_owned(), experiment.what.to_owned());
            let tolerance = experiment.tolerance;
            predictions.push(Prediction { name, what, value, low, high, tolerance });
        }
        bar.finish();
        Ok(Predictions {
            schema: SCHEMA.to_owned(),
            engine: engine.to_owned(),
            machine: MACHINE.to_owned(),
            not_modelled: NOT_MODELLED.iter().map(|&what| what.to_owned()).collect(),
            predictions,
        })
    }

    pub(crate) fn text(&self) -> String {
        let Predictions { schema, engine, machine, not_modelled, predictions } = self;
        let mut text = HEADER.to_owned();
        // Writing to a string cannot fail, here and below.
        let _ = write!(text, "schema = {schema:?}\nengine = {engine:?}\nmachine = {machine:?}\n");
        text += "not_modelled = [\n";
        not_modelled.iter().for_each(|what| text += &format!("    {what:?},\n"));
        text += "]\n";
        for Prediction { name, what, value, low, high, tolerance } in predictions {
            let _ = write!(
                text,
                "\n[[prediction]]\nname = {name:?}\nwhat = {what:?}\nvalue = {value:?}\n\
                 low = {low:?}\nhigh = {high:?}\ntolerance = {tolerance:?}\n"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed() -> Predictions {
        toml::from_str(FILE).unwrap()
    }

    /// If the engine or the machine file changed on purpose, docs/validate/README.md says what to
    /// do.
    #[test]
    fn the_file_is_what_the_code_says() {
        let committed = committed();
        let now = Predictions::now(&committed.engine).unwrap();
        assert_eq!(now.text(), FILE);
        assert_eq!(now, committed, "the text says all there is");
        assert!(committed.engine.len() >= 7, "{:?} is no commit", committed.engine);
    }

    #[test]
    fn every_experiment_has_a_band_around_its_value() {
        let committed = committed();
        for Prediction { name, value, low, high, .. } in &committed.predictions {
            assert!(0.0 < *low && low <= value && value <= high, "{name}");
        }
        assert_eq!(committed.predictions.len(), experiment::ALL.len());
    }
}
