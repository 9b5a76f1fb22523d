//! Two queues and a channel, written anew after descriptions of their algorithms.
//!
//! | type | after |
//! |---|---|
//! | [`Bounded`] | D. Vyukov's bounded queue, with the exponential backoff of crossbeam's |
//! | [`Segmented`] | a list of blocks of 31 slots, as the documentation of crossbeam's has it |
//! | [`Channel`] | D. Vyukov's queue of nodes for many senders and one receiver |
//!
//! Values are words as well, which cost what plain data does, so that nothing here is `unsafe`.

use coreline_world::{Cell, Integer, Line, Ordering, Word};

use crate::bed::Bed;
use crate::structures::Subject;

/// Crossbeam keeps words that threads contend for two lines apart, for the sake of prefetchers.
#[repr(C, align(128))]
struct Padded<T>(T);

/// Exponential backoff: from one pause to 64, and then the CPU is given away if that may wait.
struct Backoff(u32);

impl Backoff {
    const MOST_PAUSES: u32 = 6;

    /// After a lost exchange.
    fn spin<W: Bed>(&mut self) {
        (0..1 << self.0.min(Self::MOST_PAUSES)).for_each(|_| W::relax());
        self.0 = (self.0 + 1).min(Self::MOST_PAUSES + 1);
    }

    /// While another thread must act first.
    fn snooze<W: Bed>(&mut self) {
        if self.0 > Self::MOST_PAUSES {
            W::yield_now();
        } else {
            self.spin::<W>();
        }
    }
}

/// A slot of [`Bounded`].
///
/// | `stamp` | meaning | written by |
/// |---|---|---|
/// | a place of the tail | free for the push that gets this place | the pop of the lap before |
/// | that and one | holds the value of that push | the push |
struct Slot<W: Bed> {
    stamp: W::U64,
    value: W::U64,
}

/// A bounded queue. Places count up forever; a place's slot is its remainder.
pub(crate) struct Bounded<W: Bed> {
    head: Padded<W::U64>,
    tail: Padded<W::U64>,
    slots: Vec<Slot<W>>,
}

impl<W: Bed> Bounded<W> {
    pub(crate) fn new(slots: u64) -> Self {
        let slot = |place| Slot { stamp: W::U64::new_in(place), value: W::U64::new_in(0) };
        Bounded {
            head: Padded(W::U64::new_in(0)),
            tail: Padded(W::U64::new_in(0)),
            slots: (0..slots).map(slot).collect(),
        }
    }

    fn slot(&self, place: u64) -> &Slot<W> {
        &self.slots[(place % self.slots.len() as u64) as usize]
    }

    fn push(&self, value: u64) {
        let mut backoff = Backoff(0);
        // Relaxed: the slot's stamp orders.
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(tail);
            // Acquire: the partner is the Release of the pop that freed the slot.
            if slot.stamp.load(Ordering::Acquire) != tail {
                // Full, or this place is another push's by now.
                backoff.snooze::<W>();
                tail = self.tail.0.load(Ordering::Relaxed);
                continue;
            }
            let order = (Ordering::SeqCst, Ordering::Relaxed);
            match self.tail.0.compare_exchange_weak(tail, tail + 1, order.0, order.1) {
                Ok(_) => {
                    // Relaxed: the stamp's Release publishes it.
                    slot.value.store(value, Ordering::Relaxed);
                    // Release: the partner is the Acquire of the pop, which must see the value.
                    slot.stamp.store(tail + 1, Ordering::Release);
                    return;
                }
                Err(other) => {
                    tail = other;
                    backoff.spin::<W>();
                }
            }
        }
    }

    fn pop(&self) -> Option<u64> {
        let mut backoff = Backoff(0);
        // Relaxed: the slot's stamp orders.
        let mut head = self.head.0.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(head);
            // Acquire: the partner is the Release of the push that filled the slot.
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp == head {
                // SeqCst, and the fence: a push that had its place before this pop began is seen.
                W::fence(Ordering::SeqCst);
                if self.tail.0.load(Ordering::Relaxed) == head {
                    return None;
                }
                backoff.spin::<W>();
                head = self.head.0.load(Ordering::Relaxed);
                continue;
            }
            if stamp != head + 1 {
                backoff.snooze::<W>();
                head = self.head.0.load(Ordering::Relaxed);
                continue;
            }
            let order = (Ordering::SeqCst, Ordering::Relaxed);
            match self.head.0.compare_exchange_weak(head, head + 1, order.0, order.1) {
                Ok(_) => {
                    // Relaxed: the stamp's Acquire ordered it.
                    let value = slot.value.load(Ordering::Relaxed);
                    // Release: the partner is the Acquire of the push that uses the slot next.
                    slot.stamp.store(head + self.slots.len() as u64, Ordering::Release);
                    return Some(value);
                }
                Err(other) => {
                    head = other;
                    backoff.spin::<W>();
                }
            }
        }
    }
}

