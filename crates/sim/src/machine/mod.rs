//! The simulated machine: its settings, and how it runs a program.

mod calibrated;
pub(crate) mod calibration;

use std::cell::Cell;
use std::mem;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::engine::{self, Decisions, Finished, Job, Setup};
use crate::hardware::contention::Arbitration;
use crate::hardware::overlap::Overlap;
use crate::hardware::spec::{Spec, SpecError};
use crate::results::failure::{Failure, FailureKind};
use crate::results::locks::LockReport;
use crate::results::replay::Replay;
use crate::results::report::{Report, Statistics};
use crate::results::tape::Tape;
use crate::results::trace::Trace;
use crate::settings;
use crate::settings::faults::Faults;
use crate::settings::kernel::Kernel;
use crate::settings::memory::MemoryChecks;
use crate::settings::schedule::Schedule;

/// A simulated machine, ready to run one program.
///
/// ```
/// use coreline_sim::{Machine, Sim};
/// use coreline_world::{Integer, Ordering, Placement, Threads, JoinHandle, Word, Words};
/// use coreline_topology::CpuId;
/// use std::sync::Arc;
///
/// // In a real program this stands in the root of the crate that simulates.
/// #[global_allocator]
/// static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
///
/// let run = Machine::preset("epyc-9654-2s")?.seed(7).run(|| {
///     let hits = Arc::new(<Sim as Words>::U64::new_in(0));
///     let threads: Vec<_> = (0..384)
///         .map(|cpu| {
///             let hits = Arc::clone(&hits);
///             Sim::spawn(Placement::On(CpuId::new(cpu)), move || {
///                 hits.fetch_add(1, Ordering::Relaxed);
///             })
///         })
///         .collect::<Result<_, _>>()
///         .unwrap();
///     threads.into_iter().for_each(JoinHandle::join);
///     hits.load(Ordering::Relaxed)
/// })?;
/// assert_eq!(run.value, 384);
/// assert!(run.report.transfers.other_socket > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A run uses only the calling host thread. To use many host threads, run many machines.
#[must_use = "a machine does nothing until it runs"]
pub struct Machine {
    spec: Spec,
    seed: u64,
    request_percent: u32,
    /// `None` for the schedule's own.
    faults: Option<Faults>,
    schedule: Schedule,
    step_limit: u64,
    program: String,
    kernel: Option<Box<dyn Kernel>>,
    /// The kernel that a replay line names.
    named_kernel: Option<String>,
    /// Why the machine cannot be set up as a replay line says.
    refused: Option<String>,
    statistics: Statistics,
    tape: Option<Tape>,
    trace: bool,
    races: bool,
    /// `None` for the schedule's own.
    memory: Option<MemoryChecks>,
    leaks: bool,
    arbitration: Arbitration,
    overlap: Overlap,
    patience: Duration,
}

/// The result of a program that ran to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run<T> {
    /// The return value of the program's first thread.
    pub value: T,
    /// The cost of the run.
    pub report: Report,
    /// The reports on the locks of the run, sorted by total wait, the longest first.
    pub locks: Vec<LockReport>,
    /// The record of the run. It is `None` without [`Machine::trace`].
    pub trace: Option<Trace>,
}

impl Machine {
    /// The default share of a miss that is request flight, in percent. On three measured machines
    /// the share is 29 to 51. It depends on how long a core keeps using a line that another core
    /// wants. So claims must hold over [`REQUEST_BAND`](Machine::REQUEST_BAND).
    pub const REQUEST_PERCENT: u32 = settings::REQUEST_PERCENT;

    /// The shares of request flight over which a claim must hold, in percent.
    pub const REQUEST_BAND: [u32; 3] = [20, 30, 50];

    /// The default limit on engine steps, which corresponds to about a quarter of an hour of host
    /// time. A run that exceeds the limit fails. A run whose threads make no progress (no write
    /// changes a value, no thread takes a lock) fails as a livelock after 500 million steps.
    pub const STEP_LIMIT: u64 = settings::STEP_LIMIT;

    /// Creates the machine of a preset: see [`presets`](crate::presets).
    ///
    /// # Errors
    ///
    /// [`SpecError::NoPreset`] if there is no preset with this name.
    pub fn preset(name: &str) -> Result<Machine, SpecError> {
        Spec::preset(name).map(Machine::new)
    }

