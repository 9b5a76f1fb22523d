//! Runs of scenarios on simulated machines: one of a point, and all of several points over a band.

use coreline_sim::claim::{Band, Figures};
use coreline_sim::{Failure, Machine, Replay, Report, Spec, Statistics, Trace};
use coreline_topology::CpuId;
use coreline_world::native::was_interrupted;

use crate::RunError;
use crate::config::Config;
use crate::kernel;
use crate::point::{Point, Setup};

/// The reason why a simulated run returned no numbers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine, or this host, has no configuration with this name.
    #[error(
        "this world does not have the configuration {asked:?}; its configurations are {}",
        has.join(", ")
    )]
    Config {
        /// The requested name.
        asked: String,
        /// The available names.
        has: Vec<String>,
    },
    /// The scenario has no such variant in this world.
    #[error(
        "{scenario} has no variant {asked} in the world {world}; its variants there are {}",
        has.join(", ")
    )]
    Variant {
        /// The requested name.
        asked: String,
        /// The scenario's name.
        scenario: &'static str,
        /// The world's name: `native`, or the name of the machine.
        world: String,
        /// The available names.
        has: Vec<&'static str>,
    },
    /// The variant runs under a kernel with concurrency IDs, but no kernel has this name.
    #[error(
        "the kernel {asked:?} does not belong to {variant}, whose kernels are {}",
        has.join(", ")
    )]
    Kernel {
        /// The requested name.
        asked: String,
        /// The variant's name.
        variant: &'static str,
        /// The available names.
        has: Vec<String>,
    },
    /// The scenario would need more memory than the simulated machine has.
    #[error(
        "the machine {machine} has {cpus} CPUs, but with more than {most} CPUs {scenario} does \
         not fit into a simulated machine's memory; choose a smaller machine"
    )]
    TooManyCpus {
        /// The machine's name.
        machine: String,
        /// The number of CPUs that the machine has.
        cpus: usize,
        /// The scenario's name.
        scenario: &'static str,
        /// The largest number of CPUs with which this scenario fits into a simulated machine's
        /// memory.
        most: usize,
    },
    /// The program panicked, blocked forever or exceeded a limit.
    #[error("a simulated program failed: {0}")]
    Failed(Box<Failure>),
    /// The program ended, and reports that it found a mistake or could not run.
    #[error("the run of the scenario failed: {broken}\n  replay: {replay}")]
    Broken {
        /// The mistake, or the reason why the program could not run.
        broken: RunError,
        /// The replay line of the run.
        replay: Box<Replay>,
    },
}

/// The result of a simulated run.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// The numbers from which the scenario's figures are computed.
    pub numbers: Vec<f64>,
    /// The number of steps of the simulator, to which the host's time is roughly proportional.
    pub steps: u64,
}

/// Runs a point of a scenario, according to a replay line, on the machine `spec`, which is the
/// line's machine. `trace` gets the record of the run.
///
/// The same arguments give the same numbers on any host.
///
/// # Errors
///
/// [`Error`] if the machine has no such configuration, variant or kernel, or is too large for the
/// scenario. The call also returns an [`Error`] if the program fails or finds a mistake.
pub fn simulate(
    spec: &Spec,
    replay: &Replay,
    point: &Point,
    trace: Option<&mut Trace>,
) -> Result<Simulated, Error> {
    let (mut numbers, report) = execute(spec, replay, point, point.scenario.statistics, trace)?;
    (point.scenario.report)(&report, &mut numbers);
    Ok(Simulated { numbers, steps: report.steps })
}

/// Returns the cost of a run by cache line, by source location and by CPU. The run equals the run
/// of [`simulate`] with the same arguments.
///
/// # Errors
///
/// The same errors as for [`simulate`].
pub fn explain(spec: &Spec, replay: &Replay, point: &Point) -> Result<Report, Error> {
    execute(spec, replay, point, true, None).map(|(_, report)| report)
}

