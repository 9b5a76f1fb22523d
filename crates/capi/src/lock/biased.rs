//! The readers-writer lock whose reads may nest, and that counts readers on each CPU if it pays.

use core::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use coreline::lock::RawBiasedRwLock;
use coreline::world::Time;

use super::{held, in_time, tried};
use crate::boundary::InPlace;
use crate::code::coreline_code_t as Code;
use crate::with::with;

/// A readers-writer lock of 48 bytes that a thread may read again while it reads.
///
/// At first, all readers write one word. After 256 reads that followed another thread's use or met
/// another reader, with no write in between, the lock is *biased* if the machine has restartable
/// sequences. Readers then write only to memory of their CPU, without an atomic instruction. The
/// next write ends the bias, and interrupts the CPUs that run the process.
///
/// It lives in the memory of its user. `CORELINE_BIASED_RWLOCK_INIT`, or zeros, is a free lock. It
/// may not be copied or moved while a thread uses it. A lock that was biased has memory of its own
/// until `coreline_biased_rwlock_destroy`.
#[repr(C)]
pub struct coreline_biased_rwlock_t {
    /// Private.
    pub words: [u64; 6],
}

impl InPlace for coreline_biased_rwlock_t {
    type Raw = RawBiasedRwLock;
}

/// Whether no thread has the lock, to all appearances. The first word is then 0, while a lock that
/// is biased has a bit there.
fn is_free(lock: &RawBiasedRwLock) -> bool {
    // SAFETY: the first word of the lock, which is an atomic word of 32 bits.
    let word = unsafe { AtomicU32::from_ptr((&raw const *lock).cast::<u32>().cast_mut()) };
    // Relaxed: the holder sees its own write.
    word.load(Ordering::Relaxed) == 0
}

/// Locks a biased readers-writer lock to read.
///
/// The call waits for a writer that holds the lock, and at most 1 ms for waiting writers. So a
/// thread that reads may lock to read again. It must unlock as often as it locks.
///
/// A read may make the lock biased, and then allocates memory. If there is no memory, the lock
/// stays as it is. The lock must not guard an allocator.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_PANIC` (there are more than 2^22 readers).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: if another thread held, took, unlocked or waited for the lock at the time of the fork,
/// the child must initialise the lock again instead of using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_biased_rwlock_read(lock: *mut coreline_biased_rwlock_t) -> Code {
    with!([lock lock] { lock.read(); })
}

/// Locks a biased readers-writer lock to read, if no writer holds it.
///
/// The call returns `CORELINE_BUSY` if a writer holds the lock. It does not wait for waiting
/// writers, and allocates nothing.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe, even if
/// the interrupted thread reads. Fork: if another thread held, took, unlocked or waited for the
/// lock at the time of the fork, the child must initialise the lock again instead of using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_biased_rwlock_try_read(
    lock: *mut coreline_biased_rwlock_t,
) -> Code {
    with!([lock lock] { tried(lock.try_read()) })
}

/// Locks a biased readers-writer lock to read, or gives up at a deadline.
///
/// `deadline` is a time of `coreline_now`. The call returns `CORELINE_TIMED_OUT` if a writer holds
/// the lock when the deadline passes. If only waiting writers were in the way, it locks. Like
/// `coreline_biased_rwlock_read`, it may allocate memory.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_PANIC` (there are more than 2^22 readers).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: if another thread held, took, unlocked or waited for the lock at the time of the fork,
/// the child must initialise the lock again instead of using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_biased_rwlock_read_by(
    lock: *mut coreline_biased_rwlock_t,
    deadline: u64,
) -> Code {
    with!([lock lock] { in_time(lock.read_by(Time::from_nanos(deadline))) })
}

/// Unlocks a biased readers-writer lock that the caller holds as a reader.
///
/// The caller must hold the lock to read. The call detects that a writer holds the lock, or that no
/// thread does. It misses the latter while the lock is biased, and while another thread tries to
/// lock. In that case it succeeds, and breaks the lock. The lock does not know its readers, so the
/// call does not detect that only other threads hold it. After the unlock, the call does not access
/// the lock. So a thread that then locks it to write may free its memory.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_NOT_HELD`.
///
/// Threads: a reader calls it. Signals: async-signal-safe, for a lock that the handler locked by
/// `coreline_biased_rwlock_try_read`. Fork: if another thread held, took, unlocked or waited for
/// the lock at the time of the fork, the child must initialise the lock again instead of using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_biased_rwlock_read_unlock(
    lock: *mut coreline_biased_rwlock_t,
) -> Code {
    with!([lock lock] {
        held(!lock.is_written() && !is_free(lock))?;
        // SAFETY: there seems to be a reader, and the caller promises that it is one.
        unsafe { lock.unlock_read() };
    })
}

/// Locks a biased readers-writer lock to write.
///
/// The call waits for readers and writers. A thread that holds the lock waits forever.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_LACKING` (the kernel refuses `membarrier`, after it has once allowed it),
/// `CORELINE_ERROR_PANIC` (there are more than 2^22 readers).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: if another thread held, took, unlocked or waited for the lock at the time of the fork,
/// the child must initialise the lock again instead of using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_biased_rwlock_write(lock: *mut coreline_biased_rwlock_t) -> Code {
    with!([lock lock] { Ok(lock.write()?) })
}

