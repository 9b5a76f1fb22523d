//! [`Osq`]: a queue of waiters in four bytes, which can give up.
//!
//! A thread that arrives swaps its node's number into the lock and links itself after the previous
//! node. It waits on a word of its own, so a hand-off costs the same however many threads wait
//! (Mellor-Crummey and Scott, ["Algorithms for scalable synchronization on shared-memory
//! multiprocessors"](https://doi.org/10.1145/103727.103729), 1991, section 2.4). The
//! kernel has such a queue for the threads that spin before they sleep, `osq_lock`. Its nodes are
//! numbered, and a waiter may give up.
//!
//! # State
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `tail` | 0: free. Else the node that arrived last | arrivals; a holder without a waiter |
//!
//! The node that arrived last may be the holder's own.
//!
//! The nodes have a table of their own in `nodes.rs`, as do the boards on which [`Near`] sorts
//! waiters. The holder's node names its board:
//!
//! ```text
//! holder -next-> node -> node -> ... <- tail        without a board
//!
//! holder -run-> the place that has the lock, its next waiters, where in it they are, until when
//! holder -board-> place 0: node, node               sorted
//!                 place 1: node, node, node
//!                 rest: node -> node -> ... <- tail  arrivals
//! ```
//!
//! # A waiter that gives up
//!
//! A waiter that gives up exchanges its state from `WAIT` or `SLEEPS` to `LEFT`. From then on it
//! touches neither the node nor the lock: it has *abandoned* the node. The holder that reaches the
//! node acts for it: it passes the turn to the next node, and puts this node back. If the holder's
//! exchange to `TURN` was first, the waiter has the turn after all. So exactly one of the two
//! happens. If many abandoned nodes are in queues, a new thread takes over one of them instead of
//! using a node of its own: see `places.rs`.
//!
//! # Law
//!
//! There is at most one holder, and the next holder sees its writes. Every waiter gets its turn or
//! gives up. The queue goes on after waiters have left it. In the repository,
//! `tests/laws/locks/osq.rs` checks this in all three worlds.

#[cfg(test)]
mod laws;
mod nodes;
mod order;
mod places;
mod sleeping;
mod spinning;

use core::marker::PhantomData;
use core::time::Duration;

use coreline_world::{ConstWorld, Integer, Native, Ordering, Time, Word, World, WorldStatic};

pub(super) use nodes::nodes_of_places;
pub use order::{Fifo, Near, Order};

use super::count::{Event, count, hand_over};
use super::spin::doze;
use super::wanted;
use crate::node_pool::{NONE, Number};
use nodes::{KIND, LEFT, Link, MOST_ABANDONED, Node, SLEEPS, TURN, Tables, WAIT};
use places::Place;
pub(super) use sleeping::{Manner, Waited};
pub(super) use spinning::Came;

