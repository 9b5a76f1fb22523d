//! One-time initialisation.

use core::fmt;

use coreline_world::{ConstWords as _, Ordering, Sleep as _, Word as _};

use super::sleep;
use crate::Sim;
use crate::words::SimU32;

/// The states of the word.
///
/// | state | meaning | written by |
/// |---|---|---|
/// | `INCOMPLETE` | no closure was called | (the initial state) |
/// | `POISONED` | the closure panicked | the thread that ran it |
/// | `RUNNING` | a closure runs | the thread that runs it, first |
/// | `QUEUED` | as `RUNNING`, and threads may be parked | a thread about to park |
/// | `COMPLETE` | a closure returned | the thread that ran it |
const INCOMPLETE: u32 = 0;
const POISONED: u32 = 1;
const RUNNING: u32 = 2;
const QUEUED: u32 = 3;
const COMPLETE: u32 = 4;

/// A one-time initialisation like [`std::sync::Once`], but its accesses are charged.
pub struct Once(SimU32);

/// The state that [`Once::call_once_force`] passes to the closure.
#[derive(Debug)]
pub struct OnceState {
    poisoned: bool,
}

impl OnceState {
    /// Returns whether an earlier closure panicked.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

/// Writes the state that a closure leaves, also if it panics.
struct Done<'a> {
    word: &'a SimU32,
    state: u32,
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire accesses that see the state.
        if self.word.swap(self.state, Ordering::Release) == QUEUED {
            Sim::wake(self.word, u32::MAX);
        }
    }
}

impl Once {
    /// Creates a `Once` for which no closure has run.
    pub const fn new() -> Once {
        Once(Sim::U32_ZERO)
    }

    /// Calls `f`, unless a closure was called before. In that case, the call waits until the
    /// earlier closure returns.
    ///
    /// # Panics
    ///
    /// Panics if `f` panics, or if an earlier closure panicked.
    #[track_caller]
    pub fn call_once(&self, f: impl FnOnce()) {
        self.call(false, |_| f());
    }

    /// Calls `f`, like [`call_once`](Once::call_once), but also if an earlier closure panicked.
    ///
    /// # Panics
    ///
    /// Panics if `f` panics.
    #[track_caller]
    pub fn call_once_force(&self, f: impl FnOnce(&OnceState)) {
        self.call(true, f);
    }

    /// Returns whether a closure was called and has returned.
    #[track_caller]
    pub fn is_completed(&self) -> bool {
        // Acquire: pairs with the Release swap of `Done`.
        self.0.load(Ordering::Acquire) == COMPLETE
    }

    /// Waits until a closure was called and has returned.
    ///
    /// # Panics
    ///
    /// Panics if a closure panicked.
    #[track_caller]
    pub fn wait(&self) {
        self.wait_for(false);
    }

    /// Waits, like [`wait`](Once::wait), but does not panic if a closure panicked.
    #[track_caller]
    pub fn wait_force(&self) {
        self.wait_for(true);
    }

    #[track_caller]
    fn call(&self, force: bool, f: impl FnOnce(&OnceState)) {
        // Acquire, here and below: pairs with the Release swap of `Done`.
        let mut state = self.0.load(Ordering::Acquire);
        let poisoned = loop {
            match state {
                COMPLETE => return,
                POISONED if !force => panic!("Once instance has previously been poisoned"),
                INCOMPLETE | POISONED => {
                    let took = self.0.compare_exchange_weak(
                        state,
                        RUNNING,
                        Ordering::Acquire,
                        Ordering::Acquire,
                    );
                    match took {
                        Ok(_) => break state == POISONED,
                        Err(other) => state = other,
                    }
                }
                _ => state = self.park(state),
            }
        };
        let mut done = Done { word: &self.0, state: POISONED };
        f(&OnceState { poisoned });
        done.state = COMPLETE;
    }

    #[track_caller]
    fn wait_for(&self, force: bool) {
        let mut state = self.0.load(Ordering::Acquire);
        loop {
            match state {
                COMPLETE => return,
                POISONED if !force => panic!("Once instance has previously been poisoned"),
                RUNNING | QUEUED => state = self.park(state),
                // No closure runs, so no thread would wake us: look again when the word changes.
                idle => state = self.0.wait_until(Ordering::Acquire, |state| state != idle),
            }
        }
    }

    /// Parks until the closure that runs is done. Returns a later state.
    #[track_caller]
    fn park(&self, state: u32) -> u32 {
        if state == RUNNING {
            let marked =
                self.0.compare_exchange(RUNNING, QUEUED, Ordering::Relaxed, Ordering::Acquire);
            if let Err(other) = marked {
                return other;
            }
        }
        sleep(&self.0, QUEUED, None);
        self.0.load(Ordering::Acquire)
    }

    /// Nothing was done yet, again.
    pub(super) fn reset(&mut self) {
        *self = Once::new();
    }
}

impl Default for Once {
    fn default() -> Self {
        Once::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").finish_non_exhaustive()
    }
}
