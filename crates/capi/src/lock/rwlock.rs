//! The readers-writer lock of 8 bytes.

use coreline::lock::RawRwLock;
use coreline::world::Time;

use super::{held, in_time, tried};
use crate::boundary::InPlace;
use crate::code::coreline_code_t as Code;
use crate::with::with;

/// A readers-writer lock of 8 bytes. Waiters spin in a queue, near ones first, and then sleep.
///
/// It lives in the memory of its user. `CORELINE_RWLOCK_INIT`, or zeros, is a free lock. It needs
/// no destruction. It may not be copied or moved while a thread uses it.
#[repr(C)]
pub struct coreline_rwlock_t {
    /// Private: 0 if the lock is free.
    pub state: u32,
    /// Private: the queue of waiters.
    pub queue: u32,
}

impl InPlace for coreline_rwlock_t {
    type Raw = RawRwLock;
}

/// Locks a readers-writer lock to read.
///
/// The call waits for a writer, and for writers that already wait. A thread must not lock to read
/// twice: if a writer begins to wait in between, both wait forever.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_PANIC` (there are more than 2^24 readers).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: a lock that another thread held or waited for at the time of the fork stays locked in
/// the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_rwlock_read(rwlock: *mut coreline_rwlock_t) -> Code {
    with!([lock rwlock] { rwlock.read(); })
}

/// Locks a readers-writer lock to read, if that is possible now.
///
/// The call returns `CORELINE_BUSY` if a writer holds the lock or is next.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork: a
/// lock that another thread held or waited for at the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_rwlock_try_read(rwlock: *mut coreline_rwlock_t) -> Code {
    with!([lock rwlock] { tried(rwlock.try_read()) })
}

/// Locks a readers-writer lock to read, or gives up at a deadline.
///
/// `deadline` is a time of `coreline_now`. The call returns `CORELINE_TIMED_OUT` if the deadline
/// passes first.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_PANIC` (there are more than 2^24 readers).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler may call it only
/// if `coreline_prepare` was called before. If the interrupted thread holds the lock or waits for
/// it, the handler waits until the deadline. Fork: a lock that another thread held or waited for at
/// the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_rwlock_read_by(
    rwlock: *mut coreline_rwlock_t,
    deadline: u64,
) -> Code {
    with!([lock rwlock] { in_time(rwlock.read_by(Time::from_nanos(deadline))) })
}

/// Unlocks a readers-writer lock that the caller holds as a reader.
///
/// The caller must hold the lock to read. The call detects that no thread does, but may miss this
/// while another thread tries to lock. The lock does not know its readers, so the call does not
/// detect that only other threads hold it. The memory of the lock must stay until the call returns.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_NOT_HELD`.
///
/// Threads: a reader calls it. Signals: async-signal-safe, for a lock that the handler locked by
/// `coreline_rwlock_try_read`. Fork: a child may unlock a lock that the forking thread held. But if
/// another thread waited for the lock at the time of the fork, it stays locked, and the child must
/// initialise it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_rwlock_read_unlock(rwlock: *mut coreline_rwlock_t) -> Code {
    with!([lock rwlock] {
        held(rwlock.is_read())?;
        // SAFETY: there is a reader, and the caller promises that it is one.
        unsafe { rwlock.unlock_read() };
    })
}

/// Locks a readers-writer lock to write.
///
/// The call waits for readers and writers. A thread that holds the lock waits forever.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: a lock that another thread held or waited for at the time of the fork stays locked in
/// the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_rwlock_write(rwlock: *mut coreline_rwlock_t) -> Code {
    with!([lock rwlock] { rwlock.write(); })
}

/// Locks a readers-writer lock to write, if it is free now.
///
/// The call returns `CORELINE_BUSY` if a thread holds the lock or is next.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork: a
/// lock that another thread held or waited for at the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_rwlock_try_write(rwlock: *mut coreline_rwlock_t) -> Code {
    with!([lock rwlock] { tried(rwlock.try_write()) })
}

/// Locks a readers-writer lock to write, or gives up at a deadline.
///
/// `deadline` is a time of `coreline_now`. The call returns `CORELINE_TIMED_OUT` if the deadline
/// passes first.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler may call it only
/// if `coreline_prepare` was called before. If the interrupted thread holds the lock or waits for
/// it, the handler waits until the deadline. Fork: a lock that another thread held or waited for at
/// the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_rwlock_write_by(
    rwlock: *mut coreline_rwlock_t,
    deadline: u64,
) -> Code {
    with!([lock rwlock] { in_time(rwlock.write_by(Time::from_nanos(deadline))) })
}

/// Unlocks a readers-writer lock that the caller holds as its writer.
///
/// The caller must hold the lock to write. The call detects that no thread does, except while a
/// writer waits for readers to leave. In that case it succeeds, and breaks the lock. The lock does
/// not know its writer, so the call does not detect that another thread holds it. The memory of the
/// lock must stay until the call returns.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_NOT_HELD`.
///
/// Threads: the writer calls it. Signals: async-signal-safe, for a lock that the handler locked by
/// `coreline_rwlock_try_write`. Fork: a child may unlock a lock that the forking thread held. But
/// if another thread waited for the lock at the time of the fork, it stays locked, and the child
/// must initialise it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_rwlock_write_unlock(rwlock: *mut coreline_rwlock_t) -> Code {
    with!([lock rwlock] {
        held(rwlock.is_written())?;
        // SAFETY: there is a writer, and the caller promises that it is the one.
        unsafe { rwlock.unlock_write() };
    })
}

/// Converts a write lock into a read lock.
///
/// The caller must hold the lock to write. The call detects that no thread does, except while a
/// writer waits for readers to leave. In that case it succeeds, and breaks the lock. No other
/// writer comes in between. The caller then unlocks by `coreline_rwlock_read_unlock`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_NOT_HELD` (no thread holds the lock to write).
///
/// Threads: the writer calls it. Signals: a handler must not call it. Fork: a child may convert a
/// lock that the forking thread held, if no other thread waited for the lock at the time of the
/// fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_rwlock_downgrade(rwlock: *mut coreline_rwlock_t) -> Code {
    with!([lock rwlock] {
        held(rwlock.is_written())?;
        // SAFETY: there is a writer, and the caller promises that it is the one.
        unsafe { rwlock.downgrade() };
    })
}
