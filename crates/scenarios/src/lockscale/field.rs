//! The threads, the data that the lock guards, and the counted events.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use coreline_topology::{CpuId, NodeId};
use coreline_world::{Line, Ordering, Testbed, Word};
use rand_pcg::Pcg64;

use super::Lock;
use crate::crew::{Start, first, least_over_most, nanos};
use crate::{RunError, draw};

/// Index in a run's numbers: the throughput, in turns per second.
pub const RATE: usize = 0;
/// Index in a run's numbers: the smallest number of turns of any thread, divided by the largest.
pub const SHARE: usize = 1;
/// Index in a run's numbers: the smallest number of turns per thread of any memory node, divided by
/// the largest.
pub const NODE_SHARE: usize = 2;
/// Index in a run's numbers: the longest wait for a turn, in nanoseconds.
pub const LONGEST_WAIT: usize = 3;
/// Index in a run's numbers: the largest number of consecutive turns on one node.
pub const LONGEST_RUN: usize = 4;
/// Index in a run's numbers: the hand-offs within a last-level cache, in percent of the turns.
pub const SAME_CACHE: usize = 5;
/// Index in a run's numbers: the hand-offs between two caches of a node, in percent of the turns.
pub const SAME_NODE: usize = 6;
/// Index in a run's numbers: the hand-offs to another node, in percent of the turns.
pub const OTHER_NODE: usize = 7;

/// The number of cache lines that the lock guards. It is an estimate of the lines that the lock and
/// the counters of a kernel's file object take. We chose it before the first run.
pub const LINES: usize = 6;

/// The time between the start of the last thread and the first counted turn. During this time,
/// lines come from memory, and queues fill up.
pub const WARM_UP: Duration = Duration::from_micros(50);

/// The approximate time between the starts of two threads, which begin in a random order. A FIFO
/// queue keeps its initial order, because each thread rejoins long before its next turn. If all
/// threads began at the same time, the machine's choice of the first request would determine that
/// order for the whole run.
pub const APART: Duration = Duration::from_micros(1);

/// Streams of the generator: one for each thread.
const THREAD: u128 = 0x10c5;

/// Words of a guarded line.
const WORDS: usize = 8;

/// Words of the first guarded line. The first word of every line counts the turns.
const TURNS: usize = 0;
/// The thread that had the last turn, and one; 0: none.
const LAST: usize = 1;
/// Turns one after the other on one node: up to now, and the most.
const RUN: usize = 2;
const MOST: usize = 3;
/// How often the lock moved over each distance: see [`Spot::distance`].
const WENT: usize = 4;

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    cache: u32,
    node: u32,
}

impl Spot {
    /// 0: within a cache; 1: within a node; 2: to another node.
    fn distance(self, other: Spot) -> usize {
        usize::from(self.cache != other.cache) + usize::from(self.node != other.node)
    }
}

/// The state that all threads share.
struct Field<W: Testbed, L> {
    lock: Line<L>,
    guarded: Box<[Line<[W::U64; WORDS]>]>,
    /// By thread.
    spots: Box<[Spot]>,
    start: Start<W>,
    section: Duration,
    outside: u64,
    window: Duration,
    seed: u64,
}

/// The counts of a thread.
#[derive(Debug, Default)]
struct Tally {
    /// Turns that ended in the window, and all.
    counted: u64,
    all: u64,
    longest_wait: u64,
}

/// The parameters of a run.
pub struct Load<'a> {
    /// The available CPUs.
    pub cpus: &'a [CpuId],
    /// The number of threads that take the lock, each on its own CPU.
    pub threads: usize,
    /// Whether threads alternate between the nodes. If not, they fill one node after another.
    pub is_spread: bool,
    /// The time of a turn with the lock held, in nanoseconds.
    pub section: u64,
    /// The mean time between two turns of a thread, in nanoseconds. Each time is random, from half
    /// to one and a half of the mean.
    pub outside: u64,
    /// The time for which turns are counted, in nanoseconds.
    pub window: u64,
    /// The random seed.
    pub seed: u64,
}

/// Lets threads contend for a lock. Returns the numbers of a run.
///
/// # Errors
///
/// [`RunError`] if there are fewer CPUs than threads, if a thread could not be started, or if a
/// turn was lost. A lost turn means that two threads had the lock at the same time.
pub fn contend<W: Testbed, L: Lock<W>>(load: &Load<'_>) -> Result<Vec<f64>, RunError> {
    let threads = load.threads;
    let (cpus, spots) = places::<W>(load)?;
    let (cpus, spots) = (first(&cpus, threads)?, &spots[..threads]);
    let nodes: Vec<u32> = spots.iter().map(|spot| spot.node).collect();
    let field = Arc::new(Field::<W, L> {
        lock: Line(L::new_in(&nodes)),
        guarded: (0..LINES).map(|_| Line(core::array::from_fn(|_| W::U64::new_in(0)))).collect(),
        spots: spots.into(),
        start: Start::new(),
        section: Duration::from_nanos(load.section),
        outside: load.outside,
        window: Duration::from_nanos(load.window),
        seed: load.seed,
    });
    let tallies = Start::crew(&field, |it| &it.start, cpus, Field::work)?;
    field.check(tallies.iter().map(|tally| tally.all).sum())?;
    Ok(field.numbers(&tallies, load.window))
}

