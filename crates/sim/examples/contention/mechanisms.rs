//! What the lines of two cores do under contention, one mechanism at a time. A machine file is
//! calibrated by these, so none of them is a prediction.

use core::time::Duration;
use std::sync::Arc;

use coreline_sim::PingPong;
use coreline_topology::CpuId;
use coreline_world::{Integer, Line, Ordering, Word, Words};

use crate::bed::{Bed, sample};

/// A figure of a mechanism: its name, and nanoseconds or a count.
pub(crate) type Figure = (String, f64);

/// Figures of one sample, and whether it was disturbed.
pub(crate) type Figures = (Vec<Figure>, bool);

/// How many operations a sample has: natively many, so that a sample takes about a millisecond.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length(pub(crate) u64);

/// One mechanism: takes one sample of it on two CPUs.
pub(crate) type Mechanism = Box<dyn Fn(&[CpuId], Length) -> Figures + Send + Sync>;

/// All of them.
pub(crate) fn all<W: Bed>() -> Vec<Mechanism> {
    let mut all: Vec<Mechanism> = vec![
        Box::new(alone::<W>),
        Box::new(paused::<W>),
        Box::new(own_lines::<W>),
        Box::new(ping_pong::<W>),
        Box::new(reads::<W>),
    ];
    for gap in GAPS {
        all.push(Box::new(move |cpus, length| bursts::<W>(cpus, length, gap)));
    }
    let visits: [(_, [Visit<W>; 2]); 4] = [
        ("two reads", [load::<W>; 2]),
        ("two additions", [add::<W>; 2]),
        ("an addition and a read", [add::<W>, load::<W>]),
        ("a read and an addition", [load::<W>, add::<W>]),
    ];
    for (name, visits) in visits {
        all.push(Box::new(move |cpus, length| pairs::<W, true>(cpus, length, name, visits)));
        all.push(Box::new(move |cpus, length| pairs::<W, false>(cpus, length, name, visits)));
    }
    let visits: [(_, Visit<W>); 2] = [("reads", load::<W>), ("additions", add::<W>)];
    for (name, visit) in visits {
        all.push(Box::new(move |cpus, length| scan::<W>(cpus, length, name, visit)));
    }
    all
}

fn word<W: Bed>() -> Line<W::U64> {
    Line(W::U64::new_in(0))
}

/// An addition of one thread alone.
fn alone<W: Bed>(cpus: &[CpuId], Length(ops): Length) -> Figures {
    let sum = word::<W>();
    let added = sample::<W, _>(&cpus[..1], move |_, _| {
        // Relaxed: a count of one thread.
        (0..ops).for_each(|_| _ = sum.fetch_add(1, Ordering::Relaxed));
    });
    (vec![("addition, alone".to_owned(), added.wall as f64 / ops as f64)], added.disturbed)
}

/// Reads of the core's own lines: each where the last one said; free to overlap; and four of those
/// behind each addition.
fn own_lines<W: Bed>(cpus: &[CpuId], Length(ops): Length) -> Figures {
    let lines: Vec<_> = (0..LINES).map(|_| Apart::<W>(W::U64::new_in(0), [0; 39])).collect();
    let sum = word::<W>();
    let rounds = ops / LINES as u64 + 1;
    let taken = sample::<W, _>(&cpus[..1], move |_, _| {
        let (mut times, mut read) = ([0; 3], 0);
        let mut start = W::now().as_nanos();
        let mut lap = |time: &mut u64| {
            let now = W::now().as_nanos();
            *time += now - start;
            start = now;
        };
        for _ in 0..rounds {
            one_by_one::<W>(&lines, load::<W>);
        }
        lap(&mut times[0]);
        for _ in 0..rounds {
            ORDER.iter().for_each(|&at| read |= load::<W>(&lines[at].0));
        }
        lap(&mut times[1]);
        for _ in 0..rounds {
            for four in ORDER.chunks(4) {
                add::<W>(&sum);
                four.iter().for_each(|&at| read |= load::<W>(&lines[at].0));
            }
        }
        lap(&mut times[2]);
        (times, read)
    });
    let reads = (rounds * LINES as u64) as f64;
    let [dependent, free, behind] = taken.each[0].0.map(|time| time as f64 / reads);
    let figures = vec![
        ("read of an own line, one after the other".to_owned(), dependent),
        ("read of an own line, free to overlap".to_owned(), free),
        ("an addition and four reads of own lines".to_owned(), 4.0 * behind),
    ];
    (figures, taken.disturbed)
}

/// A spin loop's pause.
fn paused<W: Bed>(cpus: &[CpuId], Length(ops): Length) -> Figures {
    let paused = sample::<W, _>(&cpus[..1], move |_, _| (0..ops).for_each(|_| W::relax()));
    (vec![("pause".to_owned(), paused.wall as f64 / ops as f64)], paused.disturbed)
}

