//! The threads, what the locks guard, and the counted events.

use core::time::Duration;
use std::sync::Arc;

use coreline_topology::CpuId;
use coreline_world::{Integer, Line, Ordering, Testbed, Word};
use rand_pcg::Pcg64;

use super::ReadWrite;
use super::mix::{Mix, Step};
use crate::crew::{Start, crew, known, nanos, pinned, spread};
use crate::{RunError, draw};

/// Index in a run's numbers: the throughput, in operations per second. An operation counts in
/// parts, by the times that it takes a lock.
pub const RATE: usize = 0;
/// Index in a run's numbers: the smallest throughput of any thread, divided by the largest.
pub const SHARE: usize = 1;
/// Index in a run's numbers: the longest wait of a part that only reads, in nanoseconds.
pub const LONGEST_READ: usize = 2;
/// Index in a run's numbers: the longest wait of a part that writes, in nanoseconds.
pub const LONGEST_WRITE: usize = 3;

/// The largest number of times that a part of an operation takes a lock. The clock is read after
/// each part.
pub const PART: usize = 16;

/// The time between the start of the last thread and the first counted part.
pub const WARM_UP: Duration = Duration::from_micros(50);

/// The approximate time between the starts of two threads, which begin in a random order.
pub const APART: Duration = Duration::from_nanos(100);

/// The time from when all threads are on their CPUs until they begin.
const SOON: Duration = Duration::from_micros(20);

/// Streams of the generator: one for each thread.
const THREAD: u128 = 0x4ead;

/// The parameters of a run.
pub struct Load<'a> {
    /// The available CPUs.
    pub cpus: &'a [CpuId],
    /// The number of threads, each on its own CPU.
    pub threads: usize,
    /// Whether threads alternate between the memory nodes. If not, they fill one after another.
    pub is_spread: bool,
    /// The locks that an operation takes.
    pub mix: Mix,
    /// The number of copies of the mix's locks. Each operation uses a random copy.
    pub sets: usize,
    /// One in this many reads of a lock of the mix is a write instead; 0 means none.
    pub writes: usize,
    /// The time for which a lock is held, in nanoseconds.
    pub section: u64,
    /// The time that an operation computes without a lock, in percent of the mix's. Each part of
    /// that time is random, from half to one and a half of the mean.
    pub rest: u64,
    /// The time for which parts are counted, in nanoseconds.
    pub window: u64,
    /// The random seed.
    pub seed: u64,
}

/// A lock on a line of its own, and two words on another one that it guards.
struct Guarded<W: Testbed, L> {
    lock: Line<L>,
    words: Line<[W::U64; 2]>,
}

/// The state that all threads share.
struct Field<W: Testbed, L: ReadWrite<W>> {
    shared: L::Shared,
    /// The locks of the first set, then those of the next.
    guarded: Box<[Guarded<W, L>]>,
    counts: Box<[Line<W::U64>]>,
    steps: Box<[Step]>,
    start: Start<W>,
    threads: usize,
    sets: usize,
    writes: usize,
    section: u64,
    /// The computation before each time that a lock is taken, in nanoseconds.
    between: f64,
    window: Duration,
    seed: u64,
}

/// The counts of a thread.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    /// How often it took a lock in the window.
    counted: u64,
    written: u64,
    longest_read: u64,
    longest_write: u64,
    /// Reads that saw a half of a write.
    torn: u64,
}

/// Lets threads take readers-writer locks. Returns the numbers of a run.
///
/// # Errors
///
/// [`RunError`] if there are fewer CPUs than threads, if the world lacks what the lock needs, if a
/// thread could not be started, if a write was lost, or if a read saw half of a write.
pub fn contend<W: Testbed, L: ReadWrite<W>>(load: &Load<'_>) -> Result<Vec<f64>, RunError> {
    let (threads, takes) = (load.threads, load.mix.takes());
    known::<W>(load.cpus)?;
    let cpus = in_order::<W>(load);
    let Some(cpus) = cpus.get(..threads) else {
        return Err(RunError::Lack(format!(
            "{threads} threads need a CPU each, and there are only {}",
            cpus.len()
        )));
    };
    let shared = L::share(threads);
    let guarded = (0..load.sets * load.mix.locks()).map(|_| {
        let words = Line([W::U64::new_in(0), W::U64::new_in(0)]);
        Ok(Guarded { lock: Line(L::new_in(&shared, threads)?), words })
    });
    let guarded = guarded.collect::<Result<_, RunError>>()?;
    let field = Arc::new(Field::<W, L> {
        shared,
        guarded,
        counts: (0..load.mix.counts()).map(|_| Line(W::U64::new_in(0))).collect(),
        steps: load.mix.steps().into(),
        start: Start::new(),
        threads,
        sets: load.sets,
        writes: load.writes,
        section: load.section,
        between: load.mix.work as f64 * load.rest as f64 / 100.0 / takes as f64,
        window: Duration::from_nanos(load.window),
        seed: load.seed,
    });
    let tallies = crew::<W, _, _>(&field, pinned(cpus), Field::work, |missing| {
        field.start.give(threads, missing, SOON);
    })?;
    field.check(&tallies)?;
    let counts = tallies.iter().map(|tally| tally.counted as f64);
    let (least, most) =
        (counts.clone().fold(f64::MAX, f64::min), counts.clone().fold(0.0, f64::max));
    let longest = |of: fn(&Tally) -> u64| tallies.iter().map(of).max().unwrap_or(0) as f64;
    Ok(vec![
        counts.sum::<f64>() / takes as f64 * 1e9 / load.window as f64,
        least / f64::max(most, 1.0),
        longest(|tally| tally.longest_read),
        longest(|tally| tally.longest_write),
    ])
}

