//! [`Tables`]: the nodes in which threads wait, and the boards on which holders sort them by place.
//!
//! | constant | why this value | test |
//! |---|---|---|
//! | `CROWDED` | below it, an arrival costs nothing extra | `tries_without_end_leave_..` |
//! | `MOST_ABANDONED` | bounds memory | `a_waiter_without_a_node_comes_..` |
//! | `BOARDS` | bounds memory | `a_place_on_a_board_is_adopted_..`, that there is one |
//! | `NODES`, `DOUBLINGS` | bound memory | `a_free_lock_is_taken_.._held`, in `laws/locks/osq.rs` |
//! | `SPREAD_NODES` | spares moves of nodes between CPUs | none: only speed |
//! | `RING`, `AHEAD` | fill lines | `a_ring_keeps_the_order_..`, `a_run_goes_along_whole` |

use coreline_topology::{CacheId, Cpu, CpuId, NodeId, Topology};
use coreline_world::{Line, Native, Ordering, Word, Words, World};

use crate::node_pool::{NONE, Number, Pool, Pooled};

/// A node in which a thread waits, on a line of its own.
///
/// | `state` | name | meaning | becomes |
/// |---|---|---|---|
/// | 0 | `WAIT` | its thread waits, or holds and never waited | `SLEEPS`, `TURN`, `LEFT`, or free |
/// | 1 | `TURN` | its thread is the holder | free, by its thread |
/// | 2 | `LEFT` | its thread has given up | free, by the holder that finds it |
/// | 3 | `SLEEPS` | its thread waits, and is parked or about to be | `TURN` or `LEFT` |
///
/// The bits above [`KIND`] are the node's [`life`](Node::life) in `WAIT`, `SLEEPS` and `LEFT` of a
/// place that may be adopted, and else zero. A thread that adopts such a place changes `LEFT` to
/// `WAIT`. So a holder that finds a `LEFT` with a life first takes the life out, and then the node
/// is its own. `TURN` never has a life, so waiters compare the whole word with it.
#[repr(align(64))]
pub(super) struct Node<W: Words> {
    pub(super) state: W::U32,
    /// A [`Link`] to the node that arrived next, written by its thread; of a free node, the number
    /// of the next free one.
    pub(super) next: W::U32,
    /// In the holder's node: where its thread arrived.
    pub(super) place: Own<W::U32>,
    /// In the holder's node: the board on which waiters are sorted.
    pub(super) board: Own<W::U32>,
    /// In the holder's node: the flags that pass from holder to holder until the queue is empty.
    /// See [`FENCED`].
    pub(super) along: Own<W::U32>,
    /// In the node of a holder that has a board: its [`Run`], the time in nanoseconds at which the
    /// run ends, and the next waiters in it.
    pub(super) run: Own<W::U32>,
    pub(super) until: Own<W::U64>,
    pub(super) ahead: [Own<W::U64>; 2],
    /// In a node whose place may be adopted: the address of its lock, the node that arrived before
    /// it (or [`NONE`] until that is known), and how often the node had such a place.
    pub(super) lock: W::U64,
    pub(super) before: W::U32,
    pub(super) life: Own<W::U32>,
}

/// In `along`: a heavy fence came after the queue was last empty; see `fence`.
///
/// | bits of `along` | name | meaning |
/// |---|---|---|
/// | 0 | `FENCED` | see above |
/// | 1 to 31 | `CALM` | for how many nodes no board is tried, also of waiters that gave up |
pub(super) const FENCED: u32 = 1;

/// In `along`: one node without a board.
pub(super) const CALM: u32 = 2;

/// A node, and the place where its thread arrived. So a holder knows where the next waiter is
/// before it looks at its node.
///
/// | bits of a link | meaning |
/// |---|---|
/// | 0 to 26 | the node's number; zero: none |
/// | 27 to 31 | the place |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(u32);

impl Link {
    pub(super) const NONE: Link = Link(NONE);

    /// The bits of a number.
    const NUMBER: u32 = (1 << 27) - 1;

    pub(super) fn new(number: Number, place: u32) -> Link {
        debug_assert!(number <= Self::NUMBER && place < 32);
        Link(place << Self::NUMBER.count_ones() | number)
    }

    pub(super) fn of(word: u32) -> Link {
        Link(word)
    }

    pub(super) fn word(self) -> u32 {
        self.0
    }

    pub(super) fn number(self) -> Number {
        self.0 & Self::NUMBER
    }

