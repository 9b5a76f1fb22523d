//! [`Section`]: the choice of the process for its restartable operations.

use core::fmt;

use crate::IndexBy;

/// The way in which restartable operations run natively: in rseq sections, or on atomics.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Section {
    pub(super) by: IndexBy,
    pub(super) rseq: bool,
}

impl Section {
    /// The choice for slots by CPU number in which operations always run on atomics.
    pub const ATOMICS: Self = Section { by: IndexBy::Cpu, rseq: false };

    /// Returns whether operations run in rseq sections. If not, they run on atomics.
    pub fn is_rseq(&self) -> bool {
        self.rseq
    }

    /// Returns the index that selects the slot.
    pub fn index_by(&self) -> IndexBy {
        self.by
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_rseq() { "rseq" } else { "atomics" };
        write!(f, "Section({how}, {})", self.index_by())
    }
}
