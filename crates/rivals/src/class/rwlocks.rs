//! The class `rwlocks`: read-write locks, read by most and written by few.
//!
//! Each thread writes once in this many operations, at other times than the other threads. A write
//! adds 1 to what the lock guards. Sections and samples are those of [`locks`](super::locks).
//!
//! # A new candidate
//!
//! Its type in `by_guard!`, if it has `new(0)`, `read()` and `write()`, and a line in
//! [`candidates`]. The goals for [`OURS`] and [`OURS_READ_MOSTLY`] are here already.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use coreline::Lacking;
use coreline::lock::{BiasedRwLock, ReadMostly};
use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::ShardedLock;

use super::steps::Steps;
use super::{Bench, Candidate, Form, Goal, Most, Params, Role, Subject, Window, rounds};
use crate::native::PthreadRwLock;

/// The candidate to which the goals apply.
const OURS: &str = "coreline RwLock";
const OURS_READ_MOSTLY: &str = "coreline ReadMostly";
const OURS_BIASED: &str = "coreline BiasedRwLock";
const REFERENCE: &str = "parking_lot RwLock";

const THREADS: [usize; 3] = [1, 2, 8];

const WINDOW: Window = Window { length: Duration::from_millis(500), late: &[] };

pub(super) fn bench() -> Bench {
    let forms = vec![
        form::<0, 100>("99 % reads of 0 ns"),
        form::<100, 100>("99 % reads of 100 ns"),
        form::<0, 10_000>("99.99 % reads of 0 ns"),
        form::<100, 10_000>("99.99 % reads of 100 ns"),
    ];
    Bench { operation: "a read or a write", forms }
}

/// The form with sections of this length, one in this many of which is a write.
fn form<const SECTION: u64, const EVERY: u64>(title: &'static str) -> Form {
    let read_pct = Some(100.0 - 100.0 / EVERY as f64);
    let params = Params { cs_ns: Some(SECTION), out_ns: Some(0), read_pct, ..Params::default() };
    let mut form = Form {
        title,
        threads: THREADS.into(),
        window: Some(WINDOW),
        params,
        candidates: candidates::<SECTION, EVERY>(),
        reference: REFERENCE.to_owned(),
        goals: Vec::new(),
    };
    form.goals = goals(SECTION, EVERY).filter(|goal| form.has(&goal.candidate)).collect();
    form
}

/// The goals, set in advance, as times the reference. They are for threads that meet: one alone
/// pays for its sections first, and no lock makes those shorter.
fn goals(section: u64, every: u64) -> impl Iterator<Item = Goal> {
    let (name, most) = match (section, every) {
        (_, 100) => (OURS, 1.0),
        (0, _) => (OURS_READ_MOSTLY, 0.35),
        _ => (OURS_READ_MOSTLY, 0.8),
    };
    THREADS.into_iter().filter(|&threads| threads > 1).map(move |threads| Goal {
        threads: Some(threads),
        ..Goal::everywhere(name, Most::Times(most, REFERENCE.to_owned()))
    })
}

/// The table of candidates.
fn candidates<const SECTION: u64, const EVERY: u64>() -> Vec<Candidate> {
    vec![
        ours::<coreline::RwLock<u64>, SECTION, EVERY>(OURS),
        ours::<ReadMostly<u64>, SECTION, EVERY>(OURS_READ_MOSTLY),
        ours::<BiasedRwLock<u64>, SECTION, EVERY>(OURS_BIASED),
        rival::<RwLock<u64>, SECTION, EVERY>("std RwLock"),
        rival::<parking_lot::RwLock<u64>, SECTION, EVERY>(REFERENCE),
        rival::<ShardedLock<u64>, SECTION, EVERY>("crossbeam ShardedLock"),
        rival::<PthreadRwLock, SECTION, EVERY>("pthread rwlock"),
    ]
}

/// A read-write lock around a count.
trait Lock: Send + Sync + 'static {
    /// A free one around 0.
    fn new() -> Self;

    /// Takes the lock to read, does this, frees the lock.
    fn read_and(&self, section: impl FnOnce(&u64));

    /// Takes the lock to write, does this, frees the lock.
    fn write_and(&self, section: impl FnOnce(&mut u64));
}

/// Locks with guards; where one may be poisoned, also what takes it out of the result.
macro_rules! by_guard {
    ($($lock:ty $(=> $healthy:ident)?;)*) => {$(
        impl Lock for $lock {
            fn new() -> Self {
                Self::new(0)
            }

            #[inline(always)]
            fn read_and(&self, section: impl FnOnce(&u64)) {
                section(&self.read()$(.$healthy())?);
            }

            #[inline(always)]
            fn write_and(&self, section: impl FnOnce(&mut u64)) {
                section(&mut self.write()$(.$healthy())?);
            }
        }
    )*};
}

by_guard! {
    coreline::RwLock<u64>;
    BiasedRwLock<u64>;
    RwLock<u64> => unwrap;
    parking_lot::RwLock<u64>;
    ShardedLock<u64> => unwrap;
}

impl Lock for ReadMostly<u64> {
    fn new() -> Self {
        Self::new(0).expect("there is memory for two words")
    }

    #[inline(always)]
    fn read_and(&self, section: impl FnOnce(&u64)) {
        section(&self.read());
    }