    pub(super) fn place(self) -> u32 {
        self.0 >> Self::NUMBER.count_ones()
    }
}

pub(super) const WAIT: u32 = 0;
pub(super) const TURN: u32 = 1;
pub(super) const LEFT: u32 = 2;
pub(super) const SLEEPS: u32 = 3;

/// The number of bits of `state` that these take.
pub(super) const KIND: u32 = 3;

/// A word of a node or a board that one thread at a time uses. Until the node is in a queue, that
/// is the thread that took it; from then on the holder, or the thread that has this place. So the
/// word needs no ordering of its own: the swap of the tail and the turn order it.
pub(super) struct Own<T>(pub(super) T);

impl<T: Word> Own<T> {
    pub(super) fn get(&self) -> T::Value {
        // Relaxed: what the last holder wrote came with the turn; see `grant`.
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: T::Value) {
        // Relaxed: goes to the next holder with the turn; see `grant`.
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Turns of one ring, one after another. The run goes from holder to holder in the line that a
/// hand-off writes anyway, with the numbers of the next waiters. So only every [`AHEAD`]th holder
/// reads the ring, whose lines are in the cache of another core, and none writes to the board until
/// the waiters that the run knows of have had their turns.
///
/// The waiters that a run has taken are still in its ring. A holder that reads or changes that ring
/// first removes them:
///
/// ```text
/// Thread 1: takes waiter 7, gives it the turn
/// Thread 2, waiter 7: sorts, begins a run of another ring     <- without counting
/// Thread 3: begins a run of the first ring again, takes waiter 7: whose node is another lock's
/// ```
///
/// | bits of `run` | meaning |
/// |---|---|
/// | 0 to 4 | the ring |
/// | 5 to 9 | where in it the next waiter is |
/// | 10 to 14 | how many waiters are left in it |
/// | 15 to 21 | how many turns the run still has, at most |
///
/// | bits of `ahead` | meaning |
/// |---|---|
/// | 0 to 15 | the number of the next waiter's node; zero: the ring must be read |
/// | 16 to 31, and so on | the numbers of those behind it |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) ring: u32,
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) left: u32,
    /// The time at which it ends, in nanoseconds.
    pub(super) until: u64,
    /// The numbers of the next waiters, the first one in the lowest bits. These are some of those
    /// left in the ring, where they stay until they are taken. Zero if the ring must be read.
    pub(super) ahead: u128,
}

/// The number of waiters of a run that are read at a time.
pub(super) const AHEAD: u32 = u128::BITS / 16;

impl Run {
    pub(super) fn new<W: Words>(node: &Node<W>) -> Run {
        let word = node.run.get();
        let five = |from: u32| word >> from & 0x1f;
        Run {
            ring: five(0),
            start: five(5),
            len: five(10),
            left: word >> 15,
            until: node.until.get(),
            ahead: u128::from(node.ahead[1].get()) << 64 | u128::from(node.ahead[0].get()),
        }
    }

    pub(super) fn give<W: Words>(self, node: &Node<W>) {
        node.run.set(self.ring | self.start << 5 | self.len << 10 | self.left << 15);
        node.until.set(self.until);
        node.ahead[0].set(self.ahead as u64);
        node.ahead[1].set((self.ahead >> 64) as u64);
    }
}

/// On a board, the holder of a contended lock sorts its waiters by their places.
pub(super) struct Board<W: Words> {
    /// A [`Link`] to the first waiter that is not sorted. It is still in the queue: the last one
    /// always is, because a thread that arrives links itself to it. In a free board: the number of
    /// the next free board.
    pub(super) rest: Own<W::U32>,
    /// The time since which the board is in use, in nanoseconds.
    pub(super) born: Own<W::U64>,
    /// Since the board is in use: how many waiters were sorted, and how many of them were taken
    /// out, except those that the [`Run`] took since it was counted last.
    pub(super) sorted: Own<W::U32>,
    pub(super) turns: Own<W::U32>,
    /// The value of `turns` when the run began.
    pub(super) began: Own<W::U32>,
    /// How many runs in a row had one turn or two, and then an empty ring.
    pub(super) short: Own<W::U32>,
    /// For each other ring, a [`Waiter`] that represents its first one; 0 for an empty ring.
    pub(super) firsts: Line<[Own<W::U32>; RINGS]>,
    pub(super) rings: [Line<Ring<W>>; RINGS],
}

