//! The replay line, which repeats a run.

use core::fmt;
use core::str::FromStr;

use crate::hardware::contention::Arbitration;
use crate::hardware::digest::digest;
use crate::hardware::overlap::Overlap;
use crate::settings::faults::Faults;
use crate::settings::memory::MemoryChecks;
use crate::settings::schedule::Schedule;
use crate::settings::{REQUEST_PERCENT, STEP_LIMIT};

/// A replay line, which contains all settings of a run except the program, as one line of text.
///
/// The line omits settings that have the value of a [new machine](crate::Machine::new). These
/// values are FIFO arbitration at a line, accesses that do not overlap, the schedule by time, the
/// default [step limit](crate::Machine::STEP_LIMIT), the costs of the machine's file, no kernel, no
/// detection of data races or leaks, and no checks of memory.
///
/// ```
/// use coreline_sim::{Replay, Schedule};
///
/// let line = "coreline-sim/1 machine=host-2c seed=7 request=30 faults=preempt:8 \
///             schedule=pct:3:1000 steps=100000 scaled=ipi:70 kernel=first-fit program=law::sum";
/// let replay: Replay = line.parse()?;
/// assert_eq!(replay.schedule, Schedule::Pct { depth: 3, steps: 1000 });
/// assert_eq!(replay.to_string(), line);
///
/// let line = "coreline-sim/1 machine=host-2c seed=7 request=30 faults=none program=law::sum";
/// assert_eq!(line.parse(), Ok(Replay { seed: 7, ..Replay::new("host-2c", "law::sum") }));
/// # Ok::<(), coreline_sim::ParseReplayError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The name of the machine, which is the name of a preset, or the name in a user's file.
    pub machine: String,
    /// The [digest](crate::Spec::digest) of a user's file, written `machine=NAME@DIGEST`.
    pub digest: Option<u64>,
    /// The random seed.
    pub seed: u64,
    /// The share of a miss that is request flight, in percent.
    pub request_percent: u32,
    /// The faults that the machine injects.
    pub faults: Faults,
    /// The arbitration between the requests for a contended line.
    pub arbitration: Arbitration,
    /// Whether independent accesses of one thread overlap.
    pub overlap: Overlap,
    /// The schedule, which chooses the thread that runs next.
    pub schedule: Schedule,
    /// The number of engine steps after which a run counts as a livelock.
    pub step_limit: u64,
    /// The costs that differ from the machine's file, each with its percentage of the value in the
    /// file.
    pub scaled: Vec<(String, u64)>,
    /// The [name](crate::Kernel::name) of the machine's kernel, if it has one.
    pub kernel: Option<String>,
    /// Whether the machine detects [data races](crate::Machine::find_races).
    pub races: bool,
    /// How the machine checks the program's use of memory.
    pub memory: MemoryChecks,
    /// Whether the machine looks for [leaks](crate::Machine::find_leaks).
    pub leaks: bool,
    /// The name of the program. It extends to the end of the line.
    pub program: String,
}

impl Replay {
    /// Creates the replay line of `program` on a new machine.
    pub fn new(machine: &str, program: &str) -> Replay {
        Replay {
            machine: machine.to_owned(),
            digest: None,
            seed: 0,
            request_percent: REQUEST_PERCENT,
            faults: Faults::NONE,
            arbitration: Arbitration::default(),
            overlap: Overlap::default(),
            schedule: Schedule::Time,
            step_limit: STEP_LIMIT,
            scaled: Vec::new(),
            kernel: None,
            races: false,
            memory: MemoryChecks::Off,
            leaks: false,
            program: program.to_owned(),
        }
    }
}

impl Replay {
    /// The machine, as the line has it.
    pub(crate) fn machine_of(&self) -> String {
        let digest = self.digest.map_or(String::new(), |digest| format!("@{digest:016x}"));
        format!("{}{digest}", self.machine)
    }

    /// The part of the line that determines the machine's place in the host's address space.
    /// Schedules and limits are no part of it, because they do not change the program.
    pub(crate) fn home(&self) -> u64 {
        let (schedule, faults) = (Schedule::Time, self.faults.without_luck());
        let own = self.clone();
        let new = Replay::new("", "");
        let Replay { step_limit, races, memory, leaks, .. } = new;
        let line = Replay { schedule, faults, step_limit, races, memory, leaks, ..own }.to_string();
        digest(line.as_bytes())
    }
}

