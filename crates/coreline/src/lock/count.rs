//! Counts of what threads did that found a lock taken: see [`LockStats`](super::LockStats).
//!
//! The slow paths of locks count, and no fast path does. Until [`begin`], a slow path loads one
//! word that no thread writes. After that, it adds to a line of the CPU that it runs on.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `Counts::cpus[cpu][event]` | how often it occurred on this CPU; it wraps | any slow path |
//!
//! Two threads seldom write one of these lines at the same time: one was moved to another CPU
//! between its look at the CPU's number and the addition. So the additions are atomic.

use coreline_topology::NodeId;
use coreline_world::{Integer, Line, Ordering, Parked, Time, Word, World, WorldStatic};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Wait,
    Sleep,
    Wake,
    Timeout,
    SameCache,
    SameNode,
    OtherNode,
}

const EVENTS: usize = 7;

struct Counts<W: World> {
    /// By CPU, and by event.
    cpus: Box<[Line<[W::U64; EVENTS]>]>,
    /// The node of each place of a queue.
    nodes: Box<[NodeId]>,
}

static COUNTS: WorldStatic = WorldStatic::new("counts of locks");

impl<W: World> Counts<W> {
    fn new_in(nodes: Box<[NodeId]>) -> Self {
        let line = |_| Line(core::array::from_fn(|_| W::U64::new_in(0)));
        Counts { cpus: (0..W::topology().cpu_limit().max(1)).map(line).collect(), nodes }
    }

    fn add(&self, event: Event) {
        let cpu = &self.cpus[W::cpu_hint().index() % self.cpus.len()];
        // Relaxed: a count.
        cpu.0[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn sum(&self, event: Event) -> u64 {
        let counts = self.cpus.iter().map(|cpu| &cpu.0[event as usize]);
        // Relaxed: a count.
        counts.map(|count| count.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// Makes the locks of this world count. `nodes` has the node of each place of a queue.
pub(super) fn begin<W: World>(nodes: impl FnOnce() -> Box<[NodeId]>) {
    COUNTS.with::<W, Counts<W>, _>(|| Counts::new_in(nodes()), |_| ());
}

/// Calls a function with a reader of counts, if this world counts.
pub(super) fn read<W: World, R>(f: impl FnOnce(&dyn Fn(Event) -> u64) -> R) -> Option<R> {
    COUNTS.find::<W, Counts<W>, _>(|counts| f(&|event| counts.sum(event)))
}

/// Counts an event, if this world counts.
#[inline]
pub(super) fn count<W: World>(event: Event) {
    find::<W, _>(|counts| counts.add(event));
}

/// Calls a function with the counts, if this world counts. The model does not: its look for them
/// takes a lock, which would order accesses that a law must find in any order.
#[inline]
fn find<W: World, R>(f: impl FnOnce(&Counts<W>) -> R) -> Option<R> {
    if W::RUNS { COUNTS.find::<W, Counts<W>, _>(f) } else { None }
}

/// Counts a wait that ended, without the lock if it was not `taken`; passes the argument on.
#[inline]
pub(super) fn ended<W: World>(taken: bool) -> bool {
    if !taken {
        count::<W>(Event::Timeout);
    }
    taken
}

/// Sleeps like [`Sleep::park`](coreline_world::Sleep::park), and counts that unless the word had
/// changed already.
pub(super) fn park<W: World>(word: &W::U32, expected: u32, deadline: Option<Time>) -> Parked {
    slept::<W>(W::park(word, expected, deadline))
}

/// Counts how a call to sleep ended; passes the argument on.
pub(super) fn slept<W: World>(parked: Parked) -> Parked {
    if parked != Parked::Changed {
        count::<W>(Event::Sleep);
    }
    parked
}

/// The event of a hand-over from a place to another one, if this world counts. If not, it looks at
/// neither: a simulated program that does not count makes the same accesses as one that cannot.
#[inline]
pub(super) fn hand_over<W: World>(
    from: impl FnOnce() -> u32,
    to: impl FnOnce() -> u32,
) -> Option<Event> {
    find::<W, _>(|counts| {
        let (from, to) = (from(), to());
        let node = |place: u32| counts.nodes.get(place as usize);
        match () {
            () if from == to => Event::SameCache,
            () if node(from) == node(to) => Event::SameNode,
            () => Event::OtherNode,
        }
    })
}
