//! Locks.

mod biased;
mod checked;
mod mutex;
mod osq;
mod read_mostly;
mod rwlock;
mod ticket;

pub use biased::coreline_biased_rwlock_t;
pub use checked::coreline_checked_mutex_t;
pub use mutex::coreline_mutex_t;
pub use osq::{coreline_osq_fifo_t, coreline_osq_near_t, coreline_turn_t};
pub use rwlock::coreline_rwlock_t;
pub use ticket::coreline_ticket_lock_t;

use coreline::world::{Native, Signals};

use crate::boundary::Outcome;
use crate::code::coreline_code_t as Code;

/// The result of a `try` function.
fn tried(took: bool) -> Outcome {
    took.then_some(()).ok_or(Code::CORELINE_BUSY)
}

/// The result of a function with a deadline.
fn in_time(took: bool) -> Outcome {
    took.then_some(()).ok_or(Code::CORELINE_TIMED_OUT)
}

/// The result of a function that needs the lock held, if it is not.
fn held(is_held: bool) -> Outcome {
    is_held.then_some(()).ok_or(Code::CORELINE_ERROR_NOT_HELD)
}

/// The number of the calling thread. It is never 0, and no other thread has it, even after this one
/// has ended, until 2^32 threads have asked for theirs. A forked child's thread has the number of
/// the forking thread. Each copy of the library counts threads on its own, so threads of two copies
/// may have the same number: no two copies may use one object.
pub(crate) fn this_thread() -> u64 {
    u64::from(Native::thread_id().get())
}
