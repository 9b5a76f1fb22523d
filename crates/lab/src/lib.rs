//! The library of the program `coreline`. It shows the features of this machine, and runs
//! experiments natively or simulated, next to the published figures. [`program`] is the whole
//! program.
//!
//! Apart from tests and the scenarios ([`coreline_scenarios`]), this is the only crate that uses
//! both worlds, `Native` and `Sim`. In this table, data flows from top to bottom:
//!
//! | module | holds |
//! |---|---|
//! | `run` | runs a scenario in a world, and compares the result with published figures |
//! | `table` | shows such a result in a terminal of any width |
//! | `overview` | the program's first page |
//! | `validate` | compares the simulator's predictions with measurements |
//! | `explain` | a page about a kernel change, a scenario or the verdicts |
//! | `report` | results as a page, its charts as JSON or pictures; [`chart`] |
//! | `ledger` | every published figure with our figure |
//! | `measure` | the costs of this machine, as a machine file |
//! | `port`, `unportable` | copies of packages for the simulated machine; reasons against it |
//! | `scale`, `scale_error` | a baseline of the curves that tests measure; its errors |
//! | `preload` | runs a program with locks of ours in place of the C library's |
//! | `stat`, `stat_error` | counts that other processes publish; its errors |
//! | `disturbance` | the detection of disturbed native samples |
//! | [`catalogue`] | the machines and scenarios, as JSON |
//! | [`sweep`], `sweep_error` | grids of simulated runs, and the store of their rows; its errors |
//! | `listing` | tables that fit the terminal |
//! | `export` | rows as CSV and Parquet |
//! | `text` | lines, colours and characters for each output device |
//! | `progress` | the progress of a command |
//! | `doctor`, `machines`, `replay`, `bench`, `shell` | the other commands |

mod bench;
pub mod catalogue;
mod cli;
mod compare;
mod disturbance;
mod doctor;
mod error;
mod explain;
mod export;
#[cfg(test)]
#[path = "../tests/cli/fields.rs"]
mod fields;
mod host;
mod import;
mod import_error;
mod ledger;
mod listing;
mod machines;
mod measure;
mod nearest;
mod output;
mod overview;
mod port;
mod preload;
mod progress;
mod provenance;
mod replay;
mod report;
mod run;
mod scale;
mod scale_error;
mod shell;
mod stat;
mod stat_error;
pub mod sweep;
mod sweep_error;
mod table;
mod text;
mod tree;
mod unportable;
mod validate;
mod world;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use console::Term;

use crate::output::Stdout;
pub use crate::report::chart;

/// Tests simulate, too, and their memory comes from the machine.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

/// Runs the program `coreline` with the process's arguments. It prints the result, or an error on
/// standard error. Returns the exit code, which `coreline --help` explains.
///
/// The process's global allocator must be [`coreline_sim::Allocator`], because the memory of
/// simulated programs comes from their machine.
pub fn program() -> ExitCode {
    program_with(env::args_os()).into()
}

/// Runs the program `coreline` with these arguments, of which the first one is the program's name.
/// Apart from that, it is [`program`].
pub fn program_with(args: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match cli::Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return told(&error),
    };
    // What is still buffered is written here, where a failure can be told.
    match cli.execute().and_then(|()| Ok(Stdout.flush()?)) {
        Ok(()) => 0,
        Err(error) => error.report(),
    }
}

/// Prints what clap has to say: help and the version on standard output, errors on the other.
fn told(said: &clap::Error) -> u8 {
    let to = if said.use_stderr() { Term::stderr() } else { Term::stdout() };
    let text = match text::has_colours(&to) {
        true => said.render().ansi().to_string(),
        false => said.render().to_string(),
    };
    if said.use_stderr() {
        // The last resort: where it cannot be written, only the exit code is left.
        let _ = io::stderr().write_all(text.as_bytes());
        return 2;
    }
    match Stdout.write_all(text.as_bytes()).and_then(|()| Stdout.flush()) {
        Ok(()) => 0,
        Err(error) => error::Error::Output(error).report(),
    }
}
