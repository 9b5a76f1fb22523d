//! The mutex that knows its owner.

use std::sync::atomic::{AtomicU64, Ordering};

use coreline::lock::RawMutex;
use coreline::world::Time;

use super::{held, in_time, this_thread, tried};
use crate::boundary::{InPlace, Outcome};
use crate::code::coreline_code_t as Code;
use crate::with::with;

/// A mutex of 16 bytes that knows which thread holds it, and so detects misuse.
///
/// It lives in the memory of its user. `CORELINE_CHECKED_MUTEX_INIT`, or zeros, is a free mutex. It
/// needs no destruction. It may not be copied or moved while a thread uses it.
#[repr(C)]
pub struct coreline_checked_mutex_t {
    /// Private: the number of the holder, or 0.
    pub owner: u64,
    /// Private: 0 if the mutex is free.
    pub state: u32,
    /// Private: the queue of waiters.
    pub queue: u32,
}

/// The same, as it is used.
#[repr(C)]
pub(crate) struct Checked {
    /// 0, or the number of the thread that holds the lock. Only that thread writes it.
    owner: AtomicU64,
    mutex: RawMutex,
}

impl InPlace for coreline_checked_mutex_t {
    type Raw = Checked;
}

impl Checked {
    /// Locks, by `lock`, a mutex that this thread does not hold.
    fn lock(&self, lock: impl FnOnce(&RawMutex) -> Outcome) -> Outcome {
        let own = this_thread();
        // Relaxed, here and below: a thread finds its own number only if it wrote it last, and
        // another thread's number is only compared.
        if self.owner.load(Ordering::Relaxed) == own {
            return Err(Code::CORELINE_ERROR_DEADLOCK);
        }
        lock(&self.mutex)?;
        self.owner.store(own, Ordering::Relaxed);
        Ok(())
    }

    fn unlock(&self) -> Outcome {
        if self.owner.load(Ordering::Relaxed) != this_thread() {
            held(self.mutex.is_locked())?;
            return Err(Code::CORELINE_ERROR_NOT_OWNER);
        }
        self.owner.store(0, Ordering::Relaxed);
        // SAFETY: this thread holds the lock: it wrote its number while it held it, and no thread
        // has changed that since.
        unsafe { self.mutex.unlock() };
        Ok(())
    }
}

/// Locks a mutex that knows its owner.
///
/// The call waits while another thread holds the mutex.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_DEADLOCK` (the caller holds the mutex).
///
/// Threads: any number of threads may call it at the same time. A thread that ends while it holds
/// the mutex leaves it locked. Signals: a handler must not call it. Fork: a mutex that another
/// thread held or waited for at the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_checked_mutex_lock(mutex: *mut coreline_checked_mutex_t) -> Code {
    with!([lock mutex] {
        mutex.lock(|mutex| {
            mutex.lock();
            Ok(())
        })
    })
}

/// Locks a mutex that knows its owner, if it is free now.
///
/// The call returns `CORELINE_BUSY` if another thread holds the mutex.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_DEADLOCK` (the caller holds the mutex).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it, because it may interrupt the thread between the two writes of a lock or an unlock. Fork: a
/// mutex that another thread held or waited for at the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_checked_mutex_try_lock(
    mutex: *mut coreline_checked_mutex_t,
) -> Code {
    with!([lock mutex] { mutex.lock(|mutex| tried(mutex.try_lock())) })
}

/// Locks a mutex that knows its owner, or gives up at a deadline.
///
/// `deadline` is a time of `coreline_now`. The call returns `CORELINE_TIMED_OUT` if the deadline
/// passes first. If the mutex is free, it locks the mutex even if the deadline has passed.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_DEADLOCK` (the caller holds the mutex).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: a mutex that another thread held or waited for at the time of the fork stays locked in
/// the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_checked_mutex_lock_by(
    mutex: *mut coreline_checked_mutex_t,
    deadline: u64,
) -> Code {
    let deadline = Time::from_nanos(deadline);
    with!([lock mutex] { mutex.lock(|mutex| in_time(mutex.lock_by(deadline))) })
}

/// Unlocks a mutex that knows its owner.
///
/// The memory of the mutex must stay until the call returns.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_NOT_HELD`, `CORELINE_ERROR_NOT_OWNER`.
///
/// Threads: the holder calls it. Signals: a handler must not call it. Fork: a child may unlock a
/// mutex that the forking thread held. But if another thread waited for the mutex at the time of
/// the fork, it stays locked, and the child must initialise it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_checked_mutex_unlock(
    mutex: *mut coreline_checked_mutex_t,
) -> Code {
    with!([lock mutex] { mutex.unlock() })
}
