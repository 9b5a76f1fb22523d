//! [`Queue`]: callers that wait for something, in FIFO order.
//!
//! A domain's callers wait for a lease, and a budget's callers wait for room. An amount that is
//! *given* to a waiting caller belongs to that caller immediately, before the caller wakes.
//!
//! # State
//!
//! | what | meaning | written by |
//! |---|---|---|
//! | `Queues::queue` | the queue of this memory; null: none has waited | the first waiter |
//! | `waiting` | how many there are in `entries` | the holder of `lists` |
//! | `entries` | the waiters; the first is the next | the holder of `lists` |
//! | `given` | what threads were given that no longer wait and do not know yet | the same |
//!
//! # Nothing is missed
//!
//! A thread that waits and one that returns something look for each other, with the fences of an
//! asymmetric pair in between. The returning thread has the light one:
//!
//! ```text
//! Waiter:    counts itself in `waiting`;  heavy fence;  looks for what is there
//! Returning: returns what it had;         light fence;  looks at `waiting`
//! ```
//!
//! One of them sees the other. If the returning thread sees the waiter, it takes back what it
//! returned, and gives it to the first waiter. If another thread was faster, that thread has it,
//! and will return it. If the waiter finds something, it also gives this to the first waiter. Only
//! a waiter that finds `waiting` at 0 executes the fence. A later one relies on the look of the
//! first, which follows its fence, and goes on while any thread waits. If that check fails, all
//! others are sent away. Each joins again, and one of them finds 0.
//!
//! # Fork
//!
//! The child of a fork creates its own queue, because its copy has threads that the child does not
//! have. From the copy, it takes what its own futures had been given, unless the lists may be
//! inconsistent.

mod future;

use core::mem;
use core::ptr;
use core::task::{Poll, Waker};
use std::collections::VecDeque;

use coreline_world::{Ordering, Word, World};

use crate::lock::{Mutex, Near};
use crate::panics::Panics;

pub(crate) use future::{Awaited, Waiting};

/// See the module.
pub(crate) struct Queue<A: 'static, G: 'static, W: World> {
    /// The memory in which the waiting threads are.
    generation: u32,
    waiting: W::U32,
    lists: Mutex<Lists<A, G>, Near, W>,
}

struct Lists<A, G> {
    /// How many threads have ever come.
    tickets: u64,
    entries: VecDeque<Entry<A>>,
    given: Vec<(u64, G)>,
}

struct Entry<A> {
    ticket: u64,
    /// The request for which the thread waits.
    asked: A,
    waker: Waker,
}

/// The decision of a thread that serves a queue about a caller that waits.
pub(crate) enum Served<G> {
    /// The caller gets this.
    Given(G),
    /// There is nothing for this caller. There may be something for later ones.
    Later,
    /// There is nothing for any caller.
    Enough,
}

impl<A: 'static, G: 'static, W: World> Queue<A, G, W> {
    pub(crate) fn new_in() -> Self {
        let lists = Lists { tickets: 0, entries: VecDeque::new(), given: Vec::new() };
        Queue {
            generation: W::generation().get(),
            waiting: W::U32::new_in(0),
            lists: Mutex::new_in(lists),
        }
    }

    /// Whether it belongs to the memory of this process, and not its parent's.
    pub(crate) fn is_own(&self) -> bool {
        self.generation == W::generation().get()
    }

    /// All its bytes.
    pub(crate) fn bytes(&self) -> usize {
        let lists = self.lists.lock();
        let entries = lists.entries.capacity() * size_of::<Entry<A>>();
        size_of::<Self>() + entries + lists.given.capacity() * size_of::<(u64, G)>()
    }

    /// Whether any thread waits.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        // Relaxed: the fences of the module's pair order it.
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Adds a thread; returns its ticket, and whether none waited.
    pub(crate) fn join(&self, asked: A, waker: Waker) -> (u64, bool) {
        let mut lists = self.lists.lock();
        lists.tickets += 1;
        let ticket = lists.tickets;
        lists.entries.push_back(Entry { ticket, asked, waker });
        // Room for what each waiter is given: the thread that gives may be dropping a lease, which
        // asks for no memory.
        let Lists { entries, given, .. } = &mut *lists;
        given.reserve(entries.len());
        (ticket, self.count(&lists) == 1)
    }

    /// Writes how many wait, and returns it.
    fn count(&self, lists: &Lists<A, G>) -> usize {
        // Relaxed: the fences of the module's pair order it, and the lock its writers.
        self.waiting.store(lists.entries.len() as u32, Ordering::Relaxed);
        lists.entries.len()
    }

    /// Serves the waiting callers in their order. Each is woken after `serve` was called for all. A
    /// panic of a waker goes no further: the thread that serves has its own work.
    pub(crate) fn serve(&self, mut serve: impl FnMut(&A) -> Served<G>) {
        let mut lists = self.lists.lock();
        let (mut at, mut sent) = (0, Sent::default());
        while let Some(entry) = lists.entries.get(at) {
            match serve(&entry.asked) {
                Served::Given(given) => {
                    let ticket = entry.ticket;
                    lists.given.push((ticket, given));
                    lists.entries.remove(at).into_iter().for_each(|entry| sent.add(entry));
                }
                Served::Later => at += 1,
                Served::Enough => break,
            }
        }
        self.count(&lists);
        drop(lists);
        let _contained = sent.wake();
    }

    /// Checks whether a thread was given something. If not, `waker` will wake it. Returns the waker
    /// before: what drops with that may be another thread that waits here. `None`: the thread was
    /// sent away.
    pub(crate) fn look(&self, ticket: u64, waker: &mut Waker) -> Option<Poll<G>> {
        let mut lists = self.lists.lock();
        if let Some(given) = lists.take_given(ticket) {
            return Some(Poll::Ready(given));
        }
        let entry = lists.entries.iter_mut().find(|entry| entry.ticket == ticket)?;
        mem::swap(&mut entry.waker, waker);
        Some(Poll::Pending)
    }

