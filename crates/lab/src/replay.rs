//! The verb `replay`: runs the program of a replay line again.

use std::io::Write;

use coreline_sim::{Replay, Spec, SpecError};

use crate::bench;
use crate::error::Error;
use crate::run::trial;
use crate::scenario::intermittent;
use crate::validate::experiment::Experiment;
use crate::validate::simulated;
use crate::world;

/// A program that a line can name.
enum Program {
    Intermittent(intermittent::Program),
    Experiment(&'static Experiment),
}

/// Runs the program of a line, on the line's machine or on that of a machine file, and says what it
/// came to.
pub(crate) fn replay(line: &str, file: Option<&str>, out: &mut dyn Write) -> Result<(), Error> {
    let replay: Replay = line.parse()?;
    let program = program(&replay)?;
    let spec = machine(&replay, file)?;
    writeln!(out, "{}", replay.program)?;
    match program {
        Program::Intermittent(program) => {
            let ns = trial::run(&spec, &replay, &program)?;
            writeln!(out, "it ended well: {ns:.2} ns per burst")?;
        }
        Program::Experiment(experiment) => {
            let ns = simulated::run(&spec, &replay, experiment)?;
            writeln!(out, "it ended well: {ns:.2} ns ({})", experiment.what)?;
        }
    }
    Ok(())
}

/// The line's program; or what to do with the line instead.
fn program(replay: &Replay) -> Result<Program, Error> {
    let program = replay.program.as_str();
    if let Some(experiment) = Experiment::of_program(program) {
        return Ok(Program::Experiment(experiment));
    }
    if let Ok(program) = program.parse() {
        return Ok(Program::Intermittent(program));
    }
    let machine = &replay.machine;
    let remedy = match program.split([' ', ':']).next() {
        Some("intermittent") => format!("a run of the scenario is {}", intermittent::Program::FORM),
        Some("validate") => format!("a prediction is {}", Experiment::form()),
        Some(bench::PROGRAM) => "`coreline bench sim` runs it again".to_owned(),
        Some("calibration") => format!(
            "it is the ping-pong that finds what a transfer costs; `coreline machines {machine}`, \
             or its file, plays it again"
        ),
        Some("laws") => {
            let law = program.trim_start_matches("laws::");
            format!(
                "it is a law of coreline's tests: set CORELINE_REPLAY to the line and run \
                 `cargo test -p coreline --test laws {law}`"
            )
        }
        _ => "it is one of your own: in the code that ran it, run it again on \
              `Machine::replay(&line.parse()?)?`, with the kernel that the line names, if any; \
              docs/simulating.md shows how"
            .to_owned(),
    };
    Err(Error::Program { program: program.to_owned(), remedy })
}

/// The line's machine, with its costs moved as the line says.
fn machine(replay: &Replay, file: Option<&str>) -> Result<Spec, Error> {
    let mut spec = match file {
        None => Spec::preset(&replay.machine).map_err(|error| match error {
            SpecError::NoPreset { name } => Error::ReplayMachine { line: name },
            other => Error::MachineFile(other),
        })?,
        Some(file) => world::machine(file)?,
    };
    if spec.name() != replay.machine {
        return Err(Error::OtherMachine {
            line: replay.machine.clone(),
            file: file.unwrap_or_default().to_owned(),
            found: spec.name().to_owned(),
        });
    }
    for (cost, percent) in &replay.scaled {
        // The machine does so again, from the file's value; a mistake is the user's, not a failure.
        spec.scale(cost, *percent).map_err(Error::MachineFile)?;
    }
    Ok(spec)
}
