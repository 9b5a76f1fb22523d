//! All runs of a scenario on a simulated machine, spread over the host's CPUs.

use coreline_sim::claim::Band;
#[cfg(test)]
use coreline_sim::claim::Figures;
use coreline_sim::{Machine, Replay, Spec, Statistics, Trace};
use coreline_topology::CpuId;
use coreline_world::native::was_interrupted;
use indicatif::ProgressBar;

use super::Choice;
use super::measured::{Measured, Series};
use crate::config::Config;
use crate::error::Error;
use crate::kernel;
use crate::scenario::point::{Point, Setup};

/// Runs a program as a replay line says on `spec`, which is the line's machine; gives the numbers
/// that its figures are made of, and where it is asked for what happened when.
///
/// # Errors
///
/// If the machine has no such configuration, variant or kernel, or the program fails.
pub(crate) fn simulate(
    spec: &Spec,
    replay: &Replay,
    point: &Point,
    trace: Option<&mut Trace>,
) -> Result<Vec<f64>, Error> {
    let scenario = point.scenario;
    let (cpus, most) = (spec.topology().cpu_limit(), scenario.most_cpus);
    if cpus > most {
        let machine = spec.name().to_owned();
        return Err(Error::TooManyCpus { machine, cpus, scenario: scenario.name, most });
    }
    let has = scenario.variants(false);
    if !has.contains(&point.variant) {
        let (asked, world) = (point.variant.to_owned(), spec.name().to_owned());
        return Err(Error::Variant { asked, scenario: scenario.name, world, has });
    }
    let setup =
        Setup { point: point.clone(), cpus: config(spec, &point.config)?, seed: replay.seed };
    let mut machine = Machine::new(spec.clone()).replaying(replay);
    if scenario.statistics {
        machine = machine.statistics(Statistics::Full);
    }
    if trace.is_some() {
        machine = machine.trace();
    }
    if let Some(policy) = scenario.variant(point.variant).and_then(|variant| variant.policy) {
        let has = kernel::names(policy);
        let name = replay.kernel.clone().unwrap_or_else(|| has[0].clone());
        let known = kernel::named(&name, spec.topology()).filter(|_| has.contains(&name));
        let kernel = known.ok_or(Error::Kernel { asked: name, variant: point.variant, has })?;
        machine = machine.kernel(kernel);
    }
    let run = scenario.simulated;
    let run = machine.run(move || run(&setup)).map_err(Error::Failed)?;
    if let Some((to, trace)) = trace.zip(run.trace) {
        *to = trace;
    }
    let mut numbers = run.value.map_err(|broken| Error::broken(replay, broken))?;
    (scenario.report)(&run.report, &mut numbers);
    Ok(numbers)
}

/// The CPUs of the configuration of this name on a machine.
fn config(spec: &Spec, name: &str) -> Result<Vec<CpuId>, Error> {
    let mut configs = Config::all(spec.topology());
    match configs.iter().position(|config| config.name == name) {
        Some(index) => Ok(configs.swap_remove(index).cpus),
        None => {
            let has = configs.into_iter().map(|config| config.name).collect();
            Err(Error::Config { asked: name.to_owned(), has })
        }
    }
}

/// Runs all points over the band. Also says how many there are: an interrupt leaves those that are
/// finished.
pub(super) fn measure(spec: &Spec, choice: &Choice) -> Result<(Vec<Measured>, usize), Error> {
    let (configs, points): (Vec<_>, Vec<_>) =
        choice.points(Config::all(spec.topology()))?.into_iter().unzip();
    let (band, quick) = (choice.band, choice.quick);
    let band = if band { Band::whole } else { Band::quick }(spec, choice.seed);
    let runs = choice.scenario.runs[usize::from(quick)];
    let bar = choice.progress(points.len() * band.points().len() * runs as usize);
    let done = over(&band, &points, Point::kernel, runs, &bar)?;
    let (all, finished) = (points.len(), configs.into_iter().zip(points).zip(done));
    let measured = |((config, point), done): ((Config, Point), Vec<_>)| {
        let done: Option<Vec<Done>> = done.into_iter().collect();
        let (caches, numbers) = (config.caches, series(&done?));
        Some(Measured { point, caches, numbers, discarded: None })
    };
    Ok((finished.filter_map(measured).collect(), all))
}

/// By number, over the band.
fn series(done: &[Done]) -> Vec<Series> {
    let numbers = done.first().map_or(0, |(numbers, _)| numbers.len());
    let of = |number| {
        let points: Vec<f64> = done.iter().map(|(numbers, _)| numbers[number]).collect();
        Series { value: points[0], points }
    };
    (0..numbers).map(of).collect()
}

/// The numbers of variants over a band of a preset, to claim something of: by variant, then by
/// number. `program` has `{}` in the place of the variant; kernels, where the scenario installs
/// them, look for old references as `scan` says.
#[cfg(test)]
pub(crate) fn figures<const N: usize>(
    band: fn(&Spec, u64) -> Band,
    machine: &str,
    program: &str,
    scan: &str,
    variants: [&str; N],
) -> [Vec<Figures>; N] {
    let point = |variant: &str| Setup::new(&program.replace("{}", variant), []).point;
    let kernel = |point: &Point| {
        let policy = point.scenario.variant(point.variant)?.policy?;
        Some(format!("{policy}:{scan}"))
    };
    let band = band(&Spec::preset(machine).unwrap(), 1);
    let points = variants.map(point);
    let done = over(&band, &points, kernel, 1, &ProgressBar::hidden());
    let mut done = done.unwrap_or_else(|error| panic!("{error}")).into_iter().zip(&points);
    std::array::from_fn(|_| {
        let (done, point) = done.next().expect("each variant was run");
        let number = |number: usize| {
            let values = done.iter().map(|done| done.as_ref().expect("all were run"));
            let values = values.map(|(numbers, line)| (numbers[number], line.clone()));
            Figures::new(point.to_string(), values.collect())
        };
        let first = done[0].as_ref().expect("all were run");
        (0..first.0.len()).map(number).collect()
    })
}

/// The numbers of a program at a point of the band, and the line that brings them back.
type Done = (Vec<f64>, Replay);

/// Runs points over a band; the numbers are the means of `runs` runs, and the line that brings them
/// back is that of the first. None of what begins after an interrupt.
fn over(
    band: &Band,
    points: &[Point],
    kernel: impl Fn(&Point) -> Option<String> + Sync,
    runs: u64,
    bar: &ProgressBar,
) -> Result<Vec<Vec<Option<Done>>>, Error> {
    let run = |program: &Point, machine: Machine| {
        let point = machine.replay_line();
        let line = |run| Replay {
            seed: run_seed(point.seed, run),
            kernel: kernel(program),
            ..point.clone()
        };
        let mut of_runs: Vec<Vec<f64>> = Vec::new();
        for run in 0..runs {
            if was_interrupted() {
                return Ok(None);
            }
            of_runs.push(simulate(machine.spec(), &line(run), program, None)?);
        }
        let mean = |number| of_runs.iter().map(|run| run[number]).sum::<f64>() / runs as f64;
        Ok(Some(((0..of_runs[0].len()).map(mean).collect(), line(0))))
    };
    let done = band.run_all(points, run, || bar.inc(runs));
    bar.finish_and_clear();
    done
}

/// The machine's seed of a run: readable (run 2 of seed 7 has 7002), and different for all runs of
/// a band.
fn run_seed(seed: u64, run: u64) -> u64 {
    seed.wrapping_mul(1000).wrapping_add(run)
}
