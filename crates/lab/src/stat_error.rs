//! The errors of the verb `stat`.

use std::io;
use std::path::PathBuf;

use coreline::stat::page::PageError;

/// Why the values of a process cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatError {
    #[error(
        "no process publishes under the name {asked:?}{hint}; `coreline stat` lists those that \
         publish, and a program does so by coreline::stat::publish"
    )]
    NoName { asked: String, hint: String },
    #[error("{count} processes publish under the name {asked:?}: {pids}; give the number of one")]
    Several { asked: String, count: usize, pids: String },
    #[error("there is no process {pid}; `coreline stat` lists those that publish")]
    NoProcess { pid: u32 },
    #[error(
        "the process {pid} publishes nothing; a program does so by coreline::stat::publish, and \
         `coreline stat` lists those that do"
    )]
    Silent { pid: u32 },
    #[error("cannot read {path:?}: {source}; run this as the user of the process, or as root")]
    Hidden { path: PathBuf, source: io::Error },
    #[error("the process {pid}: {source}")]
    Page { pid: u32, source: PageError },
    #[error("the process {pid} has ended; `coreline stat` lists those that publish")]
    Ended { pid: u32 },
    #[error("cannot run {program:?}: {source}")]
    Run { program: String, source: io::Error },
    #[error(
        "{program:?} has ended and published nothing; a program does so by \
         coreline::stat::publish, and a child of the program does not count"
    )]
    NotPublished { program: String },
    /// The values were shown.
    #[error("{program:?} failed: {status}")]
    Failed { program: String, status: String },
}

impl StatError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            StatError::Failed { .. } => 1,
            StatError::NoName { .. } | StatError::Several { .. } => 2,
            _ => 3,
        }
    }
}
