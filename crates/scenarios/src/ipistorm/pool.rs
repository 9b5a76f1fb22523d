//! Calls to [`Workers`] under each of their policies.

use std::sync::Arc;

use coreline::Workers;
use coreline::call::{Policy, WorkerStats};
use coreline_topology::CpuId;
use coreline_world::{JoinHandle, Line, Ordering, Placement, Testbed, Word};

use super::{CALL, KICKS, SCANS};
use crate::RunError;
use crate::crew::nanos;
use crate::idle::visited;
use crate::point::Setup;

/// Calls that are not counted: workers that have just started look for work once.
const WARM_UP: u64 = 100;

/// A pool has a worker on each CPU whose work is looked at, and on the one that is called.
pub(super) fn storm<W: Testbed>(
    setup: &Setup,
    (from, to): (CpuId, CpuId),
) -> Result<Vec<f64>, RunError> {
    let policy = match setup.variant {
        "resched" => Policy::Resched,
        "always-kick" => Policy::AlwaysKick,
        _ => Policy::Notify,
    };
    let mut cpus = visited(&W::topology(), setup, to);
    cpus.push(to);
    let builder = Workers::<W>::builder_in().cpus(cpus.into_iter().collect()).policy(policy);
    let workers = builder.start().map_err(|error| RunError::Lack(error.to_string()))?;
    let workers = Arc::new(workers);
    let calls = setup.number("calls");
    let theirs = Arc::clone(&workers);
    // The worker alone writes it: on the caller's stack it would be beside what the caller writes.
    let ran = Box::new(Line(W::U64::new_in(0)));
    let caller = W::spawn(Placement::On(from), move || call(&theirs, to, calls, &ran.0))?;
    let (took, counted) = caller.join()?;
    let per_thousand = |count: u64| 1000.0 * count as f64 / calls as f64;
    let mut numbers = vec![0.0; 3];
    numbers[CALL] = took as f64 / calls as f64;
    let kicks = if policy == Policy::AlwaysKick { counted.calls } else { counted.sleeps };
    numbers[KICKS] = per_thousand(kicks);
    numbers[SCANS] = per_thousand(counted.searches);
    Ok(numbers)
}

/// Calls a worker repeatedly. Returns the nanoseconds of all calls, and the worker's statistics of
/// this time. `ran` is the number of calls that have run.
///
/// # Errors
///
/// [`RunError`] if a call is refused, or if a call did not run exactly once.
pub fn call<W: Testbed>(
    workers: &Workers<W>,
    to: CpuId,
    calls: u64,
    ran: &W::U64,
) -> Result<(u64, WorkerStats), RunError> {
    let stats = || {
        let mut all = workers.stats();
        all.find(|(cpu, _)| *cpu == to).map_or(WorkerStats::default(), |(_, stats)| stats)
    };
    let one = || {
        let add = || {
            // Relaxed, twice: one call at a time, and each comes after the one before it.
            let count = ran.load(Ordering::Relaxed) + 1;
            ran.store(count, Ordering::Relaxed);
            count
        };
        workers.call_on(to, add).map_err(|refused| RunError::Lack(refused.why.to_string()))
    };
    for _ in 0..WARM_UP {
        one()?;
    }
    let before = stats();
    let begin = W::now();
    for number in 1..=calls {
        let count = one()?;
        if count != WARM_UP + number {
            return Err(RunError::Check(format!(
                "{count} calls have run after call {number}, not {}",
                WARM_UP + number
            )));
        }
    }
    let took = nanos(begin, W::now());
    Ok((took, stats() - before))
}
