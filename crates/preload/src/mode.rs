//! The duties of calls beside taking the lock.
//!
//! | mode | what holds | next mode |
//! |---|---|---|
//! | `Few` | the program has created no thread | `Ready`, `Stats` |
//! | `Ready` | what all locks share exists | `Stats` |
//! | `Stats` | calls are counted, which begins when the library is loaded | none |
//!
//! The state that all locks share is made from the machine's tree, and from a test of the kernel's
//! restartable sequences. Both take milliseconds on large machines, which a process with one thread
//! need not pay. Both call the program's allocator, by `opendir` and by `pthread_create`, and need
//! more stack than a lock call may. So no lock call does this, because a lock call may be made in a
//! signal handler, on 16 KiB of stack, and under any lock of the program. It is done when the
//! program calls `pthread_create` for the first time: that function allocates and maps memory
//! itself.
//!
//! Until then, calls that find no free lock check it from time to time. These are calls in signal
//! handlers, and of threads that `pthread_create` has not made.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use coreline_world::{IndexBy, Native, Restartable};

use crate::{ALLOCATOR, uncancelled};

#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Few,
    Ready,
    Stats,
}

/// The options of a call that finds no free lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// Look at the lock from time to time.
    Looks,
    /// Wait.
    Waits,
}

pub(crate) static MODE: AtomicU8 = AtomicU8::new(Mode::Few as u8);

pub(crate) const READY: u8 = Mode::Ready as u8;

/// Whether what all locks share exists.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Whether a thread makes it, or has made it. That thread creates threads, which create threads.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// Not zero while the process has one thread (glibc 2.32).
    safe static __libc_single_threaded: AtomicU8;
}

#[inline(always)]
pub(crate) fn now() -> Mode {
    const STATS: u8 = Mode::Stats as u8;
    match MODE.load(Ordering::Relaxed) {
        READY => Mode::Ready,
        STATS => Mode::Stats,
        _ => Mode::Few,
    }
}

#[inline(always)]
pub(crate) fn is_alone() -> bool {
    __libc_single_threaded.load(Ordering::Relaxed) != 0
}

/// The options of a call that finds no free lock.
#[cold]
pub(crate) fn means() -> Means {
    if IS_READY.load(Ordering::Relaxed) { Means::Waits } else { Means::Looks }
}

/// Makes what all locks share, unless a thread has begun to.
pub(crate) fn before_a_thread() {
    if !IS_BEGUN.load(Ordering::Relaxed) && !IS_BEGUN.swap(true, Ordering::Relaxed) {
        get_ready();
    }
}

/// Sets a mode, unless another thread was faster and has set a later one.
pub(crate) fn set(mode: Mode) {
    MODE.fetch_max(mode as u8, Ordering::Relaxed);
}

/// Makes what all locks share.
fn get_ready() {
    // SAFETY: the word is the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    uncancelled(|| {
        coreline::lock::prepare();
        // Makes the choice, which cannot fail for this index.
        let _ = Native::section(IndexBy::Cpu);
    });
    ALLOCATOR.begin_limit();
    // SAFETY: as before. Lock calls leave it alone.
    unsafe { *libc::__errno_location() = errno };
    IS_READY.store(true, Ordering::Relaxed);
    set(Mode::Ready);
}
