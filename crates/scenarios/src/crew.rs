//! The threads of a scenario or a sample. They start together, wait for each other, and are joined.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use coreline_topology::{CacheId, CpuId, NodeId};
use coreline_world::{
    Integer, JoinHandle, Line, Ordering, Place, Placement, SpawnError, Testbed, Time, Word,
};
use rand_pcg::Pcg64;

use crate::point::Setup;
use crate::{RunError, draw};

/// Whether the machine says where all of these CPUs are.
///
/// # Errors
///
/// [`RunError::Lack`] if it does not.
pub(crate) fn known<W: Testbed>(cpus: &[CpuId]) -> Result<(), RunError> {
    let topology = <W as Place>::topology();
    match cpus.iter().find(|&&cpu| topology.cpu(cpu).is_none()) {
        Some(cpu) => {
            let lacks = format!("{cpu} is not in the topology, or its place is unknown");
            Err(RunError::Lack(lacks))
        }
        None => Ok(()),
    }
}

/// Starts a thread for each placement, calls `lead` while the threads run, and joins them. Each
/// thread calls `part` for its part of the shared work. Returns the threads' results, in order.
///
/// If a thread cannot be started, no further threads are started. `lead` then gets the number of
/// started threads instead of `None`, and must make these threads end.
///
/// # Errors
///
/// [`SpawnError`] if a thread could not be started.
pub fn crew<W: Testbed, S: Send + Sync + 'static, T: Send + 'static>(
    shared: &Arc<S>,
    places: impl ExactSizeIterator<Item = Placement>,
    part: impl Fn(&S, usize) -> T + Copy + Send + 'static,
    lead: impl FnOnce(Option<usize>),
) -> Result<Vec<T>, SpawnError> {
    let mut threads = Vec::with_capacity(places.len());
    let mut missing = None;
    for (number, place) in places.enumerate() {
        let theirs = Arc::clone(shared);
        match W::spawn(place, move || part(&theirs, number)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                missing = Some(error);
                break;
            }
        }
    }
    lead(missing.as_ref().map(|_| threads.len()));
    let results = threads.into_iter().map(JoinHandle::join).collect();
    missing.map_or(Ok(results), Err)
}

/// Returns a placement for each CPU, which pins a thread to it.
pub fn pinned(cpus: &[CpuId]) -> impl ExactSizeIterator<Item = Placement> {
    cpus.iter().map(|&cpu| Placement::On(cpu))
}

/// The first so many CPUs, for a thread each.
///
/// # Errors
///
/// [`RunError::Lack`] if there are fewer.
pub(crate) fn first(cpus: &[CpuId], threads: usize) -> Result<&[CpuId], RunError> {
    let lack = || {
        RunError::Lack(format!(
            "{threads} threads need a CPU each, and there are only {}",
            cpus.len()
        ))
    };
    cpus.get(..threads).ok_or_else(lack)
}

/// The least of these counts over the greatest, and 0 where the greatest is 0.
pub(crate) fn least_over_most(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = values.clone().fold(0.0, f64::max);
    values.fold(most, f64::min) / most.max(1.0)
}

/// Puts CPUs into an order with one of each memory node in turn. The CPUs of a node stay in their
/// order.
pub(crate) fn spread<W: Testbed>(cpus: &mut [CpuId]) {
    let topology = W::topology();
    let mut before = BTreeMap::<Option<NodeId>, u32>::new();
    let turn = |&cpu: &CpuId| {
        let node = topology.cpu(cpu).map(|cpu| cpu.node);
        let turn = before.entry(node).or_default();
        *turn += 1;
        (*turn, node, cpu)
    };
    let mut turns: Vec<_> = cpus.iter().map(turn).collect();
    turns.sort_by_key(|&(turn, node, _)| (turn, node));
    cpus.iter_mut().zip(turns).for_each(|(cpu, (.., next))| *cpu = next);
}

/// A number. Threads can sleep until it changes.
pub struct Sign<W: Testbed>(Line<W::U32>);

impl<W: Testbed> Sign<W> {
    /// Creates a number for which no thread waits yet.
    pub fn new(value: u32) -> Self {
        Sign(Line(W::U32::new_in(value)))
    }

    /// Sets the number, and wakes all threads that wait for it.
    pub fn set(&self, value: u32) {
        // Release: the partner is the Acquire load in `get`. Without the pair a thread could miss
        // what was done before its turn.
        self.0.store(value, Ordering::Release);
        W::wake(&raw const self.0.0, u32::MAX);
    }

