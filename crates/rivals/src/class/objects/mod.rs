//! The class `objects`: taking an object from where it is kept, and giving it back.
//!
//! | form | one operation | threads |
//! |---|---|---|
//! | pair | take an object of 64 bytes, write one word of it, give it back | 1, 2 |
//! | batch of 32 | the same, 32 taken before the first is given back | 1, 2 |
//! | made here and freed there | one thread takes and writes, another gives back | 2 |
//! | made here, read and freed there | the same, and the other reads the word first | 2 |
//! | 4 counters x 384 slots | the pair, of an object with 4 per-CPU counters | 1, 2 |
//! | sizes | the pair, by size; and an object that is made and destroyed each time | 1 |
//!
//! The threads of a sample take from one pool, each for itself, but where one frees what the other
//! took: see [`handed`]. [`percpu`] has the code of rivals with counters.
//!
//! # What stands where
//!
//! - Allocators are called directly, by their own names, with the size on freeing where they take
//!   one. None of them replaces the process's `malloc`, which is one of the candidates. jemalloc
//!   and snmalloc take a feature each, because their sources need more than the compiler that Rust
//!   links with; without it they are named as left out.
//! - Queues, and crates that move objects in and out, are pools of boxes; the others keep an object
//!   in its place. So an object has an address of its own everywhere.
//! - The floor is a list of the thread's own, last in, first out, linked through the objects: no
//!   limit, no atomic instruction, no way back for an object that another thread frees.
//! - Nothing is reset, except in the form with counters.
//!
//! # What the goals are relative to
//!
//! To what does the same work by the same means, so that they hold on every processor:
//!
//! - **A pair** to two restartable sections by hand, which are the least that a stack for each CPU
//!   needs. A cache's sections have about twice the instructions, and it looks at the object. Where
//!   each section waits for the one before it, the pair takes about as long as the two, else up to
//!   two and a half times as long; an atomic instruction in each is beyond that. The thread's own
//!   list is no measure: some processors forward its plain store to the next load in no time.
//! - **Freed elsewhere** to glibc, which takes its memory back under a lock of the thread's arena
//!   that made it. A magazine of ours is handed over by a few exchanges. A queue with one thread at
//!   each end is no measure: its ends never meet, as they do with three threads.
//! - **With counters** to what clears a line for each slot. Clearing 96 KiB, more than a
//!   first-level cache holds, takes thousands of cycles, and ours takes some dozens. Dense counters
//!   stay in that cache, are cleared as fast as the processor stores, and are of no use to CPUs
//!   that write at once.
//!
//! # A new candidate
//!
//! Its [`Pool`], and a line in [`pools`] with [`ours`] or [`rival`]; a line in [`counters`], if it
//! has objects with counters. The goals for [`OURS`] and [`OURS_COUNTERS`] are here already.

mod allocators;
mod cached;
mod crates;
mod handed;
mod list;
mod percpu;
mod sizes;

use std::array;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use coreline::Lacking;
use crossbeam_queue::{ArrayQueue, SegQueue};

use self::allocators::{Allocated, Glibc, Jemalloc, Mimalloc, Snmalloc};
use self::cached::{Cached, CachedCounters};
use self::handed::{Alone, HandedOver};
use self::list::ThreadList;
use self::percpu::{Line, UnderMutex, Word, ZeroedOutside};
use super::counters::bare_words;
use super::{Bench, Candidate, Form, Goal, Most, Params, ROUND, Role, Subject, candidate, rounds};
use crate::native::BareWords;

/// The candidate to which the goals apply.
const OURS: &str = "coreline ObjectCache";
const OURS_COUNTERS: &str = "coreline ObjectCache, 4 x 384";

const REFERENCE: &str = "glibc malloc";
const REFERENCE_COUNTERS: &str = "glibc calloc under a mutex, a line a slot";
const REFERENCE_DENSE: &str = "glibc calloc under a mutex, dense";
const JEMALLOC: &str = "jemalloc";
const FLOOR: &str = "thread-local list";
const SECTIONS: &str = "two bare rseq sections";

