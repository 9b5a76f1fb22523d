//! The functions that programs call, in place of those of glibc.
//!
//! Functions that take a lock begin with two instructions that pass the address of their caller as
//! one more argument, for the statistics. Those that most programs call most often jump to the way
//! of a plain lock before that: it needs no address, and has nothing to save.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};

use libc::{clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec};

use crate::clock::Until;
use crate::lock::Lock;
use crate::stats::{self, Call, Want};
use crate::{mode, next};

/// C functions that call `$f` with their arguments and the address of their caller. `$x86` and
/// `$arm` are the registers of this additional argument.
macro_rules! exported {
    ($($name:ident ($($arg:ident: $type:ty),*), $x86:literal, $arm:literal => $f:path;)*) => {$(
        /// Like the C library's function of this name.
        ///
        /// # Safety
        ///
        /// As POSIX says.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(concat!("mov ", $x86, ", [rsp]"), "jmp {f}", f = sym $f);
            #[cfg(target_arch = "aarch64")]
            naked_asm!(concat!("mov ", $arm, ", x30"), "b {f}", f = sym $f);
        }
    )*};
}

/// C functions that call `$plain` if the lock is plain, as [`Lock::read`] says, and else `$f`
/// with the address of their caller.
macro_rules! often {
    ($($name:ident => $plain:path, $f:path;)*) => {$(
        /// Like the C library's function of this name.
        ///
        /// # Safety
        ///
        /// As POSIX says.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(lock: *mut Lock) -> c_int {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                "cmp qword ptr [rdi + {tail}], 0",
                "jne 2f",
                "cmp byte ptr [rip + {mode}], {ready}",
                "jne 2f",
                "jmp {plain}",
                "2: mov rsi, [rsp]",
                "jmp {f}",
                tail = const Lock::TAIL, mode = sym mode::MODE, ready = const mode::READY,
                plain = sym $plain, f = sym $f,
            );
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                "ldr x1, [x0, {tail}]",
                "cbnz x1, 2f",
                "adrp x1, {mode}",
                "ldrb w1, [x1, :lo12:{mode}]",
                "cmp w1, {ready}",
                "b.ne 2f",
                "b {plain}",
                "2: mov x1, x30",
                "b {f}",
                tail = const Lock::TAIL, mode = sym mode::MODE, ready = const mode::READY,
                plain = sym $plain, f = sym $f,
            );
        }
    )*};
}

often! {
    pthread_rwlock_rdlock => read_plain, read;
    pthread_rwlock_wrlock => write_plain, write;
    // Names of glibc before 2.34, which it keeps for old programs. More of them are below.
    __pthread_rwlock_rdlock => read_plain, read;
    __pthread_rwlock_wrlock => write_plain, write;
}

type At = *const timespec;

exported! {
    pthread_rwlock_tryrdlock(lock: *mut Lock), "rsi", "x1" => try_read;
    pthread_rwlock_timedrdlock(lock: *mut Lock, at: At), "rdx", "x2" => timed_read;
    pthread_rwlock_clockrdlock(lock: *mut Lock, clock: clockid_t, at: At), "rcx", "x3"
        => clock_read;
    pthread_rwlock_trywrlock(lock: *mut Lock), "rsi", "x1" => try_write;
    pthread_rwlock_timedwrlock(lock: *mut Lock, at: At), "rdx", "x2" => timed_write;
    pthread_rwlock_clockwrlock(lock: *mut Lock, clock: clockid_t, at: At), "rcx", "x3"
        => clock_write;
    __pthread_rwlock_tryrdlock(lock: *mut Lock), "rsi", "x1" => try_read;
    __pthread_rwlock_trywrlock(lock: *mut Lock), "rsi", "x1" => try_write;
}

/// C functions that are others, by their old names.
macro_rules! old_names {
    ($($name:ident ($($arg:ident: $type:ty),*) => $f:path;)*) => {$(
        /// Like the C library's function of this name.
        ///
        /// # Safety
        ///
        /// As POSIX says.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { $f($($arg),*) }
        }
    )*};
}