impl<W: Bed> Subject for Bounded<W> {
    fn operate(&self, thread: usize) -> u64 {
        self.push(thread as u64);
        self.pop().unwrap_or(0)
    }

    fn look(&self) -> u64 {
        // SeqCst, as `len` of the original: both ends are read, and the tail again.
        loop {
            let tail = self.tail.0.load(Ordering::SeqCst);
            let head = self.head.0.load(Ordering::SeqCst);
            if self.tail.0.load(Ordering::SeqCst) == tail {
                return tail - head;
            }
        }
    }
}

/// Slots of a block, one less than a lap of places: at the last one a thread brings the next block.
const BLOCK: u64 = 31;
const LAP: u64 = BLOCK + 1;

/// Blocks that are used in turns, where the original allocates and frees: more than threads and
/// values need at a time.
const BLOCKS: usize = 256;

/// A slot of [`Segmented`].
///
/// | `state` | meaning | written by |
/// |---|---|---|
/// | `EMPTY` | free | |
/// | `WRITTEN` | holds a value | the push |
/// | `READ` | the value was taken: free again | the pop |
struct SegmentSlot<W: Bed> {
    value: W::U64,
    state: W::U64,
}

const EMPTY: u64 = 0;
const WRITTEN: u64 = 1;
const READ: u64 = 3;

/// An end of [`Segmented`]: places in steps of two. At the head, the lowest bit says that the
/// block is not the last.
struct End<W: Bed> {
    place: W::U64,
    /// The number of the place's block.
    block: W::U64,
}

/// An unbounded queue, as a list of blocks.
pub(crate) struct Segmented<W: Bed> {
    head: Padded<End<W>>,
    tail: Padded<End<W>>,
    blocks: Vec<[SegmentSlot<W>; BLOCK as usize]>,
}

impl<W: Bed> Segmented<W> {
    pub(crate) fn new() -> Self {
        let end = || End { place: W::U64::new_in(0), block: W::U64::new_in(0) };
        let slot = || SegmentSlot { value: W::U64::new_in(0), state: W::U64::new_in(EMPTY) };
        let block = |_| std::array::from_fn(|_| slot());
        Segmented {
            head: Padded(end()),
            tail: Padded(end()),
            blocks: (0..BLOCKS).map(block).collect(),
        }
    }

    fn next(block: u64) -> u64 {
        (block + 1) % BLOCKS as u64
    }

    fn push(&self, value: u64) {
        let (mut backoff, end) = (Backoff(0), &self.tail.0);
        // Acquire, both, here and below: the partners are the Release stores with which a thread
        // brings the next block.
        let mut place = end.place.load(Ordering::Acquire);
        let mut block = end.block.load(Ordering::Acquire);
        loop {
            let offset = (place >> 1) % LAP;
            if offset == BLOCK {
                // Another thread brings the next block.
                backoff.snooze::<W>();
                place = end.place.load(Ordering::Acquire);
                block = end.block.load(Ordering::Acquire);
                continue;
            }
            let order = (Ordering::SeqCst, Ordering::Acquire);
            match end.place.compare_exchange_weak(place, place + 2, order.0, order.1) {
                Ok(_) => {}
                Err(other) => {
                    place = other;
                    block = end.block.load(Ordering::Acquire);
                    backoff.spin::<W>();
                    continue;
                }
            }
            if offset + 1 == BLOCK {
                // Release, twice: the partners are the Acquire loads of place and block.
                end.block.store(Self::next(block), Ordering::Release);
                end.place.store(place + 4, Ordering::Release);
            }
            let slot = &self.blocks[block as usize][offset as usize];
            // Acquire: the partner is the Release of the pop that took the slot's last value.
            slot.state.wait_until(Ordering::Acquire, |state| state != WRITTEN);
            // Relaxed: the state's Release publishes it.
            slot.value.store(value, Ordering::Relaxed);
            // Release: the partner is the Acquire of the pop, which must see the value.
            slot.state.swap(WRITTEN, Ordering::Release);
            return;
        }
    }

