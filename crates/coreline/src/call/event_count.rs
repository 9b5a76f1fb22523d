//! [`EventCount`]: the word on which a worker sleeps.

use coreline_world::{Integer, Ordering, Parked, Word, World};

/// The number of notifications so far, modulo 2^32. A worker that has seen a number sleeps until
/// there is another one.
#[repr(C)]
pub(super) struct EventCount<W: World>(W::U32);

/// The number of notifications that a worker has seen.
#[derive(Clone, Copy)]
pub(super) struct Key(u32);

impl<W: World> EventCount<W> {
    pub(super) fn new_in() -> Self {
        EventCount(W::U32::new_in(0))
    }

    /// Wakes the worker if it sleeps.
    #[cold]
    #[inline(never)]
    pub(super) fn notify(&self) {
        // Release: pairs with the Acquire in `prepare_wait`. A worker that finds this notification
        // counted already must see the reason for it, or it would sleep in spite of it.
        self.0.fetch_add(1, Ordering::Release);
        W::wake(&raw const self.0, 1);
    }

    /// The worker calls this before it checks for messages for the last time.
    pub(super) fn prepare_wait(&self) -> Key {
        // Acquire: pairs with the Release in `notify`. That look sees the reason of each
        // notification that is counted here. Any other makes `wait` refuse, or wakes.
        Key(self.0.load(Ordering::Acquire))
    }

    /// Sleeps until there is a notification that `key` does not count; returns whether it slept.
    pub(super) fn wait(&self, key: Key) -> bool {
        W::park(&self.0, key.0, None) != Parked::Changed
    }
}