/// A lock of four bytes. It is a queue of waiters. The waiter that has its *turn* holds the lock.
///
/// `O` is the order of the turns. [`Near`] serves waiters near the holder first, within bounds.
/// [`Fifo`] is the order of arrival.
///
/// Waiters spin, each on a cache line of its own. In locks whose waiters sleep, waiters first spin
/// in such a queue. They use [`lock_by`](Osq::lock_by), which gives up at a deadline.
///
/// ```
/// use coreline::lock::Osq;
///
/// static QUEUE: Osq = Osq::new();
///
/// let turn = QUEUE.lock();
/// assert!(QUEUE.try_lock().is_none());
/// drop(turn);
/// assert!(!QUEUE.is_locked());
/// ```
///
/// **Size**: each lock uses 4 bytes. All locks of a process share a table of nodes, of 64 bytes
/// each. A turn that a thread waits for, has or gave up occupies one node. The table takes up to
/// 256 KiB even if there are few such turns. A forgotten turn keeps its node. The locks share
/// boards, too. A lock that waiters of several places want at one time has a board of 4.2 KiB, and
/// all boards take at most 4.2 MiB. Threads map 64 nodes or boards at a time. Beyond 32,768 nodes
/// (2 MiB), the memory for nodes doubles each time.
///
/// **Panics**: no method panics. If a panic drops a turn, the next waiter gets the turn.
///
/// **Oversubscription**: a waiter that is not running when its turn comes keeps the other waiters
/// waiting until it runs. With more threads than CPUs, use `lock_by`, or a lock whose waiters
/// sleep. On 2 CPUs, the longest wait is 3 to 8 ms with 8 threads, and 4 to 9 ms with 32 threads.
/// The fairness ratio (fewest turns of a thread / most turns of a thread) is at least 0.63 with 8
/// threads and 0.25 with 32 ([measurements](super#more-threads-than-cpus)).
///
/// **Priorities**: turns follow the order, whatever the threads' priorities. A waiter that has
/// waited for a long time sleeps between its checks, so that [a holder of lower priority can
/// run](super#priorities) on its CPU.
///
/// **Signals**: a handler that locks waits forever if the thread that it interrupted has the turn,
/// or waits for it ahead of the handler. `lock_by` gives up, and `try_lock` does not wait. The
/// first turn of a process uses the global allocator, unless [`prepare`](super::prepare) was called
/// before.
///
/// **Several copies of the library**, and memory that processes share: threads may wait forever.
/// See [one copy of the library](super#one-copy-of-the-library).
///
/// **Fork**: a lock that another thread held, or waited for, at the time of the fork stays locked
/// in the child.
#[repr(transparent)]
pub struct Osq<O: Order = Near, W: World = Native> {
    tail: W::U32,
    order: PhantomData<fn() -> O>,
}

/// How long a holder that waits for a link spins and then sleeps, alternately.
const LINKING: Duration = Duration::from_micros(10);

const _: () = {
    assert!(size_of::<Osq<Near, Native>>() == 4);
    assert!(align_of::<Osq<Near, Native>>() == 4);
};

impl<O: Order, W: World> Osq<O, W> {
    /// Creates a free lock in a const context, in any order and any [`ConstWorld`].
    pub const fn const_new() -> Self
    where
        W: ConstWorld,
    {
        Osq { tail: W::U32_ZERO, order: PhantomData }
    }

    /// Creates a free lock, in world `W`.
    pub fn new_in() -> Self {
        Osq { tail: W::U32::new_in(NONE), order: PhantomData }
    }

