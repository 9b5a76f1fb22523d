//! [`SlotLock`]: the lock under which an operation runs by its definition if no section can run.
//!
//! It has three unusual properties, because the operations guarantee them:
//!
//! * **Signals.** The holder's signals are blocked, so a handler never waits for a lock of the
//!   thread that it interrupted. Blocking costs two system calls. Code that no handler may call
//!   does not need them: [`lock_outside_handlers`] does not block signals, and neither does
//!   [`try_lock_in_handlers`].
//! * **Fork.** The word names the generation of the holder's memory. If a child was forked while
//!   another thread held the lock, the holder does not exist in the child, which takes the lock
//!   over. So the guarded data must be consistent at every moment. An operation ensures this: only
//!   its last store changes the slot.
//! * **No queue, no sleep.** It is usually held for about ten instructions. If it is held for
//!   longer, new arrivals can queue elsewhere first: [`lock_by_name`].
//!
//! A thread that never waits needs no blocked signals in a handler, either:
//! [`try_lock_in_handlers`].
//!
//! [`lock_by_name`]: SlotLock::lock_by_name
//! [`lock_outside_handlers`]: SlotLock::lock_outside_handlers
//! [`try_lock_in_handlers`]: SlotLock::try_lock_in_handlers

use core::fmt;
use core::marker::PhantomData;

use coreline_world::{Native, Ordering, Signals, Word, Words, World};

/// A lock word.
///
/// | bits | meaning |
/// |---|---|
/// | 63..32 | the generation of the holder's memory; 0: free |
/// | 31..0 | the holder's thread, if it may run foreign code or handlers; else 0 |
#[repr(transparent)]
pub(crate) struct SlotLock<W: Words> {
    holder: W::U64,
}

const _: () = {
    assert!(size_of::<SlotLock<Native>>() == 8);
    assert!(align_of::<SlotLock<Native>>() == 8);
};

const FREE: u64 = 0;

impl<W: Words> SlotLock<W> {
    /// A free lock.
    pub(crate) fn new_in() -> Self {
        SlotLock { holder: W::U64::new_in(FREE) }
    }
}

impl<W: World> SlotLock<W> {
    /// Takes the lock; waits while another thread holds it.
    pub(crate) fn lock(&self) -> SlotLockGuard<'_, W> {
        let held = W::hold();
        let me = u64::from(W::generation().get()) << 32;
        loop {
            if let Some(guard) = self.exchange(self.wait_held(), me) {
                return SlotLockGuard { lock: guard, _held: held, _thread: PhantomData };
            }
        }
    }

    /// Takes the lock without blocking signals. Use it for a lock that no handler takes. Waits
    /// while another thread holds the lock.
    ///
    /// A handler may still fork, and return in the child. Because a handler may interrupt a wait,
    /// each check reads the generation again. If a handler interrupts the holder, its child has a
    /// lock of another generation. The child's only thread frees the lock when it continues.
    ///
    /// ```text
    /// Thread 1: holds the lock
    /// Thread 2: waits; its handler forks, and returns in the child
    /// Child: waits for a holder of its parent's generation   <- which it took for its own
    /// ```
    pub(crate) fn lock_outside_handlers(&self) -> SlotLockGuard<'_, W, ()> {
        loop {
            // Relaxed: the exchange takes the lock.
            let relaxed = Ordering::Relaxed;
            self.holder.wait_until(relaxed, |holder| free(holder, W::generation().get()));
            if let Some(guard) = self.try_lock_outside_handlers() {
                return guard;
            }
        }
    }

    /// As [`lock_outside_handlers`](SlotLock::lock_outside_handlers); `None` if a thread holds it.
    pub(crate) fn try_lock_outside_handlers(&self) -> Option<SlotLockGuard<'_, W, ()>> {
        let seen = self.seen_free()?;
        let lock = self.exchange(seen, u64::from(W::generation().get()) << 32)?;
        Some(SlotLockGuard { lock, _held: (), _thread: PhantomData })
    }

    /// Takes the lock for the calling thread by name, so that it can be recognised by
    /// [`is_mine`](SlotLock::is_mine); `None` if a thread holds it.
    pub(crate) fn try_lock_by_name(&self) -> Option<SlotLockGuard<'_, W>> {
        // Looks first, without system calls: while the holder is preempted, others come here with
        // each operation.
        self.seen_free()?;
        let held = W::hold();
        let seen = self.seen_free()?;
        let lock = self.exchange(seen, Self::name())?;
        Some(SlotLockGuard { lock, _held: held, _thread: PhantomData })
    }

    /// Takes the lock by name, without waiting and without blocking signals; `None` if a thread
    /// holds it. Handlers may call this. One that interrupts the holder finds the lock held, also
    /// if it has forked and is in the child:
    ///
    /// ```text
    /// Thread 1: holds the lock; its handler forks, and is in the child
    /// Child: takes the lock of a holder of its parent's generation   <- which is its own thread
    /// ```
    #[inline]
    pub(crate) fn try_lock_in_handlers(&self) -> Option<SlotLockGuard<'_, W, ()>> {
        let me = Self::name();
        // Acquire pairs with the release of the guard's drop: what the last holder wrote is seen.
        let found = self.holder.compare_exchange(FREE, me, Ordering::Acquire, Ordering::Relaxed);
        let lock = match found {
            Ok(_) => self,
            Err(seen) => self.take_over(seen, me)?,
        };
        Some(SlotLockGuard { lock, _held: (), _thread: PhantomData })
    }

    /// Takes the lock of a holder that a fork left behind: one of another generation, and not the
    /// calling thread, which keeps its number in a child.
    #[cold]
    fn take_over(&self, seen: u64, me: u64) -> Option<&Self> {
        let left = seen >> 32 != me >> 32 && seen as u32 != me as u32;
        if left { self.exchange(seen, me) } else { None }
    }

    /// Whether the calling thread holds the lock, and took it by name.
    pub(crate) fn is_mine(&self) -> bool {
        // Relaxed: only the calling thread writes its own name here.
        self.holder.load(Ordering::Relaxed) == Self::name()
    }

    /// Takes the lock by name; waits while another thread holds it, and before that for what
    /// `line_up` waits for. `line_up` runs with signals blocked. Its result is dropped when the
    /// lock is taken, before signals are unblocked. So no handler can fork a child while its thread
    /// is in a queue.
    pub(crate) fn lock_by_name<T>(&self, line_up: impl FnOnce() -> T) -> SlotLockGuard<'_, W> {
        let held = W::hold();
        let turn = line_up();
        let lock = loop {
            if let Some(lock) = self.exchange(self.wait_held(), Self::name()) {
                break lock;
            }
        };
        drop(turn);
        SlotLockGuard { lock, _held: held, _thread: PhantomData }
    }

    /// Waits until the lock is free, or its holder is.
    pub(crate) fn wait(&self) {
        let _held = W::hold();
        self.wait_held();
    }

    /// Whether a thread holds the lock. The result is a hint.
    pub(crate) fn is_held(&self) -> bool {
        self.seen_free().is_none()
    }

    /// Waits until the lock or its holder is free, and returns the state of the lock. Signals are
    /// held off: a handler that forks and returns in the child would leave it waiting for a thread
    /// of its parent's.
    fn wait_held(&self) -> u64 {
        let generation = W::generation().get();
        // Relaxed: the caller still has to take the lock.
        self.holder.wait_until(Ordering::Relaxed, |holder| free(holder, generation))
    }

    /// Returns the lock's word, if no thread holds the lock.
    fn seen_free(&self) -> Option<u64> {
        // Relaxed: an exchange is what takes the lock.
        let seen = self.holder.load(Ordering::Relaxed);
        free(seen, W::generation().get()).then_some(seen)
    }

    fn name() -> u64 {
        u64::from(W::generation().get()) << 32 | u64::from(W::thread_id().get())
    }

    fn exchange(&self, seen: u64, me: u64) -> Option<&Self> {
        // Acquire pairs with the release of the guard's drop: what the last holder wrote is seen.
        // A holder that a fork left behind did not release; the fork itself copied its writes.
        self.holder
            .compare_exchange(seen, me, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then_some(self)
    }
}

