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
pub(crate) fn man(mut program: Command, verb: &[String], out: &mut dyn Write) -> Result<(), Error> {
    // Gives verbs the names of their pages: `coreline-run`.
    program.build();
    let mut page = &program;
    for asked in verb {
        let verbs = || page.get_subcommands().map(Command::get_name);
        page = page.find_subcommand(asked).ok_or_else(|| Error::Verb {
            asked: asked.clone(),
            has: verbs().map(str::to_owned).collect(),
        })?;
    }
    Ok(clap_mangen::Man::new(page.clone()).render(&mut &mut *out)?)
}
