//! `rwsem`: the count of the kernel's readers-writer semaphore in two forms (row d of
//! `docs/validate/blind`).
//!
//! Threads take and release one semaphore as fast as they can, all for writing or all for reading.
//!
//! * `biases` (`kernel/locking/rwsem-xadd.c`, Linux 5.1): the count is a sum. Each thread that has
//!   or wants the semaphore adds 1, and a writer also adds a large negative number. A writer that
//!   finds another writer subtracts its addition again, and then waits.
//! * `bits` (`kernel/locking/rwsem.c`, Linux 5.3): the word consists of a bit *locked by a writer*,
//!   a bit *waiters*, and the number of readers. A writer exchanges 0 for *locked*. A writer that
//!   fails has changed nothing.
//!
//! In both forms, a writer that does not get the semaphore spins in a queue (`osq`) as long as the
//! holder runs (`rwsem_optimistic_spin`). In this scenario, holders always run, so no thread
//! sleeps. Readers behave in the same way in both forms. Each of them adds to the count and later
//! subtracts the addition, and there is no writer.
//!
//! # Lines
//!
//! `count`, `owner` and the queue's tail are one line of `struct rw_semaphore` (40 bytes), which
//! moves at each acquisition, release and try. The nodes of the queue, one for each CPU, move from
//! a waiter to the waiter before it.
//!
//! The published load is a module that is not part of the kernel. We set its times with the
//! semaphore held ([`HELD`]) and without it ([`OUTSIDE`]). `rest` scales both times.

use core::time::Duration;
use std::sync::Arc;

use coreline_sim::Sim;
use coreline_world::{Integer, Line, Native, Ordering, Testbed, Word};

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::lockscale::Lock;
use super::lockscale::mcs::Mcs;
use super::metric::FigureKind::{ContendedRatio, Rate};
use super::param::{Around, Domain, Param};
use super::point::Setup;
use super::{RunError, Scenario, Variant, draw, known};
use crate::crew::{Start, Window, first, spread};

const RATE: usize = 0;

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        Param::new("load", "Whether threads write or read", Domain::Names(LOADS))
            .usual(&["write", "read"]),
        Param::new("threads", "The number of threads", Domain::Cpus(4096)).depends(grid),
        Param::new("place", "The CPUs on which threads run", Domain::Names(PLACES))
            .usual(&["packed"]),
        Param::number(
            "rest",
            "The times that do not depend on the variant, in percent of the usual ones",
            [1, 10_000],
        )
        .usual(&["100"]),
        Param::effort("window", 1_000_000).usual(&["1000"]).quick(&["200"]),
    ],
    variants: &[
        Variant::new("biases", "A sum: a thread first adds to it, then checks it"),
        Variant::new("bits", "A word of bit fields: a thread exchanges it if the lock is free"),
    ],
    figures: &[
        Figure::new("turns", Rate, Number(RATE)),
        Figure::new("turns_over_biases", ContendedRatio, Over(RATE, "biases"))
            .when(|it| it.variant != "biases"),
    ],
    ..Scenario::new(
        "rwsem",
        "The kernel's readers-writer semaphore, by two forms of its count (Linux 5.1 and 5.3)",
        [run::<Native>, run::<Sim>],
    )
};

const LOADS: &[(&str, &str)] = &[
    ("write", "All threads write, one after the other"),
    ("read", "All threads read at the same time"),
];

const PLACES: &[(&str, &str)] = &[
    ("packed", "The cores of one socket, then the cores of the next"),
    ("spread", "A core of each socket in turn, as a kernel places new threads"),
];

fn grid(around: &Around<'_>) -> Vec<u64> {
    let few: &[u64] = if around.quick { &[1, 2] } else { &[1, 2, 4, 8, 16] };
    few.iter().copied().filter(|&threads| threads <= around.cpus as u64).collect()
}

/// The time for which the semaphore is held, in nanoseconds. It stands for a few instructions of a
/// loop, and is a guess.
pub const HELD: u64 = 10;
/// The time between two turns, in nanoseconds. The value is a guess, too.
pub const OUTSIDE: u64 = 10;

const WARM_UP: Duration = Duration::from_micros(50);

/// Streams of the generator: one for each thread.
const THREAD: u128 = 0x3e11;

/// `RWSEM_ACTIVE_WRITE_BIAS`: -(1 << 32) and 1, modulo 2^64.
const WRITER: u64 = (-(1_i64 << 32) + 1) as u64;

/// `RWSEM_WRITER_LOCKED`, and what a reader adds.
const LOCKED: u64 = 1;
const READER: u64 = 1 << 8;

/// `struct rw_semaphore`, whose waiting list stays empty.
struct Semaphore<W: Testbed> {
    count: W::U64,
    owner: W::U32,
    queue: Mcs<W>,
}

