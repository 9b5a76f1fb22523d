//! The errors that stop the program, and their exit codes.

use std::io;
use std::process::ExitCode;

use coreline_world::SpawnError;

use crate::text::tell;

/// Why the program stopped. Each says what was asked, what was found and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "{threads} threads did {expected} operations on {name:?}, which counted {found}, so its \
         times mean nothing; correct the candidate first"
    )]
    WrongSum { name: String, threads: usize, expected: u64, found: u64 },
    #[error("the CPUs that this process may use are not known, so no thread can be pinned: {0}")]
    NoCpus(String),
    #[error("no form of the class has all the given words; the forms are {0}; give fewer words")]
    Nothing(String),
    #[error(
        "--minutes {asked} is too little: figures that are worth quoting take at least {needed} \
         minutes here; give --minutes {needed}, or measure less with --form or --threads"
    )]
    TooLittleTime { asked: u16, needed: u64 },
    #[error(
        "cannot start the threads that compute beside the measured ones: {0}; measure without \
         --beside"
    )]
    Load(#[source] io::Error),
    #[error("cannot start the measuring threads: {0}")]
    Threads(#[from] SpawnError),
    #[error("cannot write the result: {0}; redirect standard output to a file that can be written")]
    Output(#[from] io::Error),
}

impl Error {
    /// Says why the program stops, and gives its exit code: see the program's help.
    pub(crate) fn report(&self) -> ExitCode {
        // The reader of the output has closed it: not a failure of ours.
        if let Error::Output(error) = self
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return ExitCode::SUCCESS;
        }
        // Standard error is the last resort: where it cannot be written, only the exit code is
        // left.
        tell(self);
        ExitCode::from(self.exit_code())
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Error::WrongSum { .. } => 1,
            Error::Nothing(_) | Error::TooLittleTime { .. } | Error::Output(_) => 2,
            Error::NoCpus(_) | Error::Threads(_) | Error::Load(_) => 3,
        }
    }
}
