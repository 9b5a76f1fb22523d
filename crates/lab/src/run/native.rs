//! All runs of a scenario on this machine, one after the other.

use core::time::Duration;
use std::io::{self, Write};

use coreline_topology::CpuId;
use coreline_world::native::probe;
use coreline_world::{Native, Place};

use super::{Case, Choice, Measured, mean, progress};
use crate::error::Error;
use crate::scenario::intermittent::{Broken, Params, SEQUENCES, intermittent};
use crate::scenario::{Config, Variant};

/// What the quick form takes at most, so that it ends within seconds on any machine.
const QUICK_CPUS: usize = 32;

/// Runs all cases. Where the machine has no concurrency IDs, their cases are left out with a note,
/// unless nothing else was asked for.
pub(super) fn measure(choice: &Choice) -> Result<Vec<Measured>, Error> {
    let machine = probe();
    let allowed = machine.allowed.map_err(Error::NoCpus)?;
    let most = if choice.quick { QUICK_CPUS } else { usize::MAX };
    let cpus: Vec<CpuId> = allowed.iter().take(most).collect();
    let mut cases = choice.cases(vec![Config::of(&machine.topology, cpus)])?;
    let needs_cid = |case: &Case| case.variant == Variant::KernelCid;
    if Native::kernel_cid().is_none() && !cases.iter().all(needs_cid) {
        cases.retain(|case| !needs_cid(case));
        let lack = Broken::NoIndex { variant: Variant::KernelCid };
        // A note: the result says by itself which rows it has.
        let _ = writeln!(io::stderr(), "coreline: left out: {lack}");
    }
    let bar = progress("native", cases.len() * choice.runs() as usize);
    let mut measured = Vec::with_capacity(cases.len());
    for case in cases {
        let mut points = Vec::new();
        for run in 0..choice.runs() {
            let params = Params {
                cpus: case.config.cpus.clone(),
                delay: Duration::from_millis(case.delay_ms),
                variant: case.variant,
                sequences: SEQUENCES,
                seed: choice.seed.wrapping_add(run),
            };
            let bursts = intermittent::<Native>(&params).map_err(Error::BrokenNatively)?;
            points.push(bursts.iter().sum::<u64>() as f64 / bursts.len() as f64);
            bar.inc(1);
        }
        measured.push(Measured { case, value: mean(&points), points });
    }
    bar.finish_and_clear();
    Ok(measured)
}
