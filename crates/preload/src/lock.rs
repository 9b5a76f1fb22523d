//! A `pthread_rwlock_t` of glibc with a [`RawBiasedRwLock`] inside.
//!
//! | bytes | what | value |
//! |---|---|---|
//! | 0 to 47 | our lock, or all of glibc's but its kind | zero: free |
//! | 48 to 51 | glibc's kind | not 0: the lock is glibc's |
//! | 52 to 55 | padding of glibc, which it zeroes and never reads | see the next table |
//!
//! | padding | meaning | written by |
//! |---|---|---|
//! | 0 | no writer has the lock | `init`; the writer that frees it |
//! | 1 | the lock is shared with other processes, and glibc's | `init` |
//! | 2^31 and more | the number of the thread that has the lock to write | that thread |
//!
//! The last eight bytes are read as one word, the *tail*. It is zero unless a call has more to do
//! than to take our lock.

use core::ffi::c_int;
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use coreline::lock::{RawBiasedRwLock, TooManyReads};
use coreline_world::{Clock, Lacking, Native, Signals, Time};

use crate::clock::Until;
use crate::fatal;
use crate::mode::{self, Means, Mode};
use crate::stats::{self, Call, Want};

const OURS: usize = 48;

/// The padding of a lock that other processes use, too.
const SHARED: u64 = 1;
/// The bit in the padding beside the number of a writer.
const WRITER: u64 = 1 << 31;

#[repr(C)]
pub(crate) struct Lock {
    ours: RawBiasedRwLock,
    _unused: [MaybeUninit<u8>; OURS - size_of::<RawBiasedRwLock>()],
    tail: AtomicU64,
}

const _: () = {
    assert!(size_of::<Lock>() == size_of::<libc::pthread_rwlock_t>());
    assert!(align_of::<Lock>() == align_of::<libc::pthread_rwlock_t>());
    // The kind is the lower half of the tail.
    assert!(cfg!(all(target_endian = "little", target_pointer_width = "64", target_env = "gnu")));
};

impl Lock {
    /// Where its tail is.
    pub(crate) const TAIL: usize = mem::offset_of!(Lock, tail);

    /// Makes these bytes a free lock of this library, whatever their previous contents.
    ///
    /// # Safety
    ///
    /// No other thread uses the bytes, which have room for a lock.
    pub(crate) unsafe fn create(at: *mut Lock) {
        // SAFETY: the caller's promise; all bytes of a free lock are zero.
        unsafe { at.write_bytes(0, 1) };
    }

    /// Frees the per-CPU memory of a lock of ours, and makes it a free lock.
    ///
    /// # Safety
    ///
    /// The lock is ours, and no other thread uses it.
    pub(crate) unsafe fn destroy(at: *mut Lock) {
        // SAFETY: the caller's promise; what is dropped is overwritten.
        unsafe {
            ptr::drop_in_place(&raw mut (*at).ours);
            Lock::create(at);
        }
    }

    /// Marks a lock that glibc has initialised for several processes.
    pub(crate) fn mark_shared(&self) {
        self.tail.fetch_or(SHARED << 32, Ordering::Relaxed);
    }

    /// Whether the lock is for the next library.
    pub(crate) fn is_passed_on(&self) -> bool {
        is_passed_on(self.tail.load(Ordering::Relaxed))
    }

    /// Whether the calling thread has the lock to write.
    fn is_mine(&self) -> bool {
        // No other thread writes this thread's number.
        self.tail.load(Ordering::Relaxed) == own_tail()
    }

    /// Whether the lock is ours and has no writer, and the process has one thread.
    #[inline(always)]
    fn is_alone(&self) -> bool {
        self.has_no_writer() && mode::now() == Mode::Few && mode::is_alone()
    }

    /// Takes a *plain* lock to read: its tail is zero, and the mode is `Ready`. Returns the C
    /// function's result.
    #[inline(always)]
    pub(crate) fn read(&self) -> c_int {
        result(self.ours.read_checked(None), libc::ETIMEDOUT)
    }

    /// Takes a plain lock to write.
    #[inline(always)]
    pub(crate) fn write(&self) {
        self.ours.write().unwrap_or_else(|lacking| refused(&lacking));
        self.note_writer();
    }

    /// Takes the lock if it is ours and free, in a process with one thread.
    #[inline(always)]
    pub(crate) fn take_alone(&self, want: Want) -> bool {
        let is_taken = self.is_alone() && self.take_now(want) == Ok(true);
        if is_taken && want == Want::Write {
            self.note_writer();
        }
        is_taken
    }

