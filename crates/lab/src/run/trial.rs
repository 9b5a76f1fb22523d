//! One run of one simulated machine.

use core::time::Duration;

use coreline_sim::{Machine, Replay, Sim, Spec};

use super::Case;
use crate::error::Error;
use crate::kernel::FirstFit;
use crate::scenario::Config;
use crate::scenario::intermittent::{Params, Program, intermittent};

/// How many CPUs have an area each in a simulated machine's memory, with room for all else.
const MOST_CPUS: usize = 3000;

/// Runs the program of a replay line on `spec`, which is the line's machine, and returns its mean
/// time of a burst in nanoseconds.
///
/// # Errors
///
/// If the machine has no such configuration or cost, or too many CPUs, or if the program fails.
pub(crate) fn run(spec: &Spec, replay: &Replay) -> Result<f64, Error> {
    let program: Program = replay.program.parse()?;
    let mut spec = spec.clone();
    if let Some((cost, percent)) = &program.cost {
        spec.scale(cost, *percent).map_err(Error::MachineFile)?;
    }
    let cpus = spec.topology().cpu_limit();
    if cpus > MOST_CPUS {
        let machine = spec.name().to_owned();
        return Err(Error::TooManyCpus { machine, cpus, most: MOST_CPUS });
    }
    let params = Params {
        cpus: config(&spec, &program.config)?.cpus,
        delay: Duration::from_millis(program.delay_ms),
        variant: program.variant,
        seed: replay.seed,
    };
    // Every variant runs under the same kernel, whether it asks for concurrency IDs or not.
    let machine = Machine::new(spec).replaying(replay).kernel(Box::new(FirstFit::new(cpus)));
    let run = machine.run(move || intermittent::<Sim>(&params)).map_err(Error::Failed)?;
    match run.value {
        Ok(bursts) => Ok(bursts.iter().sum::<u64>() as f64 / bursts.len() as f64),
        Err(broken) => Err(Error::BrokenInSimulation { broken, replay: Box::new(replay.clone()) }),
    }
}

fn config(spec: &Spec, name: &str) -> Result<Config, Error> {
    let mut configs = Config::all(spec.topology());
    let found = configs.iter().position(|config| config.name == name);
    found.map(|index| configs.swap_remove(index)).ok_or_else(|| Error::Config {
        asked: name.to_owned(),
        has: Config::all(spec.topology()).into_iter().map(|config| config.name).collect(),
    })
}

/// A point of the band: what a claim must not depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Point {
    /// The share of a miss that is request flight, in percent.
    request_percent: u32,
    seed: u64,
    /// An uncertain cost that is moved, and to how many percent.
    cost: Option<(String, u64)>,
}

impl Point {
    /// The points that a result is taken over, the default first.
    ///
    /// The quick band has the three request shares; the whole band has each with 16 seeds, and each
    /// uncertain cost at 70 % and at 130 %, one at a time.
    pub(super) fn band(spec: &Spec, seed: u64, whole: bool) -> Vec<Point> {
        let default = Machine::REQUEST_PERCENT;
        let others = Machine::REQUEST_BAND.into_iter().filter(|&share| share != default);
        let seeds = if whole { 16 } else { 1 };
        let mut points = Vec::new();
        for request_percent in std::iter::once(default).chain(others) {
            points.extend((0..seeds).map(|offset| Point {
                request_percent,
                seed: seed.wrapping_add(offset),
                cost: None,
            }));
        }
        if whole {
            let uncertain = spec.sources().filter(|(_, cost)| cost.uncertain);
            points.extend(uncertain.flat_map(|(name, _)| {
                [70, 130].map(|percent| Point {
                    request_percent: default,
                    seed,
                    cost: Some((name.to_owned(), percent)),
                })
            }));
        }
        points
    }

    /// The line of one of the runs at this point.
    pub(super) fn replay(&self, machine: &str, case: &Case, run: u64) -> Replay {
        let program = Program {
            config: case.config.name.clone(),
            delay_ms: case.delay_ms,
            variant: case.variant,
            cost: self.cost.clone(),
        };
        Replay {
            seed: run_seed(self.seed, run),
            request_percent: self.request_percent,
            ..Replay::new(machine, &program.to_string())
        }
    }
}

/// The machine's seed of a run: readable (run 2 of seed 7 has 7002), and different for all runs of
/// a band.
fn run_seed(seed: u64, run: u64) -> u64 {
    seed.wrapping_mul(1000).wrapping_add(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_band_has_every_share_seed_and_uncertain_cost() {
        let spec = Spec::preset("epyc-9654-2s").unwrap();
        let quick = Point::band(&spec, 7, false);
        assert_eq!(
            quick.iter().map(|point| point.request_percent).collect::<Vec<_>>(),
            [30, 0, 50]
        );
        let whole = Point::band(&spec, 7, true);
        let uncertain = spec.sources().filter(|(_, cost)| cost.uncertain).count();
        assert_eq!(whole.len(), 3 * 16 + 2 * uncertain);
        assert_eq!(whole[0], quick[0], "the figure is that of the quick form");
        assert!(
            whole.iter().all(|point| whole.iter().filter(|other| *other == point).count() == 1)
        );
    }
}
