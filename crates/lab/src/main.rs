//! The program `coreline`. All that it does is in the library.

use std::process::ExitCode;

/// The simulated programs' memory comes from their machine.
#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

/// Runs before std, which hides it where standard output cannot be written.
#[used]
// SAFETY: the section holds pointers to functions that the C library calls before `main`; this one
// needs nothing of std.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = coreline_world::native::note_output;

fn main() -> ExitCode {
    coreline_lab::program()
}