    /// Adds 1 to the number, and wakes all threads that wait for it.
    pub fn add(&self) {
        // Release: as in `set`; what all did that added is visible to the thread that waits.
        self.0.fetch_add(1, Ordering::Release);
        W::wake(&raw const self.0.0, u32::MAX);
    }

    /// Sets the number while no other thread reads it. The call wakes no thread.
    pub fn keep(&self, value: u32) {
        // Relaxed: no other thread reads it.
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the number. Everything that happened before it was set is visible to the caller.
    pub fn get(&self) -> u32 {
        // Acquire: the partners are the Releases in `set` and `add`.
        self.0.load(Ordering::Acquire)
    }

    /// Sleeps until `ready` accepts the number, and returns the number.
    pub fn wait(&self, ready: impl Fn(u32) -> bool) -> u32 {
        loop {
            let now = self.get();
            if ready(now) {
                return now;
            }
            W::park(&self.0, now, None);
        }
    }
}

/// When a crew begins: told to all when all are on their CPUs.
pub(crate) struct Start<W: Testbed> {
    arrived: Sign<W>,
    /// In nanoseconds; 0: not known yet; [`NEVER`]: they do not.
    at: Line<W::U64>,
}

const NEVER: u64 = u64::MAX;

/// The time from when all of a crew are on their CPUs until they begin.
pub(crate) const SOON: Duration = Duration::from_micros(20);

impl<W: Testbed> Start<W> {
    pub(crate) fn new() -> Self {
        Start { arrived: Sign::new(0), at: Line(W::U64::new_in(0)) }
    }

    /// Lets the crew of this many begin `soon` after all have arrived; not at all, if some are
    /// `missing`.
    pub(crate) fn give(&self, threads: usize, missing: Option<usize>, soon: Duration) {
        let at = if missing.is_some() {
            NEVER
        } else {
            self.arrived.wait(|arrived| arrived as usize >= threads);
            (W::now() + soon).as_nanos()
        };
        // Release: pairs with the Acquire in `wait`.
        self.at.store(at, Ordering::Release);
    }

    /// A thread arrives, and waits to be told. `None`: it does not begin.
    pub(crate) fn wait(&self) -> Option<Time> {
        self.arrived.add();
        // Acquire: pairs with the Release in `give`.
        let at = self.at.wait_until(Ordering::Acquire, |at| at != 0);
        (at != NEVER).then(|| Time::from_nanos(at))
    }

    /// As [`crew`], with a thread on each of these CPUs, which begin together.
    pub(crate) fn crew<S: Send + Sync + 'static, T: Send + 'static>(
        shared: &Arc<S>,
        start: impl Fn(&S) -> &Self,
        cpus: &[CpuId],
        part: impl Fn(&S, usize) -> T + Copy + Send + 'static,
    ) -> Result<Vec<T>, SpawnError> {
        crew::<W, _, _>(shared, pinned(cpus), part, |missing| {
            start(shared).give(cpus.len(), missing, SOON);
        })
    }
}

/// The time in which a crew's operations count.
pub(crate) struct Window<W: Testbed> {
    pub(crate) start: Start<W>,
    /// From the beginning to the first operation that counts: until all have begun, lines have come
    /// from memory and queues are full.
    warm_up: Duration,
    length: Duration,
    seed: u64,
}

impl<W: Testbed> Window<W> {
    /// That of a run whose parameter `window` is in microseconds.
    pub(crate) fn new(setup: &Setup, warm_up: Duration) -> Self {
        let length = Duration::from_micros(setup.number("window"));
        Window { start: Start::new(), warm_up, length, seed: setup.seed }
    }

    /// A thread's part: repeats an operation, which returns how much it counts, until the window
    /// ends. Returns what counts in the window, and how many operations there were. `stream` is
    /// the thread's stream of random numbers.
    pub(crate) fn repeat(
        &self,
        stream: u128,
        mut operation: impl FnMut(&mut Pcg64) -> u64,
    ) -> [u64; 2] {
        let Some(start) = self.start.wait() else { return [0, 0] };
        let mut dice = Pcg64::new(u128::from(self.seed), stream);
        let late = draw(&mut dice, self.warm_up.as_nanos() as usize / 2) as u64;
        W::work(start + Duration::from_nanos(late) - W::now().min(start));
        let (begin, mut counts) = (start + self.warm_up, [0, 0]);
        let end = begin + self.length;
        loop {
            let counted = operation(&mut dice);
            let now = W::now();
            counts[0] += if begin < now && now <= end { counted } else { 0 };
            counts[1] += 1;
            if now >= end {
                return counts;
            }
        }
    }

