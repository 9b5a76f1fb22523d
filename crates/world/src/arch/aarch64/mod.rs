//! aarch64. The thread pointer is `tpidr_el0`, to which the area's offset is added in each section.
//!
//! The signature is an instruction, `brk 0x45e0`, as those of processors with instructions of one
//! length are.
//!
//! # Orderings
//!
//! A load-acquire reads the limit, so it sees what was written before the slots were opened. So is
//! a row: what was written before the CPU was given the index is seen, the slot when it was made
//! and what sections of other CPUs left in it, and seen also by the code behind the section, which
//! may use what a stack gave it without a dependency that a compiler keeps. A plain load reads the
//! pointer to the row's line: nothing but the row is reached through it, and the row's address
//! depends on it, so that the processor reads the row afterwards. A store-release commits pointers
//! and stacks: a reader of the committed word sees what it stands for. A plain store commits words
//! that hold an integer, because they carry nothing but their own value. Nothing else is ordered,
//! and nothing else needs to be: threads of one CPU follow each other through the scheduler, which
//! orders all.
//!
//! # Distances
//!
//! Conditional branches reach 1 MiB, others 128 MiB. Abort handlers lie at the end of the section
//! of the object file that their function is in (`.subsection`), so that the assembler resolves
//! their way back: a linker's veneer for a longer one would overwrite a register.

mod area;
#[macro_use]
mod sections;
#[macro_use]
mod texts;
#[cfg(test)]
#[macro_use]
pub(super) mod traps;

use super::Area;
pub(super) use area::{block, offset_of_reading, offset_of_sections, read, thread_pointer};
pub(crate) use sections::watch;

/// Whether every load acquires and every store releases.
pub(crate) const IN_ORDER: bool = false;

/// The signature that must stand in memory before an abort handler, as the registration of a thread
/// says.
pub(crate) const SIGNATURE: u32 = 0xd428_bc00;
