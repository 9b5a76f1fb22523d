//! `filecopy`: threads copy blocks through one shared file object (Guo 2024).
//!
//! A thread on each CPU repeatedly reads a block and writes it. A write takes the file's mutex,
//! changes the guarded data (the file's counters, [`LINES`](super::lockscale::field::LINES) cache
//! lines) and releases the mutex. The mutex works like the kernel's mutex. It consists of a word
//! with the owner, which an arriving thread tries once to set, and a queue for threads that find
//! the word taken. The first thread in the queue spins on the word. It leaves the queue when it has
//! the mutex. The variants differ in the queue's order. No thread sleeps, because each has a CPU of
//! its own.
//!
//! | variant | the queue |
//! |---|---|
//! | `fifo` | [`Osq`] in FIFO order, like the kernel's queue |
//! | `per-node` | what Guo 2024 proposes: [`PerNode`] |
//! | `near` | [`Osq`], waiters under the holder's cache first |
//!
//! We set the [`times`] of a copy with and without the mutex, because no source gives them. In the
//! benchmark, the file size (`maxblocks`) determines where blocks are copied from. In this
//! scenario, the parameter only names the published row. The threads, the window and the checks are
//! those of [`lockscale`](super::lockscale).

use coreline::lock::{Fifo, Near, Osq};
use coreline_sim::Sim;
use coreline_world::{Line, Native, Ordering, Testbed, Word};

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::lockscale::Lock;
use super::lockscale::field::{LONGEST_WAIT, Load, NODE_SHARE, OTHER_NODE, RATE, SHARE, contend};
use super::lockscale::per_node::PerNode;
use super::metric::FigureKind::{Gain, Nanoseconds, Percent, Rate};
use super::param::{Around, Domain, Param};
use super::point::Setup;
use super::{RunError, Scenario, Variant};

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        Param::new(
            "blocks",
            "The bytes of a block, and the number of blocks of a file",
            Domain::Pair("bufsize", "maxblocks", 65_536),
        )
        .usual(&["256x500", "1024x2000", "4096x8000"])
        .quick(&["1024x2000"]),
        Param::new("threads", "The number of threads that copy", Domain::Cpus(4096))
            .usual(&["all"]),
        Param::number("section", "Nanoseconds of a write that holds the mutex", [0, 1_000_000])
            .unit("ns")
            .depends(|it| vec![times(it)[0]]),
        Param::number("outside", "Nanoseconds of a copy without the mutex", [0, 1_000_000])
            .unit("ns")
            .depends(|it| vec![times(it)[1]]),
        Param::effort("window", 10_000_000).depends(window),
    ],
    variants: &[
        Variant::new("fifo", "Spinners wait in a FIFO queue"),
        Variant::new("per-node", "A queue for each memory node, and a token (Guo 2024)"),
        Variant::new("near", "Spinners under the holder's cache first, within bounds"),
    ],
    figures: &[
        Figure::new("copies", Rate, Number(RATE)),
        Figure::new("share", Gain, Number(SHARE)),
        Figure::new("share_of_nodes", Gain, Number(NODE_SHARE)),
        Figure::new("longest_wait", Nanoseconds, Number(LONGEST_WAIT)),
        Figure::new("to_other_node", Percent, Number(OTHER_NODE)),
        Figure::new("copies_over_fifo", Gain, Over(RATE, "fifo")).when(|it| it.variant != "fifo"),
    ],
    // What a copy takes with the mutex and without it decides all, and is declared.
    limited: |_, _| true,
    not_testable: "the run has few CPUs, which share one L3: no evidence about hand-offs to \
                   another node",
    published: Some(include_str!("../published/filecopy.toml")),
    ..Scenario::new(
        "filecopy",
        "Threads that copy through one file object: the order of its mutex's spinners (Guo 2024)",
        [run::<Native>, run::<Sim>],
    )
};

/// Returns the nanoseconds of a copy with the mutex held, and without it. The two times are 150 and
/// 1,500 ns for a block of 256 bytes, and 500 and 2,600 ns for a block of 4,096 bytes. Between
/// these sizes, they are linear. These values are guesses, and are not compared with any figure.
pub fn times(around: &Around<'_>) -> [u64; 2] {
    let more = around.values.pair("blocks").0.saturating_sub(256);
    [150 + 350 * more / 3840, 1500 + 1100 * more / 3840]
}

/// Microseconds.
fn window(around: &Around<'_>) -> Vec<u64> {
    vec![if around.quick { 2_000 } else { 4_000 }]
}

/// The mutex: 0 is free, else the number of the thread that has it, from 1 on.
pub(super) struct Mutex<W: Testbed, Q> {
    owner: Line<W::U32>,
    spinners: Q,
}

impl<W: Testbed, Q: Lock<W>> Mutex<W, Q> {
    fn try_take(&self, thread: usize) -> bool {
        let me = thread as u32 + 1;
        // Acquire: pairs with the Release in `hold`, of the owner before.
        self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl<W: Testbed, Q: Lock<W>> Lock<W> for Mutex<W, Q> {
    fn new_in(nodes: &[u32]) -> Self {
        Mutex { owner: Line(W::U32::new_in(0)), spinners: Q::new_in(nodes) }
    }

    fn hold(&self, thread: usize, turn: impl FnOnce()) {
        if !self.try_take(thread) {
            self.spinners.hold(thread, || {
                while !self.try_take(thread) {
                    // Relaxed: the exchange looks again.
                    self.owner.wait_until(Ordering::Relaxed, |owner| owner == 0);
                }
            });
        }
        turn();
        // Release: pairs with the Acquire in `try_take` of the next owner.
        self.owner.store(0, Ordering::Release);
    }
}

fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let load = Load {
        cpus: &setup.cpus,
        threads: setup.number("threads") as usize,
        is_spread: false,
        section: setup.number("section"),
        outside: setup.number("outside"),
        window: setup.number("window") * 1000,
        seed: setup.seed,
    };
    match setup.variant {
        "fifo" => contend::<W, Mutex<W, Osq<Fifo, W>>>(&load),
        "per-node" => contend::<W, Mutex<W, PerNode<W>>>(&load),
        _ => contend::<W, Mutex<W, Osq<Near, W>>>(&load),
    }
}
