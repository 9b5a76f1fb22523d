//! [`Waiters`]: threads that wait for notifications. A wait ends by a notification or by its
//! deadline, and by nothing else.
//!
//! # State
//!
//! | what | meaning | written by |
//! |---|---|---|
//! | `first` | the thread that has waited longest; null: none waits | the holder of `list` |
//! | `next`, `before` | the list of waiters, a ring | the holder of `list` |
//! | `ended` | how the wait ended: `WAITS`, `NOTIFIED` or `LEFT` | the holder of `list` |
//!
//! A waiter joins the list while it holds its mutex. A thread that changes the condition under the
//! mutex, and then notifies, finds the waiter in the list: the mutex orders them. So a thread that
//! finds `first` null has no waiter to notify.
//!
//! A notified waiter is no longer in the list, and its node may go as soon as `ended` says so. The
//! notifier has read what it needs before, and wakes the thread by the word's address alone.

use std::ptr;

use coreline::lock::{Fifo, RawMutex};
use coreline::world::{ConstWorld, Native, Ordering, Parked, Time, Word, World};

const WAITS: u32 = 0;
const NOTIFIED: u32 = 1;
const LEFT: u32 = 2;

/// See the module.
pub(crate) struct Waiters<W: World = Native> {
    list: RawMutex<Fifo, W>,
    first: W::Ptr<u8>,
}

/// A thread that waits; on its stack.
struct Node<W: World> {
    /// The address of its mutex.
    mutex: usize,
    next: W::Ptr<u8>,
    before: W::Ptr<u8>,
    ended: W::U32,
}

/// Leaves the list if the wait unwinds.
struct Waiting<'a, W: World> {
    waiters: &'a Waiters<W>,
    node: &'a Node<W>,
}

impl<W: World> Drop for Waiting<'_, W> {
    fn drop(&mut self) {
        self.waiters.leave(self.node);
    }
}

impl<W: World> Waiters<W> {
    pub(crate) const fn const_new() -> Self
    where
        W: ConstWorld,
    {
        Waiters { list: RawMutex::const_new(), first: W::NULL }
    }

    #[cfg(test)]
    fn new_in() -> Self {
        Waiters { list: RawMutex::new_in(), first: W::Ptr::new_in(ptr::null_mut()) }
    }

    /// Runs this while the caller holds the lock of the list.
    fn with_list<R>(&self, f: impl FnOnce() -> R) -> R {
        self.list.lock();
        let result = f();
        // SAFETY: locked just now. None of the closures panics.
        unsafe { self.list.unlock() };
        result
    }

    /// Waits for a notification, at most until `deadline`. `unlocked` frees the caller's mutex,
    /// whose address this is, calls its argument, and takes the mutex again. Returns whether the
    /// caller was notified.
    ///
    /// # Panics
    ///
    /// Panics if another thread waits with another mutex: no mutex would order that one's wait and
    /// a notification.
    pub(crate) fn wait(
        &self,
        mutex: usize,
        deadline: Option<Time>,
        unlocked: impl FnOnce(&dyn Fn() -> bool) -> bool,
    ) -> bool {
        let null = ptr::null_mut();
        let (next, before) = (W::Ptr::new_in(null), W::Ptr::new_in(null));
        let node = Node { mutex, next, before, ended: W::U32::new_in(WAITS) };
        let is_one = self.with_list(|| self.join(&node));
        assert!(is_one, "another thread waits for this condition variable with another mutex");
        let waiting = Waiting { waiters: self, node: &node };
        unlocked(&|| self.sleep(waiting.node, deadline))
    }

    fn sleep(&self, node: &Node<W>, deadline: Option<Time>) -> bool {
        loop {
            // Acquire: pairs with the Release in `end_first`. What the notifier did before is seen,
            // and its last access to the node has been.
            match node.ended.load(Ordering::Acquire) {
                WAITS if W::park(&node.ended, WAITS, deadline) == Parked::TimedOut => {
                    return !self.leave(node);
                }
                WAITS => {}
                ended => return ended == NOTIFIED,
            }
        }
    }

