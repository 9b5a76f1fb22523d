//! The verb `validate`: does the simulated machine say what real ones do?
//!
//! | module | holds |
//! |---|---|
//! | [`experiment`] | the programs, one source for both worlds |
//! | [`sample`] | one sample: threads that meet and time their own part, in either world |
//! | [`calibration`] | this machine's costs, from which it is predicted |
//! | [`simulated`], [`native`] | predictions, and measurements |
//! | [`predictions`] | the committed file of predictions |
//! | [`blind`] | predictions for figures that are published elsewhere |
//! | [`core_to_core`] | core-to-core latencies of machine files beside simulated ping-pongs |
//! | [`table`] | shows them |
//!
//! Predictions are for the machine that is measured: its costs are measured first, each alone, and
//! the simulator predicts from these. Nothing is compared with the measurement of another machine.
//!
//! A table that a simulator's authors have read cannot validate it. So predictions for one kind of
//! machine are committed, too, before anything but its calibration is measured.

mod blind;
mod calibration;
pub(crate) mod core_to_core;
pub(crate) mod experiment;
mod native;
mod predictions;
mod sample;
pub(crate) mod simulated;
mod table;

use std::io::Write;

use clap::Args;
use clap::builder::PossibleValuesParser;
use coreline_sim::{NOT_MODELLED, Spec};
use serde::Serialize;

use crate::error::Error;
use crate::progress::progress;
use crate::text::Form;
use crate::world::{self, World};
use core_to_core::CoreToCore;
use experiment::Experiment;
use native::{Measured, Plan};
use simulated::Predicted;

pub(crate) use blind::{Blind, Set};
pub(crate) use predictions::Predictions;

/// The experiments to validate, and how thoroughly.
#[derive(Debug, Args)]
pub(crate) struct Choice {
    /// `native` measures this machine's costs, predicts from them, and compares. A machine file
    /// that `coreline measure` made of this machine replaces the measured costs. For any other
    /// machine, the command only predicts, and measures nothing
    #[arg(
        long,
        default_value = "native",
        value_parser = world::worlds(),
        value_name = "WORLD",
        hide_possible_values = true
    )]
    world: World,
    /// Take few and short samples; they show that the command works, but do not quote their figures
    #[arg(long)]
    quick: bool,
    /// Run only this experiment; may be given more than once
    #[arg(
        long = "only",
        value_name = "EXPERIMENT",
        value_parser = PossibleValuesParser::new(experiment::ALL.iter().map(|it| it.name)),
    )]
    only: Vec<String>,
    /// The machine that supplies the costs that cannot be measured: a preset's name, or a machine
    /// file
    #[arg(
        long,
        default_value = "epyc-9654-2s",
        value_name = "NAME|FILE",
        value_parser = world::specs(),
        hide_possible_values = true
    )]
    like: Spec,
    /// Write the file of predictions for the engine at this commit, and measure nothing
    #[arg(long, value_name = "COMMIT", value_parser = commit,
        conflicts_with_all = ["quick", "only", "world"])]
    pub(crate) predict: Option<String>,
    /// Write instead predictions for figures that others have published, for the engine at this
    /// commit; this takes minutes
    #[arg(long, value_name = "COMMIT", value_parser = commit,
        conflicts_with_all = ["quick", "only", "world", "predict"])]
    pub(crate) blind: Option<String>,
    /// Which of those predictions to write
    #[arg(long, requires = "blind", default_value = "kernel", value_enum)]
    pub(crate) set: Set,
    /// Write only this row of those predictions; may be given more than once
    #[arg(
        long = "row",
        value_name = "ROW",
        requires = "blind",
        value_parser = PossibleValuesParser::new(Blind::names()),
    )]
    pub(crate) rows: Vec<String>,
}

fn commit(asked: &str) -> Result<String, Error> {
    let is_name = (7..=40).contains(&asked.len()) && asked.bytes().all(|it| it.is_ascii_hexdigit());
    is_name.then(|| asked.to_owned()).ok_or_else(|| Error::Commit { asked: asked.to_owned() })
}

