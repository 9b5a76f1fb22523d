//! The class `counters`: adding 1 to a counter that many threads add to, and
//! [recording](super::histograms) values, and [permits](super::limiters) of a rate limiter.
//!
//! Two forms of additions, each with counters that are objects of their own:
//!
//! - **hot**: one counter. An addition must wait for the one before it on the same CPU, so
//!   the latency of memory that was just written hides what else an addition costs;
//! - **8 in turn**: no addition waits for the previous one. The honest cost.
//!
//! The bare section is what is left of ours without a way out: it has no compact counter, loses
//! what threads add that are not registered, and keeps where the area lies in a register.
//!
//! Ours has a goal relative to it in both forms, which holds on every processor: the same
//! instructions and a few more. If additions do not wait for each other, there is a goal relative
//! to the shards, too. The plain addition does not show what a hot counter costs. Some processors
//! forward a plain store to the next load in no time, and then the floor is a loop's, seven times
//! faster than a section; others do not.
//!
//! Candidates that need to know their thread are told its number before the loop and keep a
//! reference to their part in a register: better than in a real program.

use std::array;
use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contatori::counters::Observable;
use contatori::counters::monotone::Monotone;
use coreline::percpu::{PerCpu, PoolError, Word64};
use coreline::{IndexBy, Lacking, PerCpuCounter};
use coreline_world::{Native, Restartable};
use crossbeam_utils::CachePadded;

use super::{Bench, Candidate, Form, Goal, Most, Params, Role, Subject, rounds};
use super::{histograms, limiters};
use crate::native::BareWords;

const OURS: [&str; 4] = [
    "coreline PerCpuCounter cpu-id",
    "coreline PerCpuCounter kernel-cid",
    "coreline PerCpu cpu-id",
    "coreline PerCpu kernel-cid",
];
const REFERENCE: &str = "crossbeam CachePadded shards fetch_add";
const FLOOR: &str = "plain add";
/// By CPU number, and by concurrency ID.
const BARE: [&str; 2] = ["bare rseq section cpu-id", "bare rseq section kernel-cid"];

/// The goal, set in advance: times the reference where additions do not wait for each other.
const IN_TURN_MOST: f64 = 0.35;
/// Times a section by hand on the same kind of index, in both forms.
const BARE_MOST: f64 = 1.1;

const THREADS: [usize; 3] = [1, 2, 8];

/// One shard for each thread, for the largest number of threads.
const SHARDS: usize = THREADS[2];

pub(super) fn bench() -> Bench {
    let hot = form::<1>("hot", ", hot", None);
    let reference = format!("{REFERENCE}, 8 in turn");
    let most = Most::Times(IN_TURN_MOST, reference);
    let in_turn = form::<8>("8-in-turn", ", 8 in turn", Some(most));
    let others = histograms::forms().into_iter().chain(limiters::forms());
    let forms = [hot, in_turn].into_iter().chain(others).collect();
    Bench { operation: "an addition, a record or a permit", forms }
}

/// The form with `N` counters, and what each of ours may take beside the bare section's.
fn form<const N: usize>(title: &'static str, suffix: &str, most: Option<Most>) -> Form {
    let candidate = |label, role, make| Candidate { name: format!("{label}{suffix}"), role, make };
    let goal = |(label, most)| Goal::everywhere(&format!("{label}{suffix}"), most);
    let goals = most.into_iter().flat_map(|most| OURS.map(|label| (label, most.clone())));
    let by_bare = |(label, bare)| {
        let most = Most::Times(BARE_MOST, format!("{bare}{suffix}"));
        Goal::everywhere(&format!("{label}{suffix}"), most)
    };
    let by_bare = OURS.into_iter().zip(BARE.into_iter().cycle()).map(by_bare);
    Form {
        title,
        threads: THREADS.into(),
        window: None,
        params: Params::default(),
        candidates: vec![
            candidate(OURS[0], Role::Ours, per_cpu::<N>),
            candidate(OURS[1], Role::Ours, per_cid::<N>),
            candidate(OURS[2], Role::Ours, || words::<N>(IndexBy::Cpu)),
            candidate(OURS[3], Role::Ours, || words::<N>(IndexBy::KernelCid)),
            candidate("shared AtomicU64 fetch_add", Role::Rival, some::<Shared, N>),
            candidate(REFERENCE, Role::Rival, some::<Shards, N>),
            candidate(
                "crossbeam CachePadded shards load+store",
                Role::Rival,
                some::<OwnedShards, N>,
            ),
            candidate("thread_local! const Cell", Role::Rival, || {
                Ok(Arc::new(Locals::<N>::default()))
            }),
            candidate("contatori Monotone", Role::Rival, some::<Monotone, N>),
            candidate(FLOOR, Role::Floor, || Ok(Arc::new(Plain::<N>::default()))),
            candidate(BARE[0], Role::Floor, bare::<4, N>),
            candidate(BARE[1], Role::Floor, bare::<24, N>),
        ],
        reference: format!("{REFERENCE}{suffix}"),
        goals: goals.map(goal).chain(by_bare).collect(),
    }
}

