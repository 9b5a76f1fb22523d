//! `per-node`: the proposal of Guo 2024 for the kernel's queue of spinning waiters. It is kept,
//! with its mistakes, as the baseline for [`Near`](coreline::lock::Near).
//!
//! The queue is split into one queue for each memory node, so every lock has 32 tails. A thread at
//! the head of its node's queue waits until a *token* names its node, or names no node. A holder
//! that finds its node's queue empty passes the token to the next node, by number, whose queue is
//! not empty. So the waiters of a node have consecutive turns.
//!
//! This code follows the steps of the proposal, in the same order. In the proposal a queue node
//! belongs to a CPU, whose thread cannot be preempted. In this code it belongs to a thread.
//!
//! Its defects, each shown by a test in `tests/claims/lockscale/per_node.rs`:
//!
//! 1. It **starves other nodes**. The token moves on only when a node's queue is empty. This never
//!    happens while the node's threads request the lock more often than they get it.
//! 2. It **admits two holders**. A holder first empties its node's queue, and then passes the token
//!    on. If a thread of the node arrives in between, it finds the queue empty and the token with
//!    its node, so it gets the lock. The thread to which the token then passes also gets the lock.
//! 3. It **lacks an acquire**. A thread that finds the token already with its node has read the
//!    token by a failed exchange, which orders no memory accesses. The token is also stored without
//!    a Release.
//! 4. **All locks share one token**, so unrelated locks wait for each other.
//! 5. It **returns as if acquired** if the scheduler wants the thread's CPU while the thread waits
//!    for the token.
//! 6. It **assumes dense node numbers**. If a holder's node number is not below the number of
//!    nodes, the holder searches for it among the lower numbers forever.
//!
//! In the kernel, a mutex stands behind the queue, which only elects the thread that spins on the
//! mutex. So in the kernel, defects 2, 3 and 5 cost time, but break nothing. In this scenario, a
//! word in [`Guarded`] has the role of the mutex. The scenario compares [`Guarded`].

use core::time::Duration;

use coreline_world::{Line, Ordering, Testbed, Word, World, WorldStatic};

use super::Lock;

/// Memory nodes that a lock has a queue for: the proposal's number.
const NODES: usize = 32;

/// How long a waiter polls its word before it checks whether the scheduler wants the CPU. In the
/// kernel an interrupt wakes it.
const LOOK_EVERY: Duration = Duration::from_micros(10);

/// The split queue. With `ORDERED`, the third defect is fixed, to show that the checks then find no
/// other defect.
pub struct PerNode<W: Testbed, const ORDERED: bool = false> {
    tails: Line<[W::U32; NODES]>,
    waiters: Box<[Line<Waiter<W>>]>,
    /// The memory node of each thread.
    nodes: Box<[u32]>,
    /// How many nodes there are.
    count: u32,
}

/// The node in which a thread waits. Threads are numbered from 1 on; 0 is none.
struct Waiter<W: Testbed> {
    next: W::U32,
    before: W::U32,
    /// 1: at the head of its node's queue.
    is_first: W::U32,
}

/// The token: a node that may have its turns, or [`NO_NODE`]. One for all locks.
static TOKEN: WorldStatic = WorldStatic::new("token of split queues");

const NO_NODE: u32 = u32::MAX;

fn with_token<W: World, R>(f: impl FnOnce(&W::U32) -> R) -> R {
    TOKEN.with::<W, Line<W::U32>, _>(|| Line(W::U32::new_in(NO_NODE)), |token| f(token))
}

impl<W: Testbed, const ORDERED: bool> PerNode<W, ORDERED> {
    /// Creates a queue for threads on these nodes, on a machine with `count` nodes.
    pub fn new_in(nodes: &[u32], count: u32) -> Self {
        let word = || W::U32::new_in(0);
        let waiter = |_: &u32| Line(Waiter { next: word(), before: word(), is_first: word() });
        PerNode {
            tails: Line(core::array::from_fn(|_| word())),
            waiters: nodes.iter().map(waiter).collect(),
            nodes: nodes.into(),
            count,
        }
    }

    fn waiter(&self, number: u32) -> &Waiter<W> {
        &self.waiters[number as usize - 1]
    }

    fn tail(&self, node: u32) -> &W::U32 {
        &self.tails[node as usize]
    }

    /// Waits for a turn. Returns false if the scheduler wants the thread's CPU.
    pub fn lock(&self, thread: usize) -> bool {
        let (me, node) = (thread as u32 + 1, self.nodes[thread]);
        let mine = self.waiter(me);
        // Relaxed: published by the swap.
        mine.next.store(0, Ordering::Relaxed);
        // Relaxed: published by the swap.
        mine.is_first.store(0, Ordering::Relaxed);
        // Acquire: pairs with the Release exchange in `unlock`, and with the Release half of the
        // arrival before. Release: pairs with the Acquire of the next arrival.
        let mut before = self.tail(node).swap(me, Ordering::AcqRel);
        if before == 0 {
            self.wait_for_token(node);
            return true;
        }
        // Relaxed: of interest to this thread and to the one behind, which writes under `next`.
        mine.before.store(before, Ordering::Relaxed);
        // Release: pairs with the Acquire looks at `next`.
        self.waiter(before).next.store(me, Ordering::Release);
        if Self::waits(mine) {
            self.wait_for_token(node);
            return true;
        }
        loop {
            let next = &self.waiter(before).next;
            // Relaxed, where it fails: another look follows. Acquire: pairs with the Release of
            // what wrote the link.
            if next.compare_exchange(me, 0, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                break;
            }
            // Acquire: pairs with the Release in `unlock`: the turn came after all.
            if mine.is_first.load(Ordering::Acquire) == 1 {
                self.wait_for_token(node);
                return true;
            }
            W::relax();
            // Relaxed: the exchange above settles it.
            before = mine.before.load(Ordering::Relaxed);
        }
        if let Some(next) = self.behind(me, before) {
            // Relaxed: the thread there reads it again and again.
            self.waiter(next).before.store(before, Ordering::Relaxed);
            // Release: pairs with the Acquire looks at `next`.
            self.waiter(before).next.store(next, Ordering::Release);
        }
        false
    }