    /// Makes all waiting threads come again, and look for themselves.
    pub(crate) fn send_away(&self) {
        let mut lists = self.lists.lock();
        let others = mem::take(&mut lists.entries);
        self.count(&lists);
        drop(lists);
        Sent { first: None, others }.wake().resume::<W>();
    }

    /// Ends the wait of a thread. Returns the amount that it was given, if any.
    pub(crate) fn leave(&self, ticket: u64) -> Option<G> {
        let mut lists = self.lists.lock();
        let (entry, given) = self.remove(&mut lists, ticket);
        drop(lists);
        Self::forget(entry);
        given
    }

    /// The same for the queue of the process that forked this one. It does nothing if a thread of
    /// that process was at the lists: they may be torn.
    pub(crate) fn leave_parents(&self, parents: &Self, ticket: u64) -> Option<G> {
        // Of this process's threads one at a time, so that it is none of them that has the lists.
        let turn = self.lists.lock();
        let mut lists = parents.lists.try_lock()?;
        let (entry, given) = parents.remove(&mut lists, ticket);
        drop(lists);
        drop(turn);
        Self::forget(entry);
        given
    }

    /// Drops an entry outside of the lock: what drops with a waker may be another that waits here.
    /// It may also panic, and the caller has to pass on what was given.
    fn forget(entry: Option<Entry<A>>) {
        let mut contained = Panics::NONE;
        contained.drop_each(entry);
    }

    fn remove(&self, lists: &mut Lists<A, G>, ticket: u64) -> (Option<Entry<A>>, Option<G>) {
        let at = lists.entries.iter().position(|entry| entry.ticket == ticket);
        let entry = at.and_then(|at| lists.entries.remove(at));
        self.count(lists);
        (entry, lists.take_given(ticket))
    }
}

impl<A> Entry<A> {
    fn wake(self) {
        // Before: the woken thread may rely on it that no other has what it waited for.
        drop(self.asked);
        self.waker.wake();
    }
}

/// Threads that must be woken. One needs no memory.
struct Sent<A> {
    first: Option<Entry<A>>,
    others: VecDeque<Entry<A>>,
}

impl<A> Default for Sent<A> {
    fn default() -> Self {
        Sent { first: None, others: VecDeque::new() }
    }
}

impl<A> Sent<A> {
    fn add(&mut self, entry: Entry<A>) {
        match self.first {
            None => self.first = Some(entry),
            Some(_) => self.others.push_back(entry),
        }
    }

    /// Wakes each caller, even after the waker of another one panicked.
    fn wake(self) -> Panics {
        let mut panics = Panics::NONE;
        self.first.into_iter().chain(self.others).for_each(|entry| panics.run(|| entry.wake()));
        panics
    }
}

impl<A, G> Lists<A, G> {
    fn take_given(&mut self, ticket: u64) -> Option<G> {
        let at = self.given.iter().position(|(given, _)| *given == ticket)?;
        Some(self.given.swap_remove(at).1)
    }
}

/// The queue of the callers that wait for one thing, by the memory in which these callers wait.
pub(crate) struct Queues<A: 'static, G: 'static, W: World> {
    /// Null before the first.
    queue: W::Ptr<Queue<A, G, W>>,
}

impl<A: 'static, G: 'static, W: World> Queues<A, G, W> {
    pub(crate) fn new_in() -> Self {
        Queues { queue: W::Ptr::new_in(ptr::null_mut()) }
    }

    /// The queue; made if none has waited.
    pub(crate) fn queue(&self) -> &Queue<A, G, W> {
        loop {
            let there = self.any();
            if let Some(queue) = there.filter(|queue| queue.is_own()) {
                return queue;
            }
            let there = there.map_or(ptr::null_mut(), |queue| ptr::from_ref(queue).cast_mut());
            let made = Box::into_raw(Box::new(Queue::new_in()));
            // Release: pairs with the Acquire in `any`. Relaxed: it is loaded again.
            let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
            if self.queue.compare_exchange(there, made, release, relaxed).is_err() {
                // SAFETY: made here, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
            }
        }
    }

    /// The queue, if any thread waits in it.
    #[inline]
    pub(crate) fn wanted(&self) -> Option<&Queue<A, G, W>> {
        self.any().filter(|queue| queue.is_wanted() && queue.is_own())
    }

    /// The queue, or that of the process that forked this one.
    #[inline]
    fn any(&self) -> Option<&Queue<A, G, W>> {
        // Acquire: pairs with the Release in `queue`: the queue is there.
        // SAFETY: null, or from `Box::into_raw` in `queue`, and freed with this, or never.
        unsafe { self.queue.load(Ordering::Acquire).as_ref() }
    }

    fn own(&self) -> Option<&Queue<A, G, W>> {
        self.any().filter(|queue| queue.is_own())
    }

    /// All its bytes but its own.
    pub(crate) fn bytes(&self) -> usize {
        self.own().map_or(0, Queue::bytes)
    }
}

impl<A: 'static, G: 'static, W: World> Drop for Queues<A, G, W> {
    fn drop(&mut self) {
        // What a forked child has of its parent's may be torn, and is leaked.
        if let Some(queue) = self.own().map(ptr::from_ref) {
            // SAFETY: from `Box::into_raw` in `queue`, and no future is left, as each borrows what
            // has this.
            drop(unsafe { Box::from_raw(queue.cast_mut()) });
        }
    }
}
