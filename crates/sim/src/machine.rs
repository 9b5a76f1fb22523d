//! The machine: what to run on, how, and the run.

use std::path::Path;

use crate::crowd::Arbitration;
use crate::engine::{self, Setup};
use crate::failure::{Failure, Replay};
use crate::faults::Faults;
use crate::kernel::Kernel;
use crate::report::{Report, Statistics};
use crate::spec::{Spec, SpecError};

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
/// A run uses the calling host thread alone; run many machines on many host threads.
#[must_use = "a machine does nothing until it runs"]
pub struct Machine {
    spec: Spec,
    seed: u64,
    request_percent: u32,
    faults: Faults,
    step_limit: u64,
    program: String,
    kernel: Option<Box<dyn Kernel>>,
    statistics: Statistics,
    arbitration: Arbitration,
}

/// A program that ran to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run<T> {
    /// What its first thread returned.
    pub value: T,
    /// What it cost.
    pub report: Report,
}

impl Machine {
    /// The share of a miss that is request flight, if nothing else is said, in percent. Unknown for
    /// real machines: claims hold over [`REQUEST_BAND`](Machine::REQUEST_BAND).
    pub const REQUEST_PERCENT: u32 = 30;

    /// The shares of request flight that a claim must hold over, in percent.
    pub const REQUEST_BAND: [u32; 3] = [0, 30, 50];

    /// The number of engine steps after which a run counts as a livelock, if nothing else is said:
    /// about a minute of host time.
    pub const STEP_LIMIT: u64 = 500_000_000;

    /// A machine that comes with the crate, see [`presets`](crate::presets).
    ///
    /// # Errors
    ///
    /// [`SpecError::NoPreset`] if there is none of that name.
    pub fn preset(name: &str) -> Result<Machine, SpecError> {
        Spec::preset(name).map(Machine::new)
    }

    /// A machine from a user's own file.
    ///
    /// # Errors
    ///
    /// [`SpecError`] names the file, the key and the reason.
    pub fn from_file(path: &Path) -> Result<Machine, SpecError> {
        Spec::from_file(path).map(Machine::new)
    }

    /// A machine of this kind.
    pub fn new(spec: Spec) -> Machine {
        Machine {
            spec,
            seed: 0,
            request_percent: Machine::REQUEST_PERCENT,
            faults: Faults::default(),
            step_limit: Machine::STEP_LIMIT,
            program: "program".to_owned(),
            kernel: None,
            statistics: Statistics::default(),
            arbitration: Arbitration::default(),
        }
    }

    /// The preset machine, seed, request share, faults and arbitration of a replay line.
    ///
    /// The caller runs the [program](Replay::program) that the line names, and names it so again.
    ///
    /// # Errors
    ///
    /// [`SpecError::NoPreset`] if the line is of a user's own machine; make that and use
    /// [`replaying`](Machine::replaying).
    pub fn replay(replay: &Replay) -> Result<Machine, SpecError> {
        Ok(Machine::preset(&replay.machine)?.replaying(replay))
    }

    /// This machine with the seed, request share, faults, arbitration and program name of a replay
    /// line.
    pub fn replaying(self, replay: &Replay) -> Machine {
        self.seed(replay.seed)
            .request_percent(replay.request_percent)
            .faults(replay.faults)
            .arbitration(replay.arbitration)
            .program(&replay.program)
    }

    /// The seed of everything random: jitter, and what faults hit.
    pub fn seed(mut self, seed: u64) -> Machine {
        self.seed = seed;
        self
    }

    /// The share of a miss that is request flight, in percent; more than 100 counts as 100.
    pub fn request_percent(mut self, percent: u32) -> Machine {
        self.request_percent = percent.min(100);
        self
    }

    /// What the machine does to the program.
    pub fn faults(mut self, faults: Faults) -> Machine {
        self.faults = faults;
        self
    }

    /// After how many engine steps a run counts as a livelock. A step is an access, a turn of a
    /// spin loop or a scheduling decision.
    pub fn step_limit(mut self, steps: u64) -> Machine {
        self.step_limit = steps;
        self
    }

    /// What the replay line calls the program: on one line, with single spaces.
    pub fn program(mut self, name: &str) -> Machine {
        self.program = name.split_whitespace().collect::<Vec<_>>().join(" ");
        self
    }

    /// The kernel that hands out concurrency IDs. Without one there are none.
    pub fn kernel(mut self, kernel: Box<dyn Kernel>) -> Machine {
        self.kernel = Some(kernel);
        self
    }

    /// Whose request a contended line serves next.
    pub fn arbitration(mut self, arbitration: Arbitration) -> Machine {
        self.arbitration = arbitration;
        self
    }

    /// How much the report says.
    pub fn statistics(mut self, statistics: Statistics) -> Machine {
        self.statistics = statistics;
        self
    }

    /// What the machine is.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Runs `root` as the first thread, on CPU 0 and not bound to it, until all threads are done.
    ///
    /// # Errors
    ///
    /// [`Failure`] if a panic left a simulated thread, or nobody can go on, or there is no end in
    /// sight, or the machine cannot start. The process is as good as before, with two exceptions:
    /// unfinished threads leak with all that they own, their stacks included (256 KiB each, of
    /// which only what was touched is in memory), and if one of them was unwinding at that moment,
    /// the host thread counts as [panicking](std::thread::panicking) from then on.
    ///
    /// # Panics
    ///
    /// If the machine's [`Kernel`] does.
    ///
    /// # What simulated code must not do
    ///
    /// * Use more than 256 KiB of stack: the guard page ends the process.
    /// * Wait in a loop that touches nothing simulated: nobody else runs meanwhile.
    /// * Hold a lock of the host, or a `RefCell`'s borrow that others want, across anything
    ///   simulated.
    /// * Ask `std` who or when it is: `thread_local!`, `std::thread::panicking` and the clock are
    ///   those of the one host thread. [`WorldLocal`](coreline_world::WorldLocal) and its like take
    ///   their place.
    pub fn run<T: 'static>(
        self,
        root: impl FnOnce() -> T + 'static,
    ) -> Result<Run<T>, Box<Failure>> {
        let replay = Replay {
            machine: self.spec.name().to_owned(),
            seed: self.seed,
            request_percent: self.request_percent,
            faults: self.faults,
            arbitration: self.arbitration,
            program: self.program,
        };
        let setup = Setup {
            spec: self.spec,
            seed: self.seed,
            request_percent: self.request_percent,
            faults: self.faults,
            step_limit: self.step_limit,
            kernel: self.kernel,
            statistics: self.statistics,
            arbitration: self.arbitration,
        };
        match engine::run(setup, root) {
            Ok((value, report)) => Ok(Run { value, report }),
            Err(failed) => Err(Box::new(Failure {
                kind: failed.kind,
                at_ns: failed.at_ns,
                threads: failed.threads,
                replay,
            })),
        }
    }
}
