//! All runs of a scenario on a simulated machine, spread over the host's CPUs.

use coreline_sim::claim::Band;
#[cfg(test)]
use coreline_sim::claim::Figures;
use coreline_sim::{Machine, Replay, Spec};
use indicatif::ProgressBar;

use super::plan::{Measured, Plan, Series};
use super::{Choice, mean};
use crate::error::Error;
use crate::scenario::Config;

/// Runs all programs over the band.
pub(super) fn measure<P: Plan>(
    spec: &Spec,
    choice: &Choice,
) -> Result<Vec<Measured<P::Program>>, Error> {
    let (configs, programs): (Vec<_>, Vec<_>) =
        choice.programs::<P>(Config::all(spec.topology()))?.into_iter().unzip();
    let band = if choice.band { Band::whole } else { Band::quick }(spec, choice.seed);
    let kernel = |program: &P::Program| P::kernel(choice, program);
    let runs = P::runs(choice);
    let bar = choice.progress(P::SCENARIO, programs.len() * band.points().len() * runs as usize);
    let points = points::<P>(&band, &programs, kernel, runs, &bar)?;
    let measured = |((config, program), points): ((Config, _), Vec<Point>)| Measured {
        program,
        caches: config.caches,
        numbers: series(&points),
        discarded: None,
    };
    Ok(configs.into_iter().zip(programs).zip(points).map(measured).collect())
}

/// By number, over the points.
fn series(points: &[Point]) -> Vec<Series> {
    let numbers = points.first().map_or(0, |(numbers, _)| numbers.len());
    let of = |number| {
        let points: Vec<f64> = points.iter().map(|(numbers, _)| numbers[number]).collect();
        Series { value: points[0], points }
    };
    (0..numbers).map(of).collect()
}

/// The numbers of programs over a band, to claim something of: by program, then by number.
#[cfg(test)]
pub(super) fn figures<P: Plan>(
    band: &Band,
    programs: &[P::Program],
    kernel: impl Fn(&P::Program) -> Option<String> + Sync,
) -> Result<Vec<Vec<Figures>>, Error> {
    let points = points::<P>(band, programs, kernel, 1, &ProgressBar::hidden())?;
    let of = |(program, points): (&P::Program, Vec<Point>)| {
        let number = |number: usize| {
            let points = points.iter().map(|(numbers, line)| (numbers[number], line.clone()));
            Figures::new(program.to_string(), points.collect())
        };
        (0..points[0].0.len()).map(number).collect()
    };
    Ok(programs.iter().zip(points).map(of).collect())
}

/// The numbers of a program at a point of the band, and the line that brings them back.
type Point = (Vec<f64>, Replay);

/// Runs programs over a band; the numbers of a point are the means of `runs` runs, and the line
/// that brings it back is that of the first.
fn points<P: Plan>(
    band: &Band,
    programs: &[P::Program],
    kernel: impl Fn(&P::Program) -> Option<String> + Sync,
    runs: u64,
    bar: &ProgressBar,
) -> Result<Vec<Vec<Point>>, Error> {
    let run = |program: &P::Program, machine: Machine| {
        let point = machine.replay_line();
        let line = |run| Replay {
            seed: run_seed(point.seed, run),
            kernel: kernel(program),
            ..point.clone()
        };
        let of_runs: Result<Vec<Vec<f64>>, Error> =
            (0..runs).map(|run| P::simulate(machine.spec(), &line(run), program)).collect();
        let of_runs = of_runs?;
        let of = |number| mean(&of_runs.iter().map(|run| run[number]).collect::<Vec<_>>());
        Ok(((0..of_runs[0].len()).map(of).collect(), line(0)))
    };
    let points = band.run_all(programs, run, || bar.inc(runs));
    bar.finish_and_clear();
    points
}

/// The machine's seed of a run: readable (run 2 of seed 7 has 7002), and different for all runs of
/// a band.
fn run_seed(seed: u64, run: u64) -> u64 {
    seed.wrapping_mul(1000).wrapping_add(run)
}