/// The CPUs in the order in which they get threads.
fn in_order<W: Testbed>(load: &Load<'_>) -> Vec<CpuId> {
    let mut cpus = load.cpus.to_vec();
    if load.is_spread {
        spread::<W>(&mut cpus);
    } else {
        // Stable: the CPUs of a node stay in their order.
        cpus.sort_by_key(|&cpu| W::topology().cpu(cpu).map(|cpu| cpu.node));
    }
    cpus
}

impl<W: Testbed, L: ReadWrite<W>> Field<W, L> {
    fn work(&self, thread: usize) -> Tally {
        let mut tally = Tally::default();
        let Some(start) = self.start.wait() else { return tally };
        let mut dice = Pcg64::new(u128::from(self.seed), THREAD + thread as u128);
        let all = APART.as_nanos() as usize * self.threads;
        let begin = start + Duration::from_nanos(all as u64) + WARM_UP;
        let end = begin + self.window;
        let mine = Duration::from_nanos(draw(&mut dice, all) as u64);
        W::work(start + mine - W::now().min(start));
        // Somewhere in an operation: long ones would be in step otherwise.
        let mut next = draw(&mut dice, self.steps.len());
        let mut set = self.draw_set(&mut dice);
        let mut before = W::now();
        loop {
            let (mut own, mut taken, mut writes) = (0, 0, false);
            while taken < PART {
                match self.steps[next] {
                    // Relaxed, both: nothing is read because of a count.
                    Step::Add(count) => drop(self.counts[count].fetch_add(1, Ordering::Relaxed)),
                    Step::Subtract(count) => {
                        // Relaxed: nothing is read because of a count.
                        self.counts[count].fetch_sub(1, Ordering::Relaxed);
                    }
                    Step::Read(lock) | Step::Write(lock) => {
                        let is_write = matches!(self.steps[next], Step::Write(_))
                            || self.writes != 0 && draw(&mut dice, self.writes) == 0;
                        own += self.compute(&mut dice) + self.section;
                        let guarded = &self.guarded[set * self.locks() + lock];
                        self.take(guarded, thread, is_write, &mut tally);
                        taken += 1;
                        writes |= is_write;
                    }
                }
                next += 1;
                if next == self.steps.len() {
                    (next, set) = (0, self.draw_set(&mut dice));
                    break;
                }
            }
            let now = W::now();
            if now > begin {
                tally.counted += if now <= end { taken as u64 } else { 0 };
                let wait = nanos(before, now).saturating_sub(own);
                let longest =
                    if writes { &mut tally.longest_write } else { &mut tally.longest_read };
                *longest = wait.max(*longest);
            }
            if now >= end {
                return tally;
            }
            before = now;
        }
    }

    fn locks(&self) -> usize {
        self.guarded.len() / self.sets
    }

    fn draw_set(&self, dice: &mut Pcg64) -> usize {
        if self.sets == 1 { 0 } else { draw(dice, self.sets) }
    }

    /// Computes for a random time, and returns it.
    fn compute(&self, dice: &mut Pcg64) -> u64 {
        let mean = self.between as usize;
        let time = (mean / 2 + draw(dice, mean + 1)) as u64;
        if time > 0 {
            W::work(Duration::from_nanos(time));
        }
        time
    }

    fn take(&self, at: &Guarded<W, L>, thread: usize, is_write: bool, tally: &mut Tally) {
        let [first, second] = &*at.words;
        let compute = || {
            if self.section > 0 {
                W::work(Duration::from_nanos(self.section));
            }
        };
        if is_write {
            at.lock.write(&self.shared, thread, || {
                // Relaxed, all: guarded by the lock. So two writers lose each other's writes, and a
                // reader beside a writer sees half of a write.
                let written = first.load(Ordering::Relaxed) + 1;
                first.store(written, Ordering::Relaxed);
                compute();
                // Relaxed: guarded by the lock.
                second.store(written, Ordering::Relaxed);
            });
            tally.written += 1;
        } else {
            at.lock.read(&self.shared, thread, || {
                // Relaxed, both: guarded by the lock.
                let seen = second.load(Ordering::Relaxed);
                compute();
                // Relaxed: guarded by the lock.
                tally.torn += u64::from(first.load(Ordering::Relaxed) != seen);
            });
        }
    }

    fn check(&self, tallies: &[Tally]) -> Result<(), RunError> {
        if !L::EXCLUDES {
            return Ok(());
        }
        let torn: u64 = tallies.iter().map(|tally| tally.torn).sum();
        let written: u64 = tallies.iter().map(|tally| tally.written).sum();
        // Relaxed, all: all threads have been joined.
        let kept = |at: &Guarded<W, L>| at.words[1].load(Ordering::Relaxed);
        let kept: u64 = self.guarded.iter().map(kept).sum();
        if torn != 0 || kept != written {
            let found = format!(
                "{kept} of {written} writes were kept, and {torn} reads saw half of a write"
            );
            return Err(RunError::Check(found));
        }
        Ok(())
    }
}