/// The published tools' game.
pub(crate) fn ping_pong<W: Bed>(cpus: &[CpuId], Length(ops): Length) -> Figures {
    let game = PingPong::<W>::new_in();
    let rounds = (ops / 8).max(1);
    let played = sample::<W, _>(cpus, move |player, _| game.play(player as u32, rounds));
    let one_way = played.wall as f64 / (2 * rounds) as f64;
    (vec![("ping-pong, one way".to_owned(), one_way)], played.disturbed)
}

/// What a thread computes between two additions, in nanoseconds.
const GAPS: [u64; 7] = [0, 1, 2, 3, 5, 10, 20];

/// Threads add to one word: how many additions in a row each of two makes, how long a row takes,
/// and how long an addition of one thread alone.
fn bursts<W: Bed>(cpus: &[CpuId], Length(ops): Length, gap: u64) -> Figures {
    let take = |cpus| {
        let sum = word::<W>();
        let compute = W::computing(Duration::from_nanos(gap));
        sample::<W, u64>(cpus, move |_, _| {
            let (mut next, mut bursts, mut step) = (u64::MAX, 0, 1);
            for _ in 0..ops {
                // Relaxed: a count.
                let found = sum.fetch_add(step, Ordering::Relaxed);
                bursts += u64::from(found != next);
                next = found + 1;
                // One again: what is added waits for the computation, as the computation does for
                // what was found.
                step = compute(found) >> 63 | 1;
            }
            bursts
        })
    };
    let (alone, both) = (take(&cpus[..1]), take(cpus));
    let (bursts, wall) = (both.each.iter().sum::<u64>() as f64, both.wall as f64);
    let ops = ops as f64;
    let figures = vec![
        (format!("addition with {gap} ns between, alone"), alone.wall as f64 / ops),
        (format!("additions with {gap} ns between, ns of each thread's"), wall / ops),
        (format!("additions with {gap} ns between, in a row"), 2.0 * ops / bursts),
        (format!("additions with {gap} ns between, ns a row"), wall / bursts),
    ];
    (figures, alone.disturbed || both.disturbed)
}

/// Lines that are passed from core to core.
const LINES: usize = 64;

/// A word and room: five lines, so that neighbours do not compete for a set of the cache.
#[repr(C, align(64))]
struct Apart<W: Bed>(W::U64, [u64; 39]);

const _: () = assert!(size_of::<Apart<coreline_world::Native>>() == 5 * 64);

/// In which order lines are visited. At a constant stride, and at one modulo their number, a
/// prefetcher fetches half of them.
const ORDER: [usize; LINES] = {
    let mut order = [0; LINES];
    let mut next = 0;
    while next < LINES {
        order[next] = next;
        next += 1;
    }
    // Shuffled by a linear congruential generator.
    let mut dice: u64 = 11;
    while next > 1 {
        dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
        let other = (dice >> 33) as usize % next;
        next -= 1;
        (order[next], order[other]) = (order[other], order[next]);
    }
    order
};

/// Lines and a turn: the threads work on the lines in turns.
struct Shared<W: Bed> {
    lines: [Vec<Apart<W>>; 2],
    turn: Line<W::U64>,
}

impl<W: Bed> Shared<W> {
    fn new() -> Arc<Self> {
        let lines = || (0..LINES).map(|_| Apart(W::U64::new_in(0), [0; 39])).collect();
        Arc::new(Shared { lines: [lines(), lines()], turn: word::<W>() })
    }

    /// Waits for its turn, does its work, and passes the turn on. Returns how long the work took.
    fn step(&self, thread: usize, work: impl FnOnce(&[Vec<Apart<W>>; 2])) -> u64 {
        // Acquire and Release: the turn hands the lines over.
        let turn = self.turn.wait_until(Ordering::Acquire, |turn| turn % 2 == thread as u64);
        let start = W::now().as_nanos();
        work(&self.lines);
        let took = W::now().as_nanos() - start;
        self.turn.store(turn + 1, Ordering::Release);
        took
    }
}

/// Visits the lines in an order in which each address depends on what the last visit returned,
/// which is zero in its upper half.
fn one_by_one<W: Bed>(lines: &[Apart<W>], visit: impl Fn(&W::U64) -> u64) {
    let mut last = 0;
    for at in ORDER {
        last = visit(&lines[(at + (last >> 32) as usize) % LINES].0);
    }
}

/// A visit to a word; returns what it found there.
type Visit<W> = fn(&<W as Words>::U64) -> u64;

fn load<W: Bed>(word: &W::U64) -> u64 {
    // Relaxed: the turn orders.
    word.load(Ordering::Relaxed)
}