    /// Creates a machine from a user's own machine file.
    ///
    /// # Errors
    ///
    /// [`SpecError`] if the file is not a valid machine file. The error names the file, the key and
    /// the reason.
    pub fn from_file(path: &Path) -> Result<Machine, SpecError> {
        Spec::from_file(path).map(Machine::new)
    }

    /// Creates a machine from a specification.
    pub fn new(spec: Spec) -> Machine {
        Machine {
            spec,
            seed: 0,
            request_percent: Machine::REQUEST_PERCENT,
            faults: None,
            schedule: Schedule::Time,
            step_limit: Machine::STEP_LIMIT,
            program: "program".to_owned(),
            kernel: None,
            named_kernel: None,
            refused: None,
            statistics: Statistics::default(),
            tape: None,
            trace: false,
            races: false,
            memory: None,
            leaks: false,
            arbitration: Arbitration::default(),
            overlap: Overlap::default(),
            patience: Machine::PATIENCE,
        }
    }

    /// Creates the machine of a replay line, with all settings of the line.
    ///
    /// The caller runs the [program](Replay::program) that the line names, and installs the
    /// [kernel](Replay::kernel) if the line names a kernel. A run with another kernel is refused.
    ///
    /// # Errors
    ///
    /// [`SpecError::OwnFile`] if the line names a machine from a user's own file. In that case,
    /// create that machine and call [`replaying`](Machine::replaying). [`SpecError::NoPreset`] if
    /// no preset has the name.
    pub fn replay(replay: &Replay) -> Result<Machine, SpecError> {
        if let Some(digest) = replay.digest {
            return Err(SpecError::OwnFile { name: replay.machine.clone(), digest });
        }
        Ok(Machine::preset(&replay.machine)?.replaying(replay))
    }

    /// Applies all settings of a replay line except the machine's name, and scales the costs that
    /// the line names. The run is refused if a cost is unknown, or if the line is for a machine
    /// file with other content.
    pub fn replaying(mut self, replay: &Replay) -> Machine {
        for (cost, percent) in &replay.scaled {
            if let Err(error) = self.spec.scale(cost, *percent) {
                self.refused = Some(error.to_string());
            }
        }
        if replay.digest.is_some() && replay.digest != self.spec.digest() {
            let (named, has) = (replay.machine_of(), self.replay_line().machine_of());
            self.refused = Some(format!(
                "the replay line is for the machine {named}, but this is {has}: give the unchanged \
                 file of that run"
            ));
        }
        self.named_kernel.clone_from(&replay.kernel);
        self.seed(replay.seed)
            .request_percent(replay.request_percent)
            .faults(replay.faults)
            .arbitration(replay.arbitration)
            .overlap(replay.overlap)
            .schedule(replay.schedule.clone())
            .step_limit(replay.step_limit)
            .program(&replay.program)
            .races(replay.races)
            .memory(replay.memory)
            .leaks(replay.leaks)
    }

    pub(crate) fn leaks(mut self, leaks: bool) -> Machine {
        self.leaks = leaks;
        self
    }

    pub(crate) fn races(mut self, races: bool) -> Machine {
        self.races = races;
        self
    }

    /// Sets the random seed for jitter, faults, and the choices of schedules.
    pub fn seed(mut self, seed: u64) -> Machine {
        self.seed = seed;
        self
    }

    /// Sets the share of a miss that is request flight, in percent. A value above 100 counts as
    /// 100.
    pub fn request_percent(mut self, percent: u32) -> Machine {
        self.request_percent = percent.min(100);
        self
    }

    /// Sets the faults that the machine injects. Without this call, they are [`Faults::SEARCH`]
    /// under a schedule that searches, and none in a run by time.
    pub fn faults(mut self, faults: Faults) -> Machine {
        self.faults = Some(faults);
        self
    }