struct Field<W: Testbed> {
    semaphore: Line<Semaphore<W>>,
    /// The data that writers change.
    turns: Line<W::U64>,
    has_bits: bool,
    writes: bool,
    rest: u64,
    window: Window<W>,
}

fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    known::<W>(&setup.cpus)?;
    let threads = setup.number("threads") as usize;
    let mut cpus = setup.cpus.clone();
    if setup.is("place", "spread") {
        spread::<W>(&mut cpus);
    }
    let cpus = first(&cpus, threads)?;
    let semaphore = Semaphore {
        count: W::U64::new_in(0),
        owner: W::U32::new_in(0),
        queue: Mcs::new_in(&vec![0; threads]),
    };
    let field = Arc::new(Field::<W> {
        semaphore: Line(semaphore),
        turns: Line(W::U64::new_in(0)),
        has_bits: setup.variant == "bits",
        writes: setup.is("load", "write"),
        rest: setup.number("rest"),
        window: Window::new(setup, WARM_UP),
    });
    let counts = Start::crew(&field, |it| &it.window.start, cpus, Field::work)?;
    let sum = |part: usize| counts.iter().map(|count| count[part]).sum::<u64>();
    // Relaxed, both: all threads have been joined.
    let (left, written) =
        (field.semaphore.count.load(Ordering::Relaxed), field.turns.load(Ordering::Relaxed));
    if left != 0 || field.writes && written != sum(1) {
        let found =
            format!("the count is {left}, not 0, or writers had {written} turns, not {}", sum(1));
        return Err(RunError::Check(found));
    }
    Ok(vec![field.window.per_second(sum(0))])
}

impl<W: Testbed> Field<W> {
    /// A thread's part: its turns in the window, and all.
    fn work(&self, thread: usize) -> [u64; 2] {
        let semaphore = &*self.semaphore;
        self.window.repeat(THREAD + thread as u128, |dice| {
            let mut spend = |ns: u64| {
                let ns = ns * self.rest / 100;
                W::work(Duration::from_nanos(ns / 2 + draw(dice, ns as usize + 1) as u64));
            };
            if self.writes {
                self.down_write(thread);
                // Relaxed, both: guarded by the semaphore.
                let seen = self.turns.load(Ordering::Relaxed);
                spend(HELD);
                self.turns.store(seen + 1, Ordering::Relaxed);
                // Relaxed: a hint.
                semaphore.owner.store(0, Ordering::Relaxed);
                let share = if self.has_bits { LOCKED } else { WRITER };
                // Release: pairs with the Acquire of the next writer.
                semaphore.count.fetch_sub(share, Ordering::Release);
            } else {
                let share = if self.has_bits { READER } else { 1 };
                // Acquire: pairs with a writer's Release. Release: the partner is its Acquire.
                semaphore.count.fetch_add(share, Ordering::Acquire);
                // Relaxed: `rwsem_set_reader_owned`, a hint.
                semaphore.owner.store(thread as u32 + 1, Ordering::Relaxed);
                spend(HELD);
                // Release: pairs with the Acquire of the next writer.
                semaphore.count.fetch_sub(share, Ordering::Release);
            }
            spend(OUTSIDE);
            1
        })
    }

    fn down_write(&self, thread: usize) {
        let Semaphore { count, owner, queue } = &*self.semaphore;
        let is_mine = if self.has_bits {
            self.try_write(0)
        } else {
            // Acquire: pairs with the Release of the writer before.
            let found = count.fetch_add(WRITER, Ordering::Acquire);
            if found != 0 {
                // Relaxed: takes back what it added.
                count.fetch_sub(WRITER, Ordering::Relaxed);
            }
            found == 0
        };
        if !is_mine {
            queue.hold(thread, || {
                loop {
                    // Relaxed: `try_write` has the Acquire.
                    let found = count.load(Ordering::Relaxed);
                    if found == 0 && self.try_write(found) {
                        break;
                    }
                    // `rwsem_spin_on_owner`: as long as there is the same one. Without an owner it
                    // tries again when the count has changed.
                    // Relaxed, both: hints.
                    let has = owner.load(Ordering::Relaxed);
                    if has == 0 {
                        count.wait_until(Ordering::Relaxed, |now| now != found || now == 0);
                    } else {
                        // Relaxed: a hint.
                        owner.wait_until(Ordering::Relaxed, |now| now != has);
                    }
                }
            });
        }
        // Relaxed: a hint.
        owner.store(thread as u32 + 1, Ordering::Relaxed);
    }

    /// `rwsem_try_write_lock_unqueued`, and the first try of `bits`.
    fn try_write(&self, found: u64) -> bool {
        let share = if self.has_bits { LOCKED } else { WRITER };
        let count = &self.semaphore.count;
        // Acquire: pairs with the Release of the writer before.
        count.compare_exchange(found, share, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}
