//! The verbs `completions`, `man` and `install`: what shells, and `man`, are told of the command
//! line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io, process};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::error::Error;

const PROGRAM: &str = "coreline";

/// The place of manual pages below a prefix.
const PAGES: &str = "share/man/man1";

/// The place where each shell looks below a prefix, and the file that it looks for there.
const COMPLETIONS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions", "coreline"),
    (Shell::Zsh, "share/zsh/site-functions", "_coreline"),
    (Shell::Fish, "share/fish/vendor_completions.d", "coreline.fish"),
];

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
/// looked for below a prefix; if nothing is said, the folders of one user. If a file of another
/// program has one of the names, nothing is written.
pub(crate) fn install(
    program: &Command,
    prefix: Option<PathBuf>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let data = if prefix.is_none() { data_home() } else { None };
    let prefix = match prefix {
        Some(prefix) => prefix,
        None => home().ok_or(Error::NoHome)?.join(".local"),
    };
    let folder = prefix.join(PAGES);
    let mut pages = Vec::new();
    collect(&with_pages(program.clone()), &mut pages);
    let mut files = Vec::new();
    for page in &pages {
        let mut text = Vec::new();
        page.render(&mut text)?;
        files.push((folder.join(page.get_filename()), text));
    }
    let mut completions = Vec::new();
    for (shell, folder, file) in COMPLETIONS {
        // Bash and fish look into the folder that the user's environment names; zsh knows none.
        let of_user = data.as_ref().zip(folder.strip_prefix("share/"));
        let folder = match of_user.filter(|_| shell != Shell::Zsh) {
            Some((data, inner)) => data.join(inner),
            None => prefix.join(folder),
        };
        completions.push((shell, folder.join(file)));
        files.push((folder.join(file), completions_of(program.clone(), shell)));
    }
    files.iter().try_for_each(|(path, _)| is_ours(path))?;
    files.iter().try_for_each(|(path, text)| write(path, text))?;
    writeln!(out, "man   {}: {} pages", folder.display(), pages.len())?;
    for (shell, path) in completions {
        writeln!(out, "{:<5} {}", shell.to_string(), path.display())?;
    }
    let (_, functions, _) = COMPLETIONS[1];
    writeln!(
        out,
        "A new zsh finds its completions if `fpath` has {}. A new bash or fish finds them if {} is \
         a data folder: XDG_DATA_HOME (default ~/.local/share), or one of XDG_DATA_DIRS. man \
         finds the pages if `manpath` has {}.",
        prefix.join(functions).display(),
        data.unwrap_or_else(|| prefix.join("share")).display(),
        prefix.join("share/man").display(),
    )?;
    Ok(())
}

/// The pages of a command and of all that are below it.
fn collect(command: &Command, pages: &mut Vec<Man>) {
    pages.push(Man::new(command.clone()));
    command.get_subcommands().for_each(|below| collect(below, pages));
}

/// Refuses a path that a file of another program has. A link is not such a file. It is replaced,
/// and its target is not changed.
fn is_ours(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Install { path: path.to_owned(), source };
    let is_file = match fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => return Ok(()),
        Ok(there) => there.is_file(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let names = |text: &[u8]| text.windows(PROGRAM.len()).any(|it| it == PROGRAM.as_bytes());
    match is_file && names(&fs::read(path).map_err(failed)?) {
        true => Ok(()),
        false => Err(Error::Foreign(path.to_owned())),
    }
}

/// Writes a file, and the folders above it that are not there. It appears whole, by its last name:
/// what is opened is a new file beside it, never what a link leads to.
fn write(path: &Path, text: &[u8]) -> Result<(), Error> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", process::id()));
    let written = (|| {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let mut file = fs::File::create_new(&beside)?;
        let done = file.write_all(text).and_then(|()| fs::rename(&beside, path));
        done.inspect_err(|_| _ = fs::remove_file(&beside))
    })();
    written.map_err(|source| Error::Install { path: path.to_owned(), source })
}

fn home() -> Option<PathBuf> {
    env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// The place where the user keeps the data of programs, if it is set. A path that is not absolute
/// counts as not set.
fn data_home() -> Option<PathBuf> {
    env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute())
}
