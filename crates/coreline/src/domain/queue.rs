//! [`Queue`]: the waiters for a lease, in FIFO order.
//!
//! # State
//!
//! | what | meaning | written by |
//! |---|---|---|
//! | `Leasing::queue` | the queue of this memory; null: none has waited | the first waiter |
//! | `waiting` | how many there are in `entries` | the holder of `lists` |
//! | `entries` | the waiters; the first is the next | the holder of `lists` |
//! | `given` | leases of threads that no longer wait and do not know yet | the same |
//!
//! # No lease is missed
//!
//! A thread that waits and one that returns a lease look for each other, with the fences of an
//! asymmetric pair in between. The returning thread has the light one:
//!
//! ```text
//! Waiter: counts itself in `waiting`;  heavy fence;  looks for a lease
//! Lessee: returns its lease;           light fence;  looks at `waiting`
//! ```
//!
//! One of them sees the other. If the lessee sees the waiter, it takes its lease once more and
//! gives it to the first. If another thread was faster, that one has the lease, and will return it.
//! If the waiter finds a lease, it also gives it to the first. Only a waiter that finds `waiting`
//! at 0 fences. A later one relies on the look of the first, which follows its fence, and goes on
//! while any thread waits. If that check fails, all others are sent away. Each joins again, and one
//! of them finds 0.
//!
//! # Fork
//!
//! The child of a fork makes its own queue: its copy has threads that the child does not have. From
//! the copy it takes the leases that its own futures had got, unless the lists may be torn.

use core::mem;
use core::task::{Poll, Waker};
use std::collections::VecDeque;

use coreline_world::{Ordering, Word, World};

use super::held::Held;
use crate::lock::{Mutex, Near};

/// See the module.
pub(super) struct Queue<W: World> {
    /// The memory in which the waiting threads are.
    generation: u32,
    waiting: W::U32,
    lists: Mutex<Lists<W>, Near, W>,
}

struct Lists<W: World> {
    /// How many threads have ever come.
    tickets: u64,
    entries: VecDeque<Entry>,
    given: Vec<(u64, Held<W>)>,
}

struct Entry {
    ticket: u64,
    waker: Waker,
}

impl<W: World> Queue<W> {
    pub(super) fn new_in() -> Self {
        let lists = Lists { tickets: 0, entries: VecDeque::new(), given: Vec::new() };
        Queue {
            generation: W::generation().get(),
            waiting: W::U32::new_in(0),
            lists: Mutex::new_in(lists),
        }
    }

    /// Whether it belongs to the memory of this process, and not its parent's.
    pub(super) fn is_own(&self) -> bool {
        self.generation == W::generation().get()
    }

    /// All its bytes.
    pub(super) fn bytes(&self) -> usize {
        let lists = self.lists.lock();
        let entries = lists.entries.capacity() * size_of::<Entry>();
        size_of::<Self>() + entries + lists.given.capacity() * size_of::<(u64, Held<W>)>()
    }

    /// Whether any thread waits.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        // Relaxed: the fences of the module's pair order it.
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Adds a thread; returns its ticket, and whether none waited.
    pub(super) fn join(&self, waker: Waker) -> (u64, bool) {
        let mut lists = self.lists.lock();
        lists.tickets += 1;
        let ticket = lists.tickets;
        lists.entries.push_back(Entry { ticket, waker });
        (ticket, self.count(&lists) == 1)
    }

    /// Writes how many wait, and returns it.
    fn count(&self, lists: &Lists<W>) -> usize {
        // Relaxed: the fences of the module's pair order it, and the lock its writers.
        self.waiting.store(lists.entries.len() as u32, Ordering::Relaxed);
        lists.entries.len()
    }

    /// Gives the lease to the first waiting thread.
    ///
    /// # Errors
    ///
    /// If there is none, returns the lease.
    pub(super) fn give(&self, held: Held<W>) -> Result<(), Held<W>> {
        let mut lists = self.lists.lock();
        let Some(Entry { ticket, waker }) = lists.entries.pop_front() else { return Err(held) };
        lists.given.push((ticket, held));
        self.count(&lists);
        drop(lists);
        waker.wake();
        Ok(())
    }

