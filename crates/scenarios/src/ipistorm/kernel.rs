//! Calls to a CPU that runs a kernel's [idle loop](crate::idle). They model
//! `smp_call_function_single` of Linux 6.8, as far as Nayak 2024 concerns it.
//!
//! Under `kernel-resched`, every second call waits for a scheduler pass that searches for work and
//! finds none. Because the other CPUs are idle, no CPU writes the lines that the pass reads. So
//! after the first pass, these lines are in the cache.

use std::sync::Arc;

use coreline_sim::Sim;
use coreline_topology::CpuId;
use coreline_world::{Clock, JoinHandle, Line, Ordering, Place, Placement, Threads, Word, Words};

use super::{CALL, KICKS, SCANS};
use crate::RunError;
use crate::crew::nanos;
use crate::idle::{Idle, Kernel, idle, tell, visited};
use crate::point::Setup;

type U32 = <Sim as Words>::U32;
type U64 = <Sim as Words>::U64;

/// Calls that are not counted: the first look for work brings the lines.
const WARM_UP: u64 = 50;

/// The number of the CPU that is called.
const CALLED: usize = 0;

/// The CPU that is called.
pub struct Called {
    idle: Idle,
    /// Not zero if there is a call.
    queue: Line<U32>,
    /// How many calls have run.
    ran: Line<U64>,
    /// How many are done, as their caller sees it.
    done: Line<U64>,
    /// A line for each CPU that is looked at.
    queues: Vec<Line<U32>>,
}

impl Called {
    /// Creates the called CPU, which idles, and to which no call was sent.
    pub fn new(setup: &Setup, to: CpuId) -> Called {
        let place = |cpu: CpuId| setup.cpus.iter().position(|it| *it == cpu);
        let visits = visited(&Sim::topology(), setup, to).into_iter().filter_map(place);
        Called {
            idle: Idle::new(setup, to, visits.collect()),
            queue: Line(U32::new_in(0)),
            ran: Line(U64::new_in(0)),
            done: Line(U64::new_in(0)),
            queues: setup.cpus.iter().map(|_| Line(U32::new_in(0))).collect(),
        }
    }

    /// Counts one call as run, although no caller sent it. Only a test of the scenario's own check
    /// uses this.
    #[doc(hidden)]
    pub fn plant(&self) {
        // Relaxed: nothing runs yet.
        self.ran.store(1, Ordering::Relaxed);
    }
}

impl Kernel for Called {
    fn idle(&self, _: usize) -> &Idle {
        &self.idle
    }

    /// Runs the call that is there, if there is one. It queues no task.
    fn flush(&self, _: usize) -> bool {
        // AcqRel: pairs with the exchange in `call`.
        if self.queue.swap(0, Ordering::AcqRel) == 0 {
            return false;
        }
        // Relaxed: this CPU's own.
        let ran = self.ran.load(Ordering::Relaxed) + 1;
        self.ran.store(ran, Ordering::Relaxed);
        // Release: pairs with the Acquire of the caller's wait.
        self.done.store(ran, Ordering::Release);
        false
    }

    fn look(&self, cpu: usize) {
        // Relaxed: a look.
        self.queues[cpu].load(Ordering::Relaxed);
    }
}

pub(super) fn storm(setup: &Setup, (from, to): (CpuId, CpuId)) -> Result<Vec<f64>, RunError> {
    storm_of(&Arc::new(Called::new(setup, to)), setup, (from, to))
}

/// Runs both CPUs. Returns the numbers of the scenario.
///
/// # Errors
///
/// [`RunError`] if a thread could not be started, or if a call did not run exactly once.
pub fn storm_of(
    callee: &Arc<Called>,
    setup: &Setup,
    (from, to): (CpuId, CpuId),
) -> Result<Vec<f64>, RunError> {
    let calls = setup.number("calls");
    let theirs = Arc::clone(callee);
    let called = Sim::spawn(Placement::On(to), move || idle(&theirs, CALLED))?;
    let theirs = Arc::clone(callee);
    let caller = Sim::spawn(Placement::On(from), move || call_all(&theirs, calls));
    let tallied = caller.map(JoinHandle::join);
    callee.idle.end();
    called.join();
    let [took, kicks, scans] = tallied??;
    let mut numbers = vec![0.0; 3];
    numbers[CALL] = took as f64 / calls as f64;
    numbers[KICKS] = 1000.0 * kicks as f64 / calls as f64;
    numbers[SCANS] = 1000.0 * scans as f64 / calls as f64;
    Ok(numbers)
}

/// The caller's part: nanoseconds, interrupts, and looks for work meanwhile.
fn call_all(callee: &Arc<Called>, calls: u64) -> Result<[u64; 3], RunError> {
    let mut number = 0;
    let mut one = || {
        number += 1;
        let kicks = call(callee)?;
        // Acquire: pairs with the Release in `flush`.
        callee.done.wait_until(Ordering::Acquire, |done| done >= number);
        // Relaxed: ordered by the wait.
        let ran = callee.ran.load(Ordering::Relaxed);
        if ran == number {
            Ok(kicks)
        } else {
            Err(RunError::Check(format!("after call {number}, {ran} calls have run, not {number}")))
        }
    };
    for _ in 0..WARM_UP {
        one()?;
    }
    let before = callee.idle.scans();
    let begin = Sim::now();
    let mut kicks = 0;
    for _ in 0..calls {
        kicks += u64::from(one()?);
    }
    let took = nanos(begin, Sim::now());
    Ok([took, kicks, callee.idle.scans() - before])
}

/// Sends a call; whether that took an interrupt.
fn call(callee: &Arc<Called>) -> Result<bool, RunError> {
    // AcqRel: pairs with the exchange in `flush`.
    if callee.queue.swap(1, Ordering::AcqRel) != 0 {
        // Another call's sender has told of it: there is none with one caller.
        return Ok(false);
    }
    tell(callee, CALLED)
}
