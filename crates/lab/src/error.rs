//! The errors that stop the program, and their exit codes.

use std::io::{self, Write};
use std::path::PathBuf;

use coreline_scenarios::{Error as ScenarioError, RunError};
use coreline_sim::{ParseReplayError, SpecError, presets};
use coreline_world::SpawnError;

use crate::import_error::ImportError;
use crate::nearest::hint;
use crate::preload::PreloadError;
use crate::scale_error::ScaleError;
use crate::stat_error::StatError;
use crate::sweep_error::SweepError;
use crate::unportable::PortError;

/// Why the program stopped. Each says what was asked, what was found and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}; choose one, or give the path of a machine file{}", .0, of_machine(.0))]
    Machine(SpecError),
    #[error(transparent)]
    MachineFile(SpecError),
    /// An error of a run, or of the choice of a run.
    #[error("{}{}", .0, of_scenario(.0))]
    Scenario(#[from] ScenarioError),
    #[error("{param} cannot be {asked}: {config} has {cpus} CPUs; choose {cpus} or fewer")]
    TooMany { asked: u64, param: &'static str, config: String, cpus: usize },
    #[error(
        "--{option} sets a simulated kernel, and this run is on the real one; leave the option \
         out, or choose a simulated machine with --world"
    )]
    KernelNatively { option: &'static str },
    #[error(
        "--{option} says {about}, and this run is on the real machine; leave the option out, or \
         choose a simulated machine with --world"
    )]
    MachineNatively { option: &'static str, about: &'static str },
    #[error(
        "{asked:?} is not the name of a commit, which has 7 to 40 hexadecimal digits; `git \
         rev-parse HEAD` prints the name of a checkout's commit"
    )]
    Commit { asked: String },
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    ReplayLine(#[from] ParseReplayError),
    #[error(
        "{line} printed the line, and this program simulates like {ours}, so the result would \
         differ; replay the line with the coreline that printed it"
    )]
    ReplayEngine { line: String, ours: String },
    #[error("the replay line has {setting}, {why}; give the line exactly as it was printed")]
    ReplaySetting { setting: String, why: &'static str },
    #[error("this program cannot replay {program:?}; {remedy}")]
    Program { program: String, remedy: String },
    #[error(
        "the line is for the machine {line:?}, which is not a preset; give its file with --world{}",
        hint(line, presets())
    )]
    ReplayMachine { line: String },
    #[error(
        "the line is for the machine {line:?}, but {file} describes {found:?}; give the file of \
         {line:?} with --world"
    )]
    OtherMachine { line: String, file: String, found: String },
    #[error(
        "the line is for a file of the machine {line:?} with the digest {asked:016x}, but {of} has \
         {found}; give the unchanged file that the line was printed with (--world FILE)"
    )]
    OtherFile { line: String, asked: u64, of: String, found: String },
    #[error("cannot write to {}: {source}; choose another file with --trace", path.display())]
    TraceFile { path: PathBuf, source: io::Error },
    #[error("{program:?} is a prediction, which has no trace; replay a run of a scenario")]
    NoTrace { program: String },
    #[error("cannot write to {}: {source}; choose another file with --out", path.display())]
    OutFile { path: PathBuf, source: io::Error },
    #[error(
        "cannot write the result to {}: {source}; choose another file with --out",
        path.display()
    )]
    OutWrite { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}; choose another folder with --prefix", path.display())]
    Install { path: PathBuf, source: io::Error },
    #[error(
        "{} already exists, and coreline did not create it, so nothing was written; move it away, \
         or choose another folder with --prefix",
        .0.display()
    )]
    Foreign(PathBuf),
    #[error("HOME is not set, so there is no folder to install to; give one with --prefix")]
    NoHome,
    #[error("there is no verb {asked:?}; the verbs are {}{}", has.join(", "), hint(asked, has))]
    Verb { asked: String, has: Vec<String> },
    #[error(
        "there is nothing named {asked:?} to explain; the names are {}{}",
        has.join(", "),
        hint(asked, has)
    )]
    Topic { asked: String, has: Vec<&'static str> },
    #[error("cannot write the result: {0}; redirect standard output to a file that can be written")]
    Output(#[from] io::Error),
    #[error("the native run of {scenario} failed: {broken}")]
    BrokenNatively { scenario: &'static str, broken: RunError },
    #[error("an experiment could not start its threads: {0}")]
    Measure(SpawnError),
    #[error(
        "the experiment {experiment} ended with a wrong count of operations, so its times mean \
         nothing; please report this as a bug of coreline\n  {again}"
    )]
    Miscounted { experiment: &'static str, again: String },
    #[error(
        "the experiment {experiment} needs two cores, and the machine {machine} has one; choose a \
         machine that has more"
    )]
    OneCore { experiment: &'static str, machine: String },
    #[error(
        "a machine file describes a machine whose parts are all alike, and this machine's differ; \
         `coreline measure` without --out shows its figures"
    )]
    Uneven,
    /// The finished part is shown, with a note that it is incomplete.
    #[error("interrupted")]
    Interrupted,
    #[error(
        "interrupted: nothing was written, because JSON and files hold whole results; leave out \
         --json and --out to see unfinished results"
    )]
    NotWhole,
    #[error(
        "there is no process {pid}: it has ended, or belongs to another container; check the PID"
    )]
    NoProcess { pid: u32 },
    #[error("the process {pid} cannot be read: {why}; try as root")]
    HiddenProcess { pid: u32, why: String },
    #[error(
        "the process {pid} is a thread of the kernel and runs no program; give the PID of a \
         program"
    )]
    KernelThread { pid: u32 },
    #[error(
        "the CPUs that this process may use are not known: {0}; let sched_getaffinity through the \
         system-call filter"
    )]
    NoCpus(String),
    #[error(
        "{}: {why}; give a file that `coreline run SCENARIO --json --out FILE` wrote",
        path.display()
    )]
    Compared { path: PathBuf, why: String },
    #[error("there is no chart {asked:?}; the charts are {}{}", has.join(", "), hint(asked, has))]
    Chart { asked: String, has: Vec<String> },
    #[error("the chart could not be drawn: {0}")]
    Picture(String),
    #[error(
        "the {what} is {before} in the first result and {after} in another one, so their figures \
         cannot be compared; give results with the same {what}"
    )]
    NotComparable { what: &'static str, before: String, after: String },
    #[error(
        "{before} of the earlier and {after} of the later results are simulated, and more runs of \
         a simulation add nothing; give one result on each side"
    )]
    Repeated { before: String, after: String },
    /// The result says which ones.
    #[error("{count} {} worse", if *count == 1 { "figure is" } else { "figures are" })]
    Worse { count: usize },
    #[error(
        "too few results to compare: give at least {needed} native results on each side, not \
         counting those that other programs disturbed"
    )]
    TooFew { needed: usize },
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// The result says which ones.
    #[error("{count} {} failed", if *count == 1 { "cell" } else { "cells" })]
    FailedCells { count: usize },
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Preload(#[from] PreloadError),
    #[error(transparent)]
    Scale(#[from] ScaleError),
    #[error(transparent)]
    Stat(#[from] StatError),
    /// The result says which ones.
    #[error(
        "{left} {} left as {}, so the simulated machine does not see the state that threads share \
         there; see the report, and change them by hand",
        if *left == 1 { "source location" } else { "source locations" },
        if *left == 1 { "it was" } else { "they were" }
    )]
    NotAllPorted { left: usize },
}