    /// Waits for a turn. If 67 million turns at one time have taken all nodes, or if there is no
    /// memory for more nodes, the thread sleeps until a node is free. Meanwhile it is not in the
    /// queue.
    pub fn lock(&self) -> Turn<'_, O, W> {
        let (Came::First(number) | Came::Next(number)) = self.come();
        self.turn(number)
    }

    /// Waits for a turn at most until `deadline`. Returns `None` if the deadline passes first.
    ///
    /// A waiter that gives up leaves its node in the queue until a holder reaches the node. While
    /// 512 or more abandoned nodes are in the queues of all locks, a thread that may give up first
    /// looks for an abandoned node in the queue of its lock. If it finds one, it takes over that
    /// node. So threads that retry while another thread holds the lock take about one node per
    /// thread, not one node per try. If 1,048,576 abandoned nodes are in the queues, or if all
    /// nodes are in use, the thread sleeps outside of the queue. It checks from time to time
    /// whether the lock or a node is free.
    pub fn lock_by(&self, deadline: Time) -> Option<Turn<'_, O, W>> {
        let come = || try_with_tables::<W, _>(|tables| self.come_to_leave(tables)).map(Ok);
        // A thread may find no place because too many nodes are abandoned. A free lock needs no
        // place, so it takes that with a node that it does not abandon.
        let come = || come().or_else(|| self.try_lock().map(Err));
        let Place { number, has_turn, life } = match doze::<W, _>(Some(deadline), come)? {
            Ok(place) => place,
            Err(turn) => return Some(turn),
        };
        with_tables::<W, _>(|tables| {
            if !has_turn {
                count::<W>(Event::Wait);
                let state = &tables.nodes.get(number).state;
                // Acquire: as in `come`.
                let came = state.wait_until_by(Ordering::Acquire, deadline, |state| state == TURN);
                if came.is_none() && tables.leave(number, WAIT | life) {
                    count::<W>(Event::Timeout);
                    return None;
                }
            }
            Some(self.turn(number))
        })
    }

    /// Takes the lock if it is free now.
    pub fn try_lock(&self) -> Option<Turn<'_, O, W>> {
        // Relaxed: a lock that is held needs no node; the exchange below looks again.
        if self.tail.load(Ordering::Relaxed) != NONE {
            return None;
        }
        try_with_tables::<W, _>(|tables| {
            let number = tables.nodes.take()?;
            tables.nodes.get(number).prepare(tables.place());
            // Acquire: pairs with the Release in `behind` of the holder before. Release: pairs with
            // the Acquire of the arrival behind, which links itself to the node that is written
            // above.
            let taken =
                self.tail.compare_exchange(NONE, number, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_err() {
                tables.nodes.put_back(number);
                return None;
            }
            Some(self.turn(number))
        })
    }

    fn turn(&self, number: Number) -> Turn<'_, O, W> {
        Turn { osq: self, number, not_send: PhantomData }
    }

    /// Returns whether a thread has its turn. The result is a hint, and may be out of date when the
    /// call returns.
    pub fn is_locked(&self) -> bool {
        // Relaxed: nothing follows from the answer.
        self.tail.load(Ordering::Relaxed) != NONE
    }

    /// Puts a node at the end of the queue; returns whether it has the turn already.
    fn arrive(&self, tables: &Tables<W>, number: Number) -> bool {
        let place = tables.place();
        tables.nodes.get(number).prepare(place);
        self.append(tables, number, place) == NONE
    }

    /// Puts a prepared node at the end of the queue; returns the node before it, if there is one.
    fn append(&self, tables: &Tables<W>, number: Number, place: u32) -> Number {
        // Acquire: pairs with the Release in `behind`, where the queue was empty, and with that of
        // the arrival before, which wrote the node that is linked to below. Release: pairs with the
        // Acquire of the next arrival.
        let before = self.tail.swap(number, Ordering::AcqRel);
        if before != NONE {
            let link = Link::new(number, place);
            // Release: pairs with the Acquire in `behind`: the holder that finds the link reads
            // this node.
            tables.nodes.get(before).next.store(link.word(), Ordering::Release);
        }
        before
    }

    /// The node behind `number`, which is the holder's; `None` if there is none, and then the lock
    /// is free.
    fn behind(&self, tables: &Tables<W>, number: Number) -> Option<Link> {
        let next = &tables.nodes.get(number).next;
        // Acquire: pairs with the Release of the link in `append`.
        let mut behind = next.load(Ordering::Acquire);
        if behind == NONE {
            // Release: pairs with the Acquire of an arrival: what was done in this turn comes
            // before the next one.
            let left =
                self.tail.compare_exchange(number, NONE, Ordering::Release, Ordering::Relaxed);
            if left.is_ok() {
                return None;
            }
            // A thread has swapped the tail, and is about to link itself:
            //
            //   Thread 2: swaps the tail
            //   Thread 1: leaves              <- would lose thread 2, and all behind it
            //   Thread 2: links itself to the node of thread 1, waits for ever
            behind = linked::<W>(next);
        }
        Some(Link::of(behind))
    }
}

/// Waits for the link of a thread that has swapped the tail. Only a few instructions are between
/// the two. But the thread may have been preempted there, even by the caller, so the caller lets it
/// run.
fn linked<W: World>(next: &W::U32) -> u32 {
    let is_linked = |next| next != NONE;
    if !W::RUNS {
        // Acquire: pairs with the Release of the link in `append`.
        return next.wait_until(Ordering::Acquire, is_linked);
    }
    loop {
        // Acquire: pairs with the Release of the link in `append`.
        let link = next.wait_until_by(Ordering::Acquire, W::now() + LINKING, is_linked);
        if let Some(link) = link {
            return link;
        }
        // The thread that links itself wakes none, so that arrivals stay as cheap as they are.
        W::park(next, NONE, Some(W::now() + LINKING));
    }
}

