//! Predictions: the experiments on a simulated machine, over the band of request shares.

use coreline_scenarios::Error::Failed;
use coreline_sim::{Class, Machine, Replay, Sim, Spec};
use coreline_topology::CpuId;
use serde::Serialize;

use super::experiment::Experiment;
use super::sample;
use crate::error::Error;

/// The simulator's prediction for an experiment, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Predicted {
    /// The mean over seeds at the usual request share.
    pub(crate) value: f64,
    /// The lowest and the highest over all seeds and request shares.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Seeds of the jitter at each request share.
const SEEDS: u64 = 4;

/// Operations of each thread before those that are timed, and those.
const OPS: [u64; 2] = [64, 512];

/// The same with passes over memory.
const PASSES: [u64; 2] = [4, 32];

/// More than any experiment takes.
const MOST_STEPS: u64 = 50_000_000;

/// The CPUs of a machine that an experiment uses: the nearest two CPUs on different cores. `None`
/// if the machine has no two.
fn cpus(spec: &Spec, experiment: &Experiment) -> Option<Vec<CpuId>> {
    if experiment.threads == 1 {
        return Some(spec.topology().cpus().take(1).map(|cpu| cpu.id).collect());
    }
    let classes = Class::ALL.iter().filter(|class| **class != Class::SameCore);
    classes.map(|class| class.pair(spec.topology())).find_map(|pair| pair).map(Vec::from)
}

/// Predicts an experiment's figure; `None` if the machine has no two cores and it takes two.
pub(super) fn predict(spec: &Spec, experiment: &Experiment) -> Result<Option<Predicted>, Error> {
    if cpus(spec, experiment).is_none() {
        return Ok(None);
    }
    let mut all = Vec::new();
    let mut usual = Vec::new();
    for request_percent in Machine::REQUEST_BAND {
        for seed in 0..SEEDS {
            let line = Replay {
                seed,
                request_percent,
                step_limit: MOST_STEPS,
                ..Replay::new(spec.name(), &experiment.program())
            };
            let ns = run(spec, &line, experiment)?;
            all.push(ns);
            if request_percent == Machine::REQUEST_PERCENT {
                usual.push(ns);
            }
        }
    }
    let value = round(usual.iter().sum::<f64>() / usual.len() as f64);
    let low = round(all.iter().copied().fold(f64::MAX, f64::min));
    let high = round(all.iter().copied().fold(0.0, f64::max));
    Ok(Some(Predicted { value, low, high }))
}

/// Runs an experiment on the machine of a replay line, which `spec` is; in nanoseconds.
///
/// # Errors
///
/// If the machine has no two cores and the experiment takes two, or if it fails.
pub(crate) fn run(spec: &Spec, replay: &Replay, experiment: &Experiment) -> Result<f64, Error> {
    let experiment = *experiment;
    let Some(cpus) = cpus(spec, &experiment) else {
        let (name, machine) = (experiment.name, spec.name().to_owned());
        return Err(Error::OneCore { experiment: name, machine });
    };
    let counts = if experiment.is_pass() { PASSES } else { OPS };
    let run = Machine::new(spec.clone()).replaying(replay).run(move || {
        let subject = experiment.subject::<Sim>();
        let sample = sample::take::<Sim>(&subject, &cpus, counts, || None);
        sample.map(|sample| {
            (sample.ns(&experiment, counts[1]), subject.is_right(counts.iter().sum()))
        })
    });
    let (ns, right) = run.map_err(Failed)?.value.map_err(Error::Measure)?;
    if right {
        return Ok(ns);
    }
    let again = format!("replay: {replay}");
    Err(Error::Miscounted { experiment: experiment.name, again })
}

/// To hundredths of a nanosecond: what a file of predictions holds.
pub(super) fn round(ns: f64) -> f64 {
    (ns * 100.0).round() / 100.0
}