/// Locks a biased readers-writer lock to write, if it is free now.
///
/// The call returns `CORELINE_BUSY` if a thread holds the lock. It may also do so if another thread
/// tries to lock or waits to write, or if a reader has waited for more than 1 ms.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_PANIC` (there are more than 2^22 readers).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it, because it may have to end the bias. Fork: if another thread held, took, unlocked or waited
/// for the lock at the time of the fork, the child must initialise the lock again instead of using
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_biased_rwlock_try_write(
    lock: *mut coreline_biased_rwlock_t,
) -> Code {
    with!([lock lock] { tried(lock.try_write()) })
}

/// Locks a biased readers-writer lock to write, or gives up at a deadline.
///
/// `deadline` is a time of `coreline_now`. The call returns `CORELINE_TIMED_OUT` if the deadline
/// passes first.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_LACKING` (the kernel refuses `membarrier`, after it has once allowed it),
/// `CORELINE_ERROR_PANIC` (there are more than 2^22 readers).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: if another thread held, took, unlocked or waited for the lock at the time of the fork,
/// the child must initialise the lock again instead of using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_biased_rwlock_write_by(
    lock: *mut coreline_biased_rwlock_t,
    deadline: u64,
) -> Code {
    with!([lock lock] { in_time(lock.write_by(Time::from_nanos(deadline))?) })
}

/// Unlocks a biased readers-writer lock that the caller holds as its writer.
///
/// The caller must hold the lock to write. The call detects that no thread does. The lock does not
/// know its writer, so the call does not detect that another thread holds it. After the unlock, the
/// call does not access the lock. So a thread that then locks it to write may free its memory.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_NOT_HELD`.
///
/// Threads: the writer calls it. Signals: a handler must not call it. Fork: if another thread held,
/// took, unlocked or waited for the lock at the time of the fork, the child must initialise the
/// lock again instead of using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_biased_rwlock_write_unlock(
    lock: *mut coreline_biased_rwlock_t,
) -> Code {
    with!([lock lock] {
        held(lock.is_written())?;
        // SAFETY: there is a writer, and the caller promises that it is the one.
        unsafe { lock.unlock_write() };
    })
}

/// Unlocks a biased readers-writer lock that the caller holds as a reader or as its writer.
///
/// Use it where one function must unlock both, like `pthread_rwlock_unlock`. The caller must hold
/// the lock. The call detects that no thread does, except while the lock is biased or another
/// thread tries to lock. In that case it succeeds, and breaks the lock. It does not detect that
/// only other threads hold it.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_NOT_HELD`.
///
/// Threads: a holder calls it. Signals: async-signal-safe, for a lock that the handler locked by
/// `coreline_biased_rwlock_try_read`. Fork: if another thread held, took, unlocked or waited for
/// the lock at the time of the fork, the child must initialise the lock again instead of using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_biased_rwlock_unlock(
    lock: *mut coreline_biased_rwlock_t,
) -> Code {
    with!([lock lock] {
        held(!is_free(lock))?;
        // SAFETY: a thread has it, to all appearances, and the caller promises that it is this one.
        unsafe { lock.unlock() };
    })
}

/// Converts a write lock of a biased readers-writer lock into a read lock.
///
/// The caller must hold the lock to write. The call detects that no thread does. No other writer
/// comes in between. The caller then unlocks by `coreline_biased_rwlock_read_unlock`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned),
/// `CORELINE_ERROR_NOT_HELD` (no thread holds the lock to write).
///
/// Threads: the writer calls it. Signals: a handler must not call it. Fork: if another thread held,
/// took, unlocked or waited for the lock at the time of the fork, the child must initialise the
/// lock again instead of using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_biased_rwlock_downgrade(
    lock: *mut coreline_biased_rwlock_t,
) -> Code {
    with!([lock lock] {
        held(lock.is_written())?;
        // SAFETY: there is a writer, and the caller promises that it is the one.
        unsafe { lock.downgrade() };
    })
}

/// Frees the memory that a biased readers-writer lock has allocated.
///
/// No thread may hold the lock. If the call finds that a thread does, it returns `CORELINE_BUSY`
/// and changes nothing. Otherwise it leaves a free lock, which may be used again. A lock that was
/// never biased has nothing to free. If the memory of a lock that was ever biased is freed without
/// this call, 128 bytes and 8 bytes for each CPU leak.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the address is not aligned).
///
/// Threads: no other thread may use the lock during the call. Signals: no signal handler may call
/// it. Fork: if another thread held, took, unlocked or waited for the lock at the time of the fork,
/// the child must initialise the lock again instead of using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_biased_rwlock_destroy(
    lock: *mut coreline_biased_rwlock_t,
) -> Code {
    let at = lock.cast::<RawBiasedRwLock>();
    with!([lock lock] {
        tried(!lock.is_locked())?;
        // SAFETY: the caller alone has the lock. What is dropped is not used again: it is replaced
        // by a new one.
        drop(unsafe { ptr::replace(at, RawBiasedRwLock::new()) });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No bit of the state is known here, so each kind of state is compared.
    #[test]
    fn only_a_free_lock_is_found_free() {
        let lock = RawBiasedRwLock::new();
        assert!(is_free(&lock));
        lock.read();
        assert!(!is_free(&lock));
        // SAFETY: locked to read just now.
        unsafe { lock.unlock_read() };
        assert!(is_free(&lock) && lock.try_write() && !is_free(&lock));
        // SAFETY: locked to write just now.
        unsafe { lock.unlock_write() };
        lock.read();
        (0..1000).for_each(|_| {
            lock.read();
            // SAFETY: locked to read just now.
            unsafe { lock.unlock_read() };
        });
        // SAFETY: locked to read before.
        unsafe { lock.unlock_read() };
        assert_eq!(is_free(&lock), !lock.is_biased(), "biased, where there are sections");
    }
}
