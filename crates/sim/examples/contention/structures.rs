//! Structures that threads contend for, one source for both worlds.
//!
//! The two queues are written anew after the documentation of crossbeam's `ArrayQueue` and
//! `SegQueue`, without any source of theirs; [`queues`](crate::queues) has them.

use core::time::Duration;
use std::sync::Arc;

use coreline_topology::CpuId;
use coreline_world::{Integer, Line, Ordering, Word};

use crate::bed::{Bed, Deque, sample};
use crate::mechanisms::{Figures, Length};
use crate::queues::{Bounded, Channel, Segmented};

/// What threads contend for.
///
/// An operation of a queue is a push and a pop; of a stack likewise; of the seqlock a write of its
/// four words and a read; of the channel a message from the first thread to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Structure {
    Add,
    Exchange,
    ArrayQueue,
    SegQueue,
    Mutex,
    Treiber,
    Seqlock,
    Channel,
}

impl Structure {
    pub(crate) const FIVE: [Structure; 5] = [
        Structure::Add,
        Structure::Exchange,
        Structure::ArrayQueue,
        Structure::SegQueue,
        Structure::Mutex,
    ];

    /// Those that were not looked at before.
    pub(crate) const NEW: [Structure; 3] =
        [Structure::Treiber, Structure::Seqlock, Structure::Channel];

    fn name(self) -> &'static str {
        match self {
            Structure::Add => "fetch_add",
            Structure::Exchange => "CAS loop",
            Structure::ArrayQueue => "ArrayQueue",
            Structure::SegQueue => "SegQueue",
            Structure::Mutex => "deque in a mutex",
            Structure::Treiber => "Treiber stack",
            Structure::Seqlock => "seqlock",
            Structure::Channel => "MPSC channel",
        }
    }

    fn subject<W: Bed>(self, threads: usize) -> Arc<dyn Subject> {
        match self {
            Structure::Add => Arc::new(Add::<W>(word::<W>())),
            Structure::Exchange => Arc::new(Exchange::<W>(word::<W>())),
            Structure::ArrayQueue => Arc::new(Bounded::<W>::new(1024)),
            Structure::SegQueue => Arc::new(Segmented::<W>::new()),
            Structure::Mutex => Arc::new(InMutex(W::Deque::default())),
            Structure::Treiber => Arc::new(Treiber::<W>::new(threads)),
            Structure::Seqlock => Arc::new(Seqlock::<W>::new()),
            Structure::Channel => Arc::new(Channel::<W>::new()),
        }
    }
}

/// A structure that is ready to be used by several threads.
pub(crate) trait Subject: Send + Sync {
    /// One operation of a thread. Returns a value that depends on it, in its lower half.
    fn operate(&self, thread: usize) -> u64;

    /// A look that changes nothing.
    fn look(&self) -> u64;
}

/// How threads use a structure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    pub(crate) structure: Structure,
    /// What a thread computes between two operations.
    pub(crate) between: Duration,
    /// Whether the last thread only looks.
    pub(crate) reader: bool,
}

impl Use {
    /// Takes a sample: nanoseconds for each operation of a thread that operates.
    pub(crate) fn sample<W: Bed>(self, cpus: &[CpuId], Length(ops): Length) -> Figures {
        let Use { structure, between, reader } = self;
        let operators = cpus.len() - usize::from(reader);
        let subject = structure.subject::<W>(cpus.len());
        let left = [(); 2].map(|()| Line(W::U64::new_in(operators as u64)));
        let compute = W::computing(between);
        let used = sample::<W, _>(cpus, move |thread, timed| {
            let left = &left[usize::from(timed)];
            let mut seed = 0;
            if thread < operators {
                for _ in 0..ops {
                    seed = compute(subject.operate(thread));
                }
                // Relaxed: a count.
                left.fetch_sub(1, Ordering::Relaxed);
                return seed;
            }
            // Relaxed: a count, which stays in this core's cache until it changes.
            while left.load(Ordering::Relaxed) > 0 {
                seed = seed.wrapping_add(subject.look());
            }
            seed
        });
        (vec![(self.name(), used.wall as f64 / ops as f64)], used.disturbed)
    }

    pub(crate) fn name(self) -> String {
        let reader = if self.reader { ", a reader beside" } else { "" };
        format!("{}, {} ns between{reader}", self.structure.name(), self.between.as_nanos())
    }
}

/// What is measured of two threads: all structures with nothing and with 100 ns between, and the
/// five with a reader in the place of the second thread.
pub(crate) fn of_two() -> Vec<Use> {
    let mut all = Vec::new();
    for between in [0, 100].map(Duration::from_nanos) {
        for structure in Structure::FIVE.into_iter().chain(Structure::NEW) {
            all.push(Use { structure, between, reader: false });
        }
        for structure in Structure::FIVE {
            all.push(Use { structure, between, reader: true });
        }
    }
    all
}

/// What is simulated of many threads.
pub(crate) fn of_many() -> Vec<Use> {
    let structures = Structure::FIVE.into_iter();
    structures.map(|structure| Use { structure, between: Duration::ZERO, reader: false }).collect()
}

fn word<W: Bed>() -> Line<W::U64> {
    Line(W::U64::new_in(0))
}

