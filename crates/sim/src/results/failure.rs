//! Failures of a simulated program.

use core::fmt;

use coreline_topology::CpuId;

use crate::results::locks::LockReport;
use crate::results::memory::MemoryMistake;
use crate::results::replay::Replay;
use crate::results::report::SourceSite;

/// A failure of a simulated program. The host process can continue.
///
/// `Display` prints the cause, the activity of every thread, and the replay line. `Debug` prints
/// the same, so that `unwrap` in a test says what happened.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    /// The cause of the failure.
    pub kind: FailureKind,
    /// The simulated time of the failure, in nanoseconds since the start.
    pub at_ns: u64,
    /// The activity of each unfinished thread, ordered by thread number.
    pub threads: Vec<ThreadState>,
    /// The state of each CPU, ordered by CPU number.
    pub cpus: Vec<CpuState>,
    /// The reports on the locks so far, sorted by total wait, the longest first.
    pub locks: Vec<LockReport>,
    /// The latest panics of the run, at most 64, in the order in which they began, whether or not
    /// the program caught them. If a panic ended the run because of an earlier one (by
    /// `join().unwrap()`, a scope, a poisoned lock or `resume_unwind`), `kind` is the earliest of
    /// them.
    pub panics: Vec<Panicked>,
    /// The replay line, which repeats the run.
    pub replay: Replay,
}

/// The cause of a simulated program's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// A simulated thread panicked, and no code caught the panic, or the panic caused another one
    /// that no code caught.
    Panic {
        /// The thread's number. The program's first thread is 0.
        thread: usize,
        /// The CPU on which the thread ran.
        cpu: CpuId,
        /// The panic's message.
        message: String,
        /// The file and line, if known.
        location: Option<String>,
    },
    /// Some threads have not ended, and none of them can run again.
    Deadlock,
    /// The program exceeded the step limit, or its threads made no progress for too long.
    Livelock {
        /// The number of steps that the program took.
        steps: u64,
        /// The most recent steps.
        lately: Lately,
    },
    /// The program accessed memory that does not belong to the machine.
    Unregistered {
        /// The thread's number.
        thread: usize,
        /// The CPU on which the thread ran.
        cpu: CpuId,
        /// The source location of the access.
        site: SourceSite,
        /// The accessed memory.
        memory: Foreign,
    },
    /// Two accesses to the same plain data are unordered, and one of them writes. The machine
    /// detects this only with [`Machine::find_races`](crate::Machine::find_races).
    DataRace {
        /// The earlier access of the run.
        earlier: PlainAccess,
        /// The access at which the race was detected.
        later: PlainAccess,
        /// The length of the later access, in bytes.
        len: usize,
    },
    /// The program misused memory: see [`MemoryChecks`](crate::MemoryChecks).
    Memory(Box<MemoryMistake>),
    /// A thread exceeded its stack of 256 KiB.
    StackOverflow {
        /// The thread's number.
        thread: usize,
        /// The CPU on which the thread ran.
        cpu: CpuId,
    },
    /// A thread did nothing that the machine sees for longer than the machine's
    /// [patience](crate::Machine::patience). No other simulated thread can run meanwhile.
    Stuck {
        /// The thread's number.
        thread: usize,
        /// The CPU on which the thread ran.
        cpu: CpuId,
        /// Whether the thread waited for an object of the host. Otherwise it computed.
        waits: bool,
        /// The source location of the thread, if known.
        site: Option<SourceSite>,
    },
    /// The machine did not start, because [`Allocator`](crate::Allocator) is not the program's
    /// global allocator.
    NoAllocator,
    /// The machine did not start, because a setting or the host prevents it.
    Refused {
        /// The reason.
        why: String,
    },
}

/// A panic of a simulated thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panicked {
    /// The thread's number.
    pub thread: usize,
    /// The CPU on which the thread ran.
    pub cpu: CpuId,
    /// The panic's message.
    pub message: String,
    /// The file and line, if known.
    pub location: Option<String>,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Panicked { thread, cpu, message, location } = self;
        write!(f, "thread {thread} panicked on {cpu}: {message}")?;
        location.as_ref().map_or(Ok(()), |at| write!(f, " (at {at})"))
    }
}

/// An access to shared plain data in a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainAccess {
    /// The thread's number.
    pub thread: usize,
    /// The CPU on which the thread ran.
    pub cpu: CpuId,
    /// The source location of the access.
    pub site: SourceSite,
    /// Whether the access is a write.
    pub writes: bool,
}

