//! Why a package cannot be ported.

use std::io;
use std::path::PathBuf;

/// Why a package could not be ported at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    #[error(
        "{} has no Cargo.toml; give the folder of a package, such as `cargo vendor` makes",
        .0.display()
    )]
    NoManifest(PathBuf),
    #[error("{} cannot be used: {why}", path.display())]
    Manifest { path: PathBuf, why: ManifestError },
    #[error(
        "{}:{line}: this is not Rust: {reason}; leave the package out, or correct the file",
        path.display()
    )]
    Parse { path: PathBuf, line: usize, reason: String },
    #[error(
        "{}:{line}: more than {most} nested brackets; leave the package out, or split the code",
        path.display()
    )]
    TooDeep { path: PathBuf, line: usize, most: usize },
    #[error(
        "--out: {} lies in {}, which would be copied; choose a folder outside of it",
        out.display(), package.display()
    )]
    Inside { out: PathBuf, package: PathBuf },
    #[error("{} already exists; remove it, or choose another folder with --out", .0.display())]
    Exists(PathBuf),
    #[error(
        "{} is named twice, and both copies would have the same folder; name each package once",
        .0
    )]
    Twice(String),
    #[error("--sim: {} has no Cargo.toml; give coreline-sim's folder, or a version", .0.display())]
    NoSimulator(PathBuf),
    #[error("cannot read {}: {why}; make the package readable", path.display())]
    Read { path: PathBuf, why: io::Error },
    #[error("cannot write {}: {why}; choose another folder with --out", path.display())]
    Write { path: PathBuf, why: io::Error },
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("{0}")]
    Parse(#[from] Box<toml::de::Error>),
    #[error("it has no `package.{0}`; give the folder of one package")]
    NoPackage(&'static str),
    #[error(
        "its {0} is inherited from its workspace, which the copy does not have; port the output \
         of `cargo vendor` or `cargo package`, where the value is written out"
    )]
    Inherited(String),
    #[error(
        "its name is {0:?}, and the folder of the copy gets this name; use only ASCII letters, \
         digits, `-` and `_`"
    )]
    Name(String),
    #[error("its dependencies are not in a table of their own; write them as `[dependencies]`")]
    Inline,
}
