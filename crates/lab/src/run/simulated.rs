//! All runs of a scenario on a simulated machine, spread over the host's CPUs.

use std::thread;

use coreline_sim::{Replay, Spec};

use super::trial::{self, Point};
use super::{Case, Choice, Measured, mean, progress};
use crate::error::Error;
use crate::scenario::Config;
use crate::scenario::intermittent::SEQUENCES;

/// Runs all cases over the band.
pub(super) fn measure(spec: &Spec, choice: &Choice) -> Result<Vec<Measured>, Error> {
    let cases = choice.cases(Config::all(spec.topology()))?;
    let points = Point::band(spec, choice.seed, choice.band);
    let runs = 0..choice.runs();
    let of_case = |case: &Case| -> Vec<Replay> {
        let program = case.program(SEQUENCES);
        let of_point = |point: &Point| {
            let line = |run| point.replay(spec.name(), &program, choice.scan(), run);
            runs.clone().map(line).collect::<Vec<_>>()
        };
        points.iter().flat_map(of_point).collect()
    };
    let trials: Vec<Replay> = cases.iter().flat_map(of_case).collect();
    let values = run_all(spec, &trials)?;
    let mut values = values.chunks(choice.runs() as usize).map(mean);
    Ok(cases
        .into_iter()
        .map(|case| {
            let points: Vec<f64> = values.by_ref().take(points.len()).collect();
            Measured { case, value: points[0], points }
        })
        .collect())
}

/// Runs all trials, each on a machine of its own; values are in the order of the trials, and so is
/// the first error.
pub(super) fn run_all(spec: &Spec, trials: &[Replay]) -> Result<Vec<f64>, Error> {
    let bar = progress(spec.name(), trials.len());
    let workers = thread::available_parallelism().map_or(1, usize::from).min(trials.len());
    let run_share = |worker: usize| -> Vec<Result<f64, Error>> {
        let share = trials.iter().skip(worker).step_by(workers);
        share
            .map(|trial| {
                let value = trial::run(spec, trial);
                bar.inc(1);
                value
            })
            .collect()
    };
    let mut shares: Vec<_> = thread::scope(|scope| {
        let run_share = &run_share;
        let workers: Vec<_> =
            (0..workers).map(|worker| scope.spawn(move || run_share(worker))).collect();
        workers
            .into_iter()
            .map(|worker| match worker.join() {
                Ok(values) => values.into_iter(),
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    });
    bar.finish_and_clear();
    // Worker w had the trials w, w + n, w + 2n, ...
    (0..trials.len()).filter_map(|trial| shares[trial % workers].next()).collect()
}