    /// Waits to be the first of the node; false if the thread is wanted for something else.
    fn waits(mine: &Waiter<W>) -> bool {
        loop {
            let until = W::now() + LOOK_EVERY;
            // Acquire: pairs with the Release in `unlock`.
            if mine.is_first.wait_until_by(Ordering::Acquire, until, |first| first == 1).is_some() {
                return true;
            }
            if W::need_resched() {
                return false;
            }
        }
    }

    /// The node behind a node that leaves, unlinked from it; `None` if it was the last one: then
    /// `last` is.
    fn behind(&self, me: u32, last: u32) -> Option<u32> {
        let (tail, mine) = (self.tail(self.nodes[me as usize - 1]), self.waiter(me));
        loop {
            // Release: pairs with the Acquire of the next arrival.
            if tail.compare_exchange(me, last, Ordering::Release, Ordering::Relaxed).is_ok() {
                return None;
            }
            // Acquire: pairs with the Release of the link in `lock`.
            let next = mine.next.swap(0, Ordering::Acquire);
            if next != 0 {
                return Some(next);
            }
            W::relax();
        }
    }

    /// Takes the token, unless the node has it. Returns without it if the thread is wanted for
    /// something else: the fifth defect.
    fn wait_for_token(&self, node: u32) {
        let fail = if ORDERED {
            // Acquire: pairs with the Release in `pass`.
            Ordering::Acquire
        } else {
            // Relaxed: the third defect.
            Ordering::Relaxed
        };
        with_token::<W, _>(|token| {
            while !W::need_resched() {
                // Acquire: would pair with a Release in `pass`.
                match token.compare_exchange(NO_NODE, node, Ordering::Acquire, fail) {
                    Err(other) if other != node => W::relax(),
                    _ => return,
                }
            }
        });
    }

    /// Passes the turn on.
    pub fn unlock(&self, thread: usize) {
        let (me, node) = (thread as u32 + 1, self.nodes[thread]);
        // Release: pairs with the Acquire of the next arrival.
        let left = self.tail(node).compare_exchange(me, 0, Ordering::Release, Ordering::Relaxed);
        if left.is_ok() {
            return self.pass(node);
        }
        match self.behind(me, 0) {
            // Release: pairs with the Acquire of the waiter.
            Some(next) => self.waiter(next).is_first.store(1, Ordering::Release),
            None => self.pass(node),
        }
    }

    /// Gives the token to the next node with a queue, or to none. At this point the node's queue is
    /// empty. This is the second defect.
    fn pass(&self, mine: u32) {
        let mut node = mine;
        let to = loop {
            // The sixth defect: `mine` may be no number below `count`.
            node = (node + 1) % self.count;
            if node == mine {
                break NO_NODE;
            }
            // Relaxed: a hint.
            if self.tail(node).load(Ordering::Relaxed) != 0 {
                break node;
            }
        };
        let order = if ORDERED {
            // Release: pairs with the Acquire exchange in `wait_for_token`.
            Ordering::Release
        } else {
            // Relaxed: the third defect.
            Ordering::Relaxed
        };
        with_token::<W, _>(|token| token.store(to, order));
    }
}

/// The queue taken for a lock, which it is not: in front of a mutex, and to show that.
impl<W: Testbed, const ORDERED: bool> Lock<W> for PerNode<W, ORDERED> {
    fn new_in(nodes: &[u32]) -> Self {
        PerNode::new_in(nodes, nodes.iter().max().map_or(1, |most| most + 1))
    }

    fn hold(&self, thread: usize, turn: impl FnOnce()) {
        while !self.lock(thread) {
            W::yield_now();
        }
        turn();
        self.unlock(thread);
    }
}

/// A lock that consists of the split queue and one word.
pub struct Guarded<W: Testbed> {
    queue: PerNode<W>,
    /// 1: held.
    held: Line<W::U32>,
}

impl<W: Testbed> Lock<W> for Guarded<W> {
    fn new_in(nodes: &[u32]) -> Self {
        Guarded { queue: Lock::new_in(nodes), held: Line(W::U32::new_in(0)) }
    }

    fn hold(&self, thread: usize, turn: impl FnOnce()) {
        self.queue.hold(thread, || {
            // Acquire: pairs with the Release below, of the holder before.
            while self.held.swap(1, Ordering::Acquire) != 0 {
                // Relaxed: the swap looks again.
                self.held.wait_until(Ordering::Relaxed, |held| held == 0);
            }
            turn();
            // Release: pairs with the Acquire of the next holder.
            self.held.store(0, Ordering::Release);
        });
    }
}