impl fmt::Display for PlainAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlainAccess { thread, cpu, site, writes } = self;
        let what = if *writes { "write" } else { "read" };
        write!(f, "the {what} by thread {thread} on {cpu} at {site}")
    }
}

/// Memory that does not belong to the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// The memory is a static.
    Static {
        /// The file of the program or library that contains the static.
        image: String,
        /// The address within the file, as `nm` prints it.
        offset: usize,
    },
    /// The memory is other memory of the host, such as memory allocated outside of the machine, a
    /// `thread_local!` of std, or a stack.
    Host,
    /// The memory is memory of the host, because the program uses more than the machine's 512 MiB.
    Exhausted,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Foreign::Static { image, offset } => write!(
                f,
                "a static, at {offset:#x} in {image} (`nm -C {image} | sort` names it): make the \
                 object inside of the simulated program, or keep it in a `coreline_sim::Static` \
                 or a `WorldStatic`, as `coreline port` does in other people's packages"
            ),
            Foreign::Host => write!(
                f,
                "memory of the host: make words and cells inside of the simulated program, and \
                 thread-local objects by `coreline_sim::thread_local!`"
            ),
            Foreign::Exhausted => {
                write!(
                    f,
                    "the host's memory, because the program uses more than the machine's 512 MiB"
                )
            }
        }
    }
}

/// The most recent steps of a run, which show whether its threads made progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lately {
    /// The number of observed steps.
    pub steps: u64,
    /// The number of accesses to memory.
    pub accesses: u64,
    /// The number of writes that changed a word's value.
    pub changes: u64,
    /// The number of lock acquisitions.
    pub acquisitions: u64,
}

impl Lately {
    /// Returns whether the threads made progress.
    pub fn is_progress(&self) -> bool {
        self.changes > 0 || self.acquisitions > 0
    }
}

/// The state of a CPU when its machine stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuState {
    /// The CPU.
    pub cpu: CpuId,
    /// The thread that ran on the CPU, or `None` if the CPU was idle.
    pub thread: Option<usize>,
    /// The number of threads in the CPU's run queue.
    pub queued: usize,
    /// Whether interrupts were [masked](crate::interrupts::mask).
    pub masked: bool,
    /// Whether the CPU was [out of service](crate::Faults::offline).
    pub offline: bool,
    /// The CPU's own time, in simulated nanoseconds since the start.
    pub at_ns: u64,
}

impl fmt::Display for CpuState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CpuState { cpu, thread, queued, masked, offline, at_ns } = self;
        write!(f, "{cpu} at {at_ns} ns: ")?;
        match thread {
            Some(thread) => write!(f, "thread {thread}, {queued} queued")?,
            None => write!(f, "idle, {queued} queued")?,
        }
        f.write_str(if *masked { ", interrupts masked" } else { "" })?;
        f.write_str(if *offline { ", offline" } else { "" })
    }
}

/// The state of an unfinished thread when its machine stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadState {
    /// The thread's number.
    pub thread: usize,
    /// The CPU on which the thread last ran.
    pub cpu: CpuId,
    /// The thread's activity.
    pub doing: Doing,
    /// The source location where this activity began, if known.
    pub site: Option<SourceSite>,
    /// The address of the lock for which the thread waited, as in [`Failure::locks`]. It is known
    /// only for locks with [reports](crate::locks).
    pub waits_for: Option<u64>,
}

