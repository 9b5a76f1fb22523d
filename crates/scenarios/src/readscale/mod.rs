//! `readscale`: readers-writer locks, from 1 thread to all CPUs.
//!
//! A thread on each of the CPUs that take part repeats an operation. A [`Mix`] says which locks the
//! operation takes, how often it reads or writes each of them, what it computes in between, and
//! which counts that no lock can remove it changes. [`field`] has the threads, [`mix`] the mixes.
//!
//! | variant | the lock | in |
//! |---|---|---|
//! | `none` | no lock: the bound of what a lock can reach | [`locks`] |
//! | `glibc` | a model of `pthread_rwlock_t` as it is by default (readers come first) | [`glibc`] |
//! | `std` | [`std::sync::RwLock`], and its mirror in the simulated world | [`locks`] |
//! | `parking-lot` | the word of the crate of that name | [`lot`] |
//! | `rwlock` | [`RwLock`] | `coreline` |
//! | `lines` | a count of readers for each thread, on a line of its own, in each lock | [`lines`] |
//! | `bravo` | Dice and Kogan's table in front of `glibc` (2019) | [`bravo`] |
//! | `read-mostly` | [`ReadMostly`] | `coreline` |
//! | `biased` | [`BiasedRwLock`] | `coreline` |
//!
//! Each variant implements [`ReadWrite`]. Each lock, and what it guards, has lines of its own. A
//! writer changes two words of the guarded line, one before and one after it computes. A reader
//! reads both, and finds them equal. The scenario checks that, and that no write was lost.
//!
//! [`BiasedRwLock`]: coreline::lock::BiasedRwLock
//! [`ReadMostly`]: coreline::lock::ReadMostly
//! [`RwLock`]: coreline::lock::RwLock

pub mod bravo;
pub mod field;
pub mod glibc;
pub mod lines;
pub mod locks;
pub mod lot;
pub mod mix;

use coreline::lock::{Near, RawBiasedRwLock, RawRwLock, ReadMostly, SpinningReaders};
use coreline_sim::Sim;
use coreline_world::{Native, Testbed};

use field::{LONGEST_READ, LONGEST_WRITE, Load, RATE, SHARE, contend};
use mix::{MIXES, Mix};

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::metric::FigureKind::{Gain, Nanoseconds, Rate};
use super::param::{Around, Domain, Param, Words};
use super::point::Setup;
use super::{RunError, Scenario, Variant};

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        Param::new("mix", "The locks that an operation takes", Domain::Words(&WORDS))
            .usual(&["one"]),
        Param::number(
            "writes",
            "One in this many reads of a lock of the mix is a write instead; 0 means none",
            [0, 1_000_000_000],
        )
        .usual(&["0", "10000", "1000", "100", "10", "2"])
        .quick(&["0", "100"]),
        Param::new("threads", "The number of threads", Domain::Cpus(4096)).depends(grid),
        Param::new("place", "The CPUs on which threads run", Domain::Names(PLACES))
            .usual(&["packed"]),
        Param::number(
            "sets",
            "The number of copies of the mix's locks, of which each operation uses a random one",
            [1, 4096],
        )
        .usual(&["1"]),
        Param::number(
            "section",
            "Nanoseconds that a thread computes while it holds a lock; the default is 100 for the \
             mix `one`, and 0 for others",
            [0, 1_000_000],
        )
        .unit("ns")
        .depends(section),
        Param::number(
            "rest",
            "The time that an operation computes without a lock, in percent of the mix's",
            [1, 10_000],
        )
        .usual(&["100"]),
        Param::new(
            "count",
            "Whether operations change the mix's counts, which need no lock",
            Domain::Names(COUNT),
        )
        .usual(&["with"]),
        Param::effort("window", 10_000_000).depends(window),
    ],
    variants: &[
        Variant::new("none", "No lock"),
        Variant::new("glibc", "The word of glibc's pthread_rwlock_t, which prefers readers"),
        Variant::new("std", "The lock of Rust's standard library"),
        Variant::new("parking-lot", "The word of the crate parking_lot, which prefers writers"),
        Variant::new("rwlock", "RwLock: a word and a queue"),
        Variant::new("lines", "A count for each thread, on a line of its own, in each lock"),
        Variant::new("bravo", "Dice and Kogan's table of readers, in front of glibc's lock"),
        Variant::new("read-mostly", "ReadMostly: counts of readers per CPU"),
        Variant::new("biased", "BiasedRwLock: counts of readers per CPU while no thread writes"),
    ],
    figures: &[
        Figure::new("ops", Rate, Number(RATE)),
        Figure::new("ops_over_glibc", Gain, Over(RATE, "glibc")).when(|it| it.variant != "glibc"),
        Figure::new("share", Gain, Number(SHARE)),
        Figure::new("longest_read", Nanoseconds, Number(LONGEST_READ)),
        Figure::new("longest_write", Nanoseconds, Number(LONGEST_WRITE))
            .when(|it| it.number("writes") != 0),
    ],
    not_testable: "the run has few CPUs, which share one L3: no evidence about lines that move \
                   between caches",
    ..Scenario::new(
        "readscale",
        "Readers-writer locks, from 1 thread to all CPUs: throughput by share of writes, longest \
         waits (Dice 2019)",
        [run::<Native>, run::<Sim>],
    )
};

