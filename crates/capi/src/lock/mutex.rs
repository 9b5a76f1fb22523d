//! The mutex of 8 bytes.

use coreline::lock::RawMutex;
use coreline::world::Time;

use super::{held, in_time, tried};
use crate::boundary::InPlace;
use crate::code::coreline_code_t as Code;
use crate::with::with;

/// A mutex of 8 bytes. Waiters spin in a queue, near ones first, and then sleep.
///
/// It lives in the memory of its user. `CORELINE_MUTEX_INIT`, or zeros, is a free mutex. It needs
/// no destruction. It may not be copied or moved while a thread uses it.
#[repr(C)]
pub struct coreline_mutex_t {
    /// Private: 0 if the mutex is free.
    pub state: u32,
    /// Private: the queue of waiters.
    pub queue: u32,
}

impl InPlace for coreline_mutex_t {
    type Raw = RawMutex;
}

/// Locks a mutex.
///
/// The call waits while another thread holds the mutex. A thread that locks a mutex which it holds
/// waits forever: `coreline_checked_mutex_lock` returns an error instead.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it, because it would wait forever if the interrupted thread holds the mutex. Fork: a mutex that
/// another thread held or waited for at the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mutex_lock(mutex: *mut coreline_mutex_t) -> Code {
    with!([lock mutex] { mutex.lock(); })
}

/// Locks a mutex if it is free now.
///
/// The call returns `CORELINE_BUSY` if a thread holds the mutex.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork: a
/// mutex that another thread held or waited for at the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mutex_try_lock(mutex: *mut coreline_mutex_t) -> Code {
    with!([lock mutex] { tried(mutex.try_lock()) })
}

/// Locks a mutex, or gives up at a deadline.
///
/// `deadline` is a time of `coreline_now`. The call returns `CORELINE_TIMED_OUT` if the deadline
/// passes first. If the mutex is free, it locks the mutex even if the deadline has passed.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler may call it only
/// if `coreline_prepare` was called before. If the interrupted thread holds the mutex or waits for
/// it, the handler waits until the deadline. Fork: a mutex that another thread held or waited for
/// at the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mutex_lock_by(
    mutex: *mut coreline_mutex_t,
    deadline: u64,
) -> Code {
    with!([lock mutex] { in_time(mutex.lock_by(Time::from_nanos(deadline))) })
}

/// Unlocks a mutex.
///
/// The caller must hold the mutex. A mutex of 8 bytes does not know its owner, so the call detects
/// only that no thread holds the mutex. `coreline_checked_mutex_unlock` also detects that another
/// thread holds it. The memory of the mutex must stay until the call returns.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_NOT_HELD`.
///
/// Threads: the holder calls it. Signals: async-signal-safe, for a mutex that the handler locked by
/// `coreline_mutex_try_lock`. Fork: a child may unlock a mutex that the forking thread held. But if
/// another thread waited for the mutex at the time of the fork, it stays locked, and the child must
/// initialise it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_mutex_unlock(mutex: *mut coreline_mutex_t) -> Code {
    with!([lock mutex] {
        held(mutex.is_locked())?;
        // SAFETY: a thread holds it, and the caller promises that it is this one.
        unsafe { mutex.unlock() };
    })
}
