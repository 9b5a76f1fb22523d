//! Failures of a simulated program, and the line that brings one back.

use core::fmt;
use core::str::FromStr;

use coreline_topology::CpuId;

use crate::{Arbitration, Faults};

/// A simulated program went wrong. The host process goes on.
///
/// Printing it gives the story: what happened, what every thread was doing, and the replay line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub kind: FailureKind,
    /// Simulated nanoseconds since the start.
    pub at_ns: u64,
    /// What each unfinished thread was doing, in the order of their numbers.
    pub threads: Vec<ThreadState>,
    /// How to bring it back.
    pub replay: Replay,
}

/// What went wrong in a simulated program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// A panic left a simulated thread.
    Panic {
        /// The thread's number; the program's first thread is 0.
        thread: usize,
        /// The CPU that it ran on.
        cpu: CpuId,
        /// The panic's message.
        message: String,
        /// File and line, where known.
        location: Option<String>,
    },
    /// Threads are left, and none of them can ever run again.
    Deadlock,
    /// The program took more steps than it was allowed, without end in sight.
    Livelock {
        /// The limit that it reached.
        steps: u64,
    },
    /// The program touched memory that the machine does not know.
    Unregistered {
        /// The thread's number.
        thread: usize,
        /// The CPU that it ran on.
        cpu: CpuId,
    },
    /// The machine could not even start.
    Refused {
        /// Why.
        why: String,
    },
}

/// What an unfinished thread was doing when its machine stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadState {
    /// The thread's number.
    pub thread: usize,
    /// The CPU that it was last on.
    pub cpu: CpuId,
    /// What it was doing.
    pub doing: Doing,
}

/// What an unfinished thread was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It had the CPU, or waited for its turn on it.
    Running,
    /// It spun until a word changes.
    Spinning {
        /// The word's line, as an offset in the machine's memory.
        line: u64,
    },
    /// It was parked on a word.
    Parked {
        /// The word, as an offset in the machine's memory.
        word: u64,
    },
    /// It slept.
    Sleeping,
    /// It waited for another thread to end.
    Joining {
        /// That thread's number.
        thread: usize,
    },
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doing::Running => write!(f, "running"),
            Doing::Spinning { line } => write!(f, "spinning on line {line:#x}"),
            Doing::Parked { word } => write!(f, "parked on word {word:#x}"),
            Doing::Sleeping => write!(f, "sleeping"),
            Doing::Joining { thread } => write!(f, "joining thread {thread}"),
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureKind::Panic { thread, cpu, message, location } => {
                write!(f, "thread {thread} panicked on {cpu}: {message}")?;
                location.as_ref().map_or(Ok(()), |at| write!(f, " (at {at})"))
            }
            FailureKind::Deadlock => write!(f, "deadlock: nobody can ever run again"),
            FailureKind::Livelock { steps } => {
                write!(
                    f,
                    "livelock: {steps} steps and no end; allow more if the program is that long"
                )
            }
            FailureKind::Refused { why } => write!(f, "the machine did not start: {why}"),
            FailureKind::Unregistered { thread, cpu } => write!(
                f,
                "thread {thread} on {cpu} touched memory that the machine does not know: make \
                 words and cells inside the simulated program, and `coreline_sim::Allocator` the \
                 global allocator; or the program uses more than the machine has, 64 MiB"
            ),
        }
    }
}

/// How many threads a printed failure names one by one.
const MOST_PRINTED: usize = 16;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.kind)?;
        writeln!(
            f,
            "  after {} simulated ns; {} threads unfinished",
            self.at_ns,
            self.threads.len()
        )?;
        for ThreadState { thread, cpu, doing } in self.threads.iter().take(MOST_PRINTED) {
            writeln!(f, "  thread {thread} on {cpu}: {doing}")?;
        }
        if self.threads.len() > MOST_PRINTED {
            writeln!(f, "  and {} more", self.threads.len() - MOST_PRINTED)?;
        }
        write!(f, "  replay: {}", self.replay)
    }
}

impl core::error::Error for Failure {}

/// The replay line: all that a run depends on beside the program, as one line of text.
///
/// The program is what was given to [`Machine::run`](crate::Machine::run), with the
/// [`Kernel`](crate::Kernel), the [step limit](crate::Machine::step_limit) and the [scaled
/// costs](crate::Spec::scale) under which it ran: who varies those says so in the program's name.
///
/// ```
/// use coreline_sim::Replay;
///
/// let line = "coreline-sim/1 machine=host-2c seed=7 request=30 faults=preempt:8 program=law::sum";
/// let replay: Replay = line.parse()?;
/// assert_eq!(replay.seed, 7);
/// assert_eq!(replay.to_string(), line);
/// # Ok::<(), coreline_sim::ParseReplayError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The machine: a preset's name, or the name in a user's file.
    pub machine: String,
    /// The seed.
    pub seed: u64,
    /// The share of a miss that is request flight, in percent.
    pub request_percent: u32,
    /// The faults.
    pub faults: Faults,
    /// Whose request a contended line serves next. In the line only if it is not the default.
    pub arbitration: Arbitration,
    /// What ran. Up to the end of the line.
    pub program: String,
}

/// The first word of a replay line.
const TAG: &str = "coreline-sim/1";

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Replay { machine, seed, request_percent, faults, arbitration, program } = self;
        write!(f, "{TAG} machine={machine} seed={seed} request={request_percent} faults={faults}")?;
        if *arbitration != Arbitration::default() {
            write!(f, " arbitration={arbitration}")?;
        }
        write!(f, " program={program}")
    }
}

/// A replay line that cannot be read: what was wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a replay line: {0}; it looks like `{TAG} machine=M seed=N request=P faults=F program=...`"
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
        let (mut machine, mut seed, mut request, mut faults) = (None, None, None, None);
        let mut arbitration = Arbitration::default();
        for part in head.split_whitespace() {
            let (key, value) =
                part.split_once('=').ok_or_else(|| wrong(&format!("{part:?} has no value")))?;
            let number = |_| wrong(&format!("{part:?} is no number"));
            match key {
                "machine" => machine = Some(value.to_owned()),
                "seed" => seed = Some(value.parse().map_err(number)?),
                "request" => request = Some(value.parse().map_err(number)?),
                "faults" => {
                    faults = Some(value.parse().map_err(|error| wrong(&format!("{error}")))?);
                }
                "arbitration" => {
                    arbitration = value.parse().map_err(|error| wrong(&format!("{error}")))?;
                }
                _ => return Err(wrong(&format!("{key:?} is unknown"))),
            }
        }
        let missing = |key: &str| wrong(&format!("it has no {key}"));
        Ok(Replay {
            machine: machine.ok_or_else(|| missing("machine"))?,
            seed: seed.ok_or_else(|| missing("seed"))?,
            request_percent: request.ok_or_else(|| missing("request"))?,
            faults: faults.ok_or_else(|| missing("faults"))?,
            arbitration,
            program: program.to_owned(),
        })
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
            ("coreline-sim/1 machine=m request=0 faults=none program=p", "no seed"),
            ("coreline-sim/1 machine=m seed=1 request=0 faults=fire program=p", "fire"),
            ("coreline-sim/1 machine=m seed=1 request=0 faults=none speed=9 program=p", "speed"),
        ] {
            let error = line.parse::<Replay>().unwrap_err().to_string();
            assert!(error.contains(what), "{line}: {error}");
        }
    }
}
