//! The barrier.

use core::fmt;

use super::{Condvar, Mutex, PoisonError};

/// The result of a wait, which tells whether the calling thread was the last of its group to
/// arrive.
#[derive(Debug)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Returns whether the calling thread was the last of its group to arrive.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

/// A barrier like [`std::sync::Barrier`], but its accesses are charged. The barrier is a count and
/// a generation under a [`Mutex`], and a [`Condvar`].
pub struct Barrier {
    state: Mutex<State>,
    turned: Condvar,
    size: usize,
}

struct State {
    /// How many threads of the group have arrived.
    count: usize,
    /// How many groups were complete.
    generation: usize,
}

impl Barrier {
    /// Creates a barrier for groups of `size` threads.
    pub const fn new(size: usize) -> Barrier {
        let state = Mutex::new(State { count: 0, generation: 0 });
        Barrier { state, turned: Condvar::new(), size }
    }

    /// Waits until all threads of the group have arrived.
    #[track_caller]
    pub fn wait(&self) -> BarrierWaitResult {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = state.generation;
        state.count += 1;
        if state.count < self.size {
            let waited = self.turned.wait_while(state, |state| state.generation == generation);
            drop(waited);
            return BarrierWaitResult(false);
        }
        state.count = 0;
        state.generation = state.generation.wrapping_add(1);
        self.turned.notify_all();
        BarrierWaitResult(true)
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}
