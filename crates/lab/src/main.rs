//! The program `coreline`. All that it does is in the library.

use std::process::ExitCode;

/// The simulated programs' memory comes from their machine.
#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

fn main() -> ExitCode {
    coreline_lab::program()
}