    fn pop(&self) -> Option<u64> {
        let (mut backoff, end) = (Backoff(0), &self.head.0);
        // Acquire, both, here and below: the partners are the Release stores with which a thread
        // goes on to the next block.
        let mut place = end.place.load(Ordering::Acquire);
        let mut block = end.block.load(Ordering::Acquire);
        loop {
            let offset = (place >> 1) % LAP;
            if offset == BLOCK {
                backoff.snooze::<W>();
                place = end.place.load(Ordering::Acquire);
                block = end.block.load(Ordering::Acquire);
                continue;
            }
            let mut new = place + 2;
            if new & 1 == 0 {
                // SeqCst: a push that had its place before this pop began is seen.
                W::fence(Ordering::SeqCst);
                let tail = self.tail.0.place.load(Ordering::Relaxed);
                if place >> 1 == tail >> 1 {
                    return None;
                }
                new |= u64::from((place >> 1) / LAP != (tail >> 1) / LAP);
            }
            let order = (Ordering::SeqCst, Ordering::Acquire);
            match end.place.compare_exchange_weak(place, new, order.0, order.1) {
                Ok(_) => {}
                Err(other) => {
                    place = other;
                    block = end.block.load(Ordering::Acquire);
                    backoff.spin::<W>();
                    continue;
                }
            }
            if offset + 1 == BLOCK {
                // Release, twice: the partners are the Acquire loads of place and block. The next
                // block is taken for the last: a pop there finds out.
                end.block.store(Self::next(block), Ordering::Release);
                end.place.store((new & !1) + 2, Ordering::Release);
            }
            let slot = &self.blocks[block as usize][offset as usize];
            // Acquire: the partner is the Release of the push, whose value is read here.
            slot.state.wait_until(Ordering::Acquire, |state| state == WRITTEN);
            // Relaxed: the state's Acquire ordered it.
            let value = slot.value.load(Ordering::Relaxed);
            // Release: the partner is the Acquire of the push that uses the slot next.
            slot.state.fetch_or(READ, Ordering::Release);
            return Some(value);
        }
    }
}

impl<W: Bed> Subject for Segmented<W> {
    fn operate(&self, thread: usize) -> u64 {
        self.push(thread as u64);
        self.pop().unwrap_or(0)
    }

    fn look(&self) -> u64 {
        // SeqCst, as `len` of the original: both ends are read, and the tail again.
        loop {
            let tail = self.tail.0.place.load(Ordering::SeqCst);
            let head = self.head.0.place.load(Ordering::SeqCst);
            if self.tail.0.place.load(Ordering::SeqCst) == tail {
                return (tail >> 1).wrapping_sub(head >> 1);
            }
        }
    }
}

/// Nodes of [`Channel`], each on a line of its own, used in turns. The sender waits if the receiver
/// is that far behind.
const NODES: usize = 256;

/// A node of [`Channel`]; numbers count nodes from one.
struct Node<W: Bed> {
    /// The number of the node behind; 0 while there is none.
    next: W::U64,
    /// Whether the receiver is through with it.
    free: W::U64,
    value: W::U64,
}

/// A queue of nodes for many senders and one receiver. The first thread sends, the second receives.
pub(crate) struct Channel<W: Bed> {
    /// The number of the node that was sent last.
    tail: Line<W::U64>,
    nodes: Vec<Line<Node<W>>>,
    /// How many messages each thread has sent or received.
    counts: [Line<Cell<u64, W>>; 2],
}

impl<W: Bed> Channel<W> {
    pub(crate) fn new() -> Self {
        let node = |number| {
            // The first node stands for the message before the first.
            let free = W::U64::new_in(u64::from(number > 0));
            Line(Node { next: W::U64::new_in(0), free, value: W::U64::new_in(0) })
        };
        Channel {
            tail: Line(W::U64::new_in(1)),
            nodes: (0..NODES).map(node).collect(),
            counts: [(); 2].map(|()| Line(Cell::new_in(0))),
        }
    }

    fn node(&self, count: u64) -> &Node<W> {
        &self.nodes[count as usize % NODES]
    }

    fn send(&self, count: u64) -> u64 {
        let node = self.node(count);
        // Acquire: the partner is the Release of the receiver, which read the value before.
        node.free.wait_until(Ordering::Acquire, |free| free == 1);
        // Relaxed, twice: the Release store of the number below publishes the node.
        node.free.store(0, Ordering::Relaxed);
        node.next.store(0, Ordering::Relaxed);
        // Relaxed: the Release store of the number below publishes it.
        node.value.store(count, Ordering::Relaxed);
        // AcqRel: the senders' nodes hang together in the order of these.
        let number = count % NODES as u64 + 1;
        let before = self.tail.swap(number, Ordering::AcqRel);
        // Release: the partner is the Acquire of the receiver, which must see the value.
        self.nodes[before as usize - 1].next.store(number, Ordering::Release);
        before
    }

    fn receive(&self, count: u64) -> u64 {
        let before = self.node(count - 1);
        // Acquire: the partner is the Release of the sender, whose value is read here.
        let next = before.next.wait_until(Ordering::Acquire, |next| next != 0);
        // Relaxed: the Acquire above ordered it.
        let value = self.nodes[next as usize - 1].value.load(Ordering::Relaxed);
        // Release: the partner is the Acquire of the sender that uses the node next.
        before.free.store(1, Ordering::Release);
        value
    }
}

impl<W: Bed> Subject for Channel<W> {
    fn operate(&self, thread: usize) -> u64 {
        // SAFETY: each thread has a count of its own.
        let count = self.counts[thread].with_mut(|count| unsafe {
            *count += 1;
            *count
        });
        if thread == 0 { self.send(count) } else { self.receive(count) }
    }

    fn look(&self) -> u64 {
        // Relaxed: a look.
        self.tail.load(Ordering::Relaxed)
    }
}
