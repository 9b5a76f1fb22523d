//! [`Queue`]: those that wait for a lease, in order of arrival.
//!
//! # State
//!
//! | what | meaning | written by |
//! |---|---|---|
//! | `Leasing::queue` | the queue of this memory; null: none has waited | the first that waits |
//! | `waiting` | how many there are in `entries` | the holder of `lists` |
//! | `entries` | those that wait; the first is the next | the holder of `lists` |
//! | `given` | leases of those that do not wait any more, and do not know yet | the same |
//!
//! # No lease is missed
//!
//! One that waits and one that returns a lease look for each other, with the fences of an
//! asymmetric pair between, of which returning has the light one:
//!
//! ```text
//! Waiter: counts itself in `waiting`;  heavy fence;  looks for a lease
//! Lessee: returns its lease;           light fence;  looks at `waiting`
//! ```
//!
//! One of them sees the other. A lessee that does takes its lease once more and gives it to the
//! first; if another thread was faster, that one has the lease, and will return it. What the waiter
//! finds it gives to the first, too. Only a waiter that finds `waiting` at 0 fences: one that comes
//! later relies on the look of that one, which follows its fence, and goes on while any wait. If
//! that look fails, all others are sent away: each comes again, and one of them finds 0.
//!
//! # Fork
//!
//! The child of a fork makes a queue of its own: in its copy are threads that it has not. Of the
//! copy it takes the leases that its own futures had got, unless the lists may be torn.

use core::mem;
use core::ptr::NonNull;
use core::task::{Poll, Waker};
use std::collections::VecDeque;

use coreline_world::{Ordering, Word, World};

use super::magazines::Taken;
use crate::lock::{Mutex, Near};

/// A number that is its owner's, and its round if it has one.
pub(super) struct Held<W: World> {
    pub(super) number: u32,
    round: Option<NonNull<W::U32>>,
}

// SAFETY: the round is a word, which is shared with all threads.
unsafe impl<W: World> Send for Held<W> {}
// SAFETY: the same.
unsafe impl<W: World> Sync for Held<W> {}

impl<W: World> Clone for Held<W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: World> Copy for Held<W> {}

impl<W: World> Held<W> {
    #[inline]
    pub(super) fn new((number, round): Taken<'_, W>) -> Self {
        Held { number, round: round.map(NonNull::from_ref) }
    }

    /// The round.
    ///
    /// # Safety
    ///
    /// The domain that has the round lives for `'a`.
    #[inline]
    pub(super) unsafe fn round<'a>(self) -> Option<&'a W::U32> {
        // SAFETY: the caller's promise.
        self.round.map(|round| unsafe { round.as_ref() })
    }
}

/// See the module.
pub(super) struct Queue<W: World> {
    /// Of the memory in which those that wait are.
    generation: u32,
    waiting: W::U32,
    lists: Mutex<Lists<W>, Near, W>,
}

struct Lists<W: World> {
    /// How many have come ever.
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

    /// Whether it is of the memory of this process, and not its parent's.
    pub(super) fn is_own(&self) -> bool {
        self.generation == W::generation().get()
    }

    /// All bytes of it.
    pub(super) fn bytes(&self) -> usize {
        let lists = self.lists.lock();
        let entries = lists.entries.capacity() * size_of::<Entry>();
        size_of::<Self>() + entries + lists.given.capacity() * size_of::<(u64, Held<W>)>()
    }

    /// Whether any wait.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        // Relaxed: the fences of the module's pair order it.
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// One more; its ticket, and whether none waited.
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

    /// Gives it to the first that waits.
    ///
    /// # Errors
    ///
    /// None does: the lease.
    pub(super) fn give(&self, held: Held<W>) -> Result<(), Held<W>> {
        let mut lists = self.lists.lock();
        let Some(Entry { ticket, waker }) = lists.entries.pop_front() else { return Err(held) };
        lists.given.push((ticket, held));
        self.count(&lists);
        drop(lists);
        waker.wake();
        Ok(())
    }

    /// Looks whether one has got its lease; else it is to be woken by `waker`. `None`: it was sent
    /// away.
    pub(super) fn look(&self, ticket: u64, waker: &Waker) -> Option<Poll<Held<W>>> {
        let mut waker = waker.clone();
        let mut lists = self.lists.lock();
        if let Some(held) = lists.take_given(ticket) {
            return Some(Poll::Ready(held));
        }
        let entry = lists.entries.iter_mut().find(|entry| entry.ticket == ticket);
        let waits = entry.map(|entry| mem::swap(&mut entry.waker, &mut waker));
        // What drops with a waker may be another that waits here.
        drop(lists);
        waits.map(|()| Poll::Pending)
    }

    /// Has all that wait come again, and look for themselves.
    pub(super) fn send_away(&self) {
        let mut lists = self.lists.lock();
        let entries = mem::take(&mut lists.entries);
        self.count(&lists);
        drop(lists);
        entries.into_iter().for_each(|entry| entry.waker.wake());
    }

    /// One waits no longer; its lease, if it has got one.
    pub(super) fn leave(&self, ticket: u64) -> Option<Held<W>> {
        // In a forked child, where a thread of the parent's was at the lists they may be torn.
        let lists = if self.is_own() { Some(self.lists.lock()) } else { self.lists.try_lock() };
        let mut lists = lists?;
        let at = lists.entries.iter().position(|entry| entry.ticket == ticket);
        let entry = at.and_then(|at| lists.entries.remove(at));
        let held = lists.take_given(ticket);
        self.count(&lists);
        drop(lists);
        // What drops with a waker may be another that waits here.
        drop(entry);
        held
    }
}

impl<W: World> Lists<W> {
    fn take_given(&mut self, ticket: u64) -> Option<Held<W>> {
        let at = self.given.iter().position(|(given, _)| *given == ticket)?;
        Some(self.given.swap_remove(at).1)
    }
}