const WORDS: Words = Words {
    form: "MIX",
    about: "one, openssl or tls, a word such as w500+l1x1r0w, or the path of a TOML file",
    names: MIXES,
    parse: |text| Mix::parse(text).map(|_| ()),
    of_toml: |text| Mix::of_toml(text).map(|mix| mix.to_string()),
};

const PLACES: &[(&str, &str)] = &[
    ("packed", "The CPUs of one node, then the CPUs of the next"),
    ("spread", "A CPU of each node in turn"),
];

const COUNT: &[(&str, &str)] =
    &[("with", "The counts are changed"), ("without", "The counts are left out")];

/// Powers of two up to 8, then a quarter, half and all of the CPUs.
fn grid(around: &Around<'_>) -> Vec<u64> {
    let cpus = around.cpus as u64;
    let few: &[u64] = if around.quick { &[1, 8] } else { &[1, 2, 4, 8] };
    let parts = if around.quick { vec![cpus] } else { vec![cpus / 4, cpus / 2, cpus] };
    let fits = |threads: &u64| (1..=cpus).contains(threads);
    few.iter().copied().chain(parts).filter(fits).collect()
}

/// 100 ns with the one lock of the simplest mix. The work of a timed mix includes that time.
fn section(around: &Around<'_>) -> Vec<u64> {
    vec![if around.values.is("mix", "one") { 100 } else { 0 }]
}

/// Microseconds. Natively the kernel comes in between.
fn window(around: &Around<'_>) -> Vec<u64> {
    vec![match (around.natively, around.quick) {
        (true, true) => 2_000,
        (true, false) => 20_000,
        (false, true) => 200,
        (false, false) => 4_000,
    }]
}

/// A readers-writer lock that identifies its threads by number.
pub trait ReadWrite<W: Testbed>: Sized + Send + Sync + 'static {
    /// Whether the lock excludes anything. If it does not, the scenario does not check the data
    /// that it guards.
    const EXCLUDES: bool = true;

    /// The state that all locks of a run share.
    type Shared: Send + Sync + 'static;

    /// Creates what all locks of a run share, for threads from 0 to below this number.
    fn share(threads: usize) -> Self::Shared;

    /// Creates a free lock.
    ///
    /// # Errors
    ///
    /// [`RunError::Lack`] if the world lacks what the lock needs.
    fn new_in(shared: &Self::Shared, threads: usize) -> Result<Self, RunError>;

    /// Calls a function while the thread with this number may read.
    fn read(&self, shared: &Self::Shared, thread: usize, section: impl FnOnce());

    /// Calls a function while the thread with this number alone has the lock.
    fn write(&self, shared: &Self::Shared, thread: usize, section: impl FnOnce());
}

fn run<W: locks::Std>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    let text = setup.text("mix");
    let Some(mix) = Mix::parse(text) else {
        return Err(RunError::Lack(format!("{text} is not a mix")));
    };
    let load = Load {
        cpus: &setup.cpus,
        threads: setup.number("threads") as usize,
        is_spread: setup.is("place", "spread"),
        mix: if setup.is("count", "with") { mix } else { mix.without_counts() },
        sets: setup.number("sets") as usize,
        writes: setup.number("writes") as usize,
        section: setup.number("section"),
        rest: setup.number("rest"),
        window: setup.number("window") * 1000,
        seed: setup.seed,
    };
    match setup.variant {
        "none" => contend::<W, locks::Open>(&load),
        "glibc" => contend::<W, glibc::PreferReader<W>>(&load),
        "std" => contend::<W, W::Lock>(&load),
        "parking-lot" => contend::<W, lot::Lot<W>>(&load),
        "rwlock" => contend::<W, RawRwLock<Near, SpinningReaders, W>>(&load),
        "lines" => contend::<W, lines::Lines<W>>(&load),
        "bravo" => contend::<W, bravo::Bravo<W>>(&load),
        "read-mostly" => contend::<W, ReadMostly<(), W>>(&load),
        _ => contend::<W, RawBiasedRwLock<W>>(&load),
    }
}
