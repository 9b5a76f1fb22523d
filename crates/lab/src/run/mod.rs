//! Runs a scenario in a world and sets the result beside what was published.
//!
//! | module | does |
//! |---|---|
//! | [`plan`] | what each scenario varies, measures and shows |
//! | [`simulated`], [`native`] | all runs in a world: one [`plan::Measured`] for each program |
//! | [`metric`] | what a figure is of |
//! | [`published`] | the figures of others |
//! | [`verdict`] | what may be said of a figure beside a published one |
//! | [`result`] | rows, as they are printed and serialised |
//! | [`table`] | shows them |
//! | [`claims`] | what must hold over the whole band, as tests |

#[cfg(test)]
mod claims;
mod metric;
mod native;
pub(crate) mod plan;
mod published;
pub(crate) mod result;
mod simulated;
mod table;
pub(crate) mod verdict;

use std::fmt;
use std::time::Instant;

use clap::Args;
use clap::builder::RangedI64ValueParser;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::error::Error;
use crate::kernel::Scan;
use crate::scenario::switchstorm::{MOST_PATH_NS, MOST_US, Wake};
use crate::scenario::threadstorm::{MOST_REST_US, Placing, Size};
use crate::scenario::{Config, Scenario, Variant, intermittent, shootdown, tenants};
use crate::world::{self, World};

use plan::{Intermittent, Plan, Question, Shootdown, Switchstorm, Tenants, Threadstorm};

use result::Outcome;

pub(crate) use table::show;

/// What of a scenario runs, where, and how thoroughly.
#[derive(Debug, Clone, Args)]
pub(crate) struct Choice {
    /// `native`, the name of a simulated machine, or the path of a machine file
    #[arg(long, default_value = "native", value_parser = world::parse, value_name = "WORLD")]
    world: World,
    /// The seed of everything random: simulated, one seed gives one result
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = seed
    )]
    seed: u64,
    /// The whole band: 16 seeds, and each uncertain cost moved by 30 %, instead of the request
    /// shares alone
    #[arg(long)]
    band: bool,
    /// Fewer runs, and natively at most 32 CPUs; intermittent natively the shortest delay only,
    /// switchstorm barriers only, threadstorm 8x8 only, tenants 1000 with 2 tasks
    #[arg(long)]
    quick: bool,
    /// Only this alternative; may be given more than once
    #[arg(long = "variant", value_name = "VARIANT")]
    variants: Vec<Variant>,
    /// Only this configuration; may be given more than once. If nothing is said, all of
    /// intermittent, and the one with all CPUs of other scenarios
    #[arg(long = "config", value_name = "NAME")]
    configs: Vec<String>,
    /// What makes a simulated kernel look for old references to concurrency IDs, at most every
    /// 100 ms; tick if nothing is said
    #[arg(long, value_name = "SCAN", help_heading = "intermittent")]
    scan: Option<Scan>,
    /// Milliseconds between bursts, 10 and 200 if nothing is said; may be given more than once
    #[arg(
        long = "delay",
        value_name = "MS",
        value_parser = range(0, intermittent::MOST_DELAY_MS),
        allow_negative_numbers = true,
        help_heading = "intermittent"
    )]
    delays: Vec<u64>,
    /// How idle CPUs are woken, in both ways if nothing is said
    #[arg(long = "wake", value_name = "WAKE", help_heading = "switchstorm")]
    wakes: Vec<Wake>,
    /// Microseconds of a round, switches apart: computing between barriers, or half computing and
    /// half idle; 25 if nothing is said, and of independent wake-ups 10 as well; may be given more
    /// than once
    #[arg(
        long = "period",
        value_name = "US",
        value_parser = range(1, MOST_US),
        allow_negative_numbers = true,
        help_heading = "switchstorm"
    )]
    periods: Vec<u64>,
    /// Nanoseconds that a switch takes without what is compared, 1500 if nothing is said
    #[arg(
        long,
        value_name = "NS",
        value_parser = range(0, MOST_PATH_NS),
        allow_negative_numbers = true,
        help_heading = "switchstorm, threadstorm"
    )]
    path: Option<u64>,
    /// Microseconds from one flush to the next, 1000 if nothing is said, 0 for none; may be given
    /// more than once
    #[arg(
        long = "flush",
        value_name = "US",
        value_parser = range(0, MOST_US),
        allow_negative_numbers = true,
        help_heading = "switchstorm"
    )]
    flushes: Vec<u64>,
    /// How many contexts are present; 1, 8, 64 and all if nothing is said; may be given more than
    /// once
    #[arg(
        long = "present",
        value_name = "N",
        value_parser = range(1, shootdown::MOST_PRESENT),
        allow_negative_numbers = true,
        help_heading = "shootdown"
    )]
    present: Vec<u64>,
    /// How many pools create how many threads each, 8x8 and 32x32 if nothing is said; may be given
    /// more than once
    #[arg(long = "size", value_name = "POOLSxTHREADS", help_heading = "threadstorm")]
    sizes: Vec<Size>,
    /// Where threads may run, both if nothing is said
    #[arg(long = "place", value_name = "PLACE", help_heading = "threadstorm")]
    places: Vec<Placing>,
    /// Microseconds that creating and ending a thread takes without concurrency IDs, 30 if nothing
    /// is said
    #[arg(
        long,
        value_name = "US",
        value_parser = range(0, MOST_REST_US),
        allow_negative_numbers = true,
        help_heading = "threadstorm"
    )]
    rest: Option<u64>,
    /// How many tenants there are, 10000 if nothing is said
    #[arg(
        long,
        value_name = "N",
        value_parser = range(1, tenants::MOST_TENANTS),
        allow_negative_numbers = true,
        help_heading = "tenants"
    )]
    tenants: Option<u64>,
    /// How many tasks a tenant has, 2 and 4 if nothing is said; may be given more than once
    #[arg(
        long = "tasks",
        value_name = "N",
        value_parser = range(1, tenants::MOST_TASKS),
        allow_negative_numbers = true,
        help_heading = "tenants"
    )]
    tasks: Vec<u64>,
    /// The runs that this one is one of.
    #[arg(skip)]
    whole: Option<Whole>,
}

