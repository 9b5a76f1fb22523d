//! The changed parts, the unchanged parts, and how to use the copies.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::manifest::Dependency;
use super::source::{Change, Left};
use crate::error::Error;
use crate::text::Form;

#[derive(Debug, Serialize)]
pub(super) struct PortReport {
    schema: &'static str,
    /// How many places that threads share stayed as they were.
    pub(super) left: usize,
    packages: Vec<Package>,
    /// The lines of a manifest that put the copies in the packages' places.
    patch: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// Those with a change, or with something that was left.
    pub(super) files: Vec<File>,
    /// Packages that it needs, and in which threads wait for each other.
    pub(super) dependencies: Vec<Dependency>,
    /// Sections that the copy's manifest does not have.
    pub(super) removed: Vec<String>,
    pub(super) notes: Vec<String>,
    #[serde(skip)]
    pub(super) uncharged: usize,
    #[serde(skip)]
    pub(super) loom: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) changes: Vec<Change>,
    pub(super) left: Vec<Left>,
}

impl Package {
    /// Says what to know besides what was changed and what was left.
    pub(super) fn note(&mut self, edition: &str) {
        if edition == "2015" {
            let remedy = "add `extern crate coreline_sim;` to its root, and check paths in modules";
            self.notes.push(format!("in edition 2015, paths do not find dependencies: {remedy}"));
        }
        if self.uncharged > 0 {
            let how = "its content is plain data, which is not charged";
            self.notes.push(format!(
                "{}: {how}",
                counted(self.uncharged, "use of `UnsafeCell`", "uses of `UnsafeCell`")
            ));
        }
        if self.loom > 0 {
            let how = "absent from a build without `cfg(loom)`";
            self.notes.push(format!(
                "{}: {how}",
                counted(self.loom, "path into loom", "paths into loom")
            ));
        }
    }

    fn changed(&self) -> usize {
        self.files.iter().map(|file| file.changes.len()).sum()
    }

    fn left(&self) -> usize {
        self.files.iter().map(|file| file.left.len()).sum()
    }
}

impl PortReport {
    pub(super) fn new(packages: Vec<Package>, out: Option<&Path>) -> PortReport {
        let left = packages.iter().map(Package::left).sum();
        let patch = out.map(|out| {
            let out = std::fs::canonicalize(out).unwrap_or_else(|_| out.to_owned());
            let line = |package: &Package| {
                let path = toml::Value::String(out.join(&package.name).to_string_lossy().into());
                format!("{} = {{ path = {path} }}\n", package.name)
            };
            format!("[patch.crates-io]\n{}", packages.iter().map(line).collect::<String>())
        });
        PortReport { schema: "coreline.port/1", left, packages, patch }
    }
}

/// `1 place`, `2 places`.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

pub(super) fn show(outcome: &PortReport, form: Form, out: &mut dyn Write) -> Result<(), Error> {
    for package in &outcome.packages {
        write!(out, "{}", form.paragraph("", &conclusion(package, outcome.patch.is_some())))?;
    }
    for package in &outcome.packages {
        writeln!(out, "\n{} {}", package.name, package.version)?;
        for dependency in &package.dependencies {
            let Dependency { name, ported, why } = dependency;
            let what = match why {
                _ if *ported => format!("needs {name}, which is ported, too"),
                Some(why) => format!("needs {name}, not ported: it runs, but {why}"),
                None => format!("needs {name}"),
            };
            write!(out, "{}", form.paragraph("  ", &what))?;
        }
        for note in &package.notes {
            write!(out, "{}", form.paragraph("  ", note))?;
        }
        if !package.removed.is_empty() {
            let gone = format!("Cargo.toml without {}", package.removed.join(", "));
            write!(out, "{}", form.paragraph("  ", &gone))?;
        }
        for File { path, changes, left } in &package.files {
            for Left { line, what, why } in left {
                let text = format!("{path}:{line}: left: {what}: {why}");
                write!(out, "{}", form.paragraph("  ", &text))?;
            }
            for Change { line, from, to } in changes {
                write!(out, "{}", form.paragraph("  ", &format!("{path}:{line}: {from} -> {to}")))?;
            }
        }
    }
    if let Some(patch) = &outcome.patch {
        writeln!(out, "\nIn the Cargo.toml of the program that uses them:\n\n{patch}")?;
    }
    Ok(())
}

fn conclusion(package: &Package, is_written: bool) -> String {
    let Package { name, version, .. } = package;
    let unported = package.dependencies.iter().filter(|it| !it.ported).count();
    let changed = package.files.iter().filter(|file| !file.changes.is_empty()).count();
    let done = match (package.left(), is_written) {
        (0, true) => "ported",
        (0, false) => "can be ported",
        (_, true) => "ported in part",
        (_, false) => "can be ported in part",
    };
    let mut text = format!(
        "{name} {version}: {done}: {} in {}",
        counted(package.changed(), "change", "changes"),
        counted(changed, "file", "files"),
    );
    if package.left() > 0 {
        text += &format!(", {} left alone", counted(package.left(), "place", "places"));
    }
    if unported > 0 {
        text += &format!(", {} not ported", counted(unported, "dependency", "dependencies"));
    }
    text
}
