//! Processors without sections of ours: no thread ever has a slot for one.

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU8, AtomicU32};

use crate::arch::{Reading, Section, SlotsAt, Watched};

/// Whether every load acquires and every store releases.
pub(crate) const IN_ORDER: bool = false;

/// The signature of a registration, which is not made here.
pub(crate) const SIGNATURE: u32 = 0;

/// Where each thread has one of its rseq areas; here nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area;

/// The location of each thread's index. On this processor there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index;

impl Area {
    pub(crate) fn index(self, _field: usize) -> Index {
        Index
    }

    /// # Safety
    ///
    /// None needed here; the signature is that of processors with sections.
    pub(crate) unsafe fn at(_offset: isize) -> Area {
        Area
    }

    pub(crate) fn blank() -> Area {
        Area
    }

    pub(crate) fn own() -> Area {
        Area
    }

    pub(crate) fn of_sections() -> Area {
        Area
    }

    pub(crate) fn of_cpu() -> Area {
        Area
    }

    pub(crate) fn of_cid() -> Area {
        Area
    }

    pub(crate) fn read_in(self, _what: Reading) {}

    pub(crate) fn bytes_beyond_blank(self) -> isize {
        0
    }

    pub(crate) fn offset(self) -> isize {
        0
    }

    pub(crate) fn address(self) -> usize {
        0
    }

    pub(crate) fn cpu_id_start(self) -> u32 {
        u32::MAX
    }

    pub(crate) fn cpu_id(self) -> u32 {
        u32::MAX
    }

    pub(crate) fn mm_cid(self) -> u32 {
        u32::MAX
    }

    /// No thread here has extensions.
    pub(crate) fn flags(self) -> u32 {
        0
    }

    pub(crate) fn slice_control(self) -> u32 {
        0
    }

    /// A byte that no kernel reads.
    pub(crate) fn slice_request(self) -> *const AtomicU8 {
        static NONE: AtomicU8 = AtomicU8::new(0);
        &raw const NONE
    }
}

/// No mark is ever set here.
pub(crate) fn marks() -> *const AtomicU32 {
    static NONE: AtomicU32 = AtomicU32::new(0);
    &raw const NONE
}

pub(crate) fn hint() -> *const AtomicU32 {
    std::thread_local!(static HINT: AtomicU32 = const { AtomicU32::new(0) });
    HINT.with(core::ptr::from_ref)
}

pub(crate) fn number() -> *const AtomicU32 {
    std::thread_local!(static NUMBER: AtomicU32 = const { AtomicU32::new(0) });
    NUMBER.with(core::ptr::from_ref)
}

pub(crate) fn known_number() -> u32 {
    // SAFETY: a variable of the calling thread. Relaxed: only that thread uses it.
    unsafe { &*number() }.load(core::sync::atomic::Ordering::Relaxed)
}

pub(crate) fn holds() -> *const AtomicU32 {
    std::thread_local!(static HOLDS: AtomicU32 = const { AtomicU32::new(0) });
    HOLDS.with(core::ptr::from_ref)
}

pub(crate) fn last_number() -> &'static AtomicU32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    &LAST
}

impl<O, I, F, R> Section<I, F, R> for O {
    unsafe fn run(self, _at: SlotsAt<I, F>) -> Option<R> {
        None
    }
}

/// Nothing is watched, so nothing is seen.
pub(crate) fn watch(_area: Area, _word: &AtomicU32, _spins: NonZeroU32) -> Watched {
    Watched::Expired
}
