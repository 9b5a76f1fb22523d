//! One run of one simulated machine.

use core::time::Duration;

use clap::ValueEnum;
use coreline_sim::{Kernel, Machine, Replay, Sim, Spec};

use crate::error::Error;
use crate::kernel::Scan;
use crate::scenario::intermittent::{Params, Program, intermittent};
use crate::scenario::{Config, Variant};

/// How many CPUs have an area each in a simulated machine's memory, with room for all else.
const MOST_CPUS: usize = 3000;

/// Runs a program as a replay line says on `spec`, which is the line's machine, and returns its
/// mean time of a burst in nanoseconds.
///
/// # Errors
///
/// If the machine has no such configuration, variant or kernel, or too many CPUs, or if the
/// program fails.
pub(crate) fn run(spec: &Spec, replay: &Replay, program: &Program) -> Result<f64, Error> {
    let cpus = spec.topology().cpu_limit();
    if cpus > MOST_CPUS {
        let machine = spec.name().to_owned();
        return Err(Error::TooManyCpus { machine, cpus, most: MOST_CPUS });
    }
    let params = Params {
        cpus: config(spec, &program.config)?.cpus,
        delay: Duration::from_millis(program.delay_ms),
        variant: program.variant,
        sequences: program.sequences,
        seed: replay.seed,
    };
    let kernel = kernel(spec, program.variant, replay.kernel.as_deref())?;
    let machine = Machine::new(spec.clone()).replaying(replay).kernel(kernel);
    let run = machine.run(move || intermittent::<Sim>(&params)).map_err(Error::Failed)?;
    match run.value {
        Ok(bursts) => Ok(bursts.iter().sum::<u64>() as f64 / bursts.len() as f64),
        Err(broken) => Err(Error::BrokenInSimulation { broken, replay: Box::new(replay.clone()) }),
    }
}

/// The kernel of a variant, by its name; without a name the one that makes scans at switches.
fn kernel(spec: &Spec, variant: Variant, name: Option<&str>) -> Result<Box<dyn Kernel>, Error> {
    let kernel = |scan| variant.kernel(spec.topology(), scan);
    let usual = kernel(Scan::default()).ok_or_else(|| Error::Variant {
        asked: variant,
        world: spec.name().to_owned(),
        has: Variant::SIMULATED.to_vec(),
    })?;
    let Some(asked) = name else { return Ok(usual) };
    let all = || Scan::value_variants().iter().filter_map(|&scan| kernel(scan));
    all().find(|kernel| kernel.name() == asked).ok_or_else(|| Error::Kernel {
        asked: asked.to_owned(),
        variant,
        has: all().map(|kernel| kernel.name().to_owned()).collect(),
    })
}

fn config(spec: &Spec, name: &str) -> Result<Config, Error> {
    let mut configs = Config::all(spec.topology());
    let found = configs.iter().position(|config| config.name == name);
    found.map(|index| configs.swap_remove(index)).ok_or_else(|| Error::Config {
        asked: name.to_owned(),
        has: Config::all(spec.topology()).into_iter().map(|config| config.name).collect(),
    })
}