/// The CPUs in the order in which they get threads, and where they are, nodes numbered from 0 on.
fn places<W: Testbed>(load: &Load<'_>) -> Result<(Vec<CpuId>, Vec<Spot>), RunError> {
    let topology = W::topology();
    let mut numbers = BTreeMap::<NodeId, u32>::new();
    let mut places = Vec::with_capacity(load.cpus.len());
    let mut on_node = BTreeMap::<u32, u32>::new();
    for &cpu in load.cpus {
        let known = topology.cpu(cpu).ok_or_else(|| {
            RunError::Lack(format!("{cpu} is not in the topology, or its place is unknown"))
        })?;
        let next = numbers.len() as u32;
        let node = *numbers.entry(known.node).or_insert(next);
        let before = on_node.entry(node).or_default();
        places.push((*before, cpu, Spot { cache: known.cache.get(), node }));
        *before += 1;
    }
    places.sort_by_key(
        |(before, _, spot)| {
            if load.is_spread { (*before, spot.node) } else { (spot.node, *before) }
        },
    );
    Ok(places.into_iter().map(|(_, cpu, spot)| (cpu, spot)).unzip())
}

impl<W: Testbed, L: Lock<W>> Field<W, L> {
    fn work(&self, thread: usize) -> Tally {
        let start = self.start.wait();
        let mut tally = Tally::default();
        let Some(start) = start else { return tally };
        let mut dice = Pcg64::new(u128::from(self.seed), THREAD + thread as u128);
        let all = APART.as_nanos() as usize * self.spots.len();
        let begin = start + Duration::from_nanos(all as u64) + WARM_UP;
        let end = begin + self.window;
        let mine = Duration::from_nanos(draw(&mut dice, all) as u64);
        W::work(start + mine - W::now());
        let mut before = W::now();
        loop {
            let outside = self.outside / 2 + draw(&mut dice, self.outside as usize + 1) as u64;
            let counts = before >= begin;
            if outside > 0 {
                W::work(Duration::from_nanos(outside));
            }
            self.lock.hold(thread, || self.turn(thread, counts));
            let now = W::now();
            tally.all += 1;
            if now > begin {
                tally.counted += u64::from(now <= end);
                let own = outside + self.section.as_nanos() as u64;
                let wait = nanos(before, now).saturating_sub(own);
                tally.longest_wait = tally.longest_wait.max(wait);
            }
            if now >= end {
                return tally;
            }
            before = now;
        }
    }

    /// One turn with the lock: reads the guarded data, computes, and writes. So two threads that
    /// have it at the same time lose each other's counts.
    fn turn(&self, thread: usize, counts: bool) {
        // Relaxed, all: guarded by the lock.
        let turns: [u64; LINES] =
            core::array::from_fn(|line| self.guarded[line][TURNS].load(Ordering::Relaxed));
        if !self.section.is_zero() {
            W::work(self.section);
        }
        for (line, turns) in self.guarded.iter().zip(turns) {
            // Relaxed: guarded by the lock.
            line[TURNS].store(turns + 1, Ordering::Relaxed);
        }
        self.log(thread, counts);
    }

    /// Puts down where the lock has gone, on the first of the lines.
    fn log(&self, thread: usize, counts: bool) {
        let word = |at: usize| &self.guarded[0][at];
        // Relaxed, both: guarded by the lock.
        let get = |at| word(at).load(Ordering::Relaxed);
        let set = |at, value| word(at).store(value, Ordering::Relaxed);
        let last = get(LAST);
        set(LAST, thread as u64 + 1);
        if !counts || last == 0 {
            return;
        }
        let went = self.spots[last as usize - 1].distance(self.spots[thread]);
        set(WENT + went, get(WENT + went) + 1);
        let run = if went == 2 { 1 } else { get(RUN) + 1 };
        set(RUN, run);
        if run > get(MOST) {
            set(MOST, run);
        }
    }

    /// Whether every line has counted this many turns.
    fn check(&self, turns: u64) -> Result<(), RunError> {
        for (number, line) in self.guarded.iter().enumerate() {
            // Relaxed: all threads have been joined.
            let counted = line[TURNS].load(Ordering::Relaxed);
            if counted != turns {
                let what = format!("line {number} has counted {counted} turns, not {turns}");
                return Err(RunError::Check(what));
            }
        }
        Ok(())
    }

    fn numbers(&self, tallies: &[Tally], window: u64) -> Vec<f64> {
        // Relaxed: all threads have been joined.
        let word = |at: usize| self.guarded[0][at].load(Ordering::Relaxed) as f64;
        let turns: u64 = tallies.iter().map(|tally| tally.counted).sum();
        let mut of_nodes = BTreeMap::<u32, (u64, u64)>::new();
        for (tally, spot) in tallies.iter().zip(&self.spots) {
            let (turns, threads) = of_nodes.entry(spot.node).or_default();
            *turns += tally.counted;
            *threads += 1;
        }
        let of_nodes = of_nodes.values().map(|(turns, threads)| *turns as f64 / *threads as f64);
        let went: f64 = (WENT..WENT + 3).map(word).sum();
        let part = |far| 100.0 * word(WENT + far) / went.max(1.0);
        vec![
            turns as f64 * 1e9 / window as f64,
            least_over_most(tallies.iter().map(|tally| tally.counted as f64)),
            least_over_most(of_nodes),
            tallies.iter().map(|tally| tally.longest_wait).max().unwrap_or(0) as f64,
            word(MOST),
            part(0),
            part(1),
            part(2),
        ]
    }
}
