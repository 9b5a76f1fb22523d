//! `cargo xtask tidy`: the rules of the house that neither rustc nor clippy knows.
//!
//! A rule is a pure function: over one file, over all files, over what cargo knows of the packages,
//! or over the commits that have not landed. Each has tests with a planted violation.

mod algorithms;
mod commits;
mod crates;
mod cycles;
mod lexer;
mod licences;
mod links;
mod orderings;
mod scenarios;
mod seam;
mod text;

use std::io;

use commits::Commit;
use lexer::Lexed;
use serde_json::Value;

use crate::error::Error;
use crate::workspace;

/// A file of the repository.
pub(crate) struct File {
    /// Relative to the root, with slashes.
    path: String,
    text: String,
    /// For `.rs` files.
    rust: Option<Lexed>,
}

impl File {
    fn new(path: &str, text: &str) -> Self {
        let rust = path.ends_with(".rs").then(|| Lexed::new(text));
        File { path: path.to_owned(), text: text.to_owned(), rust }
    }
}

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    file: String,
    /// From 1.
    line: usize,
    message: String,
}

impl Finding {
    fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { file: file.to_owned(), line, message: message.into() }
    }
}

/// A rule of the house.
struct Rule {
    name: &'static str,
    /// What it demands, for `--list`.
    demand: &'static str,
    check: Check,
}

/// How a rule is checked.
enum Check {
    /// On each file by itself.
    File(fn(&File) -> Vec<Finding>),
    /// On all files together.
    Files(fn(&[File]) -> Vec<Finding>),
    /// On the output of `cargo metadata`, and ARCHITECTURE.md.
    Crates(fn(&Value, &str) -> Result<Vec<Finding>, Error>),
    /// On the output of `cargo metadata` with all packages that this machine's programs are
    /// built from.
    Dependencies(fn(&Value) -> Result<Vec<Finding>, Error>),
    /// On the commits that have not landed.
    Commits(fn(&[Commit]) -> Vec<Finding>),
}

const RULES: &[Rule] = &[
    Rule {
        name: "edges",
        demand: "crates depend downward only: topology < world < {sim, coreline} < scenarios < \
                 {lab, rivals} < python; examples on what is published",
        check: Check::Crates(crates::edges),
    },
    Rule {
        name: "listed",
        demand: "ARCHITECTURE.md names every crate",
        check: Check::Crates(crates::listed),
    },
    Rule {
        name: "licences",
        demand: "all that we build with may be used under a licence of the list in \
                 tidy/licences.rs",
        check: Check::Dependencies(licences::check),
    },
    Rule {
        name: "copies",
        demand: "each published package has the root's texts of the licences",
        check: Check::Files(licences::copies),
    },
    Rule {
        name: "cycles",
        demand: "modules of one folder depend on each other in one direction only",
        check: Check::Files(cycles::check),
    },
    Rule {
        name: "seam",
        demand: "only world/src/native and world/src/arch name an OS or a processor, or hold asm",
        check: Check::File(seam::check),
    },
    Rule {
        name: "algorithms",
        demand: "algorithms (coreline/src, world/src but for its worlds, and what is generic over \
                 a `World`) use no atomic, lock, clock or thread of std; the world gives them",
        check: Check::File(algorithms::check),
    },
    Rule {
        name: "orderings",
        demand: "in algorithms, world/src/native and world/src/arch every ordering has a comment \
                 of its own, in its statement or above it",
        check: Check::File(orderings::check),
    },
    Rule {
        name: "scenarios",
        demand: "what runs, asks and shows scenarios (scenarios/src/run.rs; lab/src/run, cli, \
                 overview, table) names none of them, nor their parameters and variants",
        check: Check::Files(scenarios::check),
    },
    Rule {
        name: "length",
        demand: "no file that people write has more than 600 lines",
        check: Check::File(text::length),
    },
    Rule {
        name: "width",
        demand: "no line of Rust has more than 100 columns",
        check: Check::File(text::width),
    },
    Rule {
        name: "paths",
        demand: "no absolute path of one machine",
        check: Check::File(text::paths),
    },
    Rule {
        name: "sources",
        demand: "no source that only this project's makers can find",
        check: Check::File(text::sources),
    },
    Rule {
        name: "finished",
        demand: "no marks of unfinished work, and no test that is switched off",
        check: Check::File(text::finished),
    },
    Rule {
        name: "tables",
        demand: "blocks of documents that `cargo xtask tables` fills can be read, and end",
        check: Check::File(text::tables),
    },
    Rule {
        name: "links",
        demand: "documents link to files and headings that are there, those of packages to none \
                 outside, and to other sites by https; the paths that documents and comments name \
                 are there",
        check: Check::Files(links::check),
    },
    Rule {
        name: "commits",
        demand: "the first line of a commit that has not landed has at most 72 characters, is in \
                 the imperative, and has no full stop",
        check: Check::Commits(commits::check),
    },
];

/// Prints the rules.
pub(crate) fn list() {
    for rule in RULES {
        println!("{:<12}{}", rule.name, rule.demand);
    }
}

/// Prints the links of documents to other sites, each with where it is: to be tried by a person or
/// a program that has a network.
pub(crate) fn list_links() -> Result<(), Error> {
    let files = files()?;
    let links = links::external(&files);
    for (target, documents) in &links {
        println!("{target}  {}", documents.iter().copied().collect::<Vec<_>>().join(", "));
    }
    println!("{} links to other sites", links.len());
    Ok(())
}

/// Checks the repository and prints `file:line: rule: message` for each finding.
pub(crate) fn run() -> Result<(), Error> {
    let files = files()?;
    let metadata = workspace::metadata()?;
    let dependencies = workspace::metadata_of_all()?;
    let architecture = workspace::read("ARCHITECTURE.md")?;
    let pending = commits::pending();
    let mut findings = Vec::new();
    for rule in RULES {
        let found = match rule.check {
            Check::File(check) => files.iter().flat_map(check).collect(),
            Check::Files(check) => check(&files),
            Check::Crates(check) => check(&metadata, &architecture)?,
            Check::Dependencies(check) => check(&dependencies)?,
            Check::Commits(check) => match &pending {
                Some(commits) => check(commits),
                None => {
                    println!("tidy: {} is not checked: no main branch is known here", rule.name);
                    Vec::new()
                }
            },
        };
        findings.extend(found.into_iter().map(|finding| (finding, rule.name)));
    }
    findings.sort();
    for (Finding { file, line, message }, rule) in &findings {
        println!("{file}:{line}: {rule}: {message}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files keep {} rules", files.len(), RULES.len());
            Ok(())
        }
        count => Err(Error::Untidy(count)),
    }
}

/// The files of the repository; those that are not text without what is in them.
fn files() -> Result<Vec<File>, Error> {
    let mut files = Vec::new();
    for path in workspace::files()? {
        match workspace::read(&path) {
            Ok(text) => files.push(File::new(&path, &text)),
            // Not text: a picture, which documents may link to.
            Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::InvalidData => {
                files.push(File::new(&path, ""));
            }
            // Deleted, and git does not know it yet.
            Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

/// The lines on which `check` finds something in a file with this path and text.
#[cfg(test)]
fn lines_found(check: fn(&File) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
    check(&File::new(path, text)).into_iter().map(|finding| finding.line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_names_of_their_own() {
        let mut names: Vec<_> = RULES.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len());
    }
}
