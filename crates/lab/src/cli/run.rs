//! The verb `run`: a subcommand for each scenario, as its data declare it.

use clap::builder::{
    PossibleValue, PossibleValuesParser, RangedI64ValueParser, TypedValueParser, ValueParser,
};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use coreline_scenarios::param::{Domain, Param, Value, Words};
use coreline_scenarios::{ALL, Scenario};
use coreline_sim::{Arbitration, Overlap};

use crate::output::RowsOutput;
use crate::run::Choice;
use crate::world::{self, World};

/// The options of every scenario.
#[derive(Args)]
struct Common {
    /// `native`, the name of a simulated machine, or the path of a machine file
    #[arg(
        long,
        default_value = "native",
        value_parser = world::worlds(),
        value_name = "WORLD",
        hide_possible_values = true
    )]
    world: World,
    /// The random seed; a simulated run with the same seed gives the same result
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = seed
    )]
    seed: u64,
    /// Run the whole band (16 seeds, each uncertain cost moved by 30 %, both arbitrations) instead
    /// of only the request shares
    #[arg(long)]
    band: bool,
    /// Which request a simulated contended line serves next; the default is `fifo`, or both with
    /// --band
    #[arg(long, value_name = "NAME", value_parser = arbitrations())]
    arbitration: Option<Arbitration>,
    /// Whether independent accesses of a simulated thread overlap; the default is `serial`
    #[arg(long, value_name = "NAME", value_parser = overlaps())]
    overlap: Option<Overlap>,
    /// Make fewer runs with fewer values; native runs use at most 32 CPUs
    #[arg(long)]
    quick: bool,
    /// Run only this configuration; may be given more than once
    #[arg(long = "config", value_name = "NAME")]
    configs: Vec<String>,
}

fn arbitrations() -> ValueParser {
    let all = [
        (Arbitration::Fifo, "the request that arrived first"),
        (Arbitration::Nearest, "the request nearest to the core that last had the line"),
    ];
    let parser = names(all.map(|(it, about)| (it.to_string(), about)).into_iter());
    ValueParser::new(parser.try_map(|name| name.parse::<Arbitration>()))
}

fn overlaps() -> ValueParser {
    let all = [
        (Overlap::Serial, "no, each access waits for the previous one"),
        (
            Overlap::Independent,
            "yes, unless an address is near a value that an earlier access loads",
        ),
    ];
    let parser = names(all.map(|(it, about)| (it.to_string(), about)).into_iter());
    ValueParser::new(parser.try_map(|name| name.parse::<Overlap>()))
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

pub(super) struct Run {
    pub(super) choice: Choice,
    pub(super) output: RowsOutput,
}

impl Subcommand for Run {
    fn augment_subcommands(run: Command) -> Command {
        let names = ALL.map(|scenario| scenario.name).join("|");
        let run = run.override_usage(format!("coreline run <{names}> [OPTIONS]"));
        run.subcommands(ALL.map(command))
    }

    fn augment_subcommands_for_update(run: Command) -> Command {
        Self::augment_subcommands(run)
    }

    fn has_subcommand(name: &str) -> bool {
        Scenario::named(name).is_some()
    }
}

impl FromArgMatches for Run {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Run, clap::Error> {
        let missing = || clap::Error::new(ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let scenario = Scenario::named(name).ok_or_else(missing)?;
        let all = |param: &Param| {
            let values = matches.get_many(param.name)?;
            Some((param.name, values.cloned().collect()))
        };
        let variants = matches.get_many("variant").unwrap_or_default().cloned().collect();
        let Common { world, seed, band, arbitration, overlap, quick, configs } =
            Common::from_arg_matches(matches)?;
        let values = scenario.options().filter_map(all).collect();
        let choice = Choice {
            scenario,
            world,
            seed,
            band,
            arbitration,
            overlap,
            quick,
            configs,
            variants,
            values,
            whole: None,
        };
        Ok(Run { choice, output: RowsOutput::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn command(scenario: &'static Scenario) -> Command {
    let option = |name: &'static str| Arg::new(name).long(name).action(ArgAction::Append);
    let variant = option("variant")
        .value_name("VARIANT")
        .help("Run only this variant; may be given more than once")
        .value_parser(names(scenario.variants.iter().map(|it| (it.name, it.about))));
    let of_param = |param: &'static Param| {
        let form = match param.domain {
            Domain::Names(_) => param.name.to_uppercase(),
            _ => param.form(),
        };
        let option = option(param.name).value_name(form).help(param.help());
        option.allow_negative_numbers(true).value_parser(parser(param))
    };
    let configs = if scenario.all_configs { "all" } else { "the one with all CPUs" };
    let command = Command::new(scenario.name);
    let command = RowsOutput::augment_args(Common::augment_args(command.arg(variant)));
    let command = command.mut_arg("configs", |arg| {
        arg.help(format!(
            "Run only this configuration; the default is {configs}; may be given more than once"
        ))
    });
    // The last: options that are added say what they are of.
    let command = command.about(scenario.about).long_about(None);
    command.next_help_heading(scenario.name).args(scenario.options().map(of_param))
}

fn names(
    all: impl Iterator<Item = (impl Into<clap::builder::Str>, &'static str)>,
) -> PossibleValuesParser {
    all.map(|(name, about)| PossibleValue::new(name).help(about)).collect::<Vec<_>>().into()
}

/// A word, or the one that a file's TOML stands for.
fn word(words: &Words, param: &Param, text: &str) -> Result<Value, String> {
    if !text.ends_with(".toml") {
        let form = || format!("expected {}", words.about);
        return param.parse(text).ok_or_else(form);
    }
    let file = std::fs::read_to_string(text).map_err(|error| error.to_string())?;
    (words.of_toml)(&file).map(Value::Name)
}

/// Numbers are read with a sign, so that what is said of -1 is that it is out of range.
fn parser(param: &'static Param) -> ValueParser {
    let number = |from: u64, to: u64| {
        let parser = RangedI64ValueParser::<u64>::new().range(from as i64..=to as i64);
        ValueParser::new(parser.map(Value::Number))
    };
    match param.domain {
        Domain::Number(from, to) => number(from, to),
        Domain::Cpus(to) => number(1, to),
        Domain::Names(all) => ValueParser::new(names(all.iter().copied()).map(Value::Name)),
        Domain::Pair(_, _, to) => ValueParser::new(move |text: &str| {
            let form = || {
                format!("expected {}, with both numbers from 1 to {to}, such as 8x8", param.form())
            };
            param.parse(text).ok_or_else(form)
        }),
        Domain::Words(words) => ValueParser::new(move |text: &str| word(words, param, text)),
    }
}