/// Reads a number as one with a sign, so that what is said of -1 is that it is out of range.
fn range(least: u64, most: u64) -> RangedI64ValueParser<u64> {
    let [least, most] = [least, most].map(|end| i64::try_from(end).unwrap_or(i64::MAX));
    RangedI64ValueParser::new().range(least..=most)
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

impl Choice {
    /// The quick form of everything in a world.
    pub(crate) fn quick(world: World) -> Choice {
        Choice {
            world,
            seed: 1,
            band: false,
            quick: true,
            variants: Vec::new(),
            configs: Vec::new(),
            scan: None,
            delays: Vec::new(),
            wakes: Vec::new(),
            periods: Vec::new(),
            path: None,
            flushes: Vec::new(),
            present: Vec::new(),
            sizes: Vec::new(),
            places: Vec::new(),
            rest: None,
            tenants: None,
            tasks: Vec::new(),
            whole: None,
        }
    }

    /// The same, as the next of several.
    pub(crate) fn part_of(mut self, whole: &mut Whole) -> Choice {
        whole.begun += 1;
        self.whole = Some(*whole);
        self
    }

    /// Progress of a scenario's runs.
    fn progress(&self, scenario: Scenario, runs: usize) -> ProgressBar {
        let what = format!("{scenario} on {}", self.world.name());
        match &self.whole {
            Some(whole) => whole.progress(&what, runs),
            None => progress(&what, runs),
        }
    }

    /// The given parameters of scenarios, as on the command line.
    fn options(&self) -> Vec<(&'static str, String)> {
        fn all<T: ToString>(
            option: &'static str,
            values: &[T],
        ) -> impl Iterator<Item = (&'static str, String)> {
            values.iter().map(move |value| (option, value.to_string()))
        }
        all("--scan", self.scan.as_slice())
            .chain(all("--delay", &self.delays))
            .chain(all("--wake", &self.wakes))
            .chain(all("--period", &self.periods))
            .chain(all("--path", self.path.as_slice()))
            .chain(all("--flush", &self.flushes))
            .chain(all("--present", &self.present))
            .chain(all("--size", &self.sizes))
            .chain(all("--place", &self.places))
            .chain(all("--rest", self.rest.as_slice()))
            .chain(all("--tenants", self.tenants.as_slice()))
            .chain(all("--tasks", &self.tasks))
            .collect()
    }

    /// The world's variants that were chosen, in the order of the plan.
    fn variants<P: Plan>(&self) -> Result<Vec<Variant>, Error> {
        let has = P::variants(&self.world);
        if let Some(&asked) = self.variants.iter().find(|asked| !has.contains(asked)) {
            let world = self.world.name().to_owned();
            let has = has.to_vec();
            return Err(Error::Variant { asked, scenario: P::SCENARIO, world, has });
        }
        let all = self.variants.is_empty();
        Ok(has.iter().copied().filter(|has| all || self.variants.contains(has)).collect())
    }

    /// The world's configurations that were chosen, in the world's order.
    fn configs<P: Plan>(&self, has: Vec<Config>) -> Result<Vec<Config>, Error> {
        let names = || has.iter().map(|config| config.name.clone()).collect::<Vec<_>>();
        if let Some(unknown) = self.configs.iter().find(|name| !names().contains(name)) {
            return Err(Error::Config { asked: unknown.clone(), has: names() });
        }
        if self.configs.is_empty() {
            return Ok(P::usual(has));
        }
        Ok(has.into_iter().filter(|config| self.configs.contains(&config.name)).collect())
    }

    /// All that runs, with its configuration: a configuration's parameters, their variants.
    fn programs<P: Plan>(&self, has: Vec<Config>) -> Result<Vec<(Config, P::Program)>, Error> {
        let options = self.options();
        if let Some((asked, _)) = options.iter().find(|(name, _)| !P::OPTIONS.contains(name)) {
            return Err(Error::Option { asked, scenario: P::SCENARIO, has: P::OPTIONS });
        }
        let variants = self.variants::<P>()?;
        let mut programs = Vec::new();
        for config in self.configs::<P>(has)? {
            let of_config = P::programs(self, &config, &variants)?;
            programs.extend(of_config.into_iter().map(|program| (config.clone(), program)));
        }
        Ok(programs)
    }

    /// The command that gives the same result.
    fn command(&self, scenario: Scenario) -> String {
        let mut command = format!("coreline run {scenario} --world {}", self.world.asked());
        command += &format!(" --seed {}", self.seed);
        for (flag, on) in [(" --band", self.band), (" --quick", self.quick)] {
            command += if on { flag } else { "" };
        }
        self.variants.iter().for_each(|variant| command += &format!(" --variant {variant}"));
        self.options().iter().for_each(|(name, value)| command += &format!(" {name} {value}"));
        self.configs.iter().for_each(|config| command += &format!(" --config {config}"));
        command
    }
}

/// Runs a scenario.
pub(crate) fn run(scenario: Scenario, choice: &Choice) -> Result<Outcome, Error> {
    match scenario {
        Scenario::Intermittent => run_plan::<Intermittent>(choice),
        Scenario::Switchstorm => run_plan::<Switchstorm>(choice),
        Scenario::Shootdown => run_plan::<Shootdown>(choice),
        Scenario::Threadstorm => run_plan::<Threadstorm>(choice),
        Scenario::Tenants => run_plan::<Tenants>(choice),
    }
}

/// What the program says of a scenario if nothing was asked.
pub(crate) fn question(scenario: Scenario) -> Question {
    match scenario {
        Scenario::Intermittent => Intermittent::QUESTION,
        Scenario::Switchstorm => Switchstorm::QUESTION,
        Scenario::Shootdown => Shootdown::QUESTION,
        Scenario::Threadstorm => Threadstorm::QUESTION,
        Scenario::Tenants => Tenants::QUESTION,
    }
}

fn run_plan<P: Plan>(choice: &Choice) -> Result<Outcome, Error> {
    let measured = match &choice.world {
        World::Native => native::measure::<P>(choice)?,
        World::Simulated { spec, .. } => simulated::measure::<P>(spec, choice)?,
    };
    Ok(Outcome::new::<P>(choice, &measured))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Several scenarios that are run one after the other, with one progress for all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole {
    all: usize,
    begun: usize,
    since: Instant,
}

impl Whole {
    pub(crate) fn new(all: usize) -> Whole {
        Whole { all, begun: 0, since: Instant::now() }
    }

    fn progress(&self, what: &str, runs: usize) -> ProgressBar {
        let Whole { all, begun, since } = *self;
        // As if all scenarios took equally long.
        let left = move |state: &ProgressState, out: &mut dyn fmt::Write| {
            let done = (begun - 1) as f64 + f64::from(state.fraction());
            let left = since.elapsed().as_secs_f64() * (all as f64 / done.max(0.1) - 1.0);
            let _ = write!(out, "{left:.0} s left");
        };
        let bar = ProgressBar::new(runs as u64).with_message(format!("{begun} of {all}, {what}"));
        match ProgressStyle::with_template("{msg}, {all_left}") {
            Ok(style) => bar.with_style(style.with_key("all_left", left)),
            Err(_) => bar,
        }
    }
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