/// The outcome of a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// It repeats a measurement on which the prediction is based.
    Calibration,
    /// The measured median is within the band, widened by the tolerance.
    Hit,
    Miss,
    NotTestable,
    /// Nothing was measured, or nothing is predicted.
    None,
}

/// All figures are nanoseconds.
#[derive(Debug, Serialize)]
struct ExperimentRow {
    name: &'static str,
    what: &'static str,
    threads: usize,
    unit: &'static str,
    predicted: Option<Predicted>,
    tolerance: f64,
    measured: Option<Measured>,
    /// The measured median over the predicted value.
    ratio: Option<f64>,
    /// Whether the measured median is within the band as it is.
    in_band: Option<bool>,
    verdict: Verdict,
    why: Option<String>,
}

/// The result. The schema is `coreline.validate/2`.
#[derive(Debug, Serialize)]
pub(crate) struct Validation {
    schema: &'static str,
    world: String,
    /// The machine that predictions are for.
    machine: String,
    /// Whether that is the machine that the program runs on.
    is_here: bool,
    quick: bool,
    not_modelled: &'static [&'static str],
    score: Score,
    rows: Vec<ExperimentRow>,
    core_to_core: Vec<CoreToCore>,
}

/// The totals of the verdicts, and those of a null model, in which each time is the geometric mean
/// of the measured times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Score {
    judged: usize,
    hits: usize,
    null_hits: usize,
}

impl Score {
    fn of(rows: &[ExperimentRow]) -> Score {
        let is_judged = |row: &&ExperimentRow| matches!(row.verdict, Verdict::Hit | Verdict::Miss);
        let judged: Vec<_> = rows.iter().filter(is_judged).collect();
        let medians: Vec<_> =
            judged.iter().filter_map(|row| Some((row.measured?.median, row.tolerance))).collect();
        let logs = medians.iter().map(|(median, _)| median.ln()).sum::<f64>();
        let mean = (logs / medians.len() as f64).exp();
        let is_hit = |(median, tolerance): &&(f64, f64)| {
            (mean / tolerance..=mean * tolerance).contains(median)
        };
        Score {
            judged: judged.len(),
            hits: judged.iter().filter(|row| matches!(row.verdict, Verdict::Hit)).count(),
            null_hits: medians.iter().filter(is_hit).count(),
        }
    }
}

pub(crate) fn validate(choice: &Choice) -> Result<Validation, Error> {
    let chosen =
        |it: &&Experiment| choice.only.is_empty() || choice.only.iter().any(|name| name == it.name);
    let experiments: Vec<_> = experiment::ALL.iter().filter(chosen).collect();
    let calibrated = match &choice.world {
        World::Native => Some(calibration::measured(&choice.like, choice.quick)?),
        World::Simulated { spec, asked } => calibration::of_file(spec, asked),
    };
    let is_here = calibrated.is_some();
    let spec = match (calibrated, &choice.world) {
        (Some(spec), _) => spec,
        (None, World::Simulated { spec, .. }) => Spec::clone(spec),
        (None, World::Native) => return Err(Error::Uneven),
    };
    // All predictions come before the first measurement.
    let bar = progress("predictions", experiments.len());
    let predict = |it: &&Experiment| simulated::predict(&spec, it).inspect(|_| bar.inc(1));
    let predicted = experiments.iter().map(predict).collect::<Result<Vec<_>, _>>()?;
    bar.finish();
    let findings = if is_here {
        let plan = if choice.quick { Plan::QUICK } else { Plan::FULL };
        let lacks = |it: &Experiment| calibration::lacks(&spec, it.threads);
        native::measure(&experiments, plan, calibration::ping_pong_ns(&spec), lacks)?
    } else {
        let finding = |it: &Option<Predicted>| it.map(|_| None).ok_or(native::Untestable::OneCore);
        predicted.iter().map(finding).collect()
    };
    let of_each = experiments.iter().zip(predicted).zip(findings);
    let row = |((it, predicted), finding): ((&&Experiment, _), _)| {
        ExperimentRow::new(it, predicted, finding)
    };
    let rows = of_each.map(row).collect::<Vec<_>>();
    let core_to_core = core_to_core::of(&spec)?;
    Ok(Validation {
        schema: "coreline.validate/2",
        world: choice.world.name().to_owned(),
        machine: spec.name().to_owned(),
        is_here,
        quick: choice.quick,
        not_modelled: NOT_MODELLED,
        score: Score::of(&rows),
        rows,
        core_to_core,
    })
}