/// The ends of a candidate's name if one thread frees the objects that another thread took, without
/// and with reading them. The parameters are those of another form.
const FREED: &str = ", freed elsewhere";
const READ: &str = ", read and freed elsewhere";

/// The goals, set in advance: a pair as times the sections and times jemalloc, an object freed by
/// another thread as times glibc, one with counters as times glibc under the mutex, with a line a
/// slot.
const PAIR_MOST_SECTIONS: f64 = 2.5;
const PAIR_MOST_JEMALLOC: f64 = 1.0;
const ELSEWHERE_MOST: f64 = 0.5;
const COUNTERS_MOST: f64 = 0.01;

const BATCH: usize = 32;

/// How many objects a pool of boxes starts with: more than any form has out.
const STOCK: usize = 512;

pub(super) fn bench() -> Bench {
    let mut forms = forms();
    for form in &mut forms {
        // None for what is not there.
        let goals = mem::take(&mut form.goals);
        form.goals = goals.into_iter().filter(|goal| form.has(&goal.candidate)).collect();
    }
    Bench { operation: "an object", forms }
}

fn forms() -> Vec<Form> {
    let times = |most, other: &str| Most::Times(most, other.to_owned());
    let here = [times(PAIR_MOST_SECTIONS, SECTIONS), times(PAIR_MOST_JEMALLOC, JEMALLOC)];
    let there = [times(ELSEWHERE_MOST, &format!("{REFERENCE}{FREED}"))];
    let counted = [times(COUNTERS_MOST, REFERENCE_COUNTERS)];
    let each = |make: fn(&Entry) -> Make, suffix: &str| {
        let rename = |it: Entry| candidate(&format!("{}{suffix}", it.name), it.role, make(&it));
        pools().into_iter().map(rename).collect::<Vec<_>>()
    };
    let with = |mut candidates: Vec<Candidate>, floor: &str, make| {
        candidates.push(candidate(floor, Role::Floor, make));
        candidates
    };
    let params = |batch: usize| Params { batch: Some(batch as u64), ..Params::default() };
    vec![
        Form {
            goals: goals(OURS, &here),
            ..form(
                "pair",
                params(1),
                REFERENCE,
                with(with(each(|it| it.pair, ""), FLOOR, pair::<ThreadList>), SECTIONS, sections),
            )
        },
        form(
            "batch of 32",
            params(BATCH),
            REFERENCE,
            with(each(|it| it.batch, ""), FLOOR, batch::<ThreadList>),
        ),
        Form {
            threads: vec![2],
            goals: goals(&format!("{OURS}{FREED}"), &there),
            ..form(
                "made here and freed there",
                params(BATCH),
                &format!("{REFERENCE}{FREED}"),
                with(each(|it| it.freed, FREED), "hand-off alone", over::<Alone, false>),
            )
        },
        Form {
            threads: vec![2],
            ..form(
                "made here, read and freed there",
                params(BATCH),
                &format!("{REFERENCE}{READ}"),
                with(each(|it| it.read, READ), "hand-off alone, read", over::<Alone, true>),
            )
        },
        Form {
            goals: goals(OURS_COUNTERS, &counted),
            ..form(
                "4 counters x 384 slots",
                Params::default(),
                REFERENCE_COUNTERS,
                with(counters(), FLOOR, pair::<ThreadList>),
            )
        },
        sizes::form(),
    ]
}

fn form(title: &'static str, params: Params, reference: &str, candidates: Vec<Candidate>) -> Form {
    Form {
        title,
        threads: vec![1, 2],
        window: None,
        params,
        candidates,
        reference: reference.to_owned(),
        goals: Vec::new(),
    }
}

fn goals(candidate: &str, most: &[Most]) -> Vec<Goal> {
    most.iter().map(|most| Goal::everywhere(candidate, most.clone())).collect()
}

