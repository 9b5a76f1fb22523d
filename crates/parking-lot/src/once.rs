//! [`Once`].

use std::sync::atomic::{AtomicU8, Ordering};
use std::{fmt, panic};

const NEW: u8 = 0;
const IN_PROGRESS: u8 = 1;
const POISONED: u8 = 2;

/// The state of a [`Once`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnceState {
    /// No call has begun.
    New,
    /// A call has panicked, and none has ended since.
    Poisoned,
    /// A thread runs a call.
    InProgress,
    /// A call has ended.
    Done,
}

impl OnceState {
    /// Returns whether a call has panicked.
    pub fn poisoned(self) -> bool {
        self == OnceState::Poisoned
    }

    /// Returns whether a call has ended.
    pub fn done(self) -> bool {
        self == OnceState::Done
    }
}

/// An initialisation that runs once, also in a `static`. It is like std's
/// [`Once`](std::sync::Once), and also tells its state. A call that starts a call of the same
/// `Once` never ends.
pub struct Once {
    inner: std::sync::Once,
    /// The state of an `inner` that has not ended. A hint for [`state`](Once::state) alone.
    begun: AtomicU8,
}

impl Once {
    /// Creates a `Once` that has run no call.
    pub const fn new() -> Once {
        Once { inner: std::sync::Once::new(), begun: AtomicU8::new(NEW) }
    }

    /// Returns the state. It may have changed when the call returns, but `Done` never changes.
    pub fn state(&self) -> OnceState {
        // Acquire, in `is_completed`: what the call wrote is seen.
        if self.inner.is_completed() {
            return OnceState::Done;
        }
        // Relaxed: a hint.
        match self.begun.load(Ordering::Relaxed) {
            NEW => OnceState::New,
            POISONED => OnceState::Poisoned,
            _ => OnceState::InProgress,
        }
    }

    /// Calls `f` if no call has ended. Waits if another thread runs one. When it returns, a call
    /// has ended.
    ///
    /// # Panics
    ///
    /// Panics if an earlier call has panicked.
    #[inline]
    pub fn call_once<F: FnOnce()>(&self, f: F) {
        self.inner.call_once(|| self.run(f));
    }

    /// Calls `f` like [`call_once`](Once::call_once), even if an earlier call has panicked. `f`
    /// gets [`OnceState::Poisoned`] in this case, and [`OnceState::New`] otherwise.
    #[inline]
    pub fn call_once_force<F: FnOnce(OnceState)>(&self, f: F) {
        self.inner.call_once_force(|state| {
            let before = if state.is_poisoned() { OnceState::Poisoned } else { OnceState::New };
            self.run(|| f(before));
        });
    }

    fn run(&self, f: impl FnOnce()) {
        // Relaxed, twice: `inner` lets one thread in at a time; others only look.
        self.begun.store(IN_PROGRESS, Ordering::Relaxed);
        if let Err(payload) = panic::catch_unwind(panic::AssertUnwindSafe(f)) {
            self.begun.store(POISONED, Ordering::Relaxed);
            panic::resume_unwind(payload);
        }
    }
}

impl Default for Once {
    fn default() -> Once {
        Once::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("state", &self.state()).finish()
    }
}
