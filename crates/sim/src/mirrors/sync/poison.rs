//! Poison: whether a thread panicked while it held a lock.

use std::sync::{LockResult, PoisonError};

use crate::mirrors::thread;
use crate::words::atomic::{AtomicBool, Ordering};

/// A lock's mark.
pub(super) struct Flag(AtomicBool);

/// Whether a thread was unwinding when it took the lock.
pub(super) struct Before(bool);

impl Flag {
    pub(super) const fn new() -> Flag {
        Flag(AtomicBool::new(false))
    }

    /// Relaxed, here and below: the lock orders the mark; read without the lock it is a hint.
    #[track_caller]
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    #[track_caller]
    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Notes whether a thread that just took the lock is unwinding.
    #[track_caller]
    pub(super) fn before(&self) -> Before {
        Before(thread::panicking())
    }

    /// Sets the mark if a thread that gives the lock back began to unwind while it held it.
    #[track_caller]
    pub(super) fn done(&self, before: &Before) {
        if !before.0 && thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// `Err` if the lock is poisoned.
    #[track_caller]
    pub(super) fn wrap<T>(&self, value: T) -> LockResult<T> {
        if self.get() { Err(PoisonError::new(value)) } else { Ok(value) }
    }
}
