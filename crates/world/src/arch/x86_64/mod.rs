//! x86-64. The thread pointer is `fs`, and fields of the area are operands relative to it.
//!
//! The signature is the operand of an undefined instruction, `ud1 <signature>(%rip), %edi`, so that
//! disassemblers keep their step.
//!
//! Every load acquires and every store releases, so orderings cost nothing here, and need no other
//! instructions.

mod area;
#[macro_use]
mod sections;
#[macro_use]
mod texts;
#[cfg(test)]
#[macro_use]
pub(super) mod traps;

use super::{Area, status};
pub(super) use area::{block, offset_of_reading, offset_of_sections, read, thread_pointer};
pub(crate) use sections::watch;

/// Whether every load acquires and every store releases.
pub(crate) const IN_ORDER: bool = true;

/// The signature that must stand in memory before an abort handler, as the registration of a thread
/// says.
pub(crate) const SIGNATURE: u32 = 0x5305_3053;

// A section that finds no line of rows leaves the pointer, which is null, as its status.
const _: () = assert!(status::NO_SLOT == 0);
