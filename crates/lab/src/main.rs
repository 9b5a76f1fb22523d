//! The program `coreline`: what this machine offers, and experiments in either world beside the
//! figures that were published for them.
//!
//! This is where the worlds meet: tests apart, the only crate that knows both `Native` and `Sim`.
//! Data flows one way:
//!
//! | module | holds |
//! |---|---|
//! | [`scenario`] | programs, generic over their world, and what they are run with, as plain data |
//! | [`config`] | which CPUs of a machine take part |
//! | [`crew`] | the threads of a scenario or a sample, and how they wait for each other |
//! | [`kernel`] | what the simulated kernel does at a thread switch |
//! | [`run`] | runs a scenario in a world and sets the result beside what was published |
//! | [`table`] | shows such a result in a terminal of any width |
//! | [`overview`] | what the program says if nothing was asked |
//! | [`validate`] | sets the simulator's predictions beside measurements |
//! | [`ledger`] | every published figure beside ours |
//! | [`measure`] | what things cost on this machine, as a machine file |
//! | [`port`], [`unportable`] | copies of packages that run in the simulated machine; why not |
//! | [`disturbance`] | which native samples do not count |
//! | [`text`] | lines, colours and characters that fit where text goes |
//! | [`progress`] | how far a verb is |
//! | [`doctor`], [`machines`], [`replay`], [`bench`], [`shell`] | the other verbs |

mod bench;
mod cli;
mod config;
mod crew;
mod disturbance;
mod doctor;
mod error;
#[cfg(test)]
#[path = "../tests/cli/fields.rs"]
mod fields;
mod host;
mod kernel;
mod ledger;
mod machines;
mod measure;
mod nearest;
mod output;
mod overview;
mod port;
mod progress;
mod replay;
mod run;
mod scenario;
mod shell;
mod table;
mod text;
mod tree;
mod unportable;
mod validate;
mod world;

use std::process::ExitCode;

use clap::Parser;

/// The simulated programs' memory comes from their machine.
#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

fn main() -> ExitCode {
    match cli::Cli::parse().execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
