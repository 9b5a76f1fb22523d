//! The native world of what std has: where there is no Linux, and with the feature `portable`.
//!
//! | file | capability | made of |
//! |---|---|---|
//! | `sleep` | sleep and wake | a table of std's locks and condition variables, by address |
//! | `place` | place, and where threads run | numbers that threads are given |
//! | `restartable` | restartable operations | atomics, as on Linux without rseq |
//! | `fences` | fences and kick | full fences |
//! | `clock` | clock | `Instant` |
//! | `signals` | signals | none; the process's number, and the thread's |
//! | `memory` | memory | std's system allocator |
//! | `publications` | none: for `coreline stat` | none |
//!
//! A missing capability is an error when a program asks for it, or has a documented fallback. The
//! front page of `coreline` has the table, and a test there asks for each.

mod clock;
mod fences;
mod memory;
mod place;
pub(crate) mod publications;
mod restartable;
mod signals;
mod sleep;

pub(super) use place::{allowed_here, settle};
pub(super) use std::thread::{sleep as nap, yield_now};

use crate::native::Native;
use crate::{Lacking, Why, World};

/// Whether the calling thread has a real-time priority: std does not know.
pub(super) fn is_real_time() -> bool {
    false
}

/// A capability that a program asks for and std does not have.
fn lacking(capability: &'static str, remedy: &'static str) -> Lacking {
    Lacking {
        world: Native::NAME,
        capability,
        why: Why::new("this program uses only functions that every system has"),
        remedy,
    }
}

/// How to have what only Linux has.
const ON_LINUX: &str = "run it on Linux, without the feature `portable`";
