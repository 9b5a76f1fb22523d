//! The verb `replay`: runs the program of a replay line again.

use std::io::Write;

use clap::ValueEnum;
use coreline_sim::{Replay, Spec, SpecError};

use crate::bench;
use crate::error::Error;
use crate::run::plan::{Intermittent, Plan, Shootdown, Switchstorm, Tenants, Threadstorm};
use crate::scenario::{Program as _, Scenario};
use crate::validate::experiment::Experiment;
use crate::validate::simulated;
use crate::world;

/// A program that a line can name, ready to run on the line's machine; returns its result.
type Run = Box<dyn FnOnce(&Spec, &Replay) -> Result<String, Error>>;

/// Runs the program of a line, on the line's machine or on that of a machine file, and says what it
/// came to.
pub(crate) fn replay(line: &str, file: Option<&str>, out: &mut dyn Write) -> Result<(), Error> {
    let replay: Replay = line.parse()?;
    let run = program(&replay)?;
    let spec = machine(&replay, file)?;
    writeln!(out, "{}", replay.program)?;
    let told = run(&spec, &replay)?;
    writeln!(out, "it ended well: {told}")?;
    Ok(())
}

/// The run of a scenario's program, if it is one.
fn of<P: Plan>(program: &str) -> Option<Run> {
    let program = P::Program::parse(program)?;
    Some(Box::new(move |spec, replay| Ok(P::told(&P::simulate(spec, replay, &program)?))))
}

fn form<P: Plan>() -> String {
    format!("a run of the scenario is {}", P::Program::FORM)
}

/// The line's program; or what to do with the line instead.
fn program(replay: &Replay) -> Result<Run, Error> {
    let program = replay.program.as_str();
    if let Some(experiment) = Experiment::of_program(program) {
        return Ok(Box::new(move |spec, replay| {
            let ns = simulated::run(spec, replay, experiment)?;
            Ok(format!("{ns:.2} ns ({})", experiment.what))
        }));
    }
    let scenarios =
        [of::<Intermittent>, of::<Switchstorm>, of::<Shootdown>, of::<Threadstorm>, of::<Tenants>];
    if let Some(run) = scenarios.iter().find_map(|of| of(program)) {
        return Ok(run);
    }
    let machine = &replay.machine;
    let first = program.split([' ', ':']).next();
    let scenario = first.and_then(|first| <Scenario as ValueEnum>::from_str(first, false).ok());
    let remedy = match first {
        _ if scenario == Some(Scenario::Intermittent) => form::<Intermittent>(),
        _ if scenario == Some(Scenario::Switchstorm) => form::<Switchstorm>(),
        _ if scenario == Some(Scenario::Shootdown) => form::<Shootdown>(),
        _ if scenario == Some(Scenario::Threadstorm) => form::<Threadstorm>(),
        _ if scenario == Some(Scenario::Tenants) => form::<Tenants>(),
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
