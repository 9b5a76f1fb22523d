//! [`Limits`] and [`Gate`]: the slots of an array that sections may use.

use core::fmt;
use core::mem::offset_of;
use core::ptr;

use super::IndexBy;
use crate::{ConstWords, Ordering, Word, Words};

/// The limit of an array's slots, in one of two words. The word for the array's kind of index is
/// the limit: sections may use the slots below it. The other word is always 0.
///
/// So a section need not know the kind of its array. It tries the CPU number first. If the CPU
/// number is not below its word, the section tries the concurrency ID:
///
/// | word | in an array by CPU number, or by rows | in an array by concurrency ID |
/// |---|---|---|
/// | `cpu` | the limit | 0 |
/// | `cid` | 0 | the limit |
#[repr(C)]
pub struct Limits<W: Words> {
    /// First, as sections know.
    cpu: W::U32,
    /// Second, as sections know.
    cid: W::U32,
}

impl<W: Words> Limits<W> {
    /// The offsets of the words, for native sections that read them.
    pub const LAYOUT: [usize; 2] = [offset_of!(Self, cpu), offset_of!(Self, cid)];

    /// Creates limits under which no slot may be used.
    pub fn new_in() -> Self {
        Limits { cpu: W::U32::new_in(0), cid: W::U32::new_in(0) }
    }

    /// Creates limits under which the slots below `limit` may be used, for an array of this kind.
    pub fn below(by: IndexBy, limit: u32) -> Self {
        let [cpu, cid] = match by {
            IndexBy::Cpu => [limit, 0],
            IndexBy::KernelCid => [0, limit],
        };
        Limits { cpu: W::U32::new_in(cpu), cid: W::U32::new_in(cid) }
    }

    /// Creates limits under which no slot may be used, like [`new_in`](Limits::new_in), in a const
    /// context.
    pub const fn const_new() -> Self
    where
        W: ConstWords,
    {
        Limits { cpu: W::U32_ZERO, cid: W::U32_ZERO }
    }

    /// Returns the word for an array of this kind. No other word is ever written.
    #[inline]
    pub fn by(&self, by: IndexBy) -> &W::U32 {
        match by {
            IndexBy::Cpu => &self.cpu,
            IndexBy::KernelCid => &self.cid,
        }
    }
}

impl<W: Words> fmt::Debug for Limits<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").finish_non_exhaustive()
    }
}

/// [`Limits`] of slots that are created later, and the address of slot 0. A section itself reads
/// the address, after it has found its index below the limit. A thread that reads the address
/// before the limit could combine an old address with a new limit:
///
/// ```text
/// Thread 1: slot 0 lies nowhere, and would go on with that
/// Thread 2: slot 0 lies here; the limit is 1
/// Thread 1: index 0 is below the limit; adds to what lies nowhere
/// ```
///
/// | word | meaning | written by |
/// |---|---|---|
/// | `limits` | see [`Limits`] | [`open`](Gate::open), [`close`](Gate::close) |
/// | `first` | slot 0; null: there is none yet | [`open`](Gate::open), the same each time |
#[repr(C)]
pub struct Gate<W: Words> {
    /// First, as sections know.
    pub(crate) limits: Limits<W>,
    /// Second, as sections know.
    pub(crate) first: W::Ptr<u8>,
}

impl<W: Words> Gate<W> {
    /// The offset of slot 0's address, for native sections that read it. The limits are at the
    /// beginning of the gate.
    pub const LAYOUT: usize = {
        assert!(offset_of!(Self, limits) == 0);
        offset_of!(Self, first)
    };

    /// Creates a closed gate, under which no slot may be used.
    pub fn new_in() -> Self {
        Gate { limits: Limits::new_in(), first: W::Ptr::new_in(ptr::null_mut()) }
    }

    /// Creates a closed gate, like [`new_in`](Gate::new_in), in a const context.
    pub const fn const_new() -> Self
    where
        W: ConstWords,
    {
        Gate { limits: Limits::const_new(), first: W::NULL }
    }

    /// Returns the limits of the slots.
    #[inline]
    pub fn limits(&self) -> &Limits<W> {
        &self.limits
    }

    /// Returns the address of slot 0. A thread that read the limit before, with acquire ordering,
    /// finds the slots below it initialised.
    #[inline]
    pub fn first(&self) -> *mut u8 {
        // Relaxed: the acquire of the limit orders it.
        self.first.load(Ordering::Relaxed)
    }

    /// Allows the use of slots below `limit`, where `first` is slot 0. Each call must pass the same
    /// address.
    pub fn open(&self, by: IndexBy, first: *mut u8, limit: u32) {
        // Relaxed: the limit publishes it.
        self.first.store(first, Ordering::Relaxed);
        // Release pairs with the acquire of a section's own load: it sees the slots initialised,
        // what was written to them while they were closed, and where they are.
        self.limits.by(by).store(limit, Ordering::Release);
    }

    /// Closes the gate. Sections that begin after the caller's next
    /// [fence](crate::Fences::fence_restartable) may use no slot. The fence aborts sections that
    /// are running.
    pub fn close(&self, by: IndexBy) {
        // Relaxed: the fence orders it.
        self.limits.by(by).store(0, Ordering::Relaxed);
    }
}

impl<W: Words> fmt::Debug for Gate<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}
