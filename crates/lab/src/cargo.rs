//! `cargo coreline VERB`: runs the program `coreline`, which is installed in the same folder.
//!
//! A program of its own would have all code of `coreline` once more.

use std::env;
use std::io::{self, Write as _};
use std::process::{Command, ExitCode};

use coreline_world::native::exec;

/// The exit code of `coreline` if the machine lacks something.
const LACK: u8 = 3;

fn main() -> ExitCode {
    // Cargo gives the name of the subcommand first.
    let arguments = env::args_os().skip(1);
    let arguments: Vec<_> = arguments
        .enumerate()
        .filter(|(at, argument)| *at > 0 || argument != "coreline")
        .map(|(_, argument)| argument)
        .collect();
    let own = env::current_exe().ok();
    let beside = own.map(|own| own.with_file_name("coreline")).filter(|program| program.exists());
    let program = beside.unwrap_or_else(|| "coreline".into());
    let error = exec(Command::new(&program).args(arguments));
    // The last resort: where it cannot be written, only the exit code is left.
    let _ = writeln!(
        io::stderr(),
        "cargo-coreline: cannot run {}: {error}; install the package coreline-lab, which has both \
         programs",
        program.display()
    );
    ExitCode::from(LACK)
}
