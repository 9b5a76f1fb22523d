//! `lockscale`: threads repeatedly take one lock, from 1 thread to all CPUs (Guo 2024 and its
//! successors).
//!
//! A thread on each of the CPUs that take part computes (`outside`), takes the lock, changes the
//! guarded lines ([`field::LINES`]), computes (`section`), and frees the lock. The guarded lines
//! move with the lock. So if a lock stays on near CPUs, its lines stay there, too.
//!
//! | variant | the lock | bytes | in |
//! |---|---|---|---|
//! | `fifo`, `near` | [`Osq`] in either order | 4 | `coreline` |
//! | `ticket` | [`RawTicketLock`] | 8 | `coreline` |
//! | `per-node` | what Guo 2024 proposes: a queue for each memory node | 132 | [`per_node`] |
//! | `mcs` | Mellor-Crummey and Scott's queue (1991) | 4 | [`mcs`] |
//! | `cna` | Kogan and Dice's compact NUMA-aware queue (2019) | 4 | [`cna`] |
//! | `reciprocating` | Dice and Kogan's reciprocating lock (2025) | 4 | [`reciprocating`] |
//! | `test-and-set` | test, then test and set, with exponential backoff | 4 | [`test_and_set`] |
//! | `parking-lot` | one byte, and a lot to park in, as in the crate of that name | 1 | [`lot`] |
//!
//! Each variant implements [`Lock`]. The rest of the program is one function, [`contend`]. In
//! `ticket` and `test-and-set`, all waiters spin on one word. In `parking-lot`, waiters spin on the
//! lock, and then each sleeps on a word of its own. In the other variants, each waiter spins on a
//! word on a line of its own. In `per-node`, the head of each queue also waits for the token and
//! for the lock's word, which all threads share. The papers' locks hold an address of eight bytes.
//! These locks hold a thread's number, so that the world's words suffice.
//!
//! Threads begin one after another, in a random order ([`field::APART`] says why). Turns are
//! counted only after [`field::WARM_UP`], for the time `window`. The time between turns is random,
//! from half to one and a half of the parameter, so that threads do not run in lockstep. The time
//! to read the clock is added to this time.
//!
//! The scenario checks itself. Each guarded line counts the turns, and no turn may be missing.

pub mod cna;
pub mod field;
pub mod lot;
pub mod mcs;
mod ours;
pub mod per_node;
pub mod reciprocating;
pub mod test_and_set;

use coreline::lock::{Fifo, Near, Osq, RawTicketLock};
use coreline_sim::Sim;
use coreline_world::{Native, Testbed};

use field::{LONGEST_RUN, LONGEST_WAIT, NODE_SHARE, OTHER_NODE, RATE, SAME_CACHE, SAME_NODE};
use field::{Load, SHARE, contend};

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::metric::FigureKind::{Gain, Nanoseconds, Part, Percent, Rate, Turns};
use super::param::{Around, Domain, Param};
use super::point::Setup;
use super::{RunError, Scenario, Variant};

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        Param::new("threads", "The number of threads that want the lock", Domain::Cpus(4096))
            .depends(|it| it.threads(&[1, 16], &[1, 2, 4, 8, 16], &[4, 2, 1])),
        Param::new("place", "The CPUs on which threads run", Domain::Names(PLACES))
            .usual(&["packed"]),
        Param::number(
            "section",
            "Nanoseconds that a thread computes while it holds the lock",
            [0, 1_000_000],
        )
        .unit("ns")
        .usual(&["100"]),
        Param::number(
            "outside",
            "Nanoseconds that a thread computes between two turns",
            [0, 1_000_000],
        )
        .unit("ns")
        .usual(&["500"]),
        Param::effort("window", 10_000_000).depends(window),
    ],
    variants: &[
        Variant::new("fifo", "Osq: a queue in four bytes, in order of arrival"),
        Variant::new("near", "Osq: waiters under the holder's cache first, within bounds"),
        Variant::new("per-node", "A queue for each memory node, and a token (Guo 2024)"),
        Variant::new("ticket", "Two counters; all waiters spin on one line"),
        Variant::new("mcs", "Mellor-Crummey and Scott's queue"),
        Variant::new("cna", "Kogan and Dice's queue: waiters of the holder's node first"),
        Variant::new(
            "reciprocating",
            "Dice and Kogan's lock: a batch of arrivals at a time, last first",
        ),
        Variant::new("test-and-set", "One word that all threads try to set, with backoff"),
        Variant::new("parking-lot", "One byte; waiters spin, then sleep in a queue next to it"),
    ],
    figures: &[
        Figure::new("turns", Rate, Number(RATE)),
        Figure::new("share", Gain, Number(SHARE)),
        Figure::new("share_of_nodes", Gain, Number(NODE_SHARE)),
        Figure::new("longest_wait", Nanoseconds, Number(LONGEST_WAIT)),
        Figure::new("longest_run_on_a_node", Turns, Number(LONGEST_RUN)),
        Figure::new("to_same_cache", Part, Number(SAME_CACHE)),
        Figure::new("to_same_node", Part, Number(SAME_NODE)),
        Figure::new("to_other_node", Percent, Number(OTHER_NODE)),
        Figure::new("turns_over_fifo", Gain, Over(RATE, "fifo")).when(|it| it.variant != "fifo"),
    ],
    not_testable: "the run has few CPUs, which share one L3: no evidence about hand-offs to \
                   another node",
    ..Scenario::new(
        "lockscale",
        "One lock, from 1 thread to all CPUs: throughput, fairness, hand-offs by distance (Guo \
         2024)",
        [run::<Native>, run::<Sim>],
    )
};

const PLACES: &[(&str, &str)] = &[
    ("packed", "The CPUs of one node, then the CPUs of the next"),
    ("spread", "A CPU of each node in turn"),
];

/// Microseconds. Natively the kernel comes in between.
fn window(around: &Around<'_>) -> Vec<u64> {
    vec![match (around.natively, around.quick) {
        (true, true) => 2_000,
        (true, false) => 20_000,
        (false, true) => 1_000,
        (false, false) => 4_000,
    }]
}

/// A lock that identifies its threads by number.
pub trait Lock<W: Testbed>: Sized + Send + Sync + 'static {
    /// Creates a free lock for threads on these memory nodes, which are numbered from 0 on.
    fn new_in(nodes: &[u32]) -> Self;

    /// Calls a function while the thread with this number holds the lock.
    fn hold(&self, thread: usize, turn: impl FnOnce());
}

fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let load = Load {
        cpus: &setup.cpus,
        threads: setup.number("threads") as usize,
        is_spread: setup.is("place", "spread"),
        section: setup.number("section"),
        outside: setup.number("outside"),
        window: setup.number("window") * 1000,
        seed: setup.seed,
    };
    match setup.variant {
        "fifo" => contend::<W, Osq<Fifo, W>>(&load),
        "near" => contend::<W, Osq<Near, W>>(&load),
        "per-node" => contend::<W, per_node::Guarded<W>>(&load),
        "ticket" => contend::<W, RawTicketLock<W>>(&load),
        "mcs" => contend::<W, mcs::Mcs<W>>(&load),
        "cna" => contend::<W, cna::Cna<W>>(&load),
        "reciprocating" => contend::<W, reciprocating::Reciprocating<W>>(&load),
        "test-and-set" => contend::<W, test_and_set::TestAndSet<W>>(&load),
        _ => contend::<W, lot::Lot<W>>(&load),
    }
}