/// A counter that threads share.
trait Counter: Send + Sync + 'static {
    /// Adds 1 as thread number `thread`.
    fn adder(&self, thread: usize) -> impl Fn();

    fn sum(&self) -> u64;
}

/// `N` counters in turn.
struct InTurn<C, const N: usize>([C; N]);

impl<C: Counter, const N: usize> Subject for InTurn<C, N> {
    fn run(&self, thread: usize, ops: u64) {
        let add: [_; N] = array::from_fn(|number| self.0[number].adder(thread));
        rounds(ops, |number| add[number % N]());
    }

    fn total(&self) -> Option<u64> {
        Some(self.0.iter().map(C::sum).sum())
    }
}

fn some<C: Counter + Default, const N: usize>() -> Result<Arc<dyn Subject>, Lacking> {
    Ok(Arc::new(InTurn(array::from_fn::<_, N, _>(|_| C::default()))))
}

fn per_cpu<const N: usize>() -> Result<Arc<dyn Subject>, Lacking> {
    ours::<N>(IndexBy::Cpu)
}

fn per_cid<const N: usize>() -> Result<Arc<dyn Subject>, Lacking> {
    ours::<N>(IndexBy::KernelCid)
}

fn ours<const N: usize>(by: IndexBy) -> Result<Arc<dyn Subject>, Lacking> {
    let counters: Vec<_> = (0..N).map(|_| PerCpuCounter::new_in(by)).collect::<Result<_, _>>()?;
    let counters: [PerCpuCounter; N] = counters.try_into().expect("as many as were made");
    Ok(Arc::new(InTurn(counters)))
}

fn words<const N: usize>(by: IndexBy) -> Result<Arc<dyn Subject>, Lacking> {
    let words = (0..N).map(|_| PerCpu::<Word64>::words(by)).collect::<Result<Vec<_>, _>>();
    let words = words.map_err(|error| match error {
        PoolError::Lacking(lacking) => lacking,
        error => lacking("per-CPU memory", error.to_string()),
    })?;
    let words: [PerCpu<Word64>; N] = words.try_into().expect("as many as were made");
    Ok(Arc::new(InTurn(words)))
}

fn lacking(capability: &'static str, why: String) -> Lacking {
    Lacking { world: "native", capability, why: why.into(), remedy: "none is needed" }
}

impl Counter for PerCpu<Word64> {
    #[inline(always)]
    fn adder(&self, _: usize) -> impl Fn() {
        || self.add(1)
    }

    fn sum(&self) -> u64 {
        (**self).field(|word| word).sum()
    }
}

/// `N` counters in turn, by the field of an area at this offset.
struct Bare<const INDEX: usize, const N: usize> {
    words: [BareWords; N],
    area: isize,
}

impl<const INDEX: usize, const N: usize> Subject for Bare<INDEX, N> {
    fn run(&self, _: usize, ops: u64) {
        let area = self.area;
        rounds(ops, |number| self.words[number % N].add::<INDEX>(area));
    }

    fn total(&self) -> Option<u64> {
        Some(self.words.iter().map(BareWords::sum).sum())
    }
}

fn bare<const INDEX: usize, const N: usize>() -> Result<Arc<dyn Subject>, Lacking> {
    let (words, area) = bare_words::<INDEX, N>()?;
    Ok(Arc::new(Bare::<INDEX, N> { words, area }))
}

