//! Why a package cannot be ported.

use std::io;
use std::path::PathBuf;

/// Why a package could not be ported at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    #[error(
        "{} has no Cargo.toml: give the folder of a package, such as `cargo vendor` makes",
        .0.display()
    )]
    NoManifest(PathBuf),
    #[error("{} cannot be used: {why}", path.display())]
    Manifest { path: PathBuf, why: ManifestError },
    #[error("{}:{line}: this is not Rust: {reason}", path.display())]
    Parse { path: PathBuf, line: usize, reason: String },
    #[error("{}:{line}: more than {most} brackets in each other", path.display())]
    TooDeep { path: PathBuf, line: usize, most: usize },
    #[error(
        "--out: {} lies in {}, which is copied; choose a folder outside of it",
        out.display(), package.display()
    )]
    Inside { out: PathBuf, package: PathBuf },
    #[error("{} is there already: remove it, or choose another folder with --out", .0.display())]
    Exists(PathBuf),
    #[error("{} twice: the copies' folders have the packages' names", .0)]
    Twice(String),
    #[error("--sim: {} has no Cargo.toml; give coreline-sim's folder, or a version", .0.display())]
    NoSimulator(PathBuf),
    #[error("cannot read {}: {why}", path.display())]
    Read { path: PathBuf, why: io::Error },
    #[error("cannot write {}: {why}", path.display())]
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
        "its {0} is its workspace's, which a copy does not have; `cargo vendor` and \
         `cargo package` write it out"
    )]
    Inherited(String),
    #[error(
        "its name is {0:?}; a package's name, and its copy's folder's, has letters and digits of \
         ASCII, `-` and `_`"
    )]
    Name(String),
    #[error("its dependencies are no table of their own; write them as `[dependencies]`")]
    Inline,
}
