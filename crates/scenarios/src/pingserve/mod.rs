//! `pingserve`: clients and servers on different CPUs wake each other (Nayak 2024).
//!
//! The scenario adds a case that `ipistorm` does not contain: messages that queue work. A client
//! sends a request to a server on another CPU and blocks. The server answers and blocks. Each of
//! the two wakes the other. A task on an idle CPU is woken by a call to that CPU, which queues the
//! task (the kernel's wake list and `sched_ttwu_pending`). So an idle CPU that gets a notification
//! must behave as if the message announced work. Its scheduler runs, and then the task. In this
//! case, Nayak's "revert" loses a tenth of tbench's and netperf's throughput, because each wake-up
//! is then an interrupt. The new bit should lose no throughput.
//!
//! The scenario has the variants of `ipistorm`. Three of them are policies of
//! [`coreline::Workers`], in both worlds. In these three variants, a task is woken by a call that
//! queues it. The other variants are the [idle loop](super::idle) of a kernel.
//!
//! | module | holds |
//! |---|---|
//! | [`load`] | the messages between tasks, by shape; the counts and checks |
//! | `kernel` | a kernel's CPUs that run the tasks: run queues, wake lists |
//! | `pool` | `Workers` that run the tasks |
//!
//! Tasks are bound to CPUs. Task `n` is on the `n`-th CPU, and the count starts again after the
//! last CPU. CPUs are in the order of their cores, so a client and its server have neighbouring
//! cores under one last-level cache, where a scheduler would place them. Second hardware threads
//! come last.
//!
//! The scenario checks itself. Each message must be handled exactly once.

pub mod kernel;
pub mod load;
pub mod pool;

use coreline_sim::Sim;
use coreline_topology::Cpu;
use coreline_world::{Native, Testbed};

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::idle::{MASKED, SCAN, VARIANTS, is_kernel};
use super::metric::FigureKind::{Gain, PerThousand, Rate};
use super::param::{Around, Domain, Param};
use super::point::Setup;
use super::{RunError, Scenario};

/// Index in a run's numbers: the throughput, in requests per second.
pub const REQUESTS: usize = 0;
/// Index in a run's numbers: the number of interrupts or wake-ups per thousand requests.
pub const KICKS: usize = 1;
/// Index in a run's numbers: the number of searches for work per thousand requests.
pub const SCANS: usize = 2;
/// Index in a run's numbers: the number of times that workers slept per thousand requests.
pub const SLEEPS: usize = 3;

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        Param::new(
            "shape",
            "What the tasks do, as in the benchmark of the same name",
            Domain::Names(&load::NAMES),
        )
        .usual(&["tbench", "netperf", "hackbench", "schbench", "stream"])
        .quick(&["tbench"]),
        Param::number("clients", "The number of clients", [1, 4096]).depends(clients),
        // How long a request and an answer take is not published: a short and a long guess.
        Param::number(
            "work",
            "Nanoseconds that a task computes for a request, and again for an answer",
            [0, 1_000_000],
        )
        .unit("ns")
        .usual(&["1000", "10000"])
        .quick(&["1000"]),
        SCAN.usual(&["cache"]),
        MASKED.depends(|around| vec![if around.natively { 0 } else { 1_500 }]),
        Param::effort("rounds", 1_000_000).depends(rounds),
    ],
    variants: &VARIANTS,
    figures: &[
        Figure::new("requests", Rate, Number(REQUESTS)),
        Figure::new("kicks", PerThousand, Number(KICKS)),
        Figure::new("scans", PerThousand, Number(SCANS)),
        Figure::new("sleeps", PerThousand, Number(SLEEPS)).when(|it| !is_kernel(it.variant)),
        Figure::new("requests_over_resched", Gain, Over(REQUESTS, "resched"))
            .when(|it| !is_kernel(it.variant) && it.variant != "resched"),
        Figure::new("requests_over_kernel_resched", Gain, Over(REQUESTS, "kernel-resched"))
            .when(|it| is_kernel(it.variant) && it.variant != "kernel-resched"),
    ],
    // `work` and `masked` are declared, and decide how much of a request an interrupt is.
    limited: |metric, _| metric == "requests_over_kernel_resched",
    not_testable: "the run has few CPUs, which share one L3: there is room for only one client \
                   and its server",
    published: Some(include_str!("../../published/pingserve.toml")),
    ..Scenario::new(
        "pingserve",
        "Requests and answers between tasks that wake each other (Nayak 2024)",
        [run::<Native>, run_simulated],
    )
};

fn clients(around: &Around<'_>) -> Vec<u64> {
    let is_table = ["tbench", "netperf"].iter().any(|name| around.values.is("shape", name));
    match (around.natively, around.quick, is_table) {
        (true, ..) => vec![1],
        (false, true, _) => vec![1, 16],
        // The rows of Nayak's tables.
        (false, false, true) => (0..=10).map(|power| 1 << power).collect(),
        (false, false, false) => vec![1, 16, 128],
    }
}

/// Fewer where there are more clients: each takes a time that is drawn, and the slowest one counts.
fn rounds(around: &Around<'_>) -> Vec<u64> {
    let clients = around.values.number("clients");
    let rounds = match (around.natively, around.quick) {
        (true, true) => 1_000,
        (true, false) => 20_000,
        (false, true) => (640 / clients).max(20),
        (false, false) => (6_400 / clients).max(50),
    };
    // A round of these is a message to each of many servers.
    let is_wide = ["hackbench", "schbench"].iter().any(|name| around.values.is("shape", name));
    vec![if is_wide { rounds / 5 } else { rounds }]
}

/// The CPUs, in the order in which they get tasks.
fn places<W: Testbed>(setup: &Setup) -> Result<Vec<Cpu>, RunError> {
    let topology = W::topology();
    let known = setup.cpus.iter().map(|&cpu| {
        topology.cpu(cpu).cloned().ok_or_else(|| {
            RunError::Lack(format!("{cpu} is not in the topology, or its place is unknown"))
        })
    });
    let mut places = known.collect::<Result<Vec<_>, _>>()?;
    places.sort_by_key(|cpu| (cpu.thread, cpu.cache, cpu.id));
    Ok(places)
}

fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    pool::serve::<W>(setup)
}

fn run_simulated(setup: &Setup) -> Result<Vec<f64>, RunError> {
    if is_kernel(setup.variant) { kernel::serve(setup) } else { run::<Sim>(setup) }
}