    /// Sets how the machine checks the program's use of memory. Without this call, it checks all
    /// uses under a schedule that searches, and frees alone in a run by time.
    ///
    /// ```
    /// use coreline_sim::atomic::{AtomicU64, Ordering};
    /// use coreline_sim::{FailureKind, Machine, MemoryChecks, Misuse};
    ///
    /// # #[global_allocator]
    /// # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
    /// let failure = Machine::preset("host-2c")?.memory(MemoryChecks::On).run(|| {
    ///     let word = Box::into_raw(Box::new(AtomicU64::new(7)));
    ///     // SAFETY: from `into_raw`.
    ///     drop(unsafe { Box::from_raw(word) });
    ///     // SAFETY: none: this is the mistake.
    ///     unsafe { &*word }.load(Ordering::Relaxed)
    /// });
    /// let FailureKind::Memory(mistake) = failure.unwrap_err().kind else { panic!() };
    /// assert_eq!(mistake.misuse, Misuse::UseAfterFree { offset: 0 });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory(mut self, checks: MemoryChecks) -> Machine {
        self.memory = Some(checks);
        self
    }

    /// Fails a run that does not free its memory, and checks all other uses of memory. A block is
    /// not lost if the run's value leads to it, or an object of a
    /// [`WorldStatic`](coreline_world::WorldStatic) or [`Static`](crate::Static). A word that looks
    /// like a block's address counts as that address.
    ///
    /// The machine cannot see pointers from the host's memory to a block. So it reports a leak if
    /// the program adds to a collection of the host, or uses a lazily created object of the host
    /// such as std's output.
    pub fn find_leaks(self) -> Machine {
        self.leaks(true)
    }

    /// The checks that are set, or those of the schedule.
    fn memory_in_effect(&self) -> MemoryChecks {
        let own = if self.searches() { MemoryChecks::On } else { MemoryChecks::Off };
        let least = if self.leaks { MemoryChecks::On } else { MemoryChecks::Off };
        self.memory.unwrap_or(own).max(least)
    }

    /// Whether the schedule looks for mistakes.
    fn searches(&self) -> bool {
        self.schedule != Schedule::Time
    }

    /// The faults that are set, or those of the schedule.
    fn faults_in_effect(&self) -> Faults {
        let own = if self.searches() { Faults::SEARCH } else { Faults::NONE };
        self.faults.unwrap_or(own)
    }

    /// Sets the policy by which the machine chooses the thread that runs next.
    pub fn schedule(mut self, schedule: Schedule) -> Machine {
        self.schedule = schedule;
        self
    }

    /// Sets the number of engine steps after which a run fails. A step is an access, an iteration
    /// of a spin loop or a scheduling decision.
    pub fn step_limit(mut self, steps: u64) -> Machine {
        self.step_limit = steps;
        self
    }

    /// The default [patience](Machine::patience).
    pub const PATIENCE: Duration = Duration::from_secs(60);

    /// Sets how long a thread may do nothing that the machine sees, in the host's time. Then the
    /// run fails as [`Stuck`](FailureKind::Stuck), and the failure says where the thread is. The
    /// thread may wait for a lock or channel of std, or compute without end. `Duration::MAX`
    /// switches this off.
    ///
    /// If the thread computes, its processor time counts. If it sleeps, it is checked 30 times,
    /// spread over the span. So a slow or stopped host does not shorten the patience. Another
    /// thread of the process makes the checks, with the signal `SIGURG`. The stuck thread is
    /// abandoned where it stands, so locks of the host that it holds stay locked.
    pub fn patience(mut self, patience: Duration) -> Machine {
        self.patience = patience;
        self
    }

    /// Sets the name of the program in the replay line. The name is put on one line, with single
    /// spaces.
    pub fn program(mut self, name: &str) -> Machine {
        self.program = name.split_whitespace().collect::<Vec<_>>().join(" ");
        self
    }

    /// Sets the kernel that assigns concurrency IDs. Without a kernel, threads have no concurrency
    /// IDs.
    pub fn kernel(mut self, kernel: Box<dyn Kernel>) -> Machine {
        self.kernel = Some(kernel);
        self
    }

    /// Sets the arbitration between the requests for a contended line.
    pub fn arbitration(mut self, arbitration: Arbitration) -> Machine {
        self.arbitration = arbitration;
        self
    }

    /// Sets whether independent accesses of one thread overlap.
    pub fn overlap(mut self, overlap: Overlap) -> Machine {
        self.overlap = overlap;
        self
    }

    /// Sets the level of detail of the report.
    pub fn statistics(mut self, statistics: Statistics) -> Machine {
        self.statistics = statistics;
        self
    }

    /// Records the run for a timeline viewer, in [`Run::trace`]. Recording takes no simulated time,
    /// and about a hundred bytes of memory for each miss.
    ///
    /// ```no_run
    /// use coreline_sim::{Machine, thread};
    ///
    /// # #[global_allocator]
    /// # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
    /// let run = Machine::preset("host-2c")?.trace().run(|| thread::spawn(|| ()).join().unwrap())?;
    /// let file = std::fs::File::create("trace.json")?;
    /// run.trace.unwrap_or_default().write_json(std::io::BufWriter::new(file))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trace(mut self) -> Machine {
        self.trace = true;
        self
    }

    /// Detects data races. A run fails as soon as two accesses to the same
    /// [cell](crate::cell::UnsafeCell) are unordered and one of them writes. A release and acquire,
    /// a lock, a fence, and the start or end of a thread order accesses.
    ///
    /// Every run is sequentially consistent, but the detector also finds missing orderings. The two
    /// accesses of the run only need to be close enough, whatever values they read. Detection takes
    /// no simulated time. It takes some host time for each thread at each access to a synchronising
    /// word, and memory for each pair of threads. The detector does not see synchronisation inside
    /// std, such as words of std or a `Waker` made from an `Arc`. It may report accesses that only
    /// std orders.
    ///
    /// ```
    /// use coreline_sim::atomic::{AtomicBool, Ordering};
    /// use coreline_sim::cell::UnsafeCell;
    /// use coreline_sim::sync::Arc;
    /// use coreline_sim::{FailureKind, Machine, thread};
    ///
    /// # #[global_allocator]
    /// # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
    /// let failure = Machine::preset("host-2c")?.find_races().run(|| {
    ///     let shared = Arc::new((UnsafeCell::new(0), AtomicBool::new(false)));
    ///     let theirs = Arc::clone(&shared);
    ///     thread::spawn(move || {
    ///         // SAFETY: this is the mistake: `Relaxed` passes nothing on. (Here all is well.)
    ///         theirs.0.with_mut(|it| unsafe { *it = 42 });
    ///         theirs.1.store(true, Ordering::Relaxed);
    ///     });
    ///     while !shared.1.load(Ordering::Acquire) {}
    ///     // SAFETY: as in the other thread.
    ///     shared.0.with(|it| unsafe { *it })
    /// });
    /// assert!(matches!(failure.unwrap_err().kind, FailureKind::DataRace { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find_races(self) -> Machine {
        self.races(true)
    }

    /// Puts down all accesses.
    pub(crate) fn tape(self, tape: &Tape) -> Machine {
        Machine { tape: Some(Tape::clone(tape)), ..self.statistics(Statistics::Full) }
    }

    /// Returns the replay line, which repeats a run of this machine.
    pub fn replay_line(&self) -> Replay {
        let scaled = self.spec.scaled().map(|(cost, percent)| (cost.to_owned(), percent));
        Replay {
            machine: self.spec.name().to_owned(),
            digest: self.spec.digest(),
            seed: self.seed,
            request_percent: self.request_percent,
            faults: self.faults_in_effect(),
            arbitration: self.arbitration,
            overlap: self.overlap,
            schedule: self.schedule.clone(),
            step_limit: self.step_limit,
            scaled: scaled.collect(),
            kernel: self.kernel.as_ref().map(|kernel| kernel.name().to_owned()),
            races: self.races,
            memory: self.memory_in_effect(),
            leaks: self.leaks,
            program: self.program.clone(),
        }
    }

    /// Returns the specification of the machine.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Runs `root` as the first thread, until all threads have ended. The first thread starts on
    /// CPU 0 and is not bound to it.
    ///
    /// # Errors
    ///
    /// [`Failure`] if a thread panics and no code catches the panic, no thread can run, the run
    /// does not end, or the machine cannot start. The process can continue, with two exceptions.
    /// Unfinished threads leak everything that they own, including their stacks (256 KiB each, of
    /// which only the touched part is in memory). If an unfinished thread was unwinding at that
    /// moment, the host thread counts as [panicking](std::thread::panicking) from then on.
    ///
    /// # Panics
    ///
    /// Panics if the machine's [`Kernel`] panics.
    ///
    /// # What simulated code must not do
    ///
    /// * Do not use more than 256 KiB of stack. Otherwise the run
    ///   [fails](FailureKind::StackOverflow), and locks of the host that the thread held stay
    ///   locked.
    /// * Do not wait in a loop that makes no simulated access, or for a lock or a channel of std,
    ///   because no other thread runs meanwhile. The run [fails](FailureKind::Stuck) after its
    ///   [patience](Machine::patience).
    /// * Do not wait for a machine with the same replay line on another host thread. That machine
    ///   waits for this machine to end. The replay line determines the addresses that a program
    ///   sees, and only one machine at a time can use these addresses.
    ///   [`program`](Machine::program) makes lines differ.
    /// * While the thread holds a lock of the host or a borrow of a shared `RefCell`, do not make a
    ///   simulated access or call.
    /// * Do not ask `std` for the thread or the time, because `thread_local!`,
    ///   `std::thread::panicking` and the clock are those of the one host thread. Use their
    ///   simulated counterparts instead, such as [`WorldLocal`](coreline_world::WorldLocal).
    pub fn run<T: 'static>(
        self,
        root: impl FnOnce() -> T + 'static,
    ) -> Result<Run<T>, Box<Failure>> {
        self.run_noting(root).0
    }

    /// Like [`run`](Machine::run); returns the decisions of a listed schedule as well.
    pub(crate) fn run_noting<T: 'static>(self, root: impl FnOnce() -> T + 'static) -> Noted<T> {
        let (job, value) = job(root);
        let kept = (Rc::as_ptr(&value).addr(), size_of::<Cell<Option<T>>>());
        // What the value leads to is looked at when the run has ended.
        Rc::as_ptr(&value).expose_provenance();
        taken(self.run_job(job, kept), value)
    }

    fn run_job(self, job: Job, kept: (usize, usize)) -> Noted<()> {
        let home = self.replay_line().home();
        match self.calibrated() {
            Ok(machine) => machine.run_as_is(Some(home), job, kept),
            Err(failure) => (Err(failure), Decisions::default()),
        }
    }

    /// Like [`run_job`](Machine::run_job), with the costs as they are, at home or anywhere. `kept`
    /// is where the program's value will be.
    fn run_as_is(self, home: Option<u64>, job: Job, kept: (usize, usize)) -> Noted<()> {
        let replay = self.replay_line();
        let refused = self.refused.or_else(|| {
            let named = self.named_kernel.filter(|named| Some(named) != replay.kernel.as_ref())?;
            let has = replay.kernel.as_deref().unwrap_or("none");
            Some(format!(
                "the replay line is for a run under the kernel {named:?}, but this machine has \
                 {has}; install the kernel with `Machine::kernel`"
            ))
        });
        if let Some(why) = refused {
            let kind = FailureKind::Refused { why };
            let (threads, cpus, locks) = (Vec::new(), Vec::new(), Vec::new());
            let panics = Vec::new();
            let failure = Failure { kind, at_ns: 0, threads, cpus, locks, panics, replay };
            return (Err(Box::new(failure)), Decisions::default());
        }
        let setup = Setup {
            spec: self.spec,
            home,
            seed: self.seed,
            request_percent: self.request_percent,
            faults: replay.faults,
            schedule: self.schedule,
            step_limit: self.step_limit,
            kernel: self.kernel,
            statistics: self.statistics,
            tape: self.tape,
            trace: self.trace,
            races: self.races,
            arbitration: self.arbitration,
            overlap: self.overlap,
            replay: replay.clone(),
            memory: replay.memory,
            patience: self.patience,
            leaks: self.leaks.then_some(kept),
        };
        match engine::run(setup, job) {
            Ok(Finished { report, locks, trace, decisions }) => {
                (Ok(Run { value: (), report, locks, trace }), decisions)
            }
            Err(failed) => {
                let engine::Failed { kind, at_ns, threads, cpus, locks, panics } = *failed;
                let failure = Failure { kind, at_ns, threads, cpus, locks, panics, replay };
                (Err(Box::new(failure)), Decisions::default())
            }
        }
    }
}

/// The value that a program's first thread leaves for the caller of the machine.
type Value<T> = Rc<Cell<Option<T>>>;

/// A program as what the machine runs, and where its value will be.
fn job<T: 'static>(root: impl FnOnce() -> T + 'static) -> (Job, Value<T>) {
    let value = Rc::new(Cell::new(None));
    let theirs = Rc::clone(&value);
    (Job::new(move || theirs.set(Some(root()))), value)
}

/// A run with its value.
fn taken<T>((run, decisions): Noted<()>, value: Value<T>) -> Noted<T> {
    match run {
        Ok(Run { value: (), report, locks, trace }) => {
            let value = value.take().expect("a machine that stops well has run its first thread");
            (Ok(Run { value, report, locks, trace }), decisions)
        }
        Err(failure) => {
            // Leaks, as what the threads own: its destructor may be simulated code.
            mem::forget(value);
            (Err(failure), decisions)
        }
    }
}

/// A run, and where its schedule could have gone another way.
type Noted<T> = (Result<Run<T>, Box<Failure>>, Decisions);
