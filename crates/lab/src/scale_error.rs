//! Why curves could not be compared with their baseline, or must not pass.

use std::io;
use std::path::PathBuf;

/// Each says what was expected, what was found and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScaleError {
    #[error("cannot run {command}: {source}; install Cargo, or set CARGO to its path")]
    Cargo { command: String, source: io::Error },
    #[error(
        "there is no Cargo package here: {said}; change into its folder, or give --baseline and \
         --from"
    )]
    NoPackage { said: String },
    #[error("cannot make a folder for the curves: {0}; set TMPDIR to a folder that is writable")]
    Folder(io::Error),
    #[error("cannot read {}: {source}; {remedy}", path.display())]
    Read { path: PathBuf, source: io::Error, remedy: &'static str },
    #[error(
        "{} is not a record of a curve: {why}; the package's coreline-sim and this program must \
         have the same version, {}",
        path.display(),
        env!("CARGO_PKG_VERSION")
    )]
    Record { path: PathBuf, why: String },
    #[error(
        "{} is not a baseline: {why}; restore the file, or delete it and bless again",
        path.display()
    )]
    Baseline { path: PathBuf, why: String },
    #[error("cannot write to {}: {source}; choose another file with --baseline", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "no test measured a curve; call coreline_sim::measure::scaling in a test, and run this test"
    )]
    NoCurves,
    #[error(
        "two curves of the package {package} are named {name:?} on {machine}, and the baseline \
         needs one name for each; change the name in one of the calls of scaling"
    )]
    Twice { package: String, name: String, machine: String },
    #[error("the reason is empty; say why the curves are as they should be: --bless \"REASON\"")]
    NoReason,
    #[error(
        "the baseline was made with coreline-sim {was}, and the curves with {is}; bless all curves \
         at once, without --partial"
    )]
    Mixed { was: String, is: String },
    #[error("the tests failed ({status}), so curves may be missing; nothing was blessed")]
    Unblessed { status: String },
    /// Which ones is in the result.
    #[error("{count} {} the gate", if *count == 1 { "curve fails" } else { "curves fail" })]
    Fails { count: usize },
    #[error("the tests failed ({status}); their output is above")]
    Tests { status: String },
}

impl ScaleError {
    /// See the program's help.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            ScaleError::Fails { .. }
            | ScaleError::Tests { .. }
            | ScaleError::Unblessed { .. }
            | ScaleError::NoCurves
            | ScaleError::Write { .. } => 1,
            ScaleError::Folder(_) | ScaleError::Cargo { .. } => 3,
            ScaleError::NoPackage { .. }
            | ScaleError::Read { .. }
            | ScaleError::Record { .. }
            | ScaleError::Baseline { .. }
            | ScaleError::Twice { .. }
            | ScaleError::Mixed { .. }
            | ScaleError::NoReason => 2,
        }
    }
}