old_names! {
    __pthread_rwlock_init(lock: *mut Lock, attributes: *const pthread_rwlockattr_t)
        => pthread_rwlock_init;
    __pthread_rwlock_destroy(lock: *mut Lock) => pthread_rwlock_destroy;
    __pthread_rwlock_unlock(lock: *mut Lock) => pthread_rwlock_unlock;
}

/// Creates a thread. The first call makes what all locks share: see [`mode`].
///
/// # Safety
///
/// As POSIX says.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: next::Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let create = |start, argument| unsafe { next::create(thread, attributes, start, argument) };
    // A thread of this library creates others. If it waited here, the caller would wait for it.
    if mode::creates_own() {
        return mode::create_own(start, argument, create);
    }
    mode::before_a_thread();
    loop {
        // Before the call, because a thread that is gone after it may have been there during it.
        let may_linger = mode::may_linger();
        let result = create(start, argument);
        if result != libc::EAGAIN || !may_linger {
            return result;
        }
        mode::pause(mode::END);
    }
}

/// Initialises a lock. One that is shared with other processes, or that prefers writers to nested
/// reads, is glibc's.
///
/// # Safety
///
/// As POSIX says.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_init(
    lock: *mut Lock,
    attributes: *const pthread_rwlockattr_t,
) -> c_int {
    let (mut shared, mut kind) = (libc::PTHREAD_PROCESS_PRIVATE, 0);
    if !attributes.is_null() {
        // SAFETY: the caller gives attributes that were initialised. Both calls only read them.
        unsafe {
            libc::pthread_rwlockattr_getpshared(attributes, &raw mut shared);
            pthread_rwlockattr_getkind_np(attributes, &raw mut kind);
        }
    }
    let is_shared = shared != libc::PTHREAD_PROCESS_PRIVATE;
    if !is_shared && kind != PREFER_WRITER_NONRECURSIVE {
        // SAFETY: the caller's promise.
        unsafe { Lock::create(lock) };
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let result = next::init(lock.cast(), attributes);
        if result == 0 && is_shared {
            (*lock).mark_shared();
        }
        result
    }
}

/// The kind of locks whose waiting writers come before nested reads.
const PREFER_WRITER_NONRECURSIVE: c_int = 2;

unsafe extern "C" {
    fn pthread_rwlockattr_getkind_np(
        attributes: *const pthread_rwlockattr_t,
        kind: *mut c_int,
    ) -> c_int;
}

/// Destroys a lock.
///
/// # Safety
///
/// As POSIX says.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_destroy(lock: *mut Lock) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if (*lock).is_passed_on() {
            return next::destroy(lock.cast());
        }
        Lock::destroy(lock);
    }
    0
}

/// Frees a lock.
///
/// # Safety
///
/// As POSIX says.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_unlock(lock: *mut Lock) -> c_int {
    // SAFETY: the caller gives a lock that it has. If it has it to read, no thread has it to write,
    // and the lock is ours.
    unsafe {
        if (*lock).has_no_writer() {
            (*lock).unlock_read();
            return 0;
        }
        unlock_written(lock)
    }
}

/// Frees a lock that the caller has to write, or that is for the next library.
///
/// # Safety
///
/// As POSIX says.
#[inline(never)]
unsafe extern "C" fn unlock_written(lock: *mut Lock) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if (*lock).is_passed_on() {
            return next::unlock(lock.cast());
        }
        (*lock).unlock_write();
    }
    0
}

/// Takes a plain lock to read.
unsafe extern "C" fn read_plain(lock: *mut Lock) -> c_int {
    // SAFETY: the caller gives a lock.
    unsafe { &*lock }.read()
}

/// Takes a plain lock to write.
unsafe extern "C" fn write_plain(lock: *mut Lock) -> c_int {
    // SAFETY: the caller gives a lock.
    unsafe { &*lock }.write();
    0
}

unsafe extern "C" fn read(lock: *mut Lock, caller: usize) -> c_int {
    // SAFETY: the caller gives a lock; and the caller's promise.
    unsafe {
        match (*lock).take_alone(Want::Read) {
            true => 0,
            false => take(lock, Want::Read, caller, next::read),
        }
    }
}

