//! [`Limits`]: which slots of an array sections may use.

use core::fmt;
use core::mem::offset_of;

use super::IndexBy;
use crate::{ConstWords, Word, Words};

/// Two words, of which the one for the array's kind of index says below which index there are slots
/// that sections may use. The other one is 0 for good.
///
/// So a section need not know of which kind its array is. It tries the CPU number first, and the
/// concurrency ID where that is not below its word:
///
/// | word | in an array by CPU number, or by rows | in one by concurrency ID |
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
    /// Where the words lie: native sections look there.
    pub const LAYOUT: [usize; 2] = [offset_of!(Self, cpu), offset_of!(Self, cid)];

    /// No slot may be used.
    pub fn new_in() -> Self {
        Limits { cpu: W::U32::new_in(0), cid: W::U32::new_in(0) }
    }

    /// As [`new_in`](Limits::new_in), for statics.
    pub const fn const_new() -> Self
    where
        W: ConstWords,
    {
        Limits { cpu: W::U32_ZERO, cid: W::U32_ZERO }
    }

    /// The word of an array of this kind. No other word is ever written.
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
