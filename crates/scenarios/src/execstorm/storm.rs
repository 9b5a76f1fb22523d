//! The threads, the steps of a life, and the counted events.

use core::time::Duration;
use std::sync::Arc;

use coreline_topology::CpuId;
use coreline_world::{Line, Ordering, Testbed, Word};
use rand_pcg::Pcg64;

use crate::crew::{Start, least_over_most, nanos};
use crate::{RunError, draw};

/// Index in a run's numbers: the throughput, in lives per second.
pub const RATE: usize = 0;
/// Index in a run's numbers: the time from requesting the mutex to releasing it, in percent of the
/// threads' time. It is measured only if threads compute between two lives.
pub const MUTEX: usize = 1;
/// Index in a run's numbers: the smallest number of lives of any thread, divided by the largest.
pub const SHARE: usize = 2;

/// How many counters an object has: the kernel's `NR_MM_COUNTERS`.
pub(super) const COUNTERS: usize = 4;

/// Lines that each life writes from the beginning: an `mm_struct` has about 1 KiB.
const LINES: usize = 16;

/// How often a life adds to its counters, each by this much; then it takes all back.
const ADDITIONS: u64 = 2;

/// Lives of each thread before any is counted: objects are constructed, and lines come from memory.
const WARM_UP: u32 = 2;

/// Threads begin one after the other, in an order that is drawn, about so far apart, so that the
/// order in which they queue is none of the machine's.
const APART: usize = 200;

/// The time from when all have begun until lives are counted: queues fill up.
const FILL: Duration = Duration::from_micros(20);

/// A thread ends its part of the window after this many lives. Threads come so far only where they
/// hardly wait, and then what they do is the same from life to life.
const MOST: u64 = 256;

/// Streams of the generator: one for each thread.
const THREAD: u128 = 0xe8ec;

/// The data of one life of an object. Each life writes all of this data at its beginning.
pub struct Life<W: Testbed> {
    lines: [Line<W::U64>; LINES],
}

impl<W: Testbed> Life<W> {
    /// Creates data that no life has written yet.
    pub fn new() -> Self {
        Life { lines: core::array::from_fn(|_| Line(W::U64::new_in(0))) }
    }

    fn begin(&self, thread: usize) {
        for line in &self.lines {
            // Relaxed: the holder's alone.
            line.store(thread as u64 + 1, Ordering::Relaxed);
        }
    }

    /// Whether no other thread has begun a life here.
    fn is_of(&self, thread: usize) -> bool {
        // Relaxed: the holder's alone.
        self.lines[0].load(Ordering::Relaxed) == thread as u64 + 1
    }
}

impl<W: Testbed> Default for Life<W> {
    fn default() -> Self {
        Life::new()
    }
}

/// An object in use: the data of its present life, and its memory of the calling thread's CPU.
pub trait Mm<W: Testbed> {
    /// Returns the data of the present life.
    fn life(&self) -> &Life<W>;

    /// Sets this CPU's entry in the row of concurrency IDs, and returns the old value.
    fn set_cid(&self, cid: u64) -> u64;

    /// Adds to this CPU's part of a counter.
    fn add(&self, counter: usize, delta: u64);

    /// Returns this CPU's part of a counter.
    fn count(&self, counter: usize) -> u64;
}

/// A source of objects.
pub trait Source<W: Testbed>: Sized + Send + Sync + 'static {
    /// The type of a taken object.
    type Mm<'a>: Mm<W>;

    /// Creates a source with enough objects for all threads of a load.
    ///
    /// # Errors
    ///
    /// [`RunError::Lack`] if there is no memory for them.
    fn new_in(load: &Load<'_>) -> Result<Self, RunError>;

    /// Takes an object for the thread with this number. If there is a mutex and it is timed, the
    /// call adds the time that the mutex took to `waited`.
    ///
    /// # Errors
    ///
    /// [`RunError`] if there is no object.
    fn take(&self, thread: usize, waited: &mut u64) -> Result<Self::Mm<'_>, RunError>;

    /// Takes back the object of the thread with this number.
    fn give_back(&self, thread: usize, mm: Self::Mm<'_>);
}

/// The parameters of a run.
pub struct Load<'a> {
    /// The CPUs that take part, with a thread on each.
    pub cpus: &'a [CpuId],
    /// All possible CPUs, whether they take part or not.
    pub possible: &'a [CpuId],
    /// The time that a thread computes between two lives, in nanoseconds.
    pub outside: u64,
    /// Whether an allocation zeroes the memory of all CPUs, as the kernel's does.
    pub zeroes_all: bool,
    /// The time for which lives are counted, in nanoseconds.
    pub window: u64,
    /// The random seed.
    pub seed: u64,
}

