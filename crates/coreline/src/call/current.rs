//! Which worker the calling thread is.

use core::cell::Cell;
use core::ptr;

use coreline_world::{World, WorldLocal};

/// The worker that the calling thread is.
pub(super) struct Current {
    /// The address of the set's `Shared`; null on a thread that is no worker.
    pub(super) shared: Cell<*const ()>,
    pub(super) index: Cell<usize>,
}

static CURRENT: WorldLocal = WorldLocal::new("worker that this thread is");

pub(super) fn with_current<W: World, R>(f: impl FnOnce(&Current) -> R) -> R {
    let none = || Current { shared: Cell::new(ptr::null()), index: Cell::new(0) };
    CURRENT.with::<W, _, _>(none, f)
}
