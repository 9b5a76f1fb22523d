//! The verbs `completions`, `man` and `install`: what shells, and `man`, are told of the command
//! line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::error::Error;

const PROGRAM: &str = "coreline";

/// Where manual pages lie below a prefix.
const PAGES: &str = "share/man/man1";

/// Where each shell looks below a prefix, and the file that it looks for there.
const COMPLETIONS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions", "coreline"),
    (Shell::Zsh, "share/zsh/site-functions", "_coreline"),
    (Shell::Fish, "share/fish/vendor_completions.d", "coreline.fish"),
];

/// Writes the completions of a program for a shell.
pub(crate) fn completions(
    program: Command,
    shell: Shell,
    out: &mut dyn Write,
) -> Result<(), Error> {
    Ok(out.write_all(&completions_of(program, shell))?)
}

fn completions_of(mut program: Command, shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut program, PROGRAM, &mut text);
    text
}

/// A program whose verbs have the names of their pages, `coreline-run`. The verb `help` has none:
/// it would be a page for each verb again.
fn with_pages(program: Command) -> Command {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    program
}

/// Writes the manual page of a verb, or of the program.
pub(crate) fn man(program: Command, verb: &[String], out: &mut dyn Write) -> Result<(), Error> {
    let program = with_pages(program);
    let mut page = &program;
    for asked in verb {
        let verbs = || page.get_subcommands().map(Command::get_name);
        page = page.find_subcommand(asked).ok_or_else(|| Error::Verb {
            asked: asked.clone(),
            has: verbs().map(str::to_owned).collect(),
        })?;
    }
    Ok(Man::new(page.clone()).render(&mut &mut *out)?)
}

/// Writes the manual pages of the program and of each verb, and the completions, to where they are
/// looked for below a prefix; if nothing is said, the folder of one user.
pub(crate) fn install(
    program: &Command,
    prefix: Option<PathBuf>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let prefix = match prefix {
        Some(prefix) => prefix,
        None => home().ok_or(Error::NoHome)?.join(".local"),
    };
    let folder = prefix.join(PAGES);
    let mut pages = Vec::new();
    collect(&with_pages(program.clone()), &mut pages);
    for page in &pages {
        let mut text = Vec::new();
        page.render(&mut text)?;
        write(&folder, &page.get_filename(), &text)?;
    }
    writeln!(out, "man   {}: {} pages", folder.display(), pages.len())?;
    for (shell, folder, file) in COMPLETIONS {
        let text = completions_of(program.clone(), shell);
        let path = write(&prefix.join(folder), file, &text)?;
        writeln!(out, "{:<5} {}", shell.to_string(), path.display())?;
    }
    let (_, functions, _) = COMPLETIONS[1];
    let functions = prefix.join(functions);
    writeln!(
        out,
        "A shell that starts from now on reads them; zsh if its `fpath` has {}.",
        functions.display()
    )?;
    Ok(())
}

/// The pages of a command and of all that are below it.
fn collect(command: &Command, pages: &mut Vec<Man>) {
    pages.push(Man::new(command.clone()));
    command.get_subcommands().for_each(|below| collect(below, pages));
}

/// Writes a file, and the folders above it that are not there.
fn write(folder: &Path, file: &str, text: &[u8]) -> Result<PathBuf, Error> {
    let path = folder.join(file);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
    written.map_err(|source| Error::Install { path: path.clone(), source })?;
    Ok(path)
}

fn home() -> Option<PathBuf> {
    env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}
