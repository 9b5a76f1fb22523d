//! Runs a scenario in a world and sets the result beside what was published. This module knows no
//! scenario. Everything that it says about a scenario is the scenario's data.
//!
//! | module | does |
//! |---|---|
//! | [`choice`] | what runs |
//! | [`simulated`], [`native`] | all runs in a world: one [`Measured`] for each point |
//! | [`measured`] | numbers, and the figures that are made of them |
//! | [`published`] | the figures of others |
//! | [`verdict`] | what may be said of a figure beside a published one |
//! | [`result`] | rows, as they are printed and serialised |

mod choice;
mod measured;
mod native;
mod published;
pub(crate) mod result;
mod simulated;
pub(crate) mod verdict;

use crate::error::Error;
use crate::world::World;

use result::RunResult;

pub(crate) use choice::Choice;
pub(crate) use measured::own_figures;
pub(crate) use native::median;
#[cfg(test)]
pub(crate) use published::Published;
pub(crate) use published::params as published_params;

/// Runs the choice. After an interrupt, returns the finished part.
pub(crate) fn run(choice: &Choice) -> Result<RunResult, Error> {
    let (finished, all) = match &choice.world {
        World::Native => native::measure(choice)?,
        World::Simulated { spec, .. } => simulated::measure(spec, choice)?,
    };
    Ok(RunResult::new(choice, &finished, all))
}
