//! What calls have to do beside taking the lock.
//!
//! | mode | what holds | next mode |
//! |---|---|---|
//! | `Few` | one thread; or no thread has waited, or called [`WORTH`] times | `Ready`, `Stats` |
//! | `Ready` | what all locks share exists | `Stats` |
//! | `Stats` | calls are counted, which begins when the library is loaded | none |
//!
//! What all locks share is made of the machine's tree, and of a test of the kernel's restartable
//! sequences. Both take milliseconds on large machines, which short programs need not pay. Both
//! call the program's allocator, by `opendir` and by `pthread_create`, and it may take locks of its
//! own. So neither is ever done in a lock call that has its lock already, but before. Meanwhile,
//! calls of the same thread look at their lock from time to time, and other threads do the same
//! work again.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use coreline_world::{IndexBy, Native, Restartable};

use crate::{ALLOCATOR, uncancelled};

/// From so many calls of one thread on, it may pay that readers count themselves on each CPU.
const WORTH: u32 = 1_000;

#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Few,
    Ready,
    Stats,
}

/// What a call may do that finds no free lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// Look at the lock from time to time: what all locks share is just being made.
    Looks,
    /// Try to take the lock. To wait, it makes what all locks share first.
    Tries,
    /// Wait.
    Waits,
}

pub(crate) static MODE: AtomicU8 = AtomicU8::new(Mode::Few as u8);

pub(crate) const READY: u8 = Mode::Ready as u8;

/// Whether what all locks share exists.
static IS_READY: AtomicBool = AtomicBool::new(false);

std::thread_local! {
    /// Whether the thread makes what all locks share. Without a destructor, so it is there for as
    /// long as the thread takes locks.
    static PREPARES: Cell<bool> = const { Cell::new(false) };
    /// How often the thread has called in mode `Few`, beside other threads.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

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

/// What a call may do.
#[cold]
pub(crate) fn means() -> Means {
    if PREPARES.get() {
        return Means::Looks;
    }
    if !IS_READY.load(Ordering::Relaxed) {
        if is_alone() || CALLS.get() < WORTH {
            CALLS.set(CALLS.get() + u32::from(!is_alone()));
            return Means::Tries;
        }
        get_ready();
    }
    Means::Waits
}

/// Sets a mode, unless another thread was faster and has set a later one.
pub(crate) fn set(mode: Mode) {
    MODE.fetch_max(mode as u8, Ordering::Relaxed);
}

/// Makes what all locks share.
pub(crate) fn get_ready() {
    PREPARES.set(true);
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
    PREPARES.set(false);
    IS_READY.store(true, Ordering::Relaxed);
    set(Mode::Ready);
}
