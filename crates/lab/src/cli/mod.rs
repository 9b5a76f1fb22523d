//! The command line.

mod run;

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use coreline_world::native::note_interrupts;

use crate::error::Error;
use crate::output::{Output, Stdout};
use crate::run as runs;
use crate::text::Form;
use crate::{
    bench, compare, doctor, explain, import, ledger, machines, measure, overview, port, preload,
    replay, report, scale, shell, stat, sweep, table, validate, world,
};

/// Experiments with many-core techniques, on this machine and on simulated ones.
///
/// Without a verb, `coreline` describes this machine, and compares the simulated gains of five
/// changes to Linux with the published ones. It also times common operations here, with and without
/// the library.
#[derive(Parser)]
#[command(
    name = "coreline",
    version,
    after_help = "Exit codes: 0 done (a published figure that is not reached is still 0), 1 a \
                  check or claim failed, or the result could not be written, 2 an error in the \
                  arguments, 3 this machine lacks something that the command needs, 130 \
                  interrupted (by Ctrl-C; finished results are shown).\n\nOnly terminals get \
                  colours. NO_COLOR=1 or CLICOLOR=0 in the environment turns colours off; \
                  CLICOLOR_FORCE=1 turns them on in pipes, too."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    output: Output,
}

#[derive(Subcommand)]
enum Verb {
    /// Show which fast paths this machine offers, and how to turn on those that are off
    Doctor(Doctor),
    /// Run a scenario, and compare it with the published figures
    #[command(subcommand)]
    Run(Box<run::Run>),
    /// Explain a kernel change and how to use it, a scenario, or the verdicts
    Explain {
        /// The name of a change, a scenario, or `verdicts`; without it, the command lists all names
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Show what changed between results of a scenario; the exit code is 1 if a figure is worse
    Compare(Compare),
    /// List the simulated machines, or show the tree and every cost of one
    Machines(Machines),
    /// Measure what operations cost on this machine, and write a machine file
    Measure(Box<measure::Choice>),
    /// Compare the simulator's predictions with measurements of this machine, and core-to-core
    /// latencies of machine files with the simulated ping-pongs that they calibrate
    Validate(Box<Validate>),
    /// Write a page that compares every published figure with the simulator's
    Ledger(Ledger),
    /// Write results as one page that needs no network, or write one of its charts as a picture
    Report(Box<report::Choice>),
    /// Repeat the run of a replay line exactly; the line is also the key of a cell of a sweep
    #[command(visible_alias = "cell")]
    Replay(Replay),
    /// Run the cells of a grid of simulated runs, and keep their rows in a folder of Parquet files
    Sweep(Sweep),
    /// List the cells of a grid of simulated runs, with estimates of their time and memory
    Cells(Cells),
    /// Copy a package for the simulated machine, and replace its std::sync, std::thread and atomic
    /// imports with those of coreline-sim
    Port(Box<port::Choice>),
    /// Run a package's tests, and compare the throughput that they measure on simulated machines
    /// with a baseline; `cargo coreline scale` does the same
    Scale(Box<scale::Choice>),
    /// Run an unmodified program with read locks that scale: a preloaded library replaces the
    /// readers-writer locks of the C library
    Preload(Box<preload::Choice>),
    /// Show what processes count that use the library: waits for locks, calls of workers, caches
    Stat(Box<stat::Choice>),
    /// Time the simulator on this host
    Bench(Bench),
    /// Print completions for a shell; source them in its start-up file
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of this program, or of a verb: `coreline man run | man -l -`
    Man {
        /// The verb
        verb: Vec<String>,
    },
    /// Install the manual pages of all verbs, and the completions for bash, zsh and fish
    Install {
        /// Install into `share` below this folder; the default is `.local` in the home folder
        #[arg(long, value_name = "DIR")]
        prefix: Option<PathBuf>,
    },
}

#[derive(Args)]
struct Doctor {
    /// Show instead which fast paths the process PID could use, and whether its threads are
    /// registered for rseq; this stops each of them for a moment
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Compare {
    #[command(flatten)]
    choice: compare::Choice,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_value_name = "VERB")]
struct Machines {
    #[command(subcommand)]
    verb: Option<MachinesVerb>,
    /// A machine's name, or the path of a machine file
    #[arg(
        value_name = "NAME|FILE",
        value_parser = world::machine_names(),
        hide_possible_values = true
    )]
    machine: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Subcommand)]
enum MachinesVerb {
    /// Make a machine file from a matrix of core-to-core latencies
    Import(Box<import::Choice>),
}

