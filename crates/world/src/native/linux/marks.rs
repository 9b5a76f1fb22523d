//! Marks that a thread keeps about itself, beside its rseq areas.
//!
//! | bit | name | meaning when set |
//! |---|---|---|
//! | 0 | [`CHOOSING`] | the thread is making the process's choice of sections or atomics |
//! | 1 | [`REFUSED`] | the thread was refused its registration, or gave it up at its end |
//! | 2 | [`NO_EXTENSION`] | the thread was refused slice extensions |
//!
//! Only the thread itself and signal handlers on it use them, so every ordering is relaxed: they
//! are atomic for a handler's sake.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::arch;

pub(crate) const CHOOSING: u32 = 1;
pub(crate) const REFUSED: u32 = 1 << 1;
pub(crate) const NO_EXTENSION: u32 = 1 << 2;

fn word<'a>() -> &'a AtomicU32 {
    // SAFETY: memory of the calling thread for its whole life; the reference does not leave the
    // functions below.
    unsafe { &*arch::marks() }
}

pub(crate) fn get() -> u32 {
    // Relaxed: see the module.
    word().load(Ordering::Relaxed)
}

/// Sets a mark; returns whether it was set already.
pub(crate) fn set(mark: u32) -> bool {
    // Relaxed: see the module.
    word().fetch_or(mark, Ordering::Relaxed) & mark != 0
}

pub(crate) fn clear(mark: u32) {
    // Relaxed: see the module.
    word().fetch_and(!mark, Ordering::Relaxed);
}