    /// Whether the lock is ours, and no thread that the caller could be has it to write.
    #[inline(always)]
    pub(crate) fn has_no_writer(&self) -> bool {
        self.tail.load(Ordering::Relaxed) == 0
    }

    /// Frees a lock of ours of a reader.
    ///
    /// # Safety
    ///
    /// The caller has the lock to read.
    #[inline(always)]
    pub(crate) unsafe fn unlock_read(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.ours.unlock_read() };
    }

    /// Frees a lock of ours of its writer.
    ///
    /// # Safety
    ///
    /// The caller has the lock to write.
    #[inline(always)]
    pub(crate) unsafe fn unlock_write(&self) {
        self.tail.store(0, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.ours.unlock_write() };
    }

    fn note_writer(&self) {
        self.tail.store(own_tail(), Ordering::Relaxed);
    }

    /// Takes a lock of ours; the C function's result.
    #[cold]
    #[inline(never)]
    pub(crate) fn take(&self, want: Want, until: Until, caller: usize) -> c_int {
        if self.is_mine() {
            return libc::EDEADLK;
        }
        let take = || match mode::means() {
            Means::Looks => self.take_plainly(want, until),
            Means::Waits => self.take_in_time(want, until),
        };
        let result = self.count(want, caller, take);
        if result == 0 && want == Want::Write {
            self.note_writer();
        }
        result
    }

    /// Tries to take a lock of ours; the C function's result.
    #[cold]
    #[inline(never)]
    pub(crate) fn try_take(&self, want: Want, caller: usize) -> c_int {
        let take = || result(self.take_now(want), libc::EBUSY);
        let result = self.count(want, caller, take);
        if result == 0 && want == Want::Write {
            self.note_writer();
        }
        result
    }

    fn count(&self, want: Want, caller: usize, take: impl FnOnce() -> c_int) -> c_int {
        let (lock, is_biased) = (ptr::from_ref(self).addr(), || self.ours.is_biased());
        stats::count(&Call { lock, want, caller, is_biased: Some(&is_biased) }, take)
    }

    /// Takes the lock if that needs no wait.
    pub(crate) fn take_now(&self, want: Want) -> Result<bool, TooManyReads> {
        match want {
            Want::Read => self.ours.try_read_checked(),
            Want::Write => Ok(self.ours.try_write()),
        }
    }

    fn take_in_time(&self, want: Want, until: Until) -> c_int {
        let take = |deadline: Option<Time>| match (want, deadline) {
            (Want::Read, deadline) => self.ours.read_checked(deadline),
            (Want::Write, None) => {
                self.ours.write().unwrap_or_else(|lacking| refused(&lacking));
                Ok(true)
            }
            (Want::Write, Some(deadline)) => {
                Ok(self.ours.write_by(deadline).unwrap_or_else(|lacking| refused(&lacking)))
            }
        };
        result(until.wait(take), libc::ETIMEDOUT)
    }

    /// Takes the lock before what all locks share exists: checks it from time to time, and
    /// allocates nothing.
    fn take_plainly(&self, want: Want, until: Until) -> c_int {
        let take = |deadline: Option<Time>| loop {
            let taken = self.take_now(want);
            if taken != Ok(false) {
                return taken;
            }
            if deadline.is_some_and(|deadline| Native::now() >= deadline) {
                return Ok(false);
            }
            mode::pause(mode::LOOK);
        };
        result(until.wait(take), libc::ETIMEDOUT)
    }
}

/// The C function's result: this one if it did not take the lock.
#[inline(always)]
fn result(taken: Result<bool, TooManyReads>, else_: c_int) -> c_int {
    match taken {
        Ok(true) => 0,
        Ok(false) => else_,
        Err(TooManyReads) => libc::EAGAIN,
    }
}

fn is_passed_on(tail: u64) -> bool {
    tail as u32 != 0 || tail >> 32 == SHARED
}

/// The tail of a lock that the calling thread has to write. A child has its parent's numbers. The
/// bit [`WRITER`] replaces the highest one of the number. So threads n and n + 2^31 are one writer
/// here: a process would have to start 2^31 threads while the first of the two lives.
fn own_tail() -> u64 {
    (u64::from(Native::thread_id().get()) | WRITER) << 32
}

/// A writer cannot learn whether the readers on other CPUs have gone.
#[cold]
#[inline(never)]
fn refused(lacking: &Lacking) -> ! {
    fatal("cannot lock for writing: ", &[lacking.to_string().as_bytes()])
}