impl<W: World> Tables<W> {
    /// Whether so many abandoned nodes are in queues that a thread must not add another one.
    fn is_full(&self) -> bool {
        // Relaxed: a count.
        self.abandoned.load(Ordering::Relaxed) >= MOST_ABANDONED
    }

    /// Leaves a node, whose thread waits in state `from`, to the holder that comes to it. Returns
    /// false if the turn came after all.
    fn leave(&self, number: Number, from: u32) -> bool {
        // Relaxed: counted before the exchange, whose Release brings it before the subtraction in
        // `grant`: the count is never below zero.
        self.abandoned.fetch_add(1, Ordering::Relaxed);
        // Release: pairs with the Acquire in `grant`, after which another thread may write to the
        // node; what this one wrote and read comes before; and with that in `adopt`. Acquire, where
        // it fails: the turn came, as in `come`.
        let left = self.nodes.get(number).state.compare_exchange(
            from,
            from & !KIND | LEFT,
            Ordering::Release,
            Ordering::Acquire,
        );
        if left.is_err() {
            // Relaxed: a count.
            self.abandoned.fetch_sub(1, Ordering::Relaxed);
        }
        left.is_ok()
    }

    /// Gives the turn, and what goes `along` with it, to the thread of a node in the queue. The
    /// turn is at the place `from`. Returns the node if its thread sleeps and the caller must
    /// [wake](Tables::wake) it, else [`NONE`]. Returns `None` if the thread has given up.
    fn grant(&self, number: Number, from: impl FnOnce() -> u32, along: u32) -> Option<Number> {
        let node = self.nodes.get(number);
        // Before the turn is given, after which the thread may put the node back.
        let event = hand_over::<W>(from, || node.place.get());
        node.along.set(along);
        let mut from = WAIT;
        loop {
            // Release: pairs with the Acquire of the wait for the turn. Acquire, where it fails:
            // pairs with the Release of the thread that left; the node is the caller's from then
            // on.
            let granted =
                node.state.compare_exchange(from, TURN, Ordering::Release, Ordering::Acquire);
            match granted {
                Ok(_) => {
                    event.inspect(|event| count::<W>(*event));
                    return Some(if from & KIND == SLEEPS { number } else { NONE });
                }
                Err(LEFT) => break,
                Err(found) if found & KIND != LEFT => from = found,
                Err(found) => {
                    // Another thread may adopt the place until its life is taken out:
                    //
                    //   Thread 1: finds that the waiter has left, and passes its node over
                    //   Thread 2: adopts the place, waits for ever
                    //
                    // Acquire: pairs with the Release in `leave`, of the thread that gave up last:
                    // one that had adopted the place, perhaps.
                    let over = (Ordering::Acquire, Ordering::Relaxed);
                    if node.state.compare_exchange(found, LEFT, over.0, over.1).is_ok() {
                        break;
                    }
                }
            }
        }
        // Relaxed: a count; see `leave`.
        self.abandoned.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// Wakes the thread of a node that got its turn asleep. That thread may have gone on meanwhile.
    /// In that case, the node's next thread may wake without reason.
    fn wake(&self, number: Number) {
        if number != NONE {
            count::<W>(Event::Wake);
            W::wake(&raw const self.nodes.get(number).state, 1);
        }
    }
}

impl<W: World> Node<W> {
    /// The fields that the thread that took the node writes before any other thread can see the
    /// node.
    fn prepare(&self, place: u32) {
        // Relaxed: published by the exchange or swap of the tail.
        self.state.store(WAIT, Ordering::Relaxed);
        // Relaxed: as `state`.
        self.next.store(NONE, Ordering::Relaxed);
        self.place.set(place);
        self.board.set(NONE);
        self.along.set(0);
    }
}

/// Creates the tables that all locks of the process share, so that later no lock uses the global
/// allocator. Without this call, the first thread that waits for a lock or takes an [`Osq`] creates
/// them.
///
/// Call it for allocators that [wait for one lock while they hold another](super#in-an-allocator),
/// and for signal handlers that lock. The first call reads the machine's tree. On a large machine,
/// it takes a few milliseconds. Later calls do nothing.
///
/// **Fork**: a child has the tables that its parent had. **Signals**: a signal handler must not
/// call it.
///
/// ```
/// static LOCK: coreline::Mutex<u32> = coreline::Mutex::new(0);
///
/// coreline::lock::prepare();
/// *LOCK.lock() += 1;
/// ```
pub fn prepare() {
    // The place is asked for, as the first use of it may allocate, too.
    try_with_tables::<Native, _>(|tables| Some(tables.place()));
}

static TABLES: WorldStatic = WorldStatic::new("nodes of queue locks");

/// Calls `f` with the tables of this world, which the first call creates. They live until the world
/// ends. If locks counted their uses, all locks would write to one word.
fn with_tables<W: World, R>(f: impl FnOnce(&Tables<W>) -> R) -> R {
    TABLES.with::<W, _, _>(create_tables::<W>, f)
}

/// Also creates what threads in queues learn of their CPUs. The allocator that it calls does
/// without a node.
fn create_tables<W: World>() -> Tables<W> {
    wanted::prepare::<W>();
    Tables::new_in()
}

/// The same for a thread that has no node yet, and wants one. `None` if the thread is just creating
/// the tables, and the allocator that it calls for this uses this lock: it must do without a node.
fn try_with_tables<W: World, R>(f: impl FnOnce(&Tables<W>) -> Option<R>) -> Option<R> {
    TABLES.try_with::<W, _, _>(create_tables::<W>, f).flatten()
}

impl_default!(
    [O: Order, W: ConstWorld] Osq<O, W>, const_new,
    "Creates a free lock, also in a `static`."
);

impl_debug!([O: Order, W: World] Osq<O, W> as it { locked: it.is_locked() });

/// A thread's turn in an [`Osq`]. Dropping it passes the turn to the next waiter.
#[must_use = "the turn is passed on when it drops: at once, if it is not bound to a name"]
pub struct Turn<'a, O: Order, W: World = Native> {
    osq: &'a Osq<O, W>,
    number: Number,
    /// It is not `Send`: the place that it passes on is that of the thread that waited.
    not_send: PhantomData<*const ()>,
}