/// The first word of a replay line.
const TAG: &str = "coreline-sim/1";

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Replay { seed, request_percent, faults, .. } = self;
        write!(f, "{TAG} machine={} seed={seed} ", self.machine_of())?;
        write!(f, "request={request_percent} faults={faults}")?;
        if self.arbitration != Arbitration::default() {
            write!(f, " arbitration={}", self.arbitration)?;
        }
        if self.overlap != Overlap::default() {
            write!(f, " overlap={}", self.overlap)?;
        }
        if self.schedule != Schedule::Time {
            write!(f, " schedule={}", self.schedule)?;
        }
        if self.step_limit != STEP_LIMIT {
            write!(f, " steps={}", self.step_limit)?;
        }
        for (index, (cost, percent)) in self.scaled.iter().enumerate() {
            let before = if index == 0 { " scaled=" } else { "," };
            write!(f, "{before}{cost}:{percent}")?;
        }
        if let Some(kernel) = &self.kernel {
            write!(f, " kernel={kernel}")?;
        }
        if self.races {
            write!(f, " races=found")?;
        }
        if self.memory != MemoryChecks::Off {
            write!(f, " memory={}", self.memory)?;
        }
        if self.leaks {
            write!(f, " leaks=found")?;
        }
        write!(f, " program={}", self.program)
    }
}

/// The error for a replay line that cannot be parsed. It says what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a replay line: {0}; a replay line has the form `{TAG} machine=M seed=N request=P \
     faults=F [arbitration=A] [overlap=O] [schedule=S] [steps=N] [scaled=COST:PERCENT,..] \
     [kernel=K] [races=found] [memory=CHECKS] [leaks=found] program=...`"
)]
pub struct ParseReplayError(String);

impl FromStr for Replay {
    type Err = ParseReplayError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let wrong = |what: &str| ParseReplayError(what.to_owned());
        let rest =
            line.trim().strip_prefix(TAG).ok_or_else(|| wrong("it does not begin with the tag"))?;
        let (head, program) =
            rest.split_once(" program=").ok_or_else(|| wrong("it has no program"))?;
        let mut replay = Replay::new("", program);
        let mut needed = vec!["machine", "seed", "request", "faults"];
        for part in head.split_whitespace() {
            let (key, value) =
                part.split_once('=').ok_or_else(|| wrong(&format!("{part:?} has no value")))?;
            needed.retain(|need| *need != key);
            let number = |_| wrong(&format!("{part:?} is not a number"));
            let said = |error: &dyn fmt::Display| wrong(&error.to_string());
            match key {
                "machine" => {
                    let (name, digest) = value.split_once('@').unzip();
                    let digest = digest.map(|digest| u64::from_str_radix(digest, 16));
                    replay.digest = digest.transpose().map_err(number)?;
                    replay.machine = name.unwrap_or(value).to_owned();
                }
                "seed" => replay.seed = value.parse().map_err(number)?,
                "request" => replay.request_percent = value.parse().map_err(number)?,
                "faults" => replay.faults = value.parse().map_err(|error| said(&error))?,
                "arbitration" => {
                    replay.arbitration = value.parse().map_err(|error| said(&error))?
                }
                "overlap" => replay.overlap = value.parse().map_err(|error| said(&error))?,
                "schedule" => replay.schedule = value.parse().map_err(|error| said(&error))?,
                "steps" => replay.step_limit = value.parse().map_err(number)?,
                "scaled" => {
                    for pair in value.split(',') {
                        let (cost, percent) = pair
                            .split_once(':')
                            .ok_or_else(|| wrong(&format!("{pair:?} has no percent")))?;
                        let percent = percent.parse().map_err(number)?;
                        replay.scaled.push((cost.to_owned(), percent));
                    }
                }
                "kernel" => replay.kernel = Some(value.to_owned()),
                "races" if value == "found" => replay.races = true,
                "memory" => replay.memory = value.parse().map_err(|error| said(&error))?,
                "leaks" if value == "found" => replay.leaks = true,
                _ => return Err(wrong(&format!("{key:?} is unknown"))),
            }
        }
        match needed.first() {
            Some(missing) => Err(wrong(&format!("it has no {missing}"))),
            None => Ok(replay),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_replay_line_says_what_is_wrong() {
        for (line, what) in [
            ("hello", "tag"),
            ("coreline-sim/1 machine=m seed=1 request=0 faults=none", "no program"),
            ("coreline-sim/1 machine=m seed=x request=0 faults=none program=p", "seed=x"),
            ("coreline-sim/1 machine=m@x seed=1 request=0 faults=none program=p", "m@x"),
            ("coreline-sim/1 machine=m request=0 faults=none program=p", "no seed"),
            ("coreline-sim/1 machine=m seed=1 request=0 faults=fire program=p", "fire"),
            ("coreline-sim/1 machine=m seed=1 request=0 faults=none speed=9 program=p", "speed"),
            ("coreline-sim/1 machine=m seed=1 request=0 faults=none schedule=x program=p", "\"x\""),
            ("coreline-sim/1 machine=m seed=1 request=0 faults=none scaled=ipi program=p", "ipi"),
        ] {
            let error = line.parse::<Replay>().unwrap_err().to_string();
            assert!(error.contains(what), "{line}: {error}");
        }
    }
}
