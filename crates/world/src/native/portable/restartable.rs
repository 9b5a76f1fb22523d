//! Restartable operations: on atomics.

use crate::native::{Native, Section};
use crate::{IndexBy, Lacking, Place, Restartable};

impl Restartable for Native {
    type Section = Section;

    // At least a page everywhere: the largest, of aarch64, are as large. The same as on Linux.
    const STRIDE: usize = 1 << 16;

    fn section(by: IndexBy) -> Result<(Section, usize), Lacking> {
        match by {
            IndexBy::Cpu => Ok((Section::ATOMICS, Native::topology().cpu_limit())),
            IndexBy::KernelCid => {
                Err(super::lacking("kernel concurrency ID", "index by cpu-id instead"))
            }
        }
    }

    #[inline]
    fn index_by(section: &Section) -> IndexBy {
        section.by
    }

    fn runs_sections(section: &Section) -> bool {
        section.rseq
    }

    /// Any slot will do: operations are atomic.
    fn index(_: &Section) -> usize {
        Native::cpu().index()
    }
}
