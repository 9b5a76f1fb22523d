//! The verb `replay`: runs the program of a replay line again.

use std::io::Write;

use coreline_sim::{Replay, Spec, SpecError};

use crate::error::Error;
use crate::run::trial;
use crate::world;

/// Runs the program of a line, on the line's machine or on that of a machine file, and says what it
/// came to.
pub(crate) fn replay(line: &str, file: Option<&str>, out: &mut dyn Write) -> Result<(), Error> {
    let replay: Replay = line.parse()?;
    let spec = match file {
        None => Spec::preset(&replay.machine).map_err(|error| match error {
            SpecError::NoPreset { name } => Error::ReplayMachine { line: name },
            other => Error::MachineFile(other),
        })?,
        Some(file) => {
            let spec = world::machine(file)?;
            if spec.name() != replay.machine {
                return Err(Error::OtherMachine {
                    line: replay.machine,
                    file: file.to_owned(),
                    found: spec.name().to_owned(),
                });
            }
            spec
        }
    };
    let value = trial::run(&spec, &replay)?;
    writeln!(out, "{}\nit ended well: {value:.2} ns per burst", replay.program)?;
    Ok(())
}
