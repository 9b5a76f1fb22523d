//! The verbs `completions` and `man`: what shells, and `man`, are told of the command line.

use std::io::Write;

use clap::Command;
use clap_complete::Shell;

use crate::error::Error;

/// Writes the completions of a program for a shell.
pub(crate) fn completions(
    mut program: Command,
    shell: Shell,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut program, "coreline", &mut text);
    Ok(out.write_all(&text)?)
}

/// Writes the manual page of a verb, or of the program.
pub(crate) fn man(
    mut program: Command,
    verb: Option<&str>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    // Gives verbs the names of their pages: `coreline-run`.
    program.build();
    let page = match verb {
        None => program,
        Some(asked) => {
            let verbs = || program.get_subcommands().map(Command::get_name);
            program.find_subcommand(asked).cloned().ok_or_else(|| Error::Verb {
                asked: asked.to_owned(),
                has: verbs().map(str::to_owned).collect(),
            })?
        }
    };
    Ok(clap_mangen::Man::new(page).render(&mut &mut *out)?)
}
