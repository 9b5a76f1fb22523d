//! The programs whose time is predicted and measured: one source for both worlds.
//!
//! Each is small enough for its time to be explained line by line. They test the simulated machine,
//! not coreline's primitives. But the ticket lock is the library's own, because a second one here
//! would be the same code.

use core::hint::black_box;
use core::time::Duration;
use std::sync::Arc;

use coreline::lock::RawTicketLock;
use coreline_sim::PingPong;
use coreline_world::{Cell, Integer, Line, Ordering, Testbed, Word};

/// The factor by which a hit may lie outside its band: the fidelity that the simulator claims for a
/// single contended line, and for streams.
const LINE: f64 = 1.5;
const STREAM: f64 = 2.0;

/// How long a thread is outside of the lock where it has something else to do.
const OUTSIDE: Duration = Duration::from_nanos(200);

/// Words of a buffer: 16 KiB, which fits into any first-level cache.
const WORDS: usize = 2048;

/// One program, and how to read its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Experiment {
    /// The name in options and results.
    pub(crate) name: &'static str,
    /// The operation whose time the figure is.
    pub(crate) what: &'static str,
    /// On CPUs of their own.
    pub(crate) threads: usize,
    /// How many of those an operation of each thread makes.
    pub(crate) units: u64,
    /// The factor beyond the band within which a prediction is a hit.
    pub(crate) tolerance: f64,
    kind: Pattern,
}

#[derive(Debug, Clone, Copy)]
enum Pattern {
    PingPongCas,
    PingPongLoadStore,
    FetchAdd,
    TestAndSet(Outside),
    Ticket(Outside),
    Read,
    Update,
    PassReads,
    PassUpdates,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outside {
    Nothing,
    Work,
}

const fn of(name: &'static str, what: &'static str, threads: usize, kind: Pattern) -> Experiment {
    Experiment { name, what, threads, units: threads as u64, tolerance: LINE, kind }
}

const fn pass(name: &'static str, what: &'static str, threads: usize, kind: Pattern) -> Experiment {
    Experiment { name, what, threads, units: 1, tolerance: STREAM, kind }
}

/// All experiments. Those of [`CALIBRATED`] are not predictions.
pub(crate) const ALL: &[Experiment] = &[
    of("ping-pong-cas", "one way, by compare-and-exchange", 2, Pattern::PingPongCas),
    of("ping-pong-load-store", "one way, by loads and stores", 2, Pattern::PingPongLoadStore),
    of("fetch-add-1", "an addition", 1, Pattern::FetchAdd),
    of("fetch-add-2", "an addition", 2, Pattern::FetchAdd),
    of("test-and-set-1", "a short section", 1, Pattern::TestAndSet(Outside::Nothing)),
    of("test-and-set-2", "a short section", 2, Pattern::TestAndSet(Outside::Nothing)),
    of("test-and-set-2-apart", "the same, 200 ns outside", 2, Pattern::TestAndSet(Outside::Work)),
    of("ticket-1", "a short section", 1, Pattern::Ticket(Outside::Nothing)),
    of("ticket-2", "a short section", 2, Pattern::Ticket(Outside::Nothing)),
    of("ticket-2-apart", "the same, 200 ns outside", 2, Pattern::Ticket(Outside::Work)),
    pass("read-own", "a pass over 16 KiB", 1, Pattern::Read),
    pass("update-own", "a pass over 16 KiB", 1, Pattern::Update),
    pass("read-updated", "an update here, a read there", 2, Pattern::PassReads),
    pass("update-updated", "an update here, one there", 2, Pattern::PassUpdates),
];

/// The experiment that machine files are calibrated by.
pub(crate) const CALIBRATION: &str = "ping-pong-cas";

/// Those whose figures are in the file of the development machine: no predictions.
pub(crate) const CALIBRATED: [&str; 2] = [CALIBRATION, "fetch-add-1"];

/// A program that is ready to run.
pub(crate) trait Subject: Send + Sync {
    /// Does operations as one of the threads. All threads do as many.
    fn run(&self, thread: usize, ops: u64);

    /// Whether the traces of `ops` operations of each thread, over all runs, are right.
    fn is_right(&self, ops: u64) -> bool;
}

/// The first word of a program's name.
const PROGRAM: &str = "validate";

impl Experiment {
    /// The name of a run of it in a replay line.
    pub(crate) fn program(&self) -> String {
        format!("{PROGRAM} {}", self.name)
    }

    pub(crate) fn of_program(program: &str) -> Option<&'static Experiment> {
        ALL.iter().find(|it| it.program() == program)
    }

