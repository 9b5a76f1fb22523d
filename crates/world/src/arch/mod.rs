//! What differs between processors. Beside `native`, the only place for an operating system's
//! rules, and the only place for `asm!`.
//!
//! Every processor's file gives the same four names:
//!
//! | name | is |
//! |---|---|
//! | `Area` | where each thread's rseq area lies, and its ID fields |
//! | `add_by_cpu`, `add_by_cid` | [`restartable::add`](crate::restartable::add) as a section |
//! | `watch` | a section that does nothing but wait to be preempted, for the self-test |
//!
//! x86-64 has them. On other processors `Area` has no value: nothing can be called, nothing is
//! stubbed, and every restartable operation is one atomic instruction.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Area, add_by_cid, add_by_cpu, watch};

#[cfg(not(target_arch = "x86_64"))]
mod other;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use other::{Area, add_by_cid, add_by_cpu, watch};

/// How a section ended that waited to be preempted, and watched a word meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "without sections nothing is watched")
)]
pub(crate) enum Watched {
    /// The kernel sent the thread to the section's abort handler.
    Aborted,
    /// The word changed, and the section went on.
    Changed,
    /// Neither, in the time given.
    Expired,
}