/// Waiters of one place, in order of arrival.
pub(super) struct Ring<W: Words> {
    /// The start of the first one, and the number of them. Counts of all waiters that were ever
    /// there would be wrong once they wrap, because `RING` is not a power of two.
    pub(super) start: Own<W::U32>,
    pub(super) len: Own<W::U32>,
    /// Their [`Waiter`]s.
    pub(super) waiters: [Own<W::U32>; RING],
}

/// A sorted waiter. Few waiters are on a board at one time, so half a word tells them apart. A node
/// with a longer number is not sorted: see [`fits`](Waiter::fits).
///
/// | bits of a waiter | meaning |
/// |---|---|
/// | 0 to 15 | its node's number; a waiter of node zero is none |
/// | 16 to 31 | how many waiters had been sorted before it, modulo 2¹⁶ |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiter(u32);

impl Waiter {
    /// Whether a node can be sorted. Some cannot be sorted only while more than 65,535 nodes are in
    /// use. They get their turns as the first ones of the queue.
    pub(super) fn fits(number: Number) -> bool {
        number <= 0xffff
    }

    pub(super) fn new(number: Number, sorted: u32) -> Waiter {
        Waiter(sorted << 16 | number)
    }

    pub(super) fn of(word: u32) -> Waiter {
        Waiter(word)
    }

    pub(super) fn word(self) -> u32 {
        self.0
    }

    pub(super) fn number(self) -> Number {
        self.0 & 0xffff
    }

    /// How many waiters of this many were sorted since, including itself.
    pub(super) fn age(self, sorted: u32) -> u32 {
        sorted.wrapping_sub(self.0 >> 16) & 0xffff
    }
}

/// The number of rings of a board, and so the number of places that are distinguished. Tests of
/// this crate have small boards, because the model creates each word again in each interleaving.
pub(super) const RINGS: usize = if cfg!(test) { 4 } else { 32 };

/// The number of waiters in a ring, at most; they take two lines. Further waiters of that place
/// wait unsorted.
pub(super) const RING: usize = 30;

const _: () = {
    assert!(size_of::<Node<Native>>() == 64);
    // Ring, place in it and number of waiters have five bits each in a word.
    assert!(RINGS <= 32 && RING < 32);
    assert!(NODES << DOUBLINGS <= Link::NUMBER as usize);
    assert!(align_of::<Node<Native>>() == 64 && align_of::<Board<Native>>() == 64);
    assert!(cfg!(test) || size_of::<Board<Native>>() == 64 + RINGS * 4 + RINGS * 128);
};

impl<W: World> Pooled<W> for Node<W> {
    fn new_in() -> Self {
        let word = || W::U32::new_in(NONE);
        let own = || Own(word());
        Node {
            state: word(),
            next: word(),
            place: own(),
            board: own(),
            along: own(),
            run: own(),
            until: Own(W::U64::new_in(0)),
            ahead: [(); 2].map(|()| Own(W::U64::new_in(0))),
            lock: W::U64::new_in(0),
            before: word(),
            life: own(),
        }
    }

    fn link(&self) -> &W::U32 {
        &self.next
    }
}

impl<W: World> Pooled<W> for Board<W> {
    fn new_in() -> Self {
        let word = || Own(W::U32::new_in(0));
        let waiters = || core::array::from_fn(|_| word());
        let ring = |_| Line(Ring { start: word(), len: word(), waiters: waiters() });
        Board {
            rest: word(),
            born: Own(W::U64::new_in(0)),
            sorted: word(),
            turns: word(),
            began: word(),
            short: word(),
            firsts: Line(core::array::from_fn(|_| word())),
            rings: core::array::from_fn(ring),
        }
    }

    fn link(&self) -> &W::U32 {
        &self.rest.0
    }
}

/// More than the threads that can wait at one time on most machines: nodes are made 64 at a time.
const NODES: usize = 32_768;

/// How often the nodes double if that is not enough, to 67 million. So turns that are held or
/// forgotten take memory, and never the last node. A thread that still finds none does not queue.
const DOUBLINGS: usize = 11;

/// A CPU that finds no node of its own makes one while there are fewer than this, 256 KiB. Taken
/// from another CPU, a node would move back and forth between the two. Beyond that, the CPU first
/// takes a node of another CPU. Waiters that give up leave their nodes to other CPUs, and would
/// soon have made all possible nodes.
const SPREAD_NODES: usize = 4096;

/// With this many abandoned nodes in queues, none is added: 64 MiB.
pub(super) const MOST_ABANDONED: u32 = 1 << 20;

