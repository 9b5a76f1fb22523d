//! Fences and kick: full fences, on both sides. No slice extensions.
//!
//! Restartable operations run on atomics, each of which is whole or not there, so none is ever
//! under way that a fence could abort.

use core::sync::atomic::{self, Ordering};

use coreline_topology::CpuId;

use super::{ON_LINUX, lacking};
use crate::native::Native;
use crate::{Fences, Kick, Lacking, SliceExtension};

impl Fences for Native {
    #[inline]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }

    #[inline]
    fn fence_light() {
        // Partner: the same fence in `try_fence_all`. Without either, each side may miss the
        // other's earlier store.
        atomic::fence(Ordering::SeqCst);
    }

    /// Never fails.
    fn try_fence_all() -> Result<(), Lacking> {
        // Partner: the same fence in `fence_light`.
        atomic::fence(Ordering::SeqCst);
        Ok(())
    }

    /// Never fails.
    fn try_fence_seen() -> Result<(), Lacking> {
        // Partner: the full fence in `fence_light`, by which the store that was read released.
        atomic::fence(Ordering::Acquire);
        Ok(())
    }

    /// Never fails: a heavy fence, as nothing is under way.
    fn fence_restartable() -> Result<(), Lacking> {
        Self::try_fence_all()
    }
}

impl Kick for Native {
    /// Interrupts nothing, as nothing is under way, and never fails: a heavy fence.
    fn kick(_: CpuId) -> Result<(), Lacking> {
        Self::fence_restartable()
    }
}

impl SliceExtension for Native {
    fn enable_extension() -> Result<(), Lacking> {
        Err(lacking("slice extension", ON_LINUX))
    }
}
