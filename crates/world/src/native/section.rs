//! [`Section`]: what the process chose for its restartable operations.

use core::fmt;

use crate::IndexBy;

/// How restartable operations run natively: in rseq sections, or on atomics.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Section {
    pub(super) by: IndexBy,
    pub(super) rseq: bool,
}

impl Section {
    /// That of slots by CPU number on which no section ever works.
    pub const ATOMICS: Self = Section { by: IndexBy::Cpu, rseq: false };

    /// Whether operations run in rseq sections rather than on atomics.
    pub fn is_rseq(&self) -> bool {
        self.rseq
    }

    /// What picks the slot.
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