#[derive(Args)]
struct Validate {
    #[command(flatten)]
    choice: validate::Choice,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Ledger {
    #[command(flatten)]
    effort: ledger::Effort,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Replay {
    /// The machine file, if the line is for your own machine
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    world: Option<String>,
    /// Record the run in this file, as JSON for the viewer Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The replay line that a failure printed; it needs no quotes
    #[arg(required = true, value_name = "LINE")]
    line: Vec<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Sweep {
    #[command(flatten)]
    choice: sweep::show::Choice,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Cells {
    #[command(flatten)]
    choice: sweep::show::ListChoice,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Bench {
    /// What to time
    subject: bench::Subject,
    /// Take seconds instead of a minute; the figures are less exact
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

impl Cli {
    pub(crate) fn execute(self) -> Result<(), Error> {
        match self.verb {
            Some(Verb::Doctor(Doctor { pid: Some(pid), output })) => {
                output.show(|| doctor::Process::new(pid), |it, out| it.show(output.form(), out))
            }
            Some(Verb::Doctor(Doctor { pid: None, output })) => {
                output.show(|| Ok(doctor::Report::new()), |it, out| it.show(output.form(), out))
            }
            Some(Verb::Run(run)) => {
                let run::Run { choice, output } = *run;
                note_interrupts();
                let make = || {
                    let outcome = runs::run(&choice)?;
                    let is_whole = outcome.left_out.is_none() || !output.is_kept();
                    is_whole.then_some(outcome).ok_or(Error::NotWhole)
                };
                let mut left_out = None;
                output.show(&["scenario", "world", "seed", "quick"], make, |outcome, out| {
                    left_out = outcome.left_out;
                    table::show(outcome, output.output.form(), out)
                })?;
                left_out.map_or(Ok(()), |_| Err(Error::Interrupted))
            }
            Some(Verb::Explain { name }) => {
                explain::explain(name.as_deref(), Form::of_output(), &mut Stdout)
            }
            Some(Verb::Compare(Compare { choice, output })) => {
                let mut end = Ok(());
                let make = || {
                    let outcome = compare::compare(&choice)?;
                    end = outcome.end();
                    Ok(outcome)
                };
                output.show(make, |outcome, out| outcome.show(output.form(), out))?;
                end
            }
            Some(Verb::Machines(Machines { verb: Some(MachinesVerb::Import(choice)), .. })) => {
                import::import(&choice, Form::of_output(), &mut Stdout)
            }
            Some(Verb::Machines(Machines { machine: None, output, .. })) => {
                output.show(machines::List::new, |list, out| list.show(output.form(), out))
            }
            Some(Verb::Machines(Machines { machine: Some(machine), output, .. })) => output
                .show(|| machines::Detail::new(&machine), |it, out| it.show(output.form(), out)),
            Some(Verb::Measure(choice)) => measure::measure(&choice, &mut Stdout),
            Some(Verb::Ledger(Ledger { effort, output })) => {
                output.show(|| ledger::ledger(&effort), ledger::Ledger::show)
            }
            Some(Verb::Validate(validate)) => {
                let Validate { choice, output } = *validate;
                match (&choice.predict, &choice.blind) {
                    (Some(engine), _) => output.show(
                        || validate::Predictions::now(engine),
                        |predictions, out| Ok(write!(out, "{}", predictions.text())?),
                    ),
                    (None, Some(engine)) => output.show(
                        || validate::Blind::now(engine, choice.set, &choice.rows),
                        |blind, out| Ok(write!(out, "{}", blind.text())?),
                    ),
                    _ => output.show(
                        || validate::validate(&choice),
                        |it, out| it.show(output.form(), out),
                    ),
                }
            }
            Some(Verb::Replay(Replay { world, trace, line, output })) => {
                let make = || replay::replay(&line.join(" "), world.as_deref(), trace.as_deref());
                output.show(make, |replayed, out| replayed.show(out))
            }
            Some(Verb::Sweep(Sweep { choice, output })) => {
                let mut end = Ok(());
                let make = || {
                    let swept = sweep::show::Swept::new(&choice)?;
                    end = swept.end();
                    Ok(swept)
                };
                output.show(make, |swept, out| swept.show(out))?;
                end
            }
            Some(Verb::Cells(Cells { choice, output })) => {
                output.show(|| sweep::show::Cells::new(&choice), |cells, out| cells.show(out))
            }
            Some(Verb::Report(choice)) => report::report(&choice),
            Some(Verb::Port(choice)) => port::port(&choice),
            Some(Verb::Scale(choice)) => scale::scale(&choice),
            Some(Verb::Preload(choice)) => Err(preload::preload(&choice).into()),
            Some(Verb::Stat(choice)) => stat::stat(&choice, &mut Stdout),
            Some(Verb::Bench(Bench { subject, quick, output })) => {
                output.show(|| bench::run(subject, quick), |it, out| it.show(output.form(), out))
            }
            Some(Verb::Completions { shell }) => {
                shell::completions(Cli::command(), shell, &mut Stdout)
            }
            Some(Verb::Man { verb }) => shell::man(Cli::command(), &verb, &mut Stdout),
            Some(Verb::Install { prefix }) => shell::install(&Cli::command(), prefix, &mut Stdout),
            None => overview::show(&self.output, &mut Stdout),
        }
    }
}
