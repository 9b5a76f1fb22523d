//! Runs a scenario in a world and sets the result beside what was published.
//!
//! | module | does |
//! |---|---|
//! | [`trial`] | one run of one machine, by a replay line |
//! | [`simulated`], [`native`] | all runs in a world: one [`Measured`] for each case |
//! | [`published`] | the figures of others |
//! | [`verdict`] | what may be said of a figure beside a published one |
//! | [`result`] | rows, as they are printed and serialised |
//! | [`table`] | shows them |
//! | [`claims`] | what must hold over the whole band, as tests |

#[cfg(test)]
mod claims;
mod native;
mod published;
mod result;
mod simulated;
mod table;
pub(crate) mod trial;
mod verdict;

use clap::builder::RangedU64ValueParser;
use clap::{Args, value_parser};
use indicatif::{ProgressBar, ProgressStyle};

use crate::error::Error;
use crate::kernel::Scan;
use crate::scenario::intermittent::Program;
use crate::scenario::{Config, Scenario, Variant, intermittent};
use crate::world::{self, World};

pub(crate) use result::Outcome;

/// What of a scenario runs, where, and how thoroughly.
#[derive(Debug, Clone, Args)]
pub(crate) struct Choice {
    /// `native`, the name of a simulated machine, or the path of a machine file
    #[arg(long, default_value = "native", value_parser = world::parse, value_name = "WORLD")]
    world: World,
    /// The seed of everything random: simulated, one seed gives one result
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// The whole band: 16 seeds, and each uncertain cost moved by 30 %, instead of the request
    /// shares alone
    #[arg(long)]
    band: bool,
    /// Fewer runs; natively the shortest delay only, and at most 32 CPUs
    #[arg(long)]
    quick: bool,
    /// Only this alternative; may be given more than once. Natively there are cpu-id and
    /// kernel-cid, simulated cpu-id, first-fit, recent, owned and clustered
    #[arg(long = "variant", value_name = "VARIANT")]
    variants: Vec<Variant>,
    /// What makes a simulated kernel look for old references to concurrency IDs, at most every
    /// 100 ms; switch if nothing is said
    #[arg(long, value_name = "SCAN")]
    scan: Option<Scan>,
    /// Milliseconds between bursts, 10 and 200 if nothing is said; may be given more than once
    #[arg(long = "delay", value_name = "MS", value_parser = delay_range())]
    delays: Vec<u64>,
    /// Only this configuration; may be given more than once
    #[arg(long = "config", value_name = "NAME")]
    configs: Vec<String>,
}

fn delay_range() -> RangedU64ValueParser<u64> {
    value_parser!(u64).range(..=intermittent::MOST_DELAY_MS)
}

/// The delays of seed 000, in milliseconds.
const DELAYS: [u64; 2] = [10, 200];

/// The number of runs that the seed's figures, and ours, are the mean of.
const RUNS: u64 = 5;

/// The same for the quick form.
const QUICK_RUNS: u64 = 2;

impl Choice {
    /// The quick form of everything in a world.
    pub(crate) fn quick(world: World) -> Choice {
        Choice {
            world,
            seed: 1,
            band: false,
            quick: true,
            variants: Vec::new(),
            scan: None,
            delays: Vec::new(),
            configs: Vec::new(),
        }
    }

    fn runs(&self) -> u64 {
        if self.quick { QUICK_RUNS } else { RUNS }
    }

    /// Those of the world's variants that were chosen, in the order of [`Variant`].
    fn variants(&self) -> Result<Vec<Variant>, Error> {
        let has: &[Variant] = match self.world {
            World::Native => &Variant::NATIVE,
            World::Simulated { .. } => &Variant::SIMULATED,
        };
        if let Some(&asked) = self.variants.iter().find(|asked| !has.contains(asked)) {
            let world = self.world.name().to_owned();
            return Err(Error::Variant { asked, world, has: has.to_vec() });
        }
        let all = self.variants.is_empty();
        Ok(has.iter().copied().filter(|has| all || self.variants.contains(has)).collect())
    }

    fn scan(&self) -> Scan {
        self.scan.unwrap_or_default()
    }

    fn delays(&self) -> Vec<u64> {
        let mut delays = match (self.delays.as_slice(), &self.world) {
            ([], World::Native) if self.quick => DELAYS[..1].to_vec(),
            ([], _) => DELAYS.to_vec(),
            (chosen, _) => chosen.to_vec(),
        };
        delays.sort_unstable();
        delays.dedup();
        delays
    }

    /// Those of the world's configurations that were chosen, in the world's order.
    fn configs(&self, has: Vec<Config>) -> Result<Vec<Config>, Error> {
        let names = || has.iter().map(|config| config.name.clone()).collect::<Vec<_>>();
        if let Some(unknown) = self.configs.iter().find(|name| !names().contains(name)) {
            return Err(Error::Config { asked: unknown.clone(), has: names() });
        }
        let all = self.configs.is_empty();
        Ok(has.into_iter().filter(|config| all || self.configs.contains(&config.name)).collect())
    }

    /// All combinations that run: a configuration's delays, a delay's variants.
    fn cases(&self, has: Vec<Config>) -> Result<Vec<Case>, Error> {
        let variants = self.variants()?;
        let mut cases = Vec::new();
        for config in self.configs(has)? {
            for delay_ms in self.delays() {
                for &variant in &variants {
                    cases.push(Case { config: config.clone(), delay_ms, variant });
                }
            }
        }
        Ok(cases)
    }

    /// The command that gives the same result.
    fn command(&self, scenario: Scenario) -> String {
        let mut command = format!("coreline run {scenario} --world {}", self.world.asked());
        command += &format!(" --seed {}", self.seed);
        for (flag, on) in [(" --band", self.band), (" --quick", self.quick)] {
            command += if on { flag } else { "" };
        }
        self.variants.iter().for_each(|variant| command += &format!(" --variant {variant}"));
        self.scan.iter().for_each(|scan| command += &format!(" --scan {scan}"));
        self.delays.iter().for_each(|delay| command += &format!(" --delay {delay}"));
        self.configs.iter().for_each(|config| command += &format!(" --config {config}"));
        command
    }
}

/// One combination of what a scenario varies.
#[derive(Debug, Clone)]
struct Case {
    config: Config,
    delay_ms: u64,
    variant: Variant,
}

impl Case {
    /// What a replay line calls a run of it.
    fn program(&self, sequences: u32) -> Program {
        let Case { config, delay_ms, variant } = self;
        let config = config.name.clone();
        Program { config, delay_ms: *delay_ms, variant: *variant, sequences }
    }
}

/// What a case came to.
#[derive(Debug)]
struct Measured {
    case: Case,
    /// The figure.
    value: f64,
    /// What it could have been: over the band, or over the native runs. The points of two cases
    /// correspond.
    points: Vec<f64>,
}

/// Runs a scenario.
pub(crate) fn run(scenario: Scenario, choice: &Choice) -> Result<Outcome, Error> {
    let measured = match &choice.world {
        World::Native if choice.scan.is_some() => return Err(Error::ScanNatively),
        World::Native => native::measure(choice)?,
        World::Simulated { spec, .. } => simulated::measure(spec, choice)?,
    };
    Ok(Outcome::new(scenario, choice, &measured))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Progress on standard error, if that is a terminal.
pub(crate) fn progress(what: &str, runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64).with_message(what.to_owned());
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} runs, {eta} left");
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
