//! The word on which a worker sleeps.

use coreline_world::{Integer, Ordering, Parked, Word, World};

/// It counts rings, modulo 2^32. A thread that has heard so many sleeps until there are more (an
/// eventcount).
#[repr(C)]
pub(super) struct Bell<W: World>(W::U32);

/// How many rings there were.
#[derive(Clone, Copy)]
pub(super) struct Heard(u32);

impl<W: World> Bell<W> {
    pub(super) fn new_in() -> Self {
        Bell(W::U32::new_in(0))
    }

    /// Wakes the worker if it sleeps.
    #[cold]
    #[inline(never)]
    pub(super) fn ring(&self) {
        // Release: pairs with the Acquire in `heard`. A worker that finds this ring counted already
        // must see what it was rung for, or it would sleep through it.
        self.0.fetch_add(1, Ordering::Release);
        W::wake(&raw const self.0, 1);
    }

    /// The worker calls this before its last look at what the bell announces.
    pub(super) fn heard(&self) -> Heard {
        // Acquire: pairs with the Release in `ring`: what a ring that is counted here was for is
        // seen by that look. A ring that is not counted makes `wait` refuse, or wakes.
        Heard(self.0.load(Ordering::Acquire))
    }

    /// Sleeps until there is a ring that was not heard; returns whether it slept.
    pub(super) fn wait(&self, heard: Heard) -> bool {
        W::park(&self.0, heard.0, None) != Parked::Changed
    }
}