    /// Checks whether a thread has got its lease. If not, `waker` will wake it. Returns the waker
    /// before: what drops with that may be another thread that waits here. `None`: the thread was
    /// sent away.
    pub(super) fn look(&self, ticket: u64, waker: &mut Waker) -> Option<Poll<Held<W>>> {
        let mut lists = self.lists.lock();
        if let Some(held) = lists.take_given(ticket) {
            return Some(Poll::Ready(held));
        }
        let entry = lists.entries.iter_mut().find(|entry| entry.ticket == ticket)?;
        mem::swap(&mut entry.waker, waker);
        Some(Poll::Pending)
    }

    /// Makes all waiting threads come again, and look for themselves.
    pub(super) fn send_away(&self) {
        let mut lists = self.lists.lock();
        let entries = mem::take(&mut lists.entries);
        self.count(&lists);
        drop(lists);
        Sent(entries).wake();
    }

    /// A thread waits no longer; returns its lease, if it has got one.
    pub(super) fn leave(&self, ticket: u64) -> Option<Held<W>> {
        let mut lists = self.lists.lock();
        let (entry, held) = self.remove(&mut lists, ticket);
        drop(lists);
        // What drops with a waker may be another that waits here.
        drop(entry);
        held
    }

    /// The same for the queue of the process that forked this one. It does nothing if a thread of
    /// that process was at the lists: they may be torn.
    pub(super) fn leave_parents(&self, parents: &Self, ticket: u64) -> Option<Held<W>> {
        // Of this process's threads one at a time, so that it is none of them that has the lists.
        let turn = self.lists.lock();
        let mut lists = parents.lists.try_lock()?;
        let (entry, held) = parents.remove(&mut lists, ticket);
        drop(lists);
        drop(turn);
        // As in `leave`.
        drop(entry);
        held
    }

    fn remove(&self, lists: &mut Lists<W>, ticket: u64) -> (Option<Entry>, Option<Held<W>>) {
        let at = lists.entries.iter().position(|entry| entry.ticket == ticket);
        let entry = at.and_then(|at| lists.entries.remove(at));
        self.count(lists);
        (entry, lists.take_given(ticket))
    }
}

/// Threads that were sent away and must be woken.
struct Sent(VecDeque<Entry>);

impl Sent {
    fn wake(&mut self) {
        while let Some(entry) = self.0.pop_front() {
            entry.waker.wake();
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // Those behind one whose waker panicked.
        self.wake();
    }
}

impl<W: World> Lists<W> {
    fn take_given(&mut self, ticket: u64) -> Option<Held<W>> {
        let at = self.given.iter().position(|(given, _)| *given == ticket)?;
        Some(self.given.swap_remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_topology::{CpuId, Shape, Topology};
    use coreline_world::model::{Checker, Model, Plant};
    use coreline_world::{JoinHandle, Placement, Testbed};

    use crate::cid::{CidLayout, Recent};
    use crate::domain::{DomainOptions, Domains, DomainsOptions};

    /// One waits while another returns the only lease.
    fn one_waits_while_one_returns<W: Testbed>() {
        let shape = Shape {
            sockets: 1,
            nodes_per_socket: 1,
            caches_per_node: 1,
            cores_per_cache: 2,
            threads_per_core: 1,
        };
        let layout = CidLayout::new(&Topology::uniform(shape).unwrap()).unwrap();
        let options = DomainsOptions::new().leases(1);
        let domains = Domains::<Recent, W>::with_layout_in(layout, options).unwrap();
        let domain = Arc::new(domains.domain(DomainOptions::new()));
        let lease = domain.lease().unwrap();
        let theirs = Arc::clone(&domain);
        let waits = move || drop(theirs.lease_wait().unwrap());
        let waits = W::spawn(Placement::On(CpuId::new(1)), waits).unwrap();
        drop(lease);
        waits.join();
        assert_eq!(domain.usage().leased, 0);
    }

    #[test]
    fn one_that_waits_gets_what_is_returned_in_every_interleaving() {
        let checker = |plant| Checker::new().preemption_bound(2).max_branches(20_000).plant(plant);
        let law = one_waits_while_one_returns::<Model>;
        // The queue's mutex has a law that needs stores to be exchanges.
        checker(Plant::EXCHANGES).check(law);
        // That a heavy fence is missing the model does not see: freeing the mutex has a light one,
        // which orders as much there, and does not natively.
        let unfenced = Plant { light_fences: false, ..Plant::EXCHANGES };
        let failure = checker(unfenced).try_check(law).expect_err("a return without its fence");
        assert!(failure.message.contains("deadlock"), "{failure}");
    }
}
