//! The kernel's queued spin lock, and its NUMA-aware successor CNA.
//!
//! The first lock models `kernel/locking/qspinlock.c`. Its word has three parts: *locked*,
//! *pending* and *tail*. The second thread waits on the word, as the *pending* thread. Further
//! threads wait in a queue with one node per CPU, whose head waits on the word. In this model the
//! parts are separate words of one line. So an exchange of the tail does not change the other
//! parts, like the kernel's halfword exchange. To set *locked*, the model uses a compare-exchange,
//! on a line that the thread has just read. The kernel needs only a plain store.
//!
//! The successor models `kernel/locking/qspinlock_cna.h`, in version 15 of the series "Add
//! NUMA-awareness to qspinlock". While the lock is busy, the head moves waiters of other nodes, one
//! at a time, from the queue behind it to a secondary queue. The tail of the secondary queue is in
//! the head's `locked`. The head passes this tail and its node number on to the next head, until
//! [`THRESHOLD`] has passed since the secondary queue began. While the secondary queue is empty,
//! 127 of 128 heads sort no waiters.

use core::time::Duration;

use coreline_world::{Line, Ordering, Testbed, Time, Word};

/// The kernel's `numa_spinlock_threshold`, whose default is 1 ms.
pub const THRESHOLD: Duration = Duration::from_millis(1);

/// `SHUFFLE_REDUCTION_PROB_ARG`, 7 bits.
const SORTS: u32 = (1 << 7) - 1;

/// In a node's `locked`: it is the head, and there is no secondary queue. Larger: the head, and the
/// number of the secondary queue's last thread, from [`FIRST`] on.
const HEAD: u32 = 1;
const FIRST: u32 = 2;

/// A thread's node: `struct qnode`. A thread uses one node for all locks: the node is in use only
/// while the thread waits for a lock.
pub(super) struct Node<W: Testbed> {
    next: W::U32,
    locked: W::U32,
    /// The memory node that it is preferred for: its own or an inherited one.
    place: W::U32,
    /// When the secondary queue began; 0: there is none.
    began: W::U64,
    dice: W::U32,
}

/// The data that all locks share.
pub struct Nodes<W: Testbed> {
    nodes: Box<[Line<Node<W>>]>,
    places: Box<[u32]>,
    sorts: bool,
}

impl<W: Testbed> Nodes<W> {
    /// Creates the nodes for threads on these memory nodes. If `sorts` is true, the locks are CNA
    /// locks.
    pub fn new(places: &[u32], sorts: bool) -> Self {
        let node = |thread: usize| {
            Line(Node {
                next: W::U32::new_in(0),
                locked: W::U32::new_in(0),
                place: W::U32::new_in(0),
                began: W::U64::new_in(0),
                dice: W::U32::new_in((thread as u32 + 1).wrapping_mul(0x9e37_79b9)),
            })
        };
        Nodes { nodes: (0..places.len()).map(node).collect(), places: places.into(), sorts }
    }

    fn node(&self, number: u32) -> &Node<W> {
        &self.nodes[(number - FIRST) as usize]
    }
}

/// A lock, which shares its cache line with other data.
pub struct Queued<W: Testbed> {
    locked: W::U32,
    pending: W::U32,
    /// The last thread's number; 0: none waits in the queue.
    tail: W::U32,
}

impl<W: Testbed> Queued<W> {
    /// Creates a free lock.
    pub fn new() -> Self {
        Queued { locked: W::U32::new_in(0), pending: W::U32::new_in(0), tail: W::U32::new_in(0) }
    }

    /// Calls a function with the lock held.
    pub fn hold<T>(&self, nodes: &Nodes<W>, thread: usize, turn: impl FnOnce() -> T) -> T {
        // Relaxed, both: what follows looks again.
        let waits = self.tail.load(Ordering::Relaxed) != 0;
        if waits || self.pending.load(Ordering::Relaxed) != 0 || !self.try_lock() {
            self.wait(nodes, thread);
        }
        let came = turn();
        // Release: pairs with the Acquire in `try_lock`.
        self.locked.store(0, Ordering::Release);
        came
    }

    fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release of the holder before.
        self.locked.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits on the word until the lock is this thread's.
    fn take(&self) {
        loop {
            // Relaxed: `try_lock` looks again.
            self.locked.wait_until(Ordering::Relaxed, |locked| locked == 0);
            if self.try_lock() {
                return;
            }
        }
    }