fn add<W: Bed>(word: &W::U64) -> u64 {
    // Relaxed: the turn orders.
    word.fetch_add(1, Ordering::Relaxed)
}

/// What becomes of a line that another core wrote and this one reads.
///
/// | step | thread | does |
/// |---|---|---|
/// | 0 | 0 | adds to every line |
/// | 1 | 1 | reads every line, and adds to it |
/// | 2 | 0 | adds to every line |
/// | 3 | 1 | reads every line |
/// | 4 | 0 | reads every line: a hit, if the other's read left a copy here |
/// | 5 | 1 | reads every line: a hit, if the first one's read left a copy there |
fn reads<W: Bed>(cpus: &[CpuId], Length(ops): Length) -> Figures {
    let shared = Shared::<W>::new();
    let rounds = (ops / 1024).max(2);
    let taken = sample::<W, Vec<u64>>(cpus, move |thread, _| {
        let mut times = vec![0; 4];
        for _ in 0..rounds {
            if thread == 0 {
                shared.step(0, |lines| one_by_one::<W>(&lines[0], add::<W>));
                shared.step(0, |lines| one_by_one::<W>(&lines[0], add::<W>));
                times[2] += shared.step(0, |lines| one_by_one::<W>(&lines[0], load::<W>));
            } else {
                shared.step(1, |lines| {
                    let (start, mut middle) = (W::now().as_nanos(), 0);
                    one_by_one::<W>(&lines[0], load::<W>);
                    middle += W::now().as_nanos();
                    times[0] += middle - start;
                    one_by_one::<W>(&lines[0], add::<W>);
                    times[1] += W::now().as_nanos() - middle;
                });
                shared.step(1, |lines| one_by_one::<W>(&lines[0], load::<W>));
                times[3] += shared.step(1, |lines| one_by_one::<W>(&lines[0], load::<W>));
            }
        }
        times
    });
    let per = (rounds * LINES as u64) as f64;
    let at = |thread: usize, index: usize| taken.each[thread][index] as f64 / per;
    let figures = vec![
        ("read of a line that the other core wrote".to_owned(), at(1, 0)),
        ("addition to it after that".to_owned(), at(1, 1)),
        ("the writer's read, after the other core's".to_owned(), at(0, 2)),
        ("the other core's second read, after that".to_owned(), at(1, 3)),
    ];
    (figures, taken.disturbed)
}

/// Accesses to two lines that the other core wrote: one after the other, as the second address
/// depends on the first, or free to overlap. `DEPENDS` is known to the compiler: code that chooses
/// at run time would make the second address depend on the first value in both cases.
fn pairs<W: Bed, const DEPENDS: bool>(
    cpus: &[CpuId],
    Length(ops): Length,
    name: &str,
    [visit, then]: [Visit<W>; 2],
) -> Figures {
    let shared = Shared::<W>::new();
    let rounds = (ops / 1024).max(2);
    let taken = sample::<W, u64>(cpus, move |thread, _| {
        let step = |_| match thread {
            0 => shared.step(0, |lines| {
                lines.iter().for_each(|lines| one_by_one::<W>(lines, add::<W>));
            }),
            _ => shared.step(1, |[first, second]| {
                let mut last = 0;
                for at in ORDER {
                    let one = visit(&first[(at + (last >> 32) as usize) % LINES].0);
                    let behind = if DEPENDS { (one >> 32) as usize } else { 0 };
                    let two = then(&second[(LINES - 1 - at + behind) % LINES].0);
                    last = one | two;
                }
            }),
        };
        (0..rounds).map(step).sum()
    });
    let per = (rounds * LINES as u64) as f64;
    let how = if DEPENDS { "one after the other" } else { "free to overlap" };
    (vec![(format!("{name}, {how}"), taken.each[1] as f64 / per)], taken.disturbed)
}

/// Accesses to lines that the other core wrote, all free to overlap.
fn scan<W: Bed>(cpus: &[CpuId], Length(ops): Length, name: &str, visit: Visit<W>) -> Figures {
    let shared = Shared::<W>::new();
    let rounds = (ops / 1024).max(2);
    let taken = sample::<W, (u64, u64)>(cpus, move |thread, _| {
        let (mut time, mut found) = (0, 0);
        for _ in 0..rounds {
            match thread {
                0 => _ = shared.step(0, |lines| one_by_one::<W>(&lines[0], add::<W>)),
                _ => {
                    time += shared.step(1, |[lines, _]| {
                        ORDER.iter().for_each(|&at| found |= visit(&lines[at].0));
                    });
                }
            }
        }
        (time, found)
    });
    let per = (rounds * LINES as u64) as f64;
    (
        vec![(format!("{LINES} {name}, free to overlap"), taken.each[1].0 as f64 / per)],
        taken.disturbed,
    )
}
