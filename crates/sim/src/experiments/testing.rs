//! The implementation of the attribute `coreline_sim::test`.

use core::fmt;
use std::io::Write as _;
use std::path::Path;

use crate::experiments::claim::Band;
use crate::experiments::determinism::{Divergence, divergence, taped};
use crate::experiments::explore::with_places;
use crate::hardware::spec::{Spec, SpecError};
use crate::machine::Machine;
use crate::results::failure::Failure;
use crate::results::replay::Replay;
use crate::results::report::Report;
use crate::results::report::Statistics;

/// The environment variable that has a test run one replay line alone.
const REPLAY: &str = "CORELINE_REPLAY";

/// A test with the settings of its attribute.
#[derive(Debug, Clone)]
pub struct Test {
    /// The package name, for the command that runs the test again.
    pub package: &'static str,
    /// The package's folder.
    pub folder: &'static str,
    /// The path of the test from the crate root, including its modules.
    pub path: &'static str,
    /// The machine: a preset, or a file.
    pub machine: &'static str,
    /// The first seed.
    pub seed: u64,
    /// The number of seeds.
    pub seeds: u64,
    /// The band, or an empty string for no band.
    pub band: &'static str,
    /// The schedule, as in a replay line, or an empty string for the schedule by time.
    pub schedule: &'static str,
    /// The faults, as in a replay line, or an empty string for those of the schedule.
    pub faults: &'static str,
    /// The step limit.
    pub steps: u64,
    /// Whether the test detects data races.
    pub races: bool,
    /// The memory checks, as in a replay line, or an empty string for those of the schedule.
    pub memory: &'static str,
    /// Whether the test detects leaks.
    pub leaks: bool,
    /// Whether the first run is repeated, and the test fails if the two differ.
    pub determinism: bool,
}

impl Test {
    /// Creates a test with the defaults: one run with seed 0. The attribute must name the machine.
    pub fn new(package: &'static str, folder: &'static str, path: &'static str) -> Test {
        Test {
            package,
            folder,
            path,
            machine: "",
            seed: 0,
            seeds: 1,
            band: "",
            schedule: "",
            faults: "",
            steps: Machine::STEP_LIMIT,
            races: false,
            memory: "",
            leaks: false,
            determinism: true,
        }
    }

    /// The test with its modules, as the test runner names it.
    fn name(&self) -> &str {
        self.path.split_once("::").map_or(self.path, |(_, name)| name)
    }

    fn spec(&self) -> Result<Spec, SpecError> {
        let is_file = self.machine.contains('/') || self.machine.ends_with(".toml");
        match is_file {
            true => Spec::from_file(&Path::new(self.folder).join(self.machine)),
            false => Spec::preset(self.machine),
        }
    }

    fn machines(&self) -> Result<Vec<Machine>, String> {
        let spec = self.spec().map_err(|error| error.to_string())?;
        if let Some(line) = asked(self.name())? {
            if line.machine != spec.name() {
                let (asked, has) = (line.machine, spec.name());
                return Err(format!(
                    "{REPLAY} is for the machine {asked}, but the test's machine is {has}"
                ));
            }
            return Ok(vec![Machine::new(spec).replaying(&line)]);
        }
        let schedule = if self.schedule.is_empty() { "time" } else { self.schedule };
        let schedule = schedule.parse().map_err(|error| format!("schedule: {error}"))?;
        let faults = Some(self.faults).filter(|faults| !faults.is_empty()).map(str::parse);
        let faults = faults.transpose().map_err(|error| format!("faults: {error}"))?;
        let memory = Some(self.memory).filter(|memory| !memory.is_empty()).map(str::parse);
        let memory = memory.transpose().map_err(|error| format!("memory: {error}"))?;
        let seeds = self.seed..self.seed.saturating_add(self.seeds);
        let machines: Vec<Machine> = match self.band {
            "" => seeds.map(|seed| Machine::new(spec.clone()).seed(seed)).collect(),
            band => {
                let band = |seed| match band {
                    "whole" => Band::whole(&spec, seed),
                    _ => Band::quick(&spec, seed),
                };
                let points = |band: Band| {
                    let machine = |point| band.machine(point, self.name());
                    band.points().iter().map(machine).collect::<Vec<_>>()
                };
                seeds.map(band).flat_map(points).collect()
            }
        };
        let machine = |it: Machine| {
            let it = it.schedule(Clone::clone(&schedule));
            let it = if let Some(faults) = faults { it.faults(faults) } else { it };
            let it = if let Some(checks) = memory { it.memory(checks) } else { it };
            let it = it.step_limit(self.steps).program(self.name());
            it.races(self.races).leaks(self.leaks)
        };
        Ok(machines.into_iter().map(machine).collect())
    }
}

