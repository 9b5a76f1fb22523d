//! The reasons why a sweep could not begin or go on.

use std::io;
use std::path::PathBuf;

use crate::nearest::hint;

/// The reason why a sweep could not begin or go on. Finished rows are in the store in any case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The specification cannot be read, or is not valid.
    #[error("{of}: {why}")]
    Spec {
        /// The specification's file, or `the specification`.
        of: String,
        /// The mistake, and the remedy.
        why: String,
    },
    /// A key is not the replay line of a scenario's run, or belongs to a machine that is not known.
    #[error("{key:?} is not the key of a cell: {why}")]
    Key {
        /// The key.
        key: String,
        /// The reason.
        why: String,
    },
    /// The machine of a cell could not start on this host.
    #[error(
        "this host cannot run {key}: {why}; the cell has no row, and the same command runs it again"
    )]
    Host {
        /// The key.
        key: String,
        /// The reason.
        why: String,
    },
    /// A call of the operating system failed.
    #[error(
        "cannot {what} {}: {source}; remove the cause and run the same command again: the rows \
         that were written before are in the store",
        path.display()
    )]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another sweep uses the store.
    #[error(
        "another sweep is using {}; wait until it ends, or choose another folder with --store",
        .0.display()
    )]
    InUse(PathBuf),
    /// A worker that should write into the store does not see its folder.
    #[error(
        "the worker on {host} does not see the store {}: {why}; let the hosts share the folder, or \
         let the driver write the rows",
        dir.display()
    )]
    NotShared {
        /// The store's folder.
        dir: PathBuf,
        /// The worker's host.
        host: String,
        /// The worker's reason.
        why: String,
    },
    /// The folder has a file that no sweep wrote, or that is damaged.
    #[error(
        "{} is not a file of a sweep: {why}; move it away, or choose another folder with --store",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The mistake in it.
        why: String,
    },
    /// The store has rows of another version of the engine.
    #[error(
        "{} has rows of the engine {found}, and this program's engine is {ours}, which may give \
         different results; choose another folder with --store, or continue with the program that \
         wrote them",
        dir.display()
    )]
    Engine {
        /// The store's folder.
        dir: PathBuf,
        /// The engine that wrote the rows.
        found: String,
        /// This program's engine.
        ours: &'static str,
    },
    /// A task came to a worker that has another version of the engine.
    #[error(
        "the task is for the engine {asked}, and this worker has {ours}; install the same version \
         of coreline everywhere"
    )]
    Worker {
        /// The engine of the task.
        asked: String,
        /// The worker's engine.
        ours: String,
    },
    /// A worker returned something other than a file of rows.
    #[error("a worker returned no rows: {why}; install the same version of coreline everywhere")]
    Returned {
        /// The reason.
        why: String,
    },
    /// Rows cannot be shown as a chart.
    #[error("{why}")]
    Chart {
        /// The mistake, and the remedy.
        why: String,
    },
    /// The store has rows of another scenario, whose columns differ.
    #[error(
        "{} has rows of the scenario {found}, and rows of {asked} have other columns; choose \
         another folder with --store",
        dir.display()
    )]
    Scenario {
        /// The store's folder.
        dir: PathBuf,
        /// The scenario of the rows.
        found: String,
        /// The scenario of the sweep.
        asked: &'static str,
    },
}

impl SweepError {
    pub(crate) fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| SweepError::Io { what, path, source }
    }
}

/// `there is no NAME; there are ...`, with the most similar one.
pub(crate) fn unknown<'a>(
    what: &str,
    asked: &str,
    has: impl IntoIterator<Item = &'a str>,
) -> String {
    let has: Vec<&str> = has.into_iter().collect();
    format!("there is no {what} {asked:?}; choose one of {}{}", has.join(", "), hint(asked, has))
}