    /// How a program is written.
    pub(crate) fn form() -> String {
        let names: Vec<_> = ALL.iter().map(|it| it.name).collect();
        format!("`{PROGRAM} NAME`, of {}", names.join(", "))
    }

    /// Whether an operation is a pass over memory, which takes about a thousand times as long as
    /// other operations.
    pub(crate) fn is_pass(&self) -> bool {
        matches!(
            self.kind,
            Pattern::Read | Pattern::Update | Pattern::PassReads | Pattern::PassUpdates
        )
    }

    /// The program, with memory of the caller's world.
    pub(crate) fn subject<W: Testbed>(&self) -> Arc<dyn Subject> {
        let threads = self.threads as u64;
        match self.kind {
            Pattern::PingPongCas => Arc::new(Cas(PingPong::<W>::new_in())),
            Pattern::PingPongLoadStore => Arc::new(LoadStore::<W>([word::<W>(), word::<W>()])),
            Pattern::FetchAdd => Arc::new(FetchAdd::<W> { sum: word::<W>(), threads }),
            Pattern::TestAndSet(outside) => Arc::new(Section::<TestAndSet<W>, W>::new(
                TestAndSet(Line(W::U32::new_in(0))),
                threads,
                outside,
            )),
            Pattern::Ticket(outside) => Arc::new(Section::<Line<RawTicketLock<W>>, W>::new(
                Line(RawTicketLock::new_in()),
                threads,
                outside,
            )),
            Pattern::Read => Arc::new(Alone::<W>::new(false)),
            Pattern::Update => Arc::new(Alone::<W>::new(true)),
            Pattern::PassReads => Arc::new(InTurn::<W>::new(false)),
            Pattern::PassUpdates => Arc::new(InTurn::<W>::new(true)),
        }
    }
}

fn word<W: Testbed>() -> Line<W::U64> {
    Line(W::U64::new_in(0))
}

/// The published tools' game.
struct Cas<W: Testbed>(PingPong<W>);

impl<W: Testbed> Subject for Cas<W> {
    fn run(&self, thread: usize, ops: u64) {
        self.0.play(thread as u32, ops);
    }

    fn is_right(&self, _ops: u64) -> bool {
        // A game that lost a move does not end.
        true
    }
}

/// The same with a word of each player's own, which only its owner writes.
struct LoadStore<W: Testbed>([Line<W::U64>; 2]);

impl<W: Testbed> Subject for LoadStore<W> {
    fn run(&self, thread: usize, ops: u64) {
        let (mine, theirs) = (&self.0[thread], &self.0[1 - thread]);
        // Relaxed: the own word.
        let before = mine.load(Ordering::Relaxed);
        for round in before + 1..=before + ops {
            // Release and Acquire: each move answers the other player's latest one.
            if thread == 0 {
                mine.store(round, Ordering::Release);
            }
            while theirs.load(Ordering::Acquire) != round {}
            if thread == 1 {
                mine.store(round, Ordering::Release);
            }
        }
    }

    fn is_right(&self, ops: u64) -> bool {
        // Relaxed: all players have been joined.
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == ops)
    }
}

struct FetchAdd<W: Testbed> {
    sum: Line<W::U64>,
    threads: u64,
}