/// The replay line that is asked for, if it is of this program.
fn asked(program: &str) -> Result<Option<Replay>, String> {
    let Ok(line) = std::env::var(REPLAY) else { return Ok(None) };
    let replay: Replay = line.parse().map_err(|error| format!("{REPLAY}: {error}"))?;
    Ok(Some(replay).filter(|replay| replay.program == program))
}

/// Prints on standard error. Not by `eprintln!`: a test runner keeps such text of a test that
/// passes.
fn say(text: &str) {
    // Where it cannot be written, the results are still right.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Repeats a run whose replay line is asked for, and prints its report. The line says how the
/// machine differs from this one, which has the program's name.
pub(crate) fn replay_of<T: Send + 'static>(
    machine: Machine,
    program: impl FnOnce() -> T + Send + 'static,
) -> Result<(), Box<Failure>> {
    let own = machine.replay_line();
    let line = asked(&own.program).unwrap_or_else(|error| panic!("{error}"));
    let Some(line) = line else { return Ok(()) };
    if (&line.machine, line.digest) != (&own.machine, own.digest) {
        // A curve of this name may also be measured on the line's machine, so it is no failure.
        say(&format!(
            "{REPLAY}: not repeated on {}, because the line is of another machine, or of another \
             version of its file:\n  the line: {line}\n  this run: {own}",
            own.machine
        ));
        return Ok(());
    }
    let run = machine.replaying(&line).statistics(Statistics::Full).run(program)?;
    say(&format!("{line}\n{}", run.report));
    Ok(())
}

/// The types that a test may return.
pub trait Outcome: 'static {
    /// Panics if the test failed.
    fn check(self);
}

impl Outcome for () {
    fn check(self) {}
}

impl<E: fmt::Debug + 'static> Outcome for Result<(), E> {
    #[track_caller]
    fn check(self) {
        self.expect("the test returned an error");
    }
}

/// Runs a test on each of its machines in sequence, and on the first of them a second time: see
/// [`Test::determinism`]. A run that `CORELINE_REPLAY` requests is not repeated.
///
/// # Panics
///
/// Panics at the first run that fails. The message has the failure and the command that repeats
/// only this run. Also panics if the second run on the first machine differs from the first run.
/// The message then says where they differ.
#[track_caller]
pub fn run<T: Outcome>(test: &Test, program: fn() -> T) {
    let fail = |error: &dyn fmt::Display| -> ! { panic!("{}: {error}", test.name()) };
    let machines = || test.machines().unwrap_or_else(|error| fail(&error));
    let is_repeated = asked(test.name()).is_ok_and(|line| line.is_none()) && test.determinism;
    let program = move || program().check();
    for (number, machine) in machines().into_iter().enumerate() {
        let kept = if number == 0 && is_repeated { KEPT } else { 0 };
        let first = match kept {
            0 => (Vec::new(), machine.run(program).map(|run| run.report)),
            kept => taped(machine, kept, program),
        };
        if let (_, Err(failure)) = first {
            let failure = with_places(failure, program);
            panic!("{}", Failed { test, failure: &failure });
        }
        let again = (kept > 0).then(|| machines().into_iter().next()).flatten();
        if let Some(machine) = again {
            let replay = machine.replay_line();
            let second = taped(machine, kept, program);
            if let Some(divergence) = divergence(&first, &second, replay) {
                fail(&Differs { divergence: &divergence, second: &second.1 });
            }
        }
    }
}

/// The number of accesses that are kept of the first run and of its repetition, to compare them one
/// by one: 32 MiB for each run. Later accesses are compared by the reports of the runs.
const KEPT: usize = 1 << 20;

/// A test whose two runs differ.
struct Differs<'a> {
    divergence: &'a Divergence,
    second: &'a Result<Report, Box<Failure>>,
}

impl fmt::Display for Differs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Differs { divergence, second } = self;
        writeln!(f, "the test is not deterministic, so no replay line repeats a run of it")?;
        writeln!(f, "{divergence}")?;
        if let Err(failure) = second {
            writeln!(f, "the second run failed: {failure}")?;
        }
        writeln!(
            f,
            "both runs were in this process, on this host, so the second can find what the first \
             left behind:\n\
             - a static that the first run initialised or changed, such as a `LazyLock` or \
             `OnceLock` of std: initialise it before the machine, or in it without std\n\
             - files, ports, variables of the environment and other state of the host"
        )?;
        write!(
            f,
            "if the test needs such state, `determinism = false` in the attribute turns this check \
             off"
        )
    }
}

/// A failure, and how to have it again.
struct Failed<'a> {
    test: &'a Test,
    failure: &'a Failure,
}

impl fmt::Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failed { test, failure } = self;
        writeln!(f, "{failure}")?;
        writeln!(f, "  this run alone:")?;
        let line = &failure.replay;
        let (package, name) = (test.package, test.name());
        write!(f, "  {REPLAY}='{line}' cargo test -p {package} {name} -- --exact")
    }
}