/// The activity of an unfinished thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// The thread ran, or waited in its CPU's run queue.
    Running,
    /// The thread spun until a word changes.
    Spinning {
        /// The word's line, as an offset in the machine's memory.
        line: u64,
    },
    /// The thread was parked on a word.
    Parked {
        /// The word, as an offset in the machine's memory.
        word: u64,
    },
    /// The thread slept.
    Sleeping,
    /// The thread waited for another thread to end.
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
                let (message, location) = (message.clone(), location.clone());
                Panicked { thread: *thread, cpu: *cpu, message, location }.fmt(f)
            }
            FailureKind::Deadlock => write!(f, "deadlock: no thread can ever run again"),
            FailureKind::Livelock { steps, lately } => {
                let Lately { steps: last, accesses, changes, acquisitions } = lately;
                let verdict = match lately.is_progress() {
                    true => {
                        "slow progress, or a livelock that writes; allow more steps \
                         (`Machine::step_limit`) if the program is that long"
                    }
                    false => "a livelock",
                };
                write!(
                    f,
                    "no end after {steps} steps: {verdict}\n  the last {last} steps: {accesses} \
                     accesses, {changes} writes of another value, {acquisitions} locks taken"
                )
            }
            FailureKind::DataRace { earlier, later, len } => {
                write!(f, "data race on {len} bytes: nothing orders\n  {earlier}, and\n  {later}")
            }
            FailureKind::Memory(mistake) => mistake.fmt(f),
            FailureKind::StackOverflow { thread, cpu } => write!(
                f,
                "thread {thread} on {cpu} used more than the 256 KiB of stack that a simulated \
                 thread has: recurse less deeply, or put large values into boxes"
            ),
            FailureKind::Stuck { thread, cpu, waits, site } => {
                write!(f, "thread {thread} on {cpu} ")?;
                f.write_str(match waits {
                    true => "waits for something outside of the machine",
                    false => "computes without an access that the machine sees",
                })?;
                site.as_ref().map_or(Ok(()), |site| write!(f, " at {site}"))?;
                f.write_str(match waits {
                    true => {
                        ", so no other simulated thread can run: use the locks, channels and \
                         threads of coreline_sim in the place of std's"
                    }
                    false => {
                        ", so no other simulated thread can run: wait by a word of \
                         coreline_sim::atomic, or allow more time (`Machine::patience`)"
                    }
                })
            }
            FailureKind::NoAllocator => write!(
                f,
                "the machine did not start: coreline_sim::Allocator is not the global allocator; \
                 add these two lines to the program or test:\n\
                 #[global_allocator]\n\
                 static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;"
            ),
            FailureKind::Refused { why } => write!(f, "the machine did not start: {why}"),
            FailureKind::Unregistered { thread, cpu, site, memory } => write!(
                f,
                "thread {thread} on {cpu} at {site} accessed memory that does not belong to the \
                 machine: {memory}"
            ),
        }
    }
}

/// Says which lock a thread waits for, and which threads hold it.
fn waiting(f: &mut fmt::Formatter<'_>, lock: &LockReport) -> fmt::Result {
    write!(f, "; waits for {}, held by ", lock.title())?;
    match &lock.holders[..] {
        [] => write!(f, "none"),
        [one] => write!(f, "thread {one}"),
        [one, others @ ..] => write!(f, "thread {one} and {} others", others.len()),
    }
}

/// The maximum number of threads, and of CPUs, that a printed failure lists individually.
const MOST_PRINTED: usize = 16;

impl Failure {
    /// Writes the panics before and after the one that the failure is about.
    fn write_panics(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_it = |panic: &Panicked| match &self.kind {
            FailureKind::Panic { thread, message, location, .. } => {
                (thread, message, location) == (&panic.thread, &panic.message, &panic.location)
            }
            _ => false,
        };
        let about = self.panics.iter().rposition(is_it).unwrap_or(self.panics.len());
        let before = about.saturating_sub(MOST_PRINTED);
        for panic in &self.panics[before..about] {
            writeln!(f, "  before that, {panic}")?;
        }
        for panic in self.panics.iter().skip(about + 1).take(MOST_PRINTED) {
            writeln!(f, "  then {panic}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.kind)?;
        self.write_panics(f)?;
        writeln!(
            f,
            "  after {} simulated ns; {} threads unfinished",
            self.at_ns,
            self.threads.len()
        )?;
        for ThreadState { thread, cpu, doing, site, waits_for } in
            self.threads.iter().take(MOST_PRINTED)
        {
            write!(f, "  thread {thread} on {cpu}: {doing}")?;
            site.as_ref().map_or(Ok(()), |site| write!(f, " at {site}"))?;
            let is_it = |lock: &&LockReport| Some(lock.lock) == *waits_for;
            self.locks.iter().find(is_it).map_or(Ok(()), |lock| waiting(f, lock))?;
            writeln!(f)?;
        }
        if self.threads.len() > MOST_PRINTED {
            writeln!(f, "  and {} more", self.threads.len() - MOST_PRINTED)?;
        }
        let busy = |cpu: &&CpuState| cpu.thread.is_some() || cpu.queued > 0 || cpu.offline;
        let count = self.cpus.iter().filter(busy).count();
        for cpu in self.cpus.iter().filter(busy).take(MOST_PRINTED) {
            writeln!(f, "  {cpu}")?;
        }
        if count > MOST_PRINTED {
            writeln!(f, "  and {} more CPUs that are not idle", count - MOST_PRINTED)?;
        }
        writeln!(f, "  {} CPUs idle", self.cpus.len() - count)?;
        write!(f, "  replay: {}", self.replay)
    }
}

impl core::error::Error for Failure {}