/// The state that all threads share.
struct Field<W: Testbed, S> {
    source: S,
    start: Start<W>,
    threads: usize,
    outside: u64,
    window: Duration,
    seed: u64,
}

/// The work of a thread in the window.
#[derive(Debug, Default)]
struct Tally {
    lives: u64,
    /// The time in nanoseconds for which lives counted.
    span: u64,
    /// Times in nanoseconds: in the mutex, and of the lives that take it, with the time outside.
    waited: u64,
    lived: u64,
}

impl Tally {
    /// Lives in a second.
    fn rate(&self) -> f64 {
        self.lives as f64 * 1e9 / self.span.max(1) as f64
    }
}

/// Lets a thread on each CPU take objects, use them and return them. Returns the numbers of a run.
///
/// # Errors
///
/// [`RunError`] if a thread could not be started or gets no object, or if an object differs from
/// the state in which its last life left it.
pub fn storm<W: Testbed, S: Source<W>>(load: &Load<'_>) -> Result<Vec<f64>, RunError> {
    let threads = load.cpus.len();
    let field = Arc::new(Field::<W, S> {
        source: S::new_in(load)?,
        start: Start::new(),
        threads,
        outside: load.outside,
        window: Duration::from_nanos(load.window),
        seed: load.seed,
    });
    let tallies = Start::crew(&field, |it| &it.start, load.cpus, Field::work)?;
    let tallies = tallies.into_iter().collect::<Result<Vec<_>, _>>()?;
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>() as f64;
    Ok(vec![
        tallies.iter().map(Tally::rate).sum(),
        100.0 * sum(|tally| tally.waited) / sum(|tally| tally.lived).max(1.0),
        least_over_most(tallies.iter().map(Tally::rate)),
    ])
}

impl<W: Testbed, S: Source<W>> Field<W, S> {
    fn work(&self, thread: usize) -> Result<Tally, RunError> {
        let mut warmed = Ok(());
        for _ in 0..WARM_UP {
            warmed = warmed.and_then(|()| self.live(thread, &mut 0));
        }
        let start = self.start.wait();
        warmed?;
        let mut tally = Tally::default();
        let Some(start) = start else { return Ok(tally) };
        let mut dice = Pcg64::new(u128::from(self.seed), THREAD + thread as u128);
        let all = APART * self.threads;
        let begin = start + Duration::from_nanos(all as u64) + FILL;
        let end = begin + self.window;
        let mine = start + Duration::from_nanos(draw(&mut dice, all) as u64);
        W::work(Duration::from_nanos(nanos(W::now(), mine)));
        let mut before = W::now();
        loop {
            if self.outside > 0 {
                let outside = self.outside / 2 + draw(&mut dice, self.outside as usize + 1) as u64;
                W::work(Duration::from_nanos(outside));
            }
            let mut waited = 0;
            self.live(thread, &mut waited)?;
            let now = W::now();
            // The kernel may take a CPU for longer than a window: one in which no life has ended
            // lasts until one has, as it would else say that this thread lives none.
            let first = tally.lives == 0;
            if now > begin && (now <= end || first) {
                tally.lives += 1;
                tally.waited += waited;
                tally.lived += nanos(before, now);
            }
            if now >= end || tally.lives == MOST {
                tally.span = nanos(begin, if first { now } else { now.min(end) });
                return Ok(tally);
            }
            before = now;
        }
    }

    /// A life: takes an object, uses it on this CPU, and gives it back as it was.
    fn live(&self, thread: usize, waited: &mut u64) -> Result<(), RunError> {
        let mm = self.source.take(thread, waited)?;
        mm.life().begin(thread);
        let found = mm.set_cid(thread as u64 + 1);
        for _ in 0..ADDITIONS {
            (0..COUNTERS).for_each(|counter| mm.add(counter, 1));
        }
        (0..COUNTERS).for_each(|counter| mm.add(counter, ADDITIONS.wrapping_neg()));
        let left = mm.set_cid(0);
        let counts: [u64; COUNTERS] = core::array::from_fn(|counter| mm.count(counter));
        if found != 0 || left != thread as u64 + 1 || counts != [0; COUNTERS] {
            return Err(RunError::Check(format!(
                "thread {thread} found the ID {found}, not 0, left the ID {left}, not {}, or its \
                 counters ended at {counts:?}, not 0",
                thread + 1
            )));
        }
        if !mm.life().is_of(thread) {
            let what = format!(
                "the object of thread {thread} was taken again before this thread gave it back"
            );
            return Err(RunError::Check(what));
        }
        self.source.give_back(thread, mm);
        Ok(())
    }
}