/// Whether no thread of memory of this generation holds the lock.
fn free(holder: u64, generation: u32) -> bool {
    holder == FREE || holder >> 32 != u64::from(generation)
}

impl<W: Words> fmt::Debug for SlotLock<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for a text, which is stale when it is read.
        f.debug_tuple("SlotLock").field(&self.holder.load(Ordering::Relaxed)).finish()
    }
}

/// Holds a [`SlotLock`], with the thread's signals held off; drop it to free the lock. If
/// there are several guards, drop the last one first: see [`Signals::hold`].
///
/// `H` holds signals off, or is nothing where they are on.
pub(crate) struct SlotLockGuard<'a, W: World, H = <W as Signals>::Held> {
    lock: &'a SlotLock<W>,
    /// Dropped after the lock is free, as fields are dropped after `drop` has run.
    _held: H,
    /// Signals are held off for this thread only, so the guard stays with it.
    _thread: PhantomData<*const ()>,
}

impl<W: World, H> Drop for SlotLockGuard<'_, W, H> {
    fn drop(&mut self) {
        // Release pairs with the acquire of the exchange that takes the lock next.
        self.lock.holder.store(FREE, Ordering::Release);
    }
}

impl_debug!([W: World, H] SlotLockGuard<'_, W, H> as it (it.lock));

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock in the state that it has in a child that was forked while this thread held the lock.
    fn inherited(thread: u32) -> SlotLock<Native> {
        let parent = u64::from(Native::generation().get()) + 1;
        let holder = <Native as Words>::U64::new_in(parent << 32 | u64::from(thread));
        SlotLock { holder }
    }

    #[test]
    fn a_holder_that_a_fork_left_behind_gives_way_to_other_threads_only() {
        let me = Native::thread_id().get();
        let lock = inherited(me + 1);
        let guard = lock.try_lock_in_handlers().expect("its holder is no more");
        assert!(lock.try_lock_in_handlers().is_none());
        drop(guard);
        assert!(lock.try_lock_in_handlers().is_some());

        // The calling thread is in a handler that interrupts the holder.
        let lock = inherited(me);
        assert!(lock.try_lock_in_handlers().is_none());
        // The mistake, which is none where no handler takes the lock.
        assert!(lock.try_lock_outside_handlers().is_some());
    }
}
