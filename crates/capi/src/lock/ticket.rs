//! The ticket lock.

use coreline::lock::RawTicketLock;

use super::{held, tried};
use crate::boundary::InPlace;
use crate::code::coreline_code_t as Code;
use crate::with::with;

/// A FIFO lock of 8 bytes whose waiters spin, for fewer threads than CPUs.
///
/// It lives in the memory of its user. `CORELINE_TICKET_LOCK_INIT`, or zeros, is a free lock. It
/// needs no destruction. It may not be copied or moved while a thread uses it. It also works in
/// memory that processes share.
#[repr(C)]
pub struct coreline_ticket_lock_t {
    /// Private: the ticket of the next thread.
    pub next: u32,
    /// Private: the ticket of the holder.
    pub serving: u32,
}

impl InPlace for coreline_ticket_lock_t {
    type Raw = RawTicketLock;
}

/// Locks a ticket lock, after all threads that arrived before.
///
/// Waiters keep their CPUs busy.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned).
///
/// Threads: any number of threads may call it at the same time. A thread that locks a lock which it
/// holds waits forever. Signals: a handler must not call it. Fork: a lock that another thread held
/// or waited for at the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_ticket_lock_lock(lock: *mut coreline_ticket_lock_t) -> Code {
    with!([lock lock] { lock.lock(); })
}

/// Locks a ticket lock if it is free now.
///
/// The call returns `CORELINE_BUSY` if a thread holds the lock. A ticket lock has no form with a
/// deadline, because a thread cannot give its ticket back.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork: a
/// lock that another thread held or waited for at the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_ticket_lock_try_lock(lock: *mut coreline_ticket_lock_t) -> Code {
    with!([lock lock] { tried(lock.try_lock()) })
}

/// Unlocks a ticket lock.
///
/// The caller must hold the lock. The call detects that no thread holds it. The lock does not know
/// its owner, so the call does not detect that another thread holds it.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_NOT_HELD`.
///
/// Threads: the holder calls it. Signals: async-signal-safe, for a lock that the handler locked by
/// `coreline_ticket_lock_try_lock`. Fork: a child may unlock a lock that the forking thread held.
/// But if another thread waited for the lock at the time of the fork, it stays locked, and the
/// child must initialise it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_ticket_lock_unlock(lock: *mut coreline_ticket_lock_t) -> Code {
    with!([lock lock] {
        held(lock.is_locked())?;
        // SAFETY: a thread holds it, and the caller promises that it is this one.
        unsafe { lock.unlock() };
    })
}