    fn wait(&self, nodes: &Nodes<W>, thread: usize) {
        // Relaxed, all three: `take` has the Acquire.
        if self.tail.load(Ordering::Relaxed) == 0
            && self.pending.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.take();
            // Relaxed: it orders nothing.
            return self.pending.store(0, Ordering::Relaxed);
        }
        let (me, mine) = (thread as u32 + FIRST, &*nodes.nodes[thread]);
        // Relaxed, all: published by the exchange or by the link.
        mine.next.store(0, Ordering::Relaxed);
        mine.locked.store(0, Ordering::Relaxed);
        if nodes.sorts {
            // Relaxed, both: published by the exchange or by the link.
            mine.place.store(nodes.places[thread], Ordering::Relaxed);
            mine.began.store(0, Ordering::Relaxed);
        }
        // AcqRel: publishes the node to the next arrival, and sees that of the one before.
        let before = self.tail.swap(me, Ordering::AcqRel);
        if before == 0 {
            // Relaxed: the thread's own.
            mine.locked.store(HEAD, Ordering::Relaxed);
        } else {
            // Release: pairs with the Acquire loads of `next`.
            nodes.node(before).next.store(me, Ordering::Release);
            // Acquire: pairs with the Release of the head before.
            mine.locked.wait_until(Ordering::Acquire, |locked| locked != 0);
        }
        let flushes = nodes.sorts && self.sort(nodes, mine);
        // Relaxed: `take` has the Acquire.
        self.pending.wait_until(Ordering::Relaxed, |pending| pending == 0);
        self.take();
        self.pass(nodes, me, flushes);
    }

    /// `cna_wait_head_or_lock`. Returns whether the secondary queue must come to the front.
    fn sort(&self, nodes: &Nodes<W>, mine: &Node<W>) -> bool {
        // Relaxed, all: the head's own.
        let is_alone = mine.locked.load(Ordering::Relaxed) == HEAD;
        if is_alone && draw::<W>(&mine.dice) & SORTS != 0 {
            return false;
        }
        // Relaxed: the head's own.
        let began = mine.began.load(Ordering::Relaxed);
        if began != 0 && W::now() - Time::from_nanos(began) > THRESHOLD {
            return true;
        }
        // Relaxed: a hint.
        while self.locked.load(Ordering::Relaxed) != 0 {
            if self.order(nodes, mine) {
                break;
            }
            W::relax();
        }
        false
    }

    /// `cna_order_queue`: whether the next waiter is of the head's node; if not, it goes to the
    /// secondary queue, if one waits behind it.
    fn order(&self, nodes: &Nodes<W>, mine: &Node<W>) -> bool {
        // Acquire, both: pair with the Release of the link.
        let next = mine.next.load(Ordering::Acquire);
        if next == 0 {
            return false;
        }
        // Relaxed, both: written before the link, or the head's own.
        let place = nodes.node(next).place.load(Ordering::Relaxed);
        if place == mine.place.load(Ordering::Relaxed) {
            return true;
        }
        // Acquire: pairs with the Release of the link.
        let behind = nodes.node(next).next.load(Ordering::Acquire);
        if behind == 0 {
            return false;
        }
        // Relaxed, all that follow: `cna_splice_next`; both queues' links are the head's.
        mine.next.store(behind, Ordering::Relaxed);
        let last = mine.locked.load(Ordering::Relaxed);
        if last == HEAD {
            // Relaxed, both: the head's.
            nodes.node(next).next.store(next, Ordering::Relaxed);
            mine.began.store(W::now().as_nanos().max(1), Ordering::Relaxed);
        } else {
            // Relaxed, all: the head's.
            let first = nodes.node(last).next.load(Ordering::Relaxed);
            nodes.node(last).next.store(next, Ordering::Relaxed);
            nodes.node(next).next.store(first, Ordering::Relaxed);
        }
        // Relaxed: the head's.
        mine.locked.store(next, Ordering::Relaxed);
        false
    }

    /// The head has the lock: the next one becomes the head.
    fn pass(&self, nodes: &Nodes<W>, me: u32, flushes: bool) {
        let mine = nodes.node(me);
        // Relaxed: the head's own.
        let last = mine.locked.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the link.
        let mut next = mine.next.load(Ordering::Acquire);
        if next == 0 {
            // `cna_try_clear_tail`: the queue ends with the secondary one, if there is any.
            let end = if last == HEAD { 0 } else { last };
            // Relaxed: the head's.
            let first = if end == 0 { 0 } else { nodes.node(end).next.load(Ordering::Relaxed) };
            if end != 0 {
                // Relaxed: the head's; undone below if the exchange fails.
                nodes.node(end).next.store(0, Ordering::Relaxed);
            }
            // Release: publishes the links to the next arrival.
            let left = self.tail.compare_exchange(me, end, Ordering::Release, Ordering::Relaxed);
            if left.is_ok() {
                if first != 0 {
                    // Release: pairs with the Acquire of the waiter.
                    nodes.node(first).locked.store(HEAD, Ordering::Release);
                }
                return;
            }
            if end != 0 {
                // Relaxed: the head's.
                nodes.node(end).next.store(first, Ordering::Relaxed);
            }
            // Acquire: pairs with the Release of the link, which is on its way.
            next = mine.next.wait_until(Ordering::Acquire, |next| next != 0);
        }
        if flushes && last != HEAD {
            // Relaxed, both: the head's. The primary queue comes behind the secondary one.
            let first = nodes.node(last).next.load(Ordering::Relaxed);
            nodes.node(last).next.store(next, Ordering::Relaxed);
            // Release: pairs with the Acquire of the waiter.
            return nodes.node(first).locked.store(HEAD, Ordering::Release);
        }
        if nodes.sorts {
            // Relaxed, all: published by the Release below.
            let next = nodes.node(next);
            next.place.store(mine.place.load(Ordering::Relaxed), Ordering::Relaxed);
            if last != HEAD {
                // Relaxed, both: published by the Release below.
                next.began.store(mine.began.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        // Release: pairs with the Acquire of the waiter.
        nodes.node(next).locked.store(last, Ordering::Release);
    }
}

impl<W: Testbed> Default for Queued<W> {
    fn default() -> Self {
        Queued::new()
    }
}

/// Numbers that look random (G. Marsaglia, "Xorshift RNGs", 2003).
fn draw<W: Testbed>(dice: &W::U32) -> u32 {
    // Relaxed, both: one thread's own.
    let mut word = dice.load(Ordering::Relaxed);
    word ^= word << 13;
    word ^= word >> 17;
    word ^= word << 5;
    dice.store(word, Ordering::Relaxed);
    word
}