fn of_machine(error: &SpecError) -> String {
    match error {
        SpecError::NoPreset { name } => hint(name, presets()),
        _ => String::new(),
    }
}

fn of_scenario(error: &ScenarioError) -> String {
    match error {
        ScenarioError::Config { asked, has } | ScenarioError::Kernel { asked, has, .. } => {
            hint(asked, has)
        }
        ScenarioError::Variant { asked, has, .. } => hint(asked, has),
        _ => String::new(),
    }
}

impl Error {
    /// Says why the program stops, and gives its exit code: see the program's help.
    pub(crate) fn report(&self) -> u8 {
        // The reader of the output has closed it: not a failure of ours.
        if let Error::Output(error) = self
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return 0;
        }
        if let Error::Interrupted = self {
            return self.exit_code();
        }
        // Standard error is the last resort: where it cannot be written, only the exit code is
        // left.
        let _ = writeln!(io::stderr(), "coreline: {self}");
        self.exit_code()
    }

    fn exit_code(&self) -> u8 {
        match self {
            // As shells say it of a program that the signal ended.
            Error::Interrupted | Error::NotWhole => 130,
            Error::Scenario(ScenarioError::Failed(_) | ScenarioError::Broken { .. })
            | Error::Miscounted { .. } => 1,
            Error::Output(_)
            | Error::OutWrite { .. }
            | Error::Install { .. }
            | Error::Foreign(_)
            | Error::Picture(_) => 1,
            Error::NotAllPorted { .. } | Error::Port(PortError::Write { .. }) => 1,
            Error::Worse { .. }
            | Error::FailedCells { .. }
            | Error::Sweep(SweepError::Io { .. }) => 1,
            Error::Sweep(SweepError::InUse(_) | SweepError::Host { .. }) => 3,
            Error::BrokenNatively { broken: RunError::Check(_), .. } => 1,
            Error::NoProcess { .. } | Error::HiddenProcess { .. } => 3,
            Error::Scale(error) => error.exit_code(),
            Error::Stat(error) => error.exit_code(),
            Error::Preload(PreloadError::Exec { .. }) => 3,
            Error::BrokenNatively { .. } | Error::NoCpus(_) | Error::Measure(_) | Error::Uneven => {
                3
            }
            Error::Machine(_)
            | Error::MachineFile(_)
            | Error::Scenario(_)
            | Error::TooMany { .. }
            | Error::KernelNatively { .. }
            | Error::MachineNatively { .. }
            | Error::ReplayLine(_)
            | Error::Commit { .. }
            | Error::KernelThread { .. }
            | Error::Program { .. }
            | Error::OneCore { .. }
            | Error::ReplayMachine { .. }
            | Error::OtherMachine { .. }
            | Error::OtherFile { .. }
            | Error::OutFile { .. }
            | Error::Compared { .. }
            | Error::Chart { .. }
            | Error::NotComparable { .. }
            | Error::Repeated { .. }
            | Error::TooFew { .. }
            | Error::Port(_)
            | Error::Import(_)
            | Error::Preload(_)
            | Error::Sweep(_)
            | Error::TraceFile { .. }
            | Error::NoTrace { .. }
            | Error::NoHome
            | Error::Verb { .. }
            | Error::Topic { .. }
            | Error::ReplayEngine { .. }
            | Error::ReplaySetting { .. } => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use coreline_sim::Machine;

    use super::*;

    #[test]
    fn a_failed_program_is_exit_code_1_and_can_be_replayed() {
        let failure = Machine::preset("host-2c").unwrap().run(|| panic!("broken")).unwrap_err();
        let (broken, replay) = (RunError::Check("lost".to_owned()), failure.replay.clone());
        let broken = ScenarioError::Broken { broken, replay: Box::new(replay) };
        for error in [ScenarioError::Failed(failure), broken].map(Error::from) {
            assert_eq!(error.exit_code(), 1);
            assert!(
                error.to_string().contains("replay: coreline-sim/1 machine=host-2c"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_variant_that_is_misspelt_has_its_nearest() {
        let error = |asked: &str| {
            Error::from(ScenarioError::Variant {
                asked: asked.to_owned(),
                scenario: "shootdown",
                world: "native".to_owned(),
                has: vec!["eager", "lazy"],
            })
        };
        assert!(error("laxy").to_string().ends_with("are eager, lazy; did you mean lazy?"));
        assert!(error("two-level").to_string().ends_with("are eager, lazy"));
    }

    #[test]
    fn natively_a_lack_is_not_a_failure() {
        let code = |broken| Error::BrokenNatively { scenario: "x", broken }.exit_code();
        assert_eq!(code(RunError::Lack("no index".to_owned())), 3);
        assert_eq!(code(RunError::Check("lost".to_owned())), 1);
    }
}
