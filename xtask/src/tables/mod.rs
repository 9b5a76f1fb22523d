//! `cargo xtask tables`: the tables of figures in the documents, each from the command that its
//! block names.
//!
//! | module | holds |
//! |---|---|
//! | [`page`] | where a page has its blocks |
//! | [`spec`] | what a block says, and its grammar |
//! | [`names`] | whether it speaks of what there is |
//! | [`pivot`] | the table, from the rows of a result |

mod names;
mod page;
mod pivot;
mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde_json::Value;

use crate::error::Error;
use crate::workspace;
use names::Names;
use page::Page;
use pivot::Rows;
use spec::Run;

pub(crate) use page::faults;

/// Which pages, and how far.
#[derive(Args)]
pub(crate) struct Choice {
    /// Pages such as docs/switchstorm.md; all that have tables if nothing is said
    pages: Vec<PathBuf>,
    /// Run nothing: check that each block can be read and names what there is
    #[arg(long)]
    check: bool,
}

/// Where pages with tables are.
const FOLDER: &str = "docs/";

pub(crate) fn run(choice: &Choice) -> Result<(), Error> {
    let pages = pages(&choice.pages)?;
    let names = Names::read()?;
    for page in &pages {
        for block in page.blocks() {
            names.check(&block.spec).map_err(|what| page.fault(block.line, what))?;
        }
    }
    let commands = commands(&pages);
    let tables: usize = pages.iter().map(|page| page.blocks().len()).sum();
    let found = format!("{tables} tables of {} commands", commands.len());
    if choice.check {
        println!("tables: {found} can be made");
        return Ok(());
    }
    eprintln!("tables: {found}");
    let program = build()?;
    let mut results = BTreeMap::new();
    for page in &pages {
        // Page by page: where a command fails or is interrupted, the pages before are written.
        for block in page.blocks() {
            for Run { command, .. } in block.spec.runs() {
                if results.contains_key(&command) {
                    continue;
                }
                let at = results.len() + 1;
                eprintln!("tables: {at} of {}: {}", commands.len(), command.join(" "));
                let begin = Instant::now();
                let made = result(&program, &command)?;
                results.insert(command, made);
                eprintln!("tables: {} s", begin.elapsed().as_secs());
            }
        }
        let text = page.filled(|spec| {
            let runs = spec.runs();
            let parts: Vec<_> =
                runs.iter().map(|run| (&results[&run.command], &*run.given)).collect();
            pivot::table(spec, &Rows::joined(&parts))
        })?;
        workspace::write(page.path(), &text)?;
        println!("tables: {} is written", page.path().display());
    }
    Ok(())
}

/// The pages that are asked for; all that have tables if none is.
fn pages(asked: &[PathBuf]) -> Result<Vec<Page>, Error> {
    let read = |path: &Path| Page::new(path, &workspace::read(path)?);
    if !asked.is_empty() {
        let pages = asked.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
        return match pages.iter().find(|page| page.blocks().is_empty()) {
            Some(page) => Err(Error::NoTable { page: page.path().to_owned() }),
            None => Ok(pages),
        };
    }
    let files = workspace::files()?.into_iter().map(PathBuf::from);
    let documents = files
        .filter(|path| path.starts_with(FOLDER) && path.extension().is_some_and(|it| it == "md"));
    let pages = documents.map(|path| read(&path)).collect::<Result<Vec<_>, _>>()?;
    Ok(pages.into_iter().filter(|page| !page.blocks().is_empty()).collect())
}

/// The commands of all blocks, each once.
fn commands(pages: &[Page]) -> BTreeSet<Vec<String>> {
    let runs = pages.iter().flat_map(Page::blocks).flat_map(|block| block.spec.runs());
    runs.map(|run| run.command).collect()
}

/// The program, built to run fast.
fn build() -> Result<PathBuf, Error> {
    workspace::run(&mut workspace::cargo(&["build", "--release", "--package", "coreline-lab"]))?;
    Ok(workspace::target_folder()?.join("release").join("coreline"))
}

/// What the program says to a command.
fn result(program: &Path, command: &[String]) -> Result<Rows, Error> {
    let mut run = workspace::command(program, &[]);
    run.args(&command[1..]).arg("--json");
    let json = workspace::output(&mut run)?;
    let result: Value = serde_json::from_slice(&json)
        .map_err(|_| Error::NotAResult { command: command.join(" ") })?;
    Rows::new(&result).ok_or_else(|| Error::NotAResult { command: command.join(" ") })
}