unsafe extern "C" fn write(lock: *mut Lock, caller: usize) -> c_int {
    // SAFETY: the caller gives a lock; and the caller's promise.
    unsafe {
        match (*lock).take_alone(Want::Write) {
            true => 0,
            false => take(lock, Want::Write, caller, next::write),
        }
    }
}

/// Takes a lock, with this function of the next library.
///
/// # Safety
///
/// As POSIX says.
#[cold]
#[inline(never)]
unsafe fn take(
    lock: *mut Lock,
    want: Want,
    caller: usize,
    next: unsafe fn(*mut pthread_rwlock_t) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ours_or(lock, want, caller, next, |ours| ours.take(want, Until::Never, caller)) }
}

/// Calls `f` with a lock of ours, or `next` with one of the next library.
///
/// # Safety
///
/// As POSIX says.
unsafe fn ours_or(
    lock: *mut Lock,
    want: Want,
    caller: usize,
    next: unsafe fn(*mut pthread_rwlock_t) -> c_int,
    f: impl FnOnce(&Lock) -> c_int,
) -> c_int {
    // SAFETY: the caller gives a lock.
    let it = unsafe { &*lock };
    if it.is_passed_on() {
        // SAFETY: the caller's promise.
        return passed_on(lock, want, caller, || unsafe { next(lock.cast()) });
    }
    f(it)
}

/// Calls the next library, and counts the call if calls are counted.
fn passed_on(lock: *mut Lock, want: Want, caller: usize, next: impl FnOnce() -> c_int) -> c_int {
    stats::count(&Call { lock: lock.addr(), want, caller, is_biased: None }, next)
}

/// Tries to take a lock, with this function of the next library.
///
/// # Safety
///
/// As POSIX says.
unsafe fn try_take(
    lock: *mut Lock,
    want: Want,
    caller: usize,
    next: unsafe fn(*mut pthread_rwlock_t) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ours_or(lock, want, caller, next, |ours| ours.try_take(want, caller)) }
}

unsafe extern "C" fn try_read(lock: *mut Lock, caller: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { try_take(lock, Want::Read, caller, next::try_read) }
}

unsafe extern "C" fn try_write(lock: *mut Lock, caller: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { try_take(lock, Want::Write, caller, next::try_write) }
}

/// Takes a lock before a time, with `next`, which calls the next library.
///
/// # Safety
///
/// As POSIX says.
unsafe fn take_by(
    lock: *mut Lock,
    (clock, at): (clockid_t, At),
    want: Want,
    caller: usize,
    next: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller gives a lock.
    let it = unsafe { &*lock };
    if it.is_passed_on() {
        return passed_on(lock, want, caller, next);
    }
    // SAFETY: the caller's promise.
    match unsafe { Until::new(clock, at) } {
        Ok(until) => it.take(want, until, caller),
        Err(invalid) => invalid,
    }
}

unsafe extern "C" fn timed_read(lock: *mut Lock, at: At, caller: usize) -> c_int {
    let until = (libc::CLOCK_REALTIME, at);
    // SAFETY: the caller's promise, twice.
    unsafe { take_by(lock, until, Want::Read, caller, || next::timed_read(lock.cast(), at)) }
}

unsafe extern "C" fn timed_write(lock: *mut Lock, at: At, caller: usize) -> c_int {
    let until = (libc::CLOCK_REALTIME, at);
    // SAFETY: the caller's promise, twice.
    unsafe { take_by(lock, until, Want::Write, caller, || next::timed_write(lock.cast(), at)) }
}

unsafe extern "C" fn clock_read(lock: *mut Lock, clock: clockid_t, at: At, caller: usize) -> c_int {
    // SAFETY: the caller's promise, twice.
    unsafe {
        take_by(lock, (clock, at), Want::Read, caller, || next::clock_read(lock.cast(), clock, at))
    }
}

unsafe extern "C" fn clock_write(
    lock: *mut Lock,
    clock: clockid_t,
    at: At,
    caller: usize,
) -> c_int {
    // SAFETY: the caller's promise, twice.
    unsafe {
        take_by(lock, (clock, at), Want::Write, caller, || {
            next::clock_write(lock.cast(), clock, at)
        })
    }
}
