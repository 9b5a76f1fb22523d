//! The verb `port`: a copy of a package that runs in the simulated machine.
//!
//! The copy's paths into `std::sync`, `std::thread` and their like lead into `coreline_sim`; its
//! statics are the machine's; everything else of it stays byte for byte. The work is done on
//! tokens, so that macros' bodies are ported as well.
//!
//! | module | holds |
//! |---|---|
//! | [`mirrors`] | what is mirrored, and which packages go around it |
//! | [`tokens`] | a file's tokens, with their places |
//! | [`uses`] | what a `use` imports, split where only a part is mirrored |
//! | [`statics`] | statics, and which types threads share |
//! | [`source`] | one file |
//! | [`manifest`] | `Cargo.toml` |
//! | [`report`] | what it says |

mod manifest;
mod mirrors;
mod report;
mod source;
mod statics;
mod tokens;
mod uses;

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use self::manifest::{Manifest, Simulator};
use self::report::{File, Outcome, Package};
use self::source::Of;
use self::tokens::Tokens;
use crate::error::Error;
use crate::output::Output;
use crate::unportable::PortError;

/// Of the verb's command line.
#[derive(Args)]
pub(crate) struct Choice {
    /// Folders of packages, such as `cargo vendor` makes; packages that need each other go together
    #[arg(required = true, value_name = "DIR")]
    packages: Vec<PathBuf>,
    /// Write each copy into this folder, under its package's name
    #[arg(long, value_name = "DIR", required_unless_present = "check")]
    out: Option<PathBuf>,
    /// Write nothing, and say what would be done
    #[arg(long, conflicts_with = "out")]
    check: bool,
    /// Where the copies get `coreline-sim`: its folder, or a version
    #[arg(long, value_name = "DIR|VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    sim: String,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What a package's folder holds, read and ported.
struct Copy {
    package: Package,
    /// Each with the path in the package, in order.
    files: Vec<(PathBuf, Vec<u8>)>,
}

/// Ports as asked, and shows what was done.
pub(crate) fn port(choice: &Choice) -> Result<(), Error> {
    let mut left = 0;
    let output = Output::printed(choice.json);
    output.show(
        || Ok(run(choice)?),
        |outcome, out| {
            left = outcome.left;
            report::show(outcome, output.form(), out)
        },
    )?;
    if left == 0 { Ok(()) } else { Err(Error::NotAllPorted { left }) }
}

fn run(choice: &Choice) -> Result<Outcome, PortError> {
    let simulator = simulator(&choice.sim)?;
    let mut manifests = Vec::new();
    for folder in &choice.packages {
        let path = folder.join("Cargo.toml");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(PortError::NoManifest(folder.clone()));
            }
            Err(error) => return Err(PortError::Read { path, why: error }),
        };
        let manifest = Manifest::read(&text).map_err(|why| PortError::Manifest { path, why })?;
        manifests.push((folder, manifest, text));
    }
    let names: Vec<String> = manifests.iter().map(|it| it.1.name.clone()).collect();
    if let Some(twice) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        return Err(PortError::Twice(names[twice].clone()));
    }
    let out = choice.out.as_deref();
    if let Some(there) = names.iter().filter_map(|it| Some(out?.join(it))).find(|it| it.exists()) {
        return Err(PortError::Exists(there));
    }
    let copies: Result<Vec<Copy>, PortError> = manifests
        .iter()
        .map(|(folder, manifest, text)| copy(folder, manifest, text, &names, &simulator))
        .collect();
    let copies = copies?;
    if let Some(out) = out {
        copies.iter().try_for_each(|copy| write(&out.join(&copy.package.name), &copy.files))?;
    }
    Ok(Outcome::new(copies.into_iter().map(|copy| copy.package).collect(), out))
}

fn simulator(asked: &str) -> Result<Simulator, PortError> {
    let is_version =
        asked.starts_with(|first: char| first.is_ascii_digit() || "^=~*".contains(first));
    if is_version {
        return Ok(Simulator::Version(asked.to_owned()));
    }
    let folder =
        fs::canonicalize(asked).map_err(|why| PortError::Read { path: asked.into(), why })?;
    if !folder.join("Cargo.toml").is_file() {
        return Err(PortError::NoSimulator(folder));
    }
    Ok(Simulator::Path(folder.to_string_lossy().into_owned()))
}