/// Counters for bare sections, and where their area lies.
pub(super) fn bare_words<const INDEX: usize, const N: usize>()
-> Result<([BareWords; N], isize), Lacking> {
    // What ours needs must be there for the floor, too; and the indexes are as many.
    let by = if INDEX == 4 { IndexBy::Cpu } else { IndexBy::KernelCid };
    let (section, indexes) = Native::section(by)?;
    let none = || {
        lacking("bare section", "it needs x86-64, and glibc that registers threads for rseq".into())
    };
    let area = BareWords::area().filter(|_| section.is_rseq()).ok_or_else(none)?;
    let limit = u32::try_from(indexes).expect("a CPU number has 32 bits");
    Ok((BareWords::several(limit), area))
}

impl Counter for PerCpuCounter {
    #[inline(always)]
    fn adder(&self, _: usize) -> impl Fn() {
        || self.add(1)
    }

    fn sum(&self) -> u64 {
        self.read_exact().cast_unsigned()
    }
}

// Relaxed, in all rivals: a count publishes nothing but itself. Sums are read when the threads have
// reported through a channel.

/// One word, on lines of its own: counters in turn do not slow each other down.
type Shared = CachePadded<AtomicU64>;

impl Counter for Shared {
    #[inline(always)]
    fn adder(&self, _: usize) -> impl Fn() {
        || {
            self.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn sum(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }
}

/// A shard for each thread, on lines of its own; an atomic addition.
#[derive(Default)]
struct Shards([Shared; SHARDS]);

impl Counter for Shards {
    #[inline(always)]
    fn adder(&self, thread: usize) -> impl Fn() {
        self.0[thread].adder(thread)
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(Shared::sum).sum()
    }
}

/// The same without an atomic addition: it loses updates as soon as two threads share a shard, so
/// it is of use only where threads are no more than shards, as here.
#[derive(Default)]
struct OwnedShards(Shards);

impl Counter for OwnedShards {
    #[inline(always)]
    fn adder(&self, thread: usize) -> impl Fn() {
        let shard = &self.0.0[thread];
        || shard.store(shard.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed)
    }

    fn sum(&self) -> u64 {
        self.0.sum()
    }
}

impl Counter for Monotone {
    #[inline(always)]
    fn adder(&self, _: usize) -> impl Fn() {
        || self.add(1)
    }

    fn sum(&self) -> u64 {
        self.value().as_u64()
    }
}

/// Counters of each thread's own. Other threads cannot read them, so each thread adds what it
/// counted to `done` when its part of a sample is over.
#[derive(Default)]
struct Locals<const N: usize> {
    done: AtomicU64,
}

thread_local! {
    static LOCALS: [Cell<u64>; 8] = const { [const { Cell::new(0) }; 8] };
}

impl<const N: usize> Subject for Locals<N> {
    fn run(&self, _: usize, ops: u64) {
        let sum = || LOCALS.with(|cells| black_box(cells).iter().map(Cell::get).sum::<u64>());
        let before = sum();
        rounds(ops, |number| {
            LOCALS.with(|cells| cells[number % N].set(cells[number % N].get().wrapping_add(1)));
        });
        self.done.fetch_add(sum() - before, Ordering::Relaxed);
    }

    fn total(&self) -> Option<u64> {
        Some(self.done.load(Ordering::Relaxed))
    }
}

/// A plain addition to memory of the thread's own: what no counter can beat.
#[derive(Default)]
struct Plain<const N: usize> {
    done: AtomicU64,
}

impl<const N: usize> Subject for Plain<N> {
    fn run(&self, _: usize, ops: u64) {
        let mut memory = Box::new([const { Cell::new(0_u64) }; N]);
        let cells = black_box(&mut *memory);
        rounds(ops, |number| cells[number % N].set(cells[number % N].get().wrapping_add(1)));
        self.done.fetch_add(memory.iter().map(Cell::get).sum(), Ordering::Relaxed);
    }

    fn total(&self) -> Option<u64> {
        Some(self.done.load(Ordering::Relaxed))
    }
}