    #[inline(always)]
    fn write_and(&self, section: impl FnOnce(&mut u64)) {
        section(&mut self.write().expect("membarrier stays allowed"));
    }
}

impl Lock for PthreadRwLock {
    fn new() -> Self {
        Self::new()
    }

    #[inline(always)]
    fn read_and(&self, section: impl FnOnce(&u64)) {
        self.read_and(section);
    }

    #[inline(always)]
    fn write_and(&self, section: impl FnOnce(&mut u64)) {
        self.write_and(section);
    }
}

fn ours<L: Lock, const SECTION: u64, const EVERY: u64>(name: &str) -> Candidate {
    Candidate { name: name.to_owned(), role: Role::Ours, make: make::<L, SECTION, EVERY> }
}

fn rival<L: Lock, const SECTION: u64, const EVERY: u64>(name: &str) -> Candidate {
    Candidate { name: name.to_owned(), role: Role::Rival, make: make::<L, SECTION, EVERY> }
}

fn make<L: Lock, const SECTION: u64, const EVERY: u64>() -> Result<Arc<dyn Subject>, Lacking> {
    let section = Steps::<SECTION>::new();
    let (lock, reads) = (CachePadded::new(L::new()), CachePadded::default());
    Ok(Arc::new(Shared::<L, SECTION, EVERY> { lock, section, reads }))
}

/// A lock, and what a thread does inside.
struct Shared<L, const SECTION: u64, const EVERY: u64> {
    /// On lines of its own, with the count of writes in it as users have it.
    lock: CachePadded<L>,
    section: Steps<SECTION>,
    /// Reads that were done; added to when a thread's part of a sample is over.
    reads: CachePadded<AtomicU64>,
}

/// The plan of a thread.
struct Reader<const SECTION: u64> {
    section: Steps<SECTION>,
    /// How many reads come before the next write.
    left: u64,
    reads: u64,
    worked: u64,
}

impl<L: Lock, const SECTION: u64, const EVERY: u64> Shared<L, SECTION, EVERY> {
    /// Threads begin at different places, so they do not all write at once.
    fn reader(&self, thread: usize) -> Reader<SECTION> {
        let left = EVERY * (thread as u64 + 1) / (THREADS[2] as u64 + 1);
        Reader { section: self.section, left, reads: 0, worked: 0 }
    }

    #[inline(always)]
    fn turn(&self, reader: &mut Reader<SECTION>) {
        if reader.left > 0 {
            reader.left -= 1;
            reader.reads += 1;
            self.lock.read_and(|count| {
                reader.worked = reader.section.take(reader.worked ^ *count);
            });
        } else {
            reader.left = EVERY - 1;
            self.lock.write_and(|count| {
                *count += 1;
                reader.worked = reader.section.take(reader.worked ^ *count);
            });
        }
    }

    fn done(&self, reader: &Reader<SECTION>) {
        black_box(reader.worked);
        // Relaxed: a count publishes nothing but itself. It is read when all threads have reported.
        self.reads.fetch_add(reader.reads, Ordering::Relaxed);
    }
}

impl<L: Lock, const SECTION: u64, const EVERY: u64> Subject for Shared<L, SECTION, EVERY> {
    fn run(&self, thread: usize, ops: u64) {
        let mut reader = self.reader(thread);
        rounds(ops, |_| self.turn(&mut reader));
        self.done(&reader);
    }

    fn run_until(&self, thread: usize, stop: &AtomicBool) -> u64 {
        let mut reader = self.reader(thread);
        let mut ops = 0;
        // Relaxed: the flag hands nothing over.
        while !stop.load(Ordering::Relaxed) {
            self.turn(&mut reader);
            ops += 1;
        }
        self.done(&reader);
        ops
    }

    fn total(&self) -> Option<u64> {
        let mut total = self.reads.load(Ordering::Relaxed);
        self.lock.read_and(|writes| total += *writes);
        Some(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_writes_wherever_a_thread_begins() {
        for thread in 0..THREADS[2] {
            let shared = Shared::<RwLock<u64>, 0, 100> {
                lock: CachePadded::new(Lock::new()),
                section: Steps::new(),
                reads: CachePadded::default(),
            };
            shared.run(thread, 1000);
            assert_eq!(*shared.lock.read().unwrap(), 10);
            assert_eq!(shared.total(), Some(1000));
        }
    }

    #[test]
    fn the_goals_are_those_set_in_advance() {
        let said = |section, every| -> Vec<_> {
            let of = |goal: Goal| format!("{} {:?} {:?}", goal.candidate, goal.threads, goal.most);
            goals(section, every).map(of).collect()
        };
        let both = |text: &str| [2, 8].map(|n| text.replace('#', &format!("Some({n})")));
        let reference = "\"parking_lot RwLock\"";
        for section in [0, 100] {
            let goal = format!("coreline RwLock # Times(1.0, {reference})");
            assert_eq!(said(section, 100), both(&goal));
        }
        let goal = |times| format!("coreline ReadMostly # Times({times}, {reference})");
        assert_eq!(said(0, 10_000), both(&goal("0.35")));
        assert_eq!(said(100, 10_000), both(&goal("0.8")));
    }
}
