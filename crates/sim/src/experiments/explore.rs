//! The search for a schedule under which a program fails.

use crate::engine::Decision;
use crate::machine::Machine;
use crate::results::failure::{Failure, FailureKind};
use crate::results::replay::Replay;
use crate::settings::memory::MemoryChecks;
use crate::settings::schedule::{Choices, Schedule};

/// Runs a program on one machine after another. Returns the number of runs.
///
/// ```
/// use coreline_sim::{FailureKind, Machine, Schedule, Sim, search};
/// use coreline_topology::CpuId;
/// use coreline_world::{JoinHandle, Ordering, Placement, Threads, Word, Words};
/// use std::sync::Arc;
///
/// #[global_allocator]
/// static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
///
/// /// Two threads add without an atomic addition, and one of them loses.
/// fn lossy() {
///     let sum = Arc::new(<Sim as Words>::U32::new_in(0));
///     let threads = [0, 1].map(|cpu| {
///         let sum = Arc::clone(&sum);
///         let add = move || sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
///         Sim::spawn(Placement::On(CpuId::new(cpu)), add).unwrap()
///     });
///     threads.into_iter().for_each(JoinHandle::join);
///     assert_eq!(sum.load(Ordering::Relaxed), 2);
/// }
///
/// let machine = |seed| Machine::preset("host-2c").unwrap().seed(seed).schedule(Schedule::Random);
/// let failure = search((0..100).map(machine), lossy).unwrap_err();
/// assert!(matches!(failure.kind, FailureKind::Panic { .. }));
/// ```
///
/// # Errors
///
/// The first [`Failure`].
pub fn search(
    machines: impl IntoIterator<Item = Machine>,
    program: impl Fn() + Clone + 'static,
) -> Result<u64, Box<Failure>> {
    let mut runs = 0;
    for machine in machines {
        let run = machine.run(program.clone());
        run.map_err(|failure| with_places(failure, program.clone()))?;
        runs += 1;
    }
    Ok(runs)
}

/// The same failure with the places of allocations and frees, if it is a mistake with memory. The
/// run is repeated to trace these places. The failure as it is, if the run cannot be repeated from
/// its line alone.
pub(crate) fn with_places(failure: Box<Failure>, program: impl FnOnce() + 'static) -> Box<Failure> {
    let replay = Replay { memory: MemoryChecks::Traced, ..failure.replay.clone() };
    let FailureKind::Memory(mistake) = &failure.kind else { return failure };
    if replay.kernel.is_some() || failure.replay.memory == MemoryChecks::Traced {
        return failure;
    }
    let Ok(machine) = Machine::replay(&replay) else { return failure };
    match machine.run(program).map_err(|again| (again.kind.clone(), again)) {
        Err((FailureKind::Memory(again), traced)) if again.misuse == mistake.misuse => traced,
        _ => failure,
    }
}

/// An exploration, which runs a tiny program under every schedule with few preemptions. It follows
/// Musuvathi and Qadeer, ["Iterative context bounding for systematic testing of multithreaded
/// programs"](https://doi.org/10.1145/1273442.1250785) (PLDI 2007). Most mistakes take one or two
/// preemptions. The number of schedules with at most a given number of preemptions is polynomial in
/// the length of the program.
///
/// A preemption is a switch away from a thread that could continue. When a thread blocks or ends,
/// every thread that could run next is tried, and this does not count as a preemption. A thread
/// that yields or waits in a loop lets the next thread in cyclic order run. A switch to any other
/// thread counts as a preemption. So the exploration ends even if several threads wait in loops.
///
/// A spurious wake-up and a weak exchange that fails count as preemptions, too: see
/// [`Faults::SEARCH`](crate::Faults::SEARCH). The choice that a spinning thread continues alone
/// counts, too.
///
/// All other sources of variation are fixed. The machine's one seed determines jitter, other
/// faults, and when freed memory is given out again. Memory is sequentially consistent. For weak
/// memory order, use the model checker's world.
///
/// ```
/// use coreline_sim::{Explore, Machine};
///
/// #[global_allocator]
/// static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
///
/// let machine = || Machine::preset("host-2c").unwrap();
/// let explored = Explore::new().preemptions(2).limit(1000).run(machine, || ())?;
/// assert!(explored.complete);
/// assert_eq!(explored.runs, 1);
/// # Ok::<(), Box<coreline_sim::Failure>>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use = "nothing is explored until it runs"]
pub struct Explore {
    preemptions: u32,
    limit: u64,
}

/// The result of an exploration without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explored {
    /// The number of schedules that ran.
    pub runs: u64,
    /// Whether the runs cover all schedules with the allowed number of preemptions. It is false if
    /// the limit ended the exploration, or if a thread spun alone for 1,000 turns without an end.
    /// It is also false if a thread passed 10,000 points while others could run, because the
    /// machine then made it yield.
    pub complete: bool,
}

impl Default for Explore {
    fn default() -> Self {
        Explore::new()
    }
}

impl Explore {
    /// Creates an exploration with the defaults: at most 2 preemptions and 100,000 runs.
    pub fn new() -> Explore {
        Explore { preemptions: 2, limit: 100_000 }
    }

    /// Sets the maximum number of preemptions in a run.
    pub fn preemptions(self, preemptions: u32) -> Explore {
        Explore { preemptions, ..self }
    }

    /// Sets the maximum number of runs.
    pub fn limit(self, limit: u64) -> Explore {
        Explore { limit, ..self }
    }

    /// Runs `program` on a new machine for each schedule. The exploration ignores the schedule that
    /// `machine` sets.
    ///
    /// # Errors
    ///
    /// The first [`Failure`]. Its replay line contains the schedule.
    pub fn run(
        self,
        machine: impl Fn() -> Machine,
        program: impl Fn() + Clone + 'static,
    ) -> Result<Explored, Box<Failure>> {
        let (mut path, mut is_bounded) = (Vec::new(), false);
        for runs in 1..=self.limit {
            let schedule = Schedule::Choices(choices(&path));
            let (run, decisions) = machine().schedule(schedule).run_noting(program.clone());
            run.map_err(|failure| with_places(failure, program.clone()))?;
            is_bounded |= decisions.is_bounded;
            let beyond = decisions.all.get(path.len()..).unwrap_or_default();
            path.extend(beyond.iter().map(|&decision| Step { decision, choice: 0 }));
            if !advance(&mut path, self.preemptions) {
                return Ok(Explored { runs, complete: !is_bounded });
            }
        }
        Ok(Explored { runs: self.limit, complete: false })
    }
}

/// A decision of a run, and what was chosen: 0 for what happens by itself.
struct Step {
    decision: Decision,
    choice: u32,
}

impl Step {
    fn preempts(&self) -> bool {
        self.decision.preempts && self.choice > 0
    }
}

fn choices(path: &[Step]) -> Choices {
    let chosen = path.iter().enumerate().filter(|(_, step)| step.choice > 0);
    Choices(chosen.map(|(point, step)| (point as u64, step.choice)).collect())
}

/// Moves on to the next path, depth first. False if there is none.
fn advance(path: &mut Vec<Step>, preemptions: u32) -> bool {
    while let Some(mut step) = path.pop() {
        step.choice += 1;
        let used = path.iter().filter(|step| step.preempts()).count();
        let allowed = !step.decision.preempts || used < preemptions as usize;
        if allowed && step.choice < step.decision.alternatives {
            path.push(step);
            return true;
        }
    }
    false
}
