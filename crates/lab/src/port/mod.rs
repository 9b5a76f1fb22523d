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
use std::path::{Component, Path, PathBuf};

use clap::Args;

use self::manifest::{Manifest, Simulator};
use self::report::{File, Package, PortReport};
use self::source::{Left, Of};
use self::tokens::{DEEPEST, Tokens, Unread};
use crate::error::Error;
use crate::output::Output;
use crate::unportable::PortError;

/// The command line of the verb.
#[derive(Args)]
pub(crate) struct Choice {
    /// Folders of packages, such as those that `cargo vendor` makes; name packages that depend on
    /// each other together
    #[arg(required = true, value_name = "DIR")]
    packages: Vec<PathBuf>,
    /// Write each copy into this folder, under its package's name
    #[arg(long, value_name = "DIR", required_unless_present = "check")]
    out: Option<PathBuf>,
    /// Write nothing, and only say what would change
    #[arg(long, conflicts_with = "out")]
    check: bool,
    /// The `coreline-sim` that the copies use: its folder, or a version
    #[arg(long, value_name = "DIR|VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    sim: String,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The content of a package's folder, read and ported.
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

fn run(choice: &Choice) -> Result<PortReport, PortError> {
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
    if let Some(out) = out {
        manifests.iter().try_for_each(|(folder, ..)| outside(out, folder))?;
    }
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
    Ok(PortReport::new(copies.into_iter().map(|copy| copy.package).collect(), out))
}

/// Whether copies in this folder lie outside of a package: what is copied must not grow.
fn outside(out: &Path, package: &Path) -> Result<(), PortError> {
    let known = |path: &Path| {
        fs::canonicalize(path).map_err(|why| PortError::Read { path: path.to_owned(), why })
    };
    let whole =
        std::path::absolute(out).map_err(|why| PortError::Write { path: out.to_owned(), why })?;
    // What is not there yet has no links in it.
    let there = whole.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let mut real = known(there)?;
    for part in whole.strip_prefix(there).unwrap_or(Path::new("")).components() {
        match part {
            Component::ParentDir => _ = real.pop(),
            part => real.push(part),
        }
    }
    match real.starts_with(known(package)?) {
        true => Err(PortError::Inside { out: out.to_owned(), package: package.to_owned() }),
        false => Ok(()),
    }
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
    let mut found = Found::default();
    list(folder, Path::new(""), &mut found)?;
    for path in found.others {
        let what = "neither a file nor a folder, so the copy does not have it";
        package.notes.push(format!("{}: {what}", path.display()));
    }
    let mut read = Vec::new();
    for path in found.files {
        let whole = folder.join(&path);
        let bytes = fs::read(&whole).map_err(|why| PortError::Read { path: whole, why })?;
        read.push((path, bytes));
    }
    let is_source =
        |path: &Path| path.extension().is_some_and(|it| it == "rs") && path != manifest.build;
    let (mut types, mut keeps_arc) = (Vec::new(), false);
    for (path, bytes) in read.iter().filter(|it| is_source(&it.0)) {
        let Ok(text) = std::str::from_utf8(bytes) else { continue };
        let tokens = Tokens::new(text).map_err(|why| parse_error(folder, path, &why))?;
        types.extend(statics::types(&tokens));
        keeps_arc |= statics::takes_arc(&tokens);
    }
    let of = Of { shared: statics::shared(&types), keeps_arc, ported };
    let mut files = vec![(PathBuf::from("Cargo.toml"), new_manifest.into_bytes())];
    for (path, bytes) in read {
        if !is_source(&path) {
            files.push((path, bytes));
            continue;
        }
        let text = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            Err(why) => {
                let before = bytes[..why.valid_up_to()].iter();
                let left = Left {
                    line: 1 + before.filter(|byte| **byte == b'\n').count(),
                    what: "the whole file".to_owned(),
                    why: "it is not UTF-8".to_owned(),
                };
                let (name, left) = (path.to_string_lossy().into_owned(), vec![left]);
                package.files.push(File { path: name, changes: Vec::new(), left });
                files.push((path, bytes));
                continue;
            }
        };
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

fn parse_error(folder: &Path, path: &Path, why: &Unread) -> PortError {
    let path = folder.join(path);
    match why {
        Unread::Lex(why) => {
            PortError::Parse { path, line: why.span().start().line, reason: why.to_string() }
        }
        Unread::TooDeep(line) => PortError::TooDeep { path, line: *line, most: DEEPEST },
    }
}

/// Whether a copy leaves this path out: tests and benchmarks, and the files by which cargo knows
/// whether a package was changed.
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

/// The content of a folder, by paths in it.
#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    /// Neither files nor folders: a link may lead anywhere, and a pipe never ends.
    others: Vec<PathBuf>,
}

/// Adds what a folder holds, in order, except for its own manifest, which was read.
fn list(folder: &Path, inner: &Path, found: &mut Found) -> Result<(), PortError> {
    let whole = folder.join(inner);
    let failed = |why| PortError::Read { path: whole.clone(), why };
    let entries: io::Result<Vec<_>> = fs::read_dir(&whole).map_err(failed)?.collect();
    let mut entries = entries.map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = inner.join(entry.file_name());
        if is_left_out(&path) || path == Path::new("Cargo.toml") {
            continue;
        }
        match entry.file_type().map_err(failed)? {
            it if it.is_dir() => list(folder, &path, found)?,
            it if it.is_file() => found.files.push(path),
            _ => found.others.push(path),
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