impl<W: Testbed> Subject for FetchAdd<W> {
    fn run(&self, _thread: usize, ops: u64) {
        for _ in 0..ops {
            // Relaxed: a count.
            self.sum.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_right(&self, ops: u64) -> bool {
        // Relaxed: all threads have been joined.
        self.sum.load(Ordering::Relaxed) == ops * self.threads
    }
}

/// The lock that guards a critical section.
trait Lock: Send + Sync {
    fn lock(&self);

    /// # Safety
    ///
    /// The caller holds the lock.
    unsafe fn unlock(&self);
}

/// 0: free. 1: held.
struct TestAndSet<W: Testbed>(Line<W::U32>);

impl<W: Testbed> Lock for TestAndSet<W> {
    fn lock(&self) {
        // Acquire: the partner is the store in `unlock`; without the pair the holder could miss
        // what the one before it wrote.
        while self.0.swap(1, Ordering::Acquire) != 0 {
            W::relax();
        }
    }

    unsafe fn unlock(&self) {
        // Release: see `lock`.
        self.0.store(0, Ordering::Release);
    }
}

impl<W: Testbed> Lock for Line<RawTicketLock<W>> {
    fn lock(&self) {
        RawTicketLock::lock(self);
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { RawTicketLock::unlock(self) }
    }
}

/// One addition to plain data on a line of its own, in a critical section.
struct Section<L, W: Testbed> {
    lock: L,
    sum: Line<Cell<u64, W>>,
    threads: u64,
    outside: Outside,
}

impl<L: Lock, W: Testbed> Section<L, W> {
    fn new(lock: L, threads: u64, outside: Outside) -> Self {
        Section { lock, sum: Line(Cell::new_in(0)), threads, outside }
    }
}

impl<L: Lock, W: Testbed> Subject for Section<L, W> {
    fn run(&self, _thread: usize, ops: u64) {
        for _ in 0..ops {
            self.lock.lock();
            // SAFETY: valid while this runs, and every access is made under the lock.
            self.sum.with_mut(|sum| unsafe { *sum += 1 });
            // SAFETY: this thread took the lock above.
            unsafe { self.lock.unlock() };
            if self.outside == Outside::Work {
                let end = W::now() + OUTSIDE;
                while W::now() < end {}
            }
        }
    }

    fn is_right(&self, ops: u64) -> bool {
        // SAFETY: valid while this runs, and the writing threads have been joined.
        self.sum.with(|sum| unsafe { *sum }) == ops * self.threads
    }
}

type Buffer<W> = Line<Cell<[u64; WORDS], W>>;

fn buffer<W: Testbed>() -> Buffer<W> {
    Line(Cell::new_in([0; WORDS]))
}

/// Increments all words, or reads them.
///
/// # Safety
///
/// No other thread writes the buffer meanwhile, nor reads it if this is an update.
unsafe fn pass_over<W: Testbed>(buffer: &Buffer<W>, updates: bool) {
    if updates {
        buffer.with_mut(|words| {
            // SAFETY: valid while this runs; the caller promises that no other thread accesses it.
            let words = unsafe { &mut *words };
            words.iter_mut().for_each(|word| *word += 1);
            // The optimiser must take the words as read.
            black_box(words);
        });
    } else {
        buffer.with(|words| {
            // SAFETY: valid while this runs; the caller promises that no other thread writes to it.
            let words = unsafe { &*words };
            black_box(words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        });
    }
}

/// Whether all words have this value. After all threads were joined.
fn all_are<W: Testbed>(buffer: &Buffer<W>, value: u64) -> bool {
    // SAFETY: valid while this runs, and the writing threads have been joined.
    buffer.with(|words| unsafe { &*words }.iter().all(|&word| word == value))
}

/// Passes over a buffer that no other thread touches.
struct Alone<W: Testbed> {
    buffer: Buffer<W>,
    updates: bool,
}

impl<W: Testbed> Alone<W> {
    fn new(updates: bool) -> Self {
        Alone { buffer: buffer(), updates }
    }
}

impl<W: Testbed> Subject for Alone<W> {
    fn run(&self, _thread: usize, ops: u64) {
        for _ in 0..ops {
            // SAFETY: one thread alone runs this experiment.
            unsafe { pass_over(&self.buffer, self.updates) };
        }
    }

    fn is_right(&self, ops: u64) -> bool {
        all_are(&self.buffer, if self.updates { ops } else { 0 })
    }
}

/// Passes of two threads in turn: thread 0 updates, then thread 1 reads or updates.
///
/// | `turn` | meaning | written by |
/// |---|---|---|
/// | even | thread 0's turn | thread 1, when its pass is over |
/// | odd | thread 1's turn | thread 0, when its pass is over |
struct InTurn<W: Testbed> {
    buffer: Buffer<W>,
    turn: Line<W::U64>,
    updates: bool,
}

impl<W: Testbed> InTurn<W> {
    fn new(updates: bool) -> Self {
        InTurn { buffer: buffer(), turn: word::<W>(), updates }
    }
}

impl<W: Testbed> Subject for InTurn<W> {
    fn run(&self, thread: usize, ops: u64) {
        for _ in 0..ops {
            // Acquire and Release: the turn hands the buffer over.
            let mut turn = self.turn.load(Ordering::Acquire);
            while turn % 2 != thread as u64 {
                turn = self.turn.load(Ordering::Acquire);
            }
            // SAFETY: it is this thread's turn, and no other thread's.
            unsafe { pass_over(&self.buffer, thread == 0 || self.updates) };
            self.turn.store(turn + 1, Ordering::Release);
        }
    }

    fn is_right(&self, ops: u64) -> bool {
        all_are(&self.buffer, if self.updates { 2 * ops } else { ops })
    }
}
