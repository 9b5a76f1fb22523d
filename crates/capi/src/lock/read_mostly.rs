//! The read-mostly lock.

use core::mem::MaybeUninit;

use coreline::IndexBy;
use coreline::lock::RawReadMostly;
use coreline::world::Time;

use super::{in_time, tried};
use crate::code::coreline_code_t as Code;
use crate::handle::{create, destroy, opaque};
use crate::with::with;

/// A readers-writer lock whose readers write only to memory of their CPU.
///
/// A read takes no atomic instruction if the machine has restartable sequences. Its time does not
/// depend on the number of readers. A write is expensive: it interrupts the CPUs that run the
/// process, and waits for readers.
pub struct coreline_read_mostly_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_read_mostly_t, RawReadMostly, b"readmost");

/// Creates a read-mostly lock, which is free.
///
/// It uses 16 bytes for each CPU.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT`, `CORELINE_ERROR_LACKING`,
/// `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_read_mostly_create(
    out: *mut *mut coreline_read_mostly_t,
) -> Code {
    with!([out out] { create(RawReadMostly::indexed_by(IndexBy::Cpu)?, out) })
}

/// Destroys a read-mostly lock.
///
/// No thread may hold the lock. The call does not check that.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: no other thread may use the lock during the call or after it. Signals: no signal
/// handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_read_mostly_destroy(lock: *mut coreline_read_mostly_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { destroy(lock) }
}

/// Locks a read-mostly lock to read.
///
/// The call waits for a writer. A thread that reads must not lock to read again: if a writer begins
/// to wait in between, both wait forever.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: if other threads read or write at the time of the fork, a writer in the child waits
/// forever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_read_mostly_read(lock: *const coreline_read_mostly_t) -> Code {
    with!([handle lock] { lock.read(); })
}

/// Locks a read-mostly lock to read, if no writer has closed it.
///
/// The call returns `CORELINE_BUSY` if a writer holds the lock or waits for readers.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
/// if other threads read or write at the time of the fork, a writer in the child waits forever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_read_mostly_try_read(
    lock: *const coreline_read_mostly_t,
) -> Code {
    with!([handle lock] { tried(lock.try_read()) })
}

/// Locks a read-mostly lock to read, or gives up at a deadline.
///
/// `deadline` is a time of `coreline_now`. The call returns `CORELINE_TIMED_OUT` if the deadline
/// passes first.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: a handler may call it only
/// if `coreline_prepare` was called before. If the interrupted thread writes or waits for the lock,
/// or reads while a writer waits, the handler waits until the deadline. Fork: if other threads read
/// or write at the time of the fork, a writer in the child waits forever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_read_mostly_read_by(
    lock: *const coreline_read_mostly_t,
    deadline: u64,
) -> Code {
    with!([handle lock] { in_time(lock.read_by(Time::from_nanos(deadline))) })
}

/// Unlocks a read-mostly lock that the caller holds as a reader.
///
/// The caller must hold the lock to read. The lock does not know its readers, so the call detects
/// no misuse. After one call too many, writers may wait forever, or may not wait for a reader.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any thread may end a read. Signals: async-signal-safe, for a lock that the handler
/// locked. Fork: a child may unlock a lock that the forking thread held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_read_mostly_read_unlock(
    lock: *const coreline_read_mostly_t,
) -> Code {
    with!([handle lock] {
        // SAFETY: the caller promises that it is a reader.
        unsafe { lock.unlock_read() };
    })
}

/// Locks a read-mostly lock to write.
///
/// The call waits for readers and writers. A thread that holds the lock waits forever. If the call
/// returns an error, it has not locked.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_LACKING` (the kernel
/// refuses `membarrier`).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: if other threads read or write at the time of the fork, a writer in the child waits
/// forever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_read_mostly_write(lock: *const coreline_read_mostly_t) -> Code {
    with!([handle lock] { lock.write()?; })
}

/// Locks a read-mostly lock to write, if no thread has it.
///
/// The call returns `CORELINE_BUSY` if a thread holds the lock, or waits or tries to write, or if a
/// reader comes at the same time. If no thread seems to read, the call interrupts the CPUs that run
/// the process, and readers that come meanwhile wait. It also returns `CORELINE_BUSY` if the kernel
/// refuses `membarrier`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: if other threads read or write at the time of the fork, the lock may stay busy in the
/// child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_read_mostly_try_write(
    lock: *const coreline_read_mostly_t,
) -> Code {
    with!([handle lock] { tried(lock.try_write()) })
}

/// Locks a read-mostly lock to write, or gives up at a deadline.
///
/// `deadline` is a time of `coreline_now`. The call returns `CORELINE_TIMED_OUT` if the deadline
/// passes first. While it waits for readers, later readers wait, too.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_LACKING` (the kernel
/// refuses `membarrier`).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: if other threads read or write at the time of the fork, a writer in the child waits
/// until its deadline.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_read_mostly_write_by(
    lock: *const coreline_read_mostly_t,
    deadline: u64,
) -> Code {
    with!([handle lock] { in_time(lock.write_by(Time::from_nanos(deadline))?) })
}

/// Unlocks a read-mostly lock that the caller holds as its writer.
///
/// The caller must hold the lock to write. The lock does not know its writer, so the call detects
/// no misuse.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: the writer calls it. Signals: a handler must not call it. Fork: a child may unlock a
/// lock that the forking thread held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_read_mostly_write_unlock(
    lock: *const coreline_read_mostly_t,
) -> Code {
    with!([handle lock] {
        // SAFETY: the caller promises that it is the writer.
        unsafe { lock.unlock_write() };
    })
}