/// With this many abandoned nodes in queues, a thread that may give up adopts such a place, if it
/// finds one. Below this number, threads do not look for places, and an arrival costs nothing
/// extra.
pub(super) const CROWDED: u32 = 512;

/// With this many abandoned nodes in queues, a sleeping thread no longer tries to enter its lock,
/// because it would abandon its node. The room above is for waits with deadlines, which must.
pub(super) const MOST_ENTERED: u32 = 2 * CROWDED;

/// The number of locks that can be contended from several places at one time. Other locks serve in
/// order of arrival.
const BOARDS: usize = 1024;

/// The tables that all queue locks of a world share.
pub struct Tables<W: World> {
    pub(super) nodes: Pool<Node<W>, W>,
    pub(super) boards: Pool<Board<W>, W>,
    /// How many abandoned nodes are in queues.
    pub(super) abandoned: Line<W::U32>,
    /// The place of each CPU.
    places: Box<[u32]>,
    /// How many places there are besides a waiter's own; at least one.
    pub(super) other_places: u32,
}

impl<W: World> Tables<W> {
    pub(super) fn new_in() -> Self {
        let topology = W::topology();
        let caches = caches(topology.cpus());
        let place = |cpu| place(&topology, &caches, cpu);
        let places: Box<[u32]> = (0..topology.cpu_limit()).map(place).collect();
        Tables {
            nodes: Pool::new_in(NODES, SPREAD_NODES).growing(DOUBLINGS),
            boards: Pool::new_in(BOARDS, 0),
            abandoned: Line(W::U32::new_in(0)),
            other_places: places.iter().copied().max().unwrap_or(0).max(1),
            places,
        }
    }

    /// The place of the calling thread: its last-level cache. Places are distinguished up to
    /// [`RINGS`]. This is a hint.
    pub(super) fn place(&self) -> u32 {
        self.places.get(W::cpu_hint().index()).copied().unwrap_or(0)
    }
}

/// The last-level caches; near ones follow each other.
fn caches<'a>(cpus: impl Iterator<Item = &'a Cpu>) -> Vec<CacheId> {
    let mut cpus: Vec<_> = cpus.map(|cpu| (cpu.socket, cpu.node, cpu.cache)).collect();
    cpus.sort_unstable();
    let mut caches = Vec::new();
    for (.., cache) in cpus {
        if !caches.contains(&cache) {
            caches.push(cache);
        }
    }
    caches
}

/// The node of each place. If places were joined, because there are more caches than
/// [`RINGS`], the node of their first cache.
pub(in crate::lock) fn nodes_of_places<W: World>() -> Box<[NodeId]> {
    let topology = W::topology();
    let node = |cache: &CacheId| topology.cpus().find(|cpu| cpu.cache == *cache).map(|it| it.node);
    let caches = caches(topology.cpus());
    caches.iter().take(RINGS).filter_map(node).collect()
}

/// Numbers of CPUs that the machine does not have count as the first place.
fn place(topology: &Topology, caches: &[CacheId], cpu: usize) -> u32 {
    let cpu = u32::try_from(cpu).ok().and_then(|cpu| topology.cpu(CpuId::new(cpu)));
    let at = cpu.and_then(|cpu| caches.iter().position(|cache| *cache == cpu.cache));
    at.map_or(0, |at| (at % RINGS) as u32)
}

#[cfg(test)]
mod tests {
    use coreline_topology::NodeId;

    use super::*;

    #[test]
    fn caches_that_are_near_each_other_have_places_that_follow_each_other() {
        // By CPU: its socket, node and cache. As where firmware numbers CPUs by turns of sockets.
        let parts = [(0, 0, 0), (1, 1, 1), (0, 0, 2), (1, 1, 3), (0, 0, 0), (1, 1, 1)];
        let cpu = |(id, (socket, node, cache)): (u32, (u32, u32, u32))| Cpu {
            id: CpuId::new(id),
            core: id,
            thread: 0,
            l2: id,
            cluster: id,
            cache: CacheId::new(cache),
            node: NodeId::new(node),
            socket,
            kind: Default::default(),
        };
        let cpus: Vec<Cpu> = (0..).zip(parts).map(cpu).collect();
        let caches: Vec<u32> = caches(cpus.iter()).iter().map(|cache| cache.get()).collect();
        assert_eq!(caches, [0, 2, 1, 3]);
    }
}