/// Reads and ports a package.
fn copy(
    folder: &Path,
    manifest: &Manifest,
    text: &str,
    ported: &[String],
    simulator: &Simulator,
) -> Result<Copy, PortError> {
    let of_manifest = |why| PortError::Manifest { path: folder.join("Cargo.toml"), why };
    let (new_manifest, removed) = manifest::port(manifest, text, simulator).map_err(of_manifest)?;
    let mut package = Package {
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        dependencies: manifest.synchronising(ported),
        removed,
        ..Package::default()
    };
    let mut paths = Vec::new();
    list(folder, Path::new(""), &mut paths)?;
    let mut read = Vec::new();
    for path in paths {
        let whole = folder.join(&path);
        let bytes = fs::read(&whole).map_err(|why| PortError::Read { path: whole, why })?;
        read.push((path, bytes));
    }
    let is_source = |path: &Path| {
        path.extension().is_some_and(|it| it == "rs") && path != Path::new(&manifest.build)
    };
    let (mut types, mut keeps_arc) = (Vec::new(), false);
    for (path, bytes) in read.iter().filter(|it| is_source(&it.0)) {
        let text = text_of(folder, path, bytes)?;
        let tokens = Tokens::new(text).map_err(|why| parse_error(folder, path, &why))?;
        types.extend(statics::types(&tokens));
        keeps_arc |= statics::takes_arc(&tokens);
    }
    let of = Of { shared: statics::shared(&types), keeps_arc, ported };
    let mut files = Vec::new();
    for (path, bytes) in read {
        if path == Path::new("Cargo.toml") {
            files.push((path, new_manifest.clone().into_bytes()));
            continue;
        }
        if !is_source(&path) {
            files.push((path, bytes));
            continue;
        }
        let text = text_of(folder, &path, &bytes)?;
        let done = source::port(text, &of).map_err(|why| parse_error(folder, &path, &why))?;
        files.push((path.clone(), done.text.into_bytes()));
        package.uncharged += done.uncharged;
        package.loom += done.loom;
        if !done.changes.is_empty() || !done.left.is_empty() {
            let path = path.to_string_lossy().into_owned();
            package.files.push(File { path, changes: done.changes, left: done.left });
        }
    }
    package.note(&manifest.edition);
    Ok(Copy { package, files })
}

fn text_of<'a>(folder: &Path, path: &Path, bytes: &'a [u8]) -> Result<&'a str, PortError> {
    std::str::from_utf8(bytes).map_err(|why| PortError::Parse {
        path: folder.join(path),
        line: 1 + bytes[..why.valid_up_to()].iter().filter(|byte| **byte == b'\n').count(),
        reason: "it is not UTF-8".to_owned(),
    })
}

fn parse_error(folder: &Path, path: &Path, why: &proc_macro2::LexError) -> PortError {
    let (line, reason) = (why.span().start().line, why.to_string());
    PortError::Parse { path: folder.join(path), line, reason }
}

/// What a copy does not have: what tests and benchmarks are made of, and what cargo keeps beside a
/// package to know whether it was changed.
fn is_left_out(path: &Path) -> bool {
    const NAMES: &[&str] = &[
        "tests",
        "benches",
        "examples",
        "target",
        "Cargo.lock",
        "Cargo.toml.orig",
        ".cargo-checksum.json",
        ".cargo-ok",
        ".cargo_vcs_info.json",
        ".git",
    ];
    NAMES.iter().any(|name| path == Path::new(name))
}

/// The files of a folder, by their paths in it, in order.
fn list(folder: &Path, inner: &Path, paths: &mut Vec<PathBuf>) -> Result<(), PortError> {
    let whole = folder.join(inner);
    let failed = |why| PortError::Read { path: whole.clone(), why };
    let entries: io::Result<Vec<_>> = fs::read_dir(&whole).map_err(failed)?.collect();
    let mut entries = entries.map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = inner.join(entry.file_name());
        if is_left_out(&path) {
            continue;
        }
        if folder.join(&path).is_dir() {
            list(folder, &path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

fn write(folder: &Path, files: &[(PathBuf, Vec<u8>)]) -> Result<(), PortError> {
    for (path, bytes) in files {
        let path = folder.join(path);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&path, bytes))
            .map_err(|why| PortError::Write { path, why })?;
    }
    Ok(())
}