impl<O: Order, W: World> Drop for Turn<'_, O, W> {
    fn drop(&mut self) {
        with_tables::<W, _>(|tables| {
            tables.wake(O::pass(self.osq, tables, self.number).unwrap_or(NONE));
        });
    }
}

impl_debug!([O: Order, W: World] Turn<'_, O, W> { .. });

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_sim::{Faults, Machine, Sim};
    use coreline_topology::CpuId;
    use coreline_world::{Clock, JoinHandle, Placement, Threads};

    use super::super::Mutex;
    use super::*;

    /// Without sleep, the holder spins for the rest of its slice of 3 ms if it preempted the thread
    /// that is about to link itself.
    #[test]
    fn a_holder_lets_a_preempted_arrival_link_itself() {
        let program = || {
            let lock = Arc::new(Mutex::<(), Near, Sim>::new_in(()));
            let run = |number: u32| {
                let lock = Arc::clone(&lock);
                let wait = move |_| {
                    let came = Sim::now();
                    let _held = lock.lock();
                    Sim::now() - came
                };
                let all = move || (0..300).map(&wait).max();
                Sim::spawn(Placement::On(CpuId::new(number % 2)), all).expect("a few threads")
            };
            let threads: Vec<_> = (0..4).map(run).collect();
            threads.into_iter().filter_map(JoinHandle::join).max()
        };
        let faults = Faults { preempt_access: 5, ..Faults::NONE };
        let machine =
            |seed| Machine::preset("host-2c").expect("a preset").faults(faults).seed(seed);
        let longest = (0..8).filter_map(|seed| machine(seed).run(program).expect("it ends").value);
        let longest = longest.max().expect("each thread has waited");
        assert!(longest < Duration::from_millis(2), "{longest:?}");
    }
}