/// The candidates of the forms with objects of 64 bytes.
fn pools() -> Vec<Entry> {
    vec![
        ours::<Cached>(OURS),
        rival::<Allocated<Glibc>>(REFERENCE),
        rival::<Allocated<Jemalloc>>(JEMALLOC),
        rival::<Allocated<Mimalloc>>("mimalloc"),
        rival::<Allocated<Snmalloc>>("snmalloc"),
        rival::<ArrayQueue<Box<Object>>>("crossbeam ArrayQueue<Box>"),
        rival::<SegQueue<Box<Object>>>("crossbeam SegQueue<Box>"),
        rival::<object_pool::Pool<Box<Object>>>("object-pool"),
        rival::<lockfree_object_pool::LinearObjectPool<Object>>("lockfree-object-pool"),
        rival::<opool::Pool<crates::Boxes, Box<Object>>>("opool"),
        rival::<sharded_slab::Pool<Object>>("sharded-slab"),
    ]
}

/// The candidates of the form with objects that own counters.
fn counters() -> Vec<Candidate> {
    let rival = |name: &str, make| candidate(name, Role::Rival, make);
    vec![
        candidate(OURS_COUNTERS, Role::Ours, pair::<CachedCounters>),
        rival(REFERENCE_COUNTERS, pair::<UnderMutex<Glibc, Line>>),
        rival(
            "glibc malloc under a mutex, zeroed outside, a line a slot",
            pair::<ZeroedOutside<Glibc, Line>>,
        ),
        rival("mimalloc zalloc under a mutex, a line a slot", pair::<UnderMutex<Mimalloc, Line>>),
        rival("jemalloc calloc under a mutex, a line a slot", pair::<UnderMutex<Jemalloc, Line>>),
        rival(REFERENCE_DENSE, pair::<UnderMutex<Glibc, Word>>),
        rival(
            "glibc malloc under a mutex, zeroed outside, dense",
            pair::<ZeroedOutside<Glibc, Word>>,
        ),
        rival("mimalloc zalloc under a mutex, dense", pair::<UnderMutex<Mimalloc, Word>>),
        rival("jemalloc calloc under a mutex, dense", pair::<UnderMutex<Jemalloc, Word>>),
    ]
}

type Make = fn() -> Result<Arc<dyn Subject>, Lacking>;

/// A pool of objects of 64 bytes, and all that is measured of it.
struct Entry {
    name: &'static str,
    role: Role,
    pair: Make,
    batch: Make,
    freed: Make,
    read: Make,
}

fn ours<P: Pool>(name: &'static str) -> Entry {
    Entry {
        name,
        role: Role::Ours,
        pair: pair::<P>,
        batch: batch::<P>,
        freed: over::<P, false>,
        read: over::<P, true>,
    }
}

fn rival<P: Pool>(name: &'static str) -> Entry {
    Entry { role: Role::Rival, ..ours::<P>(name) }
}

fn pair<P: Pool>() -> Result<Arc<dyn Subject>, Lacking> {
    Ok(Arc::new(Pairs(lasting::<P>()?)))
}

fn batch<P: Pool>() -> Result<Arc<dyn Subject>, Lacking> {
    Ok(Arc::new(Batches(lasting::<P>()?)))
}

fn over<P: Pool, const READS: bool>() -> Result<Arc<dyn Subject>, Lacking> {
    Ok(Arc::new(HandedOver::<P, READS>::new(lasting()?)))
}

/// A pool for the rest of the run: what is taken borrows from it, and lies in the same candidate.
fn lasting<P: Pool>() -> Result<&'static P, Lacking> {
    Ok(Box::leak(Box::new(P::new()?)))
}

/// The place from which objects come, and to which they return.
trait Pool: Sync + Sized + 'static {
    /// An object in a thread's hands.
    type Taken: Send;

    /// # Errors
    ///
    /// [`Lacking`] if this machine, or this build, does not have it.
    fn new() -> Result<Self, Lacking>;

    /// Takes an object, and writes this to its first word.
    fn take(&'static self, word: u64) -> Self::Taken;

    /// The first word.
    fn word(&'static self, taken: &Self::Taken) -> u64;

    /// Gives it back.
    fn give(&'static self, taken: Self::Taken);
}

/// The content of an object in a pool of objects of 64 bytes.
#[derive(Debug, Default)]
#[repr(C)]
struct Object([u64; 8]);

const _: () = assert!(size_of::<Object>() == 64);

impl Object {
    #[inline(always)]
    fn write(&mut self, word: u64) {
        // SAFETY: it is a reference. Volatile: a compiler may leave out an allocation of which it
        // knows every access.
        unsafe { (&raw mut self.0[0]).write_volatile(word) };
    }

    #[inline(always)]
    fn word(&self) -> u64 {
        self.0[0]
    }
}

/// Takes and gives back one at a time.
struct Pairs<P: 'static>(&'static P);

impl<P: Pool> Subject for Pairs<P> {
    fn run(&self, _: usize, ops: u64) {
        let pool = self.0;
        rounds(ops, |number| {
            let taken = pool.take(number as u64);
            fence();
            pool.give(taken);
        });
    }
}

/// Takes many, and gives them back in that order.
struct Batches<P: 'static>(&'static P);

