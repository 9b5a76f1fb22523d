//! Processors without sections of ours: [`Area`] has no value, so none of this can be reached.

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::Line;
use crate::arch::Watched;

/// Where each thread's rseq area lies; here nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {}

impl Area {
    /// No area, wherever the C library may have put one.
    ///
    /// # Safety
    ///
    /// None needed here; the signature is that of processors with sections.
    pub(crate) unsafe fn at(_offset: isize) -> Option<Area> {
        None
    }

    pub(crate) fn cpu_id_start(self) -> u32 {
        match self {}
    }

    pub(crate) fn cpu_id(self) -> u32 {
        match self {}
    }

    pub(crate) fn mm_cid(self) -> u32 {
        match self {}
    }
}

pub(crate) unsafe fn add_by_cpu(
    area: Area,
    _limit: NonZeroU32,
    _slots: *const Line<AtomicU64>,
    _delta: u64,
) -> bool {
    match area {}
}

pub(crate) unsafe fn add_by_cid(
    area: Area,
    _limit: NonZeroU32,
    _slots: *const Line<AtomicU64>,
    _delta: u64,
) -> bool {
    match area {}
}

pub(crate) fn watch(area: Area, _word: &AtomicU32, _spins: NonZeroU32) -> Watched {
    match area {}
}
