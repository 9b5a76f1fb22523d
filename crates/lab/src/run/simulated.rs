//! All runs of a scenario on a simulated machine, spread over the host's CPUs.

use coreline_sim::claim::{Band, Figures};
use coreline_sim::{Machine, Replay, Spec};

use super::{Choice, Measured, mean, progress, trial};
use crate::error::Error;
use crate::kernel::Scan;
use crate::scenario::Config;
use crate::scenario::intermittent::{Program, SEQUENCES};

/// Runs all cases over the band.
pub(super) fn measure(spec: &Spec, choice: &Choice) -> Result<Vec<Measured>, Error> {
    let cases = choice.cases(Config::all(spec.topology()))?;
    let band = if choice.band { Band::whole } else { Band::quick }(spec, choice.seed);
    let programs: Vec<Program> = cases.iter().map(|case| case.program(SEQUENCES)).collect();
    let figures = run_all(&band, &programs, choice.scan(), choice.runs())?;
    let measured = |(case, figures): (_, Figures)| Measured {
        case,
        value: figures.value(),
        points: figures.values().collect(),
    };
    Ok(cases.into_iter().zip(figures).map(measured).collect())
}

/// Runs programs over a band; the number of a point is the mean of so many runs, and the line that
/// brings it back that of the first.
pub(super) fn run_all(
    band: &Band,
    programs: &[Program],
    scan: Scan,
    runs: u64,
) -> Result<Vec<Figures>, Error> {
    let all = programs.len() * band.points().len();
    let bar = progress("simulated", all * runs as usize);
    let run = |program: &Program, machine: Machine| {
        let point = machine.replay_line();
        let line = |run| Replay {
            seed: run_seed(point.seed, run),
            kernel: program.variant.kernel_name(scan),
            ..point.clone()
        };
        let values: Result<Vec<f64>, Error> =
            (0..runs).map(|run| trial::run(machine.spec(), &line(run), program)).collect();
        Ok((mean(&values?), line(0)))
    };
    let figures = band.measure_all(programs, run, || bar.inc(runs));
    bar.finish_and_clear();
    figures
}

/// The machine's seed of a run: readable (run 2 of seed 7 has 7002), and different for all runs of
/// a band.
fn run_seed(seed: u64, run: u64) -> u64 {
    seed.wrapping_mul(1000).wrapping_add(run)
}