impl ExperimentRow {
    fn new(
        it: &Experiment,
        predicted: Option<Predicted>,
        finding: native::Finding,
    ) -> ExperimentRow {
        let Experiment { name, what, threads, tolerance, .. } = *it;
        let measured = finding.as_ref().ok().copied().flatten();
        let pair = predicted.zip(measured);
        let ratio = pair.map(|(predicted, measured)| measured.median / predicted.value);
        let within = |factor: f64| {
            pair.map(|(Predicted { low, high, .. }, Measured { median, .. })| {
                (low / factor..=high * factor).contains(&median)
            })
        };
        let (verdict, why) = match (finding, within(tolerance)) {
            (Err(why), _) => (Verdict::NotTestable, Some(why.to_string())),
            (Ok(_), None) => (Verdict::None, None),
            (Ok(_), Some(_)) if experiment::CALIBRATED.contains(&name) => {
                (Verdict::Calibration, None)
            }
            (Ok(_), Some(true)) => (Verdict::Hit, None),
            (Ok(_), Some(false)) => (Verdict::Miss, None),
        };
        let ratio = ratio.map(simulated::round);
        let in_band = within(1.0);
        let unit = "ns";
        ExperimentRow {
            name,
            what,
            threads,
            unit,
            predicted,
            tolerance,
            measured,
            ratio,
            in_band,
            verdict,
            why,
        }
    }
}

impl Validation {
    pub(crate) fn show(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        table::show(self, form, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(median: f64) -> native::Finding {
        Ok(Some(Measured {
            median,
            low: median,
            high: median,
            samples: 9,
            discarded: 0,
            elsewhere: 0,
        }))
    }

    #[test]
    fn a_hit_is_within_the_band_widened_by_the_tolerance() {
        let experiment = |name| experiment::ALL.iter().find(|it| it.name == name).unwrap();
        let predicted = Some(Predicted { value: 30.0, low: 20.0, high: 45.0 });
        let judge = |name, finding| {
            let row = ExperimentRow::new(experiment(name), predicted, finding);
            (row.verdict, row.in_band)
        };
        for (median, verdict, in_band) in [
            (30.0, Verdict::Hit, true),
            (20.0, Verdict::Hit, true),
            (13.4, Verdict::Hit, false),
            (13.3, Verdict::Miss, false),
            (67.5, Verdict::Hit, false),
            (67.6, Verdict::Miss, false),
        ] {
            assert_eq!(judge("ticket-2", measured(median)), (verdict, Some(in_band)), "{median}");
        }
        assert_eq!(judge("read-own", measured(89.0)).0, Verdict::Hit, "streams: a factor of two");
        assert_eq!(judge("ping-pong-cas", measured(1.0)).0, Verdict::Calibration);
        assert_eq!(judge("ticket-2", Ok(None)), (Verdict::None, None), "all samples disturbed");
        let untestable = Err(native::Untestable::OneCpu);
        assert_eq!(judge("ticket-2", untestable).0, Verdict::NotTestable);
    }

    #[test]
    fn a_null_model_hits_times_that_are_alike() {
        let experiment = |name| experiment::ALL.iter().find(|it| it.name == name).unwrap();
        let predicted = Some(Predicted { value: 30.0, low: 20.0, high: 45.0 });
        let row = |median| ExperimentRow::new(experiment("ticket-2"), predicted, measured(median));
        let alike = Score::of(&[row(30.0), row(40.0)]);
        assert_eq!((alike.judged, alike.hits, alike.null_hits), (2, 2, 2));
        // Their mean is far from both.
        let apart = Score::of(&[row(30.0), row(3000.0)]);
        assert_eq!((apart.judged, apart.hits, apart.null_hits), (2, 1, 0));
        assert_eq!(Score::of(&[]), Score { judged: 0, hits: 0, null_hits: 0 });
    }
}
