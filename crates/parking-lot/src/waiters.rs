//! [`Waiters`]: threads that wait for notifications. A wait ends by a notification or by its
//! deadline, and by nothing else.
//!
//! `coreline::lock::Condvar` is another mechanism, and cannot be this one. Its waits may end
//! without a notification, and its notifications neither choose nor count the threads that they
//! wake. For that two counts are enough, so it has 8 bytes, and a signal handler may notify. This
//! one locks its list to notify, and a handler could interrupt the holder of that lock.
//!
//! # State
//!
//! | what | meaning | written by |
//! |---|---|---|
//! | `first` | the thread that has waited longest; null: none waits | the holder of `list` |
//! | `links` | the next and the last waiter in the list, a ring | the holder of `list` |
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
use coreline::world::{Cell, ConstWorld, Native, Ordering, Parked, Time, Word, World};

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
    links: Cell<Links<W>, W>,
    ended: W::U32,
}

struct Links<W: World> {
    /// The address of the thread's mutex.
    mutex: usize,
    next: *const Node<W>,
    before: *const Node<W>,
}

impl<W: World> Node<W> {
    fn new(mutex: usize) -> Self {
        let links = Links { mutex, next: ptr::null(), before: ptr::null() };
        Node { links: Cell::new_in(links), ended: W::U32::new_in(WAITS) }
    }

    /// Reads or changes the links.
    ///
    /// # Safety
    ///
    /// The caller has the list's lock, or the node is in no list and the caller's.
    unsafe fn links<R>(&self, f: impl FnOnce(&mut Links<W>) -> R) -> R {
        // SAFETY: the caller's promise: no other thread uses the links now.
        self.links.with_mut(|links| f(unsafe { &mut *links }))
    }
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
        let node = Node::new(mutex);
        let is_one = self.with_list(|| self.join(&node));
        assert!(is_one, "another thread waits for this condition variable with another mutex");
        let waiting = Waiting { waiters: self, node: &node };
        unlocked(&|| {
            let notified = self.sleep(waiting.node, deadline);
            // SAFETY: the wait has ended, so the node is in no list. The access shows the world
            // that no other thread uses it, before its memory goes.
            unsafe { waiting.node.links(|links| links.next = ptr::null()) };
            notified
        })
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

    // The following are called under the lock of the list, which orders their accesses.

    /// Adds a node, unless one of the list has another mutex.
    fn join(&self, node: &Node<W>) -> bool {
        // Relaxed: under the lock of the list.
        let first = self.first.load(Ordering::Relaxed);
        // SAFETY: a node in the list is there, and the caller has the list's lock.
        let Some(first) = (unsafe { Self::node(first) }) else {
            // SAFETY: the caller has the list's lock.
            unsafe { node.links(|links| (links.next, links.before) = (node, node)) };
            // Relaxed: under the lock of the list.
            self.first.store(ptr::from_ref(node).cast_mut().cast(), Ordering::Relaxed);
            return true;
        };
        // SAFETY: nodes in the list are there, and the caller has the list's lock.
        unsafe {
            let (mutex, last) = first.links(|links| (links.mutex, links.before));
            if mutex != node.links(|links| links.mutex) {
                return false;
            }
            node.links(|links| (links.next, links.before) = (first, last));
            (*last).links(|links| links.next = node);
            first.links(|links| links.before = node);
        }
        true
    }

    fn unlink(&self, node: &Node<W>) {
        // SAFETY: nodes in the list are there, and the caller has the list's lock.
        let next = unsafe {
            let (next, before) = node.links(|links| (links.next, links.before));
            (*before).links(|links| links.next = next);
            (*next).links(|links| links.before = before);
            next
        };
        // Relaxed: under the lock of the list.
        if ptr::eq(self.first.load(Ordering::Relaxed).cast(), node) {
            let next = if ptr::eq(next, node) { ptr::null() } else { next };
            // Relaxed: under the lock of the list.
            self.first.store(next.cast_mut().cast(), Ordering::Relaxed);
        }
    }

    /// # Safety
    ///
    /// The address is null, or that of a node in the list, and the caller has the list's lock.
    unsafe fn node<'a>(address: *mut u8) -> Option<&'a Node<W>> {
        // SAFETY: a node is in the list from `join` to `unlink`, and its thread keeps it so long.
        unsafe { address.cast::<Node<W>>().as_ref() }
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

    /// Takes the first waiter from the list and ends its wait. Returns the word on which it sleeps.
    /// Use only the address of this word, because the node may no longer exist.
    fn end_first(&self) -> Option<*const W::U32> {
        // Relaxed: under the lock of the list.
        let first = self.first.load(Ordering::Relaxed);
        // SAFETY: a node in the list is there.
        let node = unsafe { Self::node(first) }?;
        self.unlink(node);
        let word = &raw const node.ended;
        // Release: pairs with the Acquire in `sleep` and `leave`.
        node.ended.store(NOTIFIED, Ordering::Release);
        Some(word)
    }
}

#[cfg(test)]
mod tests;