impl<P: Pool> Batches<P> {
    #[inline(always)]
    fn batch<const N: usize>(&self) {
        let pool = self.0;
        let batch: [_; N] = array::from_fn(|number| {
            let taken = pool.take(number as u64);
            fence();
            taken
        });
        for taken in batch {
            pool.give(taken);
            fence();
        }
    }
}

impl<P: Pool> Subject for Batches<P> {
    fn run(&self, _: usize, ops: u64) {
        for _ in 0..ops / BATCH as u64 {
            self.batch::<BATCH>();
        }
        // What is left, of thousands.
        for _ in 0..ops % BATCH as u64 / ROUND {
            self.batch::<{ ROUND as usize }>();
        }
    }
}

/// The minimum that a stack for each CPU needs: a section that takes and a section that gives. Each
/// of them reads and writes a word of the CPU.
struct Sections {
    words: [BareWords; 1],
    area: isize,
}

impl Subject for Sections {
    fn run(&self, _: usize, ops: u64) {
        let (words, area) = (&self.words[0], self.area);
        rounds(ops, |_| (0..2).for_each(|_| words.add::<CPU_ID>(area)));
    }
}

/// The offset of the CPU's number in the area of a thread.
const CPU_ID: usize = 4;

fn sections() -> Result<Arc<dyn Subject>, Lacking> {
    let (words, area) = bare_words::<CPU_ID, 1>()?;
    Ok(Arc::new(Sections { words, area }))
}

/// As in [`rounds`]: the compiler may not make one of two operations.
#[inline(always)]
fn fence() {
    compiler_fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::allocators::Allocator;
    use super::*;

    #[test]
    fn the_goals_are_those_set_in_advance() {
        let mut said = Vec::new();
        for form in forms().into_iter().filter(|form| form.title != "sizes") {
            for Goal { candidate, threads, most, share } in &form.goals {
                assert_eq!((*threads, *share), (None, None));
                let most = match most {
                    Most::Times(most, other) if form.has(other) => format!("{most}x {other}"),
                    other => panic!("{other:?}"),
                };
                said.push((candidate.clone(), form.threads.clone(), most));
            }
        }
        let goal = |name: &str, threads: &[usize], most: &str| {
            (name.to_owned(), threads.to_vec(), most.to_owned())
        };
        let (ours, counted) = ("coreline ObjectCache", "coreline ObjectCache, 4 x 384");
        assert_eq!(
            said,
            [
                goal(ours, &[1, 2], "2.5x two bare rseq sections"),
                goal(ours, &[1, 2], "1x jemalloc"),
                goal(
                    "coreline ObjectCache, freed elsewhere",
                    &[2],
                    "0.5x glibc malloc, freed elsewhere"
                ),
                goal(counted, &[1, 2], "0.01x glibc calloc under a mutex, a line a slot"),
            ]
        );
    }

    #[test]
    fn an_allocator_that_is_not_in_the_build_says_how_to_have_it() {
        for (name, present, built) in [
            (JEMALLOC, Jemalloc::present(), cfg!(feature = "jemalloc")),
            ("snmalloc", Snmalloc::present(), cfg!(feature = "snmalloc")),
        ] {
            assert_eq!(present.is_ok(), built, "{name}");
            if let Err(lacking) = present {
                let said = lacking.to_string();
                assert!(said.contains(&format!("--features {name}")), "{said}");
            }
        }
    }
}