    /// The rate per second of something that happened this many times in the window.
    pub(crate) fn per_second(&self, times: u64) -> f64 {
        times as f64 / self.length.as_secs_f64()
    }
}

/// Three quarters to five quarters of so many nanoseconds.
pub(crate) fn about(dice: &mut Pcg64, ns: u64) -> u64 {
    ns * 3 / 4 + draw(dice, ns as usize / 2 + 1) as u64
}

/// Returns the nanoseconds between two times, or 0 if the clock went back.
pub fn nanos(from: Time, to: Time) -> u64 {
    to.as_nanos().saturating_sub(from.as_nanos())
}

/// The time between two reads of the clock with nothing between them.
pub(crate) fn clock_ns<W: Testbed>() -> u64 {
    (0..64).map(|_| nanos(W::now(), W::now())).min().unwrap_or(0)
}

/// Threads that arrived, of those under one last-level cache.
struct Group<W: Testbed> {
    arrived: W::U32,
    of: u32,
}

/// All threads wait for all, again and again. The barrier has two levels, so that one counter of
/// all CPUs does not hide the differences that a scenario compares.
///
/// `generation` counts how often all had arrived; its top bit says that no thread waits any more.
pub(crate) struct Barrier<W: Testbed> {
    groups: Vec<Line<Group<W>>>,
    /// By thread.
    group_of: Vec<usize>,
    complete: Line<W::U32>,
    generation: Line<W::U32>,
}

const GIVEN_UP: u32 = 1 << 31;

impl<W: Testbed> Barrier<W> {
    /// For a thread on each of these CPUs.
    pub(crate) fn new(cpus: &[CpuId]) -> Self {
        let topology = W::topology();
        let mut numbers = BTreeMap::<Option<CacheId>, usize>::new();
        let mut sizes = Vec::new();
        let mut group_of = Vec::with_capacity(cpus.len());
        for &cpu in cpus {
            let cache = topology.cpu(cpu).map(|cpu| cpu.cache);
            let group = *numbers.entry(cache).or_insert(sizes.len());
            if group == sizes.len() {
                sizes.push(0);
            }
            sizes[group] += 1;
            group_of.push(group);
        }
        let group = |of| Line(Group { arrived: W::U32::new_in(0), of });
        Barrier {
            groups: sizes.into_iter().map(group).collect(),
            group_of,
            complete: Line(W::U32::new_in(0)),
            generation: Line(W::U32::new_in(0)),
        }
    }

    /// Waits until all threads have come; returns false if that is given up.
    pub(crate) fn wait(&self, thread: usize) -> bool {
        // Relaxed: it does not change before this thread arrives.
        let generation = self.generation.load(Ordering::Relaxed);
        if generation & GIVEN_UP != 0 {
            return false;
        }
        let group = &self.groups[self.group_of[thread]];
        // AcqRel, both: the last to arrive passes on what all did before; and the next arrivals see
        // the resets, which come before the Release below.
        if group.arrived.fetch_add(1, Ordering::AcqRel) + 1 == group.of {
            group.arrived.store(0, Ordering::Relaxed);
            if self.complete.fetch_add(1, Ordering::AcqRel) + 1 == self.groups.len() as u32 {
                self.complete.store(0, Ordering::Relaxed);
                // Release: the partner is the Acquire below.
                self.generation.fetch_add(1, Ordering::Release);
                return true;
            }
        }
        // Acquire: the partner is the Release above.
        let next = self.generation.wait_until(Ordering::Acquire, |now| now != generation);
        next & GIVEN_UP == 0
    }

    /// Whether this is a line of its own, by address.
    pub(crate) fn has_line(&self, line: usize) -> bool {
        let ends = [&raw const self.complete, &raw const self.generation];
        self.groups.iter().map(|group| (&raw const *group).addr()).any(|at| at == line)
            || ends.map(<*const _>::addr).contains(&line)
    }

    /// Ends the wait of all threads, because not all threads will arrive.
    pub(crate) fn give_up(&self) {
        // Relaxed: nothing was done that another thread would have to see.
        self.generation.fetch_or(GIVEN_UP, Ordering::Relaxed);
    }
}