    /// Ends a wait that no notification has ended. Returns whether it did.
    fn leave(&self, node: &Node<W>) -> bool {
        // Acquire: as in `sleep`.
        node.ended.load(Ordering::Acquire) == WAITS
            && self.with_list(|| {
                // Relaxed: written under the lock of the list.
                let waits = node.ended.load(Ordering::Relaxed) == WAITS;
                if waits {
                    self.unlink(node);
                    // Relaxed: only this thread looks at a node that is in no list.
                    node.ended.store(LEFT, Ordering::Relaxed);
                }
                waits
            })
    }

    // The links, under the lock of the list.

    /// Adds a node, unless one of the list has another mutex.
    fn join(&self, node: &Node<W>) -> bool {
        // Relaxed, all: the lock of the list orders them.
        let relaxed = Ordering::Relaxed;
        let this = ptr::from_ref(node).cast_mut().cast();
        let first = self.first.load(relaxed);
        let (next, last) = if first.is_null() {
            self.first.store(this, relaxed);
            (this, this)
        } else {
            // SAFETY: a node in the list is there.
            let waits = unsafe { Self::node(first) };
            if waits.mutex != node.mutex {
                return false;
            }
            (first, waits.before.load(relaxed))
        };
        node.next.store(next, relaxed);
        node.before.store(last, relaxed);
        // SAFETY: they are in the list, or are this node.
        unsafe {
            Self::node(last).next.store(this, relaxed);
            Self::node(next).before.store(this, relaxed);
        }
        true
    }

    fn unlink(&self, node: &Node<W>) {
        // Relaxed, all: the lock of the list orders them.
        let relaxed = Ordering::Relaxed;
        let this = ptr::from_ref(node).cast_mut().cast();
        let (next, before) = (node.next.load(relaxed), node.before.load(relaxed));
        // SAFETY: the neighbours of a node in the list are there.
        unsafe {
            Self::node(before).next.store(next, relaxed);
            Self::node(next).before.store(before, relaxed);
        }
        if self.first.load(relaxed) == this {
            self.first.store(if next == this { ptr::null_mut() } else { next }, relaxed);
        }
    }

    /// # Safety
    ///
    /// The address is that of a node in the list, and the caller has the list's lock.
    unsafe fn node<'a>(address: *mut u8) -> &'a Node<W> {
        // SAFETY: a node is in the list from `join` to `unlink`, and its thread keeps it until
        // then.
        unsafe { &*address.cast() }
    }

    /// Notifies up to this many threads, the longest waits first. Returns how many.
    #[inline]
    pub(crate) fn notify(&self, most: usize) -> usize {
        // Relaxed: see the module.
        if self.first.load(Ordering::Relaxed).is_null() { 0 } else { self.notify_slowly(most) }
    }

    #[cold]
    #[inline(never)]
    fn notify_slowly(&self, most: usize) -> usize {
        let (mut notified, mut last) = (0, None);
        // All under one lock: a thread that waits again is not among those that waited before.
        self.with_list(|| {
            while notified < most {
                let Some(word) = self.end_first() else { break };
                notified += 1;
                if let Some(before) = last.replace(word) {
                    W::wake(before, 1);
                }
            }
        });
        // One notification wakes no thread under the lock.
        if let Some(last) = last {
            W::wake(last, 1);
        }
        notified
    }

    /// Takes the first waiter from the list and ends its wait. Returns the word on which it sleeps,
    /// of which only the address may be used: the node may be gone.
    fn end_first(&self) -> Option<*const W::U32> {
        // Relaxed: under the lock of the list.
        let first = self.first.load(Ordering::Relaxed);
        if first.is_null() {
            return None;
        }
        // SAFETY: a node in the list is there.
        let node = unsafe { Self::node(first) };
        self.unlink(node);
        let word = &raw const node.ended;
        // Release: pairs with the Acquire in `sleep` and `leave`.
        node.ended.store(NOTIFIED, Ordering::Release);
        Some(word)
    }
}

#[cfg(test)]
mod tests;
