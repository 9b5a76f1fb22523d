//! `ipistorm`: one CPU repeatedly calls a function on another, idle CPU, and waits for each call
//! (Nayak 2024).
//!
//! The pattern is that of Blanchard's `ipistorm`, with the options of Nayak (`single=1 wait=1`).
//! CPU 8 calls a function on CPU 16, one call after another. The function does almost nothing. The
//! variants differ in the effect of a call on the called CPU:
//!
//! | variant | a call to an idle CPU that polls | and then that CPU |
//! |---|---|---|
//! | `resched` | says "there is work" | searches for work of other CPUs |
//! | `always-kick` | is always an interrupt or a wake-up | continues to wait |
//! | `notify` | says "there is a call" | continues to wait |
//!
//! There are two kinds of variants. The variants `resched`, `always-kick` and `notify` are the
//! three policies of [`coreline::Workers`], in both worlds. The variants `kernel-resched` and so on
//! are the [idle loop](super::idle) of a kernel, in simulated worlds only. The published figures
//! are about the idle loop. A worker that searches for work of other workers cannot be interrupted
//! either, so the next call waits, as in the kernel.
//!
//! `scan` is the part of the machine that an idle CPU searches for work. Nayak does not publish it.
//! `masked` is the rest of the kernel's pass through its scheduler, with interrupts masked.
//!
//! The scenario checks itself. When a call returns, its function must have run exactly once.

pub mod kernel;
pub mod pool;

use coreline_sim::Sim;
use coreline_topology::CpuId;
use coreline_world::{Native, Testbed};

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::idle::{MASKED, SCAN, VARIANTS, is_kernel};
use super::metric::FigureKind::{Nanoseconds, PerThousand, Ratio};
use super::param::{Around, Param};
use super::point::Setup;
use super::{RunError, Scenario};

/// Index in a run's numbers: the time of a call, in nanoseconds.
pub const CALL: usize = 0;
/// Index in a run's numbers: the number of interrupts or wake-ups per thousand calls.
pub const KICKS: usize = 1;
/// Index in a run's numbers: the number of searches for work per thousand calls.
pub const SCANS: usize = 2;

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        SCAN.usual(&["none", "cache", "socket", "all"]).quick(&["socket"]),
        MASKED.depends(masked),
        Param::effort("calls", 1_000_000).depends(calls),
    ],
    variants: &VARIANTS,
    figures: &[
        Figure::new("call_ns", Nanoseconds, Number(CALL)),
        Figure::new("kicks", PerThousand, Number(KICKS)),
        Figure::new("scans", PerThousand, Number(SCANS)),
        Figure::new("time_over_resched", Ratio, Over(CALL, "resched"))
            .when(|it| !is_kernel(it.variant) && it.variant != "resched"),
        Figure::new("time_over_kernel_resched", Ratio, Over(CALL, "kernel-resched"))
            .when(|it| is_kernel(it.variant) && it.variant != "kernel-resched"),
    ],
    not_testable: "the run has few CPUs, which share one L3: an idle CPU has almost no queue to \
                   search, so the run does not show the cost of a long search",
    published: Some(include_str!("../../published/ipistorm.toml")),
    ..Scenario::new(
        "ipistorm",
        "Waiting calls to an idle CPU that polls (Nayak 2024)",
        [run::<Native>, run_simulated],
    )
};

fn masked(around: &Around<'_>) -> Vec<u64> {
    match (around.natively, around.quick) {
        (true, _) => vec![0],
        (false, true) => vec![400],
        (false, false) => vec![400, 1_500, 5_000],
    }
}

fn calls(around: &Around<'_>) -> Vec<u64> {
    vec![match (around.natively, around.quick) {
        (true, true) => 5_000,
        (true, false) => 100_000,
        (false, true) => 500,
        (false, false) => 2_000,
    }]
}

/// The CPU that calls, and the one that is called.
fn pair(setup: &Setup) -> Result<(CpuId, CpuId), RunError> {
    match setup.cpus[..] {
        [.., _] if setup.cpus.len() > 16 => Ok((setup.cpus[8], setup.cpus[16])),
        [from, .., to] => Ok((from, to)),
        _ => Err(RunError::Lack("with one CPU, there is no other CPU to call".to_owned())),
    }
}

fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    pool::storm::<W>(setup, pair(setup)?)
}

fn run_simulated(setup: &Setup) -> Result<Vec<f64>, RunError> {
    if is_kernel(setup.variant) { kernel::storm(setup, pair(setup)?) } else { run::<Sim>(setup) }
}