struct Add<W: Bed>(Line<W::U64>);

impl<W: Bed> Subject for Add<W> {
    fn operate(&self, _thread: usize) -> u64 {
        // Relaxed: a count.
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn look(&self) -> u64 {
        // Relaxed: a count.
        self.0.load(Ordering::Relaxed)
    }
}

/// An addition made of a load and exchanges.
struct Exchange<W: Bed>(Line<W::U64>);

impl<W: Bed> Subject for Exchange<W> {
    fn operate(&self, _thread: usize) -> u64 {
        // Relaxed, all: a count.
        let mut found = self.0.load(Ordering::Relaxed);
        while let Err(other) =
            self.0.compare_exchange_weak(found, found + 1, Ordering::Relaxed, Ordering::Relaxed)
        {
            found = other;
        }
        found
    }

    fn look(&self) -> u64 {
        // Relaxed: a count.
        self.0.load(Ordering::Relaxed)
    }
}

struct InMutex<D>(D);

impl<D: Deque> Subject for InMutex<D> {
    fn operate(&self, thread: usize) -> u64 {
        self.0.push(thread as u64);
        self.0.pop().unwrap_or(0)
    }

    fn look(&self) -> u64 {
        self.0.len() as u64
    }
}

/// R. K. Treiber's stack, of numbered nodes with a tag against reuse. Each thread has a node of
/// its own, pushes it, and takes the one that it pops.
///
/// | bits of `head` | meaning |
/// |---|---|
/// | 0 to 31 | the number of the first node and one; 0 if there is none |
/// | 32 to 63 | the tag: how often the head was exchanged |
struct Treiber<W: Bed> {
    head: Line<W::U64>,
    /// The rest of the stack below each node, as in `head` without a tag.
    below: Vec<Line<W::U64>>,
    /// The node that each thread has.
    own: Vec<Line<W::U64>>,
}

impl<W: Bed> Treiber<W> {
    fn new(threads: usize) -> Self {
        let numbered = |number| Line(W::U64::new_in(number as u64));
        Treiber {
            head: word::<W>(),
            below: (0..threads).map(|_| word::<W>()).collect(),
            own: (0..threads).map(numbered).collect(),
        }
    }
}

impl<W: Bed> Subject for Treiber<W> {
    fn operate(&self, thread: usize) -> u64 {
        // Relaxed: no other thread uses it.
        let node = self.own[thread].load(Ordering::Relaxed);
        // Relaxed: the exchange orders.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Relaxed: the Release of the exchange publishes it.
            self.below[node as usize].store(head & 0xffff_ffff, Ordering::Relaxed);
            let new = ((head >> 32) + 1) << 32 | (node + 1);
            // Release: the partner is the Acquire of a pop, which must see what lies below.
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => head = other,
            }
        }
        // Acquire: the partner is the Release of the push.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            // At least this thread's push is matched by no other's pop, so there is a node.
            let first = (head & 0xffff_ffff).wrapping_sub(1);
            let Some(below) = self.below.get(first as usize) else {
                head = self.head.load(Ordering::Acquire);
                continue;
            };
            // Relaxed: if the node was popped meanwhile, the tag differs and the exchange fails.
            let new = ((head >> 32) + 1) << 32 | below.load(Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    // Relaxed: no other thread uses it.
                    self.own[thread].store(first, Ordering::Relaxed);
                    return first;
                }
                Err(other) => head = other,
            }
        }
    }

    fn look(&self) -> u64 {
        // Relaxed: a look.
        self.head.load(Ordering::Relaxed)
    }
}

/// Four words on a line under a sequence lock. An operation writes them and then reads them.
struct Seqlock<W: Bed> {
    /// Odd while a writer is at it.
    sequence: Line<W::U64>,
    words: Line<[W::U64; 4]>,
}

impl<W: Bed> Seqlock<W> {
    fn new() -> Self {
        Seqlock { sequence: word::<W>(), words: Line([(); 4].map(|()| W::U64::new_in(0))) }
    }

    fn write(&self) {
        loop {
            // Relaxed: the exchange orders.
            let found = self.sequence.load(Ordering::Relaxed);
            let free = found.is_multiple_of(2);
            // Acquire: the partner is the Release store of the writer before.
            if free
                && self
                    .sequence
                    .compare_exchange_weak(found, found + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                for word in &self.words.0 {
                    // Release: not before the sequence is odd; a reader that finds this finds that.
                    word.store(found, Ordering::Release);
                }
                // Release: the partner is the Acquire load of a reader, which then finds all four.
                self.sequence.store(found + 2, Ordering::Release);
                return;
            }
            W::relax();
        }
    }
}

impl<W: Bed> Subject for Seqlock<W> {
    fn operate(&self, _thread: usize) -> u64 {
        self.write();
        self.look()
    }

    fn look(&self) -> u64 {
        loop {
            // Acquire: the partner is the Release store at the end of a write.
            let before = self.sequence.load(Ordering::Acquire);
            // Acquire: not after the second look at the sequence.
            let found = self.words.0.each_ref().map(|word| word.load(Ordering::Acquire));
            // Relaxed: after the words, by their Acquire.
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return found[0] & found[1] & found[2] & found[3];
            }
            W::relax();
        }
    }
}