/// Runs a point. Returns the program's own numbers, and the cost of the run.
fn execute(
    spec: &Spec,
    replay: &Replay,
    point: &Point,
    in_full: bool,
    trace: Option<&mut Trace>,
) -> Result<(Vec<f64>, Report), Error> {
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
    if in_full {
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
    let broken = |broken| Error::Broken { broken, replay: Box::new(replay.clone()) };
    Ok((run.value.map_err(broken)?, run.report))
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

/// The numbers of a program at a point of a band, and the replay line of the run.
pub type Done = (Vec<f64>, Replay);

/// Runs points over a band, spread over the host's CPUs. The numbers are the means of `runs` runs,
/// and the replay line is the line of the first run. Returns the results by point of a scenario,
/// and then by point of the band. A result is `None` if an interrupt prevented the run.
///
/// `kernel` names the kernel of a point's machine: see [`Point::kernel`]. `done` is called for each
/// completed point of the band, with its number of runs.
///
/// # Errors
///
/// The error of [`simulate`] for the run that returned no numbers.
pub fn over_band(
    band: &Band,
    points: &[Point],
    kernel: impl Fn(&Point) -> Option<String> + Sync,
    runs: u64,
    done: impl Fn(u64) + Sync,
) -> Result<Vec<Vec<Option<Done>>>, Error> {
    let run = |program: &Point, machine: Machine| {
        let at = machine.replay_line();
        let line = |run| line_of(&at, program, kernel(program), run);
        let mut of_runs: Vec<Vec<f64>> = Vec::new();
        for run in 0..runs {
            if was_interrupted() {
                return Ok(None);
            }
            of_runs.push(simulate(machine.spec(), &line(run), program, None)?.numbers);
        }
        let mean = |number| of_runs.iter().map(|run| run[number]).sum::<f64>() / runs as f64;
        Ok(Some(((0..of_runs[0].len()).map(mean).collect(), line(0))))
    };
    band.run_all(points, run, || done(runs))
}

/// Returns the replay lines of the runs that [`over_band`] makes for these points, if each point
/// has its own [kernel](Point::kernel). They are ordered by point of a scenario, then by point of
/// the band, then by run.
pub fn lines<'a>(
    band: &'a Band,
    points: &'a [Point],
    runs: u64,
) -> impl Iterator<Item = Replay> + 'a {
    let all: Vec<Replay> =
        band.points().iter().map(|at| band.machine(at, "").replay_line()).collect();
    points.iter().flat_map(move |point| {
        let of = |at: &Replay| {
            (0..runs).map(|run| line_of(at, point, point.kernel(), run)).collect::<Vec<_>>()
        };
        all.iter().flat_map(of).collect::<Vec<_>>()
    })
}

/// The line of a run of a point of a scenario, at the point of a band that `at` has.
fn line_of(at: &Replay, point: &Point, kernel: Option<String>, run: u64) -> Replay {
    Replay { seed: run_seed(at.seed, run), kernel, program: point.to_string(), ..at.clone() }
}

/// Returns the replay line of the first run of a point, at the default point of a machine's band.
pub fn default_line(spec: &Spec, seed: u64, point: &Point) -> Replay {
    let band = Band::quick(spec, seed);
    let at = band.machine(&band.points()[0], "").replay_line();
    line_of(&at, point, point.kernel(), 0)
}

/// The machine's seed of a run: readable (run 2 of seed 7 has 7002), and different for all runs of
/// a band.
fn run_seed(seed: u64, run: u64) -> u64 {
    seed.wrapping_mul(1000).wrapping_add(run)
}

/// Returns the numbers of variants over a band of a preset, for claims in a test. They are ordered
/// by variant, and then by number. `program` contains `{}` where the variant's name belongs. If the
/// scenario installs kernels, `scan` says when they scan for old references.
///
/// # Panics
///
/// Panics if there is no such preset or program, or if [`over_band`] returns an error.
pub fn figures<const N: usize>(
    band: fn(&Spec, u64) -> Band,
    machine: &str,
    program: &str,
    scan: &str,
    variants: [&str; N],
) -> [Vec<Figures>; N] {
    let points = variants.map(|variant| program.replace("{}", variant));
    let mut all = of_band(band, machine, &points, scan).into_iter();
    std::array::from_fn(|_| all.next().expect("each variant was run"))
}

/// [`figures`] of any number of programs.
fn of_band(
    band: fn(&Spec, u64) -> Band,
    machine: &str,
    programs: &[String],
    scan: &str,
) -> Vec<Vec<Figures>> {
    let kernel = |point: &Point| {
        let policy = point.scenario.variant(point.variant)?.policy?;
        Some(format!("{policy}:{scan}"))
    };
    let spec = Spec::preset(machine).unwrap_or_else(|error| panic!("{error}"));
    let band = band(&spec, 1);
    let points: Vec<Point> = programs.iter().map(|it| Setup::new(it, []).point).collect();
    let done = over_band(&band, &points, kernel, 1, |_| ());
    let done = done.unwrap_or_else(|error| panic!("{error}"));
    let of = |(point, done): (&Point, Vec<Option<Done>>)| {
        let done: Vec<Done> = done.into_iter().map(|it| it.expect("no interrupt came")).collect();
        let number = |number: usize| {
            let values = done.iter().map(|(numbers, line)| (numbers[number], line.clone()));
            Figures::new(point.to_string(), values.collect())
        };
        (0..done[0].0.len()).map(number).collect()
    };
    points.iter().zip(done).map(of).collect()
}
