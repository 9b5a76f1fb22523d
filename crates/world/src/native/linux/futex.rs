//! Sleep and wake: the futex, private to the process.
//!
//! Source: `futex(2)`; Drepper, *Futexes Are Tricky*.

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::io;

use crate::native::Native;
use crate::native::host::keeping_errno;
use crate::{Clock, Parked, Sleep, Threads, Time};

impl Sleep for Native {
    /// One system call, unless `word` has changed already: the kernel compares again under its own
    /// lock, so the check and the falling asleep are one step. Leaves `errno` alone.
    fn park_as(word: &AtomicU32, expected: u32, deadline: Option<Time>, groups: u32) -> Parked {
        let deadline = deadline.map(timespec);
        let timeout = deadline.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the word is live and aligned, the timeout null or a live timespec; the kernel
        // reads both and keeps neither. The wait with a bit set is the one whose timeout is a point
        // in time.
        let wait = || unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                expected,
                timeout,
                ptr::null::<u32>(),
                groups,
            )
        };
        let error = keeping_errno(|| match wait() {
            0 => None,
            _ => io::Error::last_os_error().raw_os_error(),
        });
        match error {
            None => Parked::Woken,
            Some(libc::EAGAIN) => Parked::Changed,
            Some(libc::ETIMEDOUT) => Parked::TimedOut,
            // EINTR: a signal, which counts as a spurious wake-up; or what a sandbox answers.
            _ => Parked::Woken,
        }
    }

    /// Async-signal-safe, and leaves `errno` alone.
    #[expect(clippy::not_unsafe_ptr_arg_deref, reason = "the kernel reads nothing there")]
    fn wake_groups(word: *const AtomicU32, count: u32, groups: u32) -> u32 {
        if count == 0 {
            // The kernel counts after it has woken one, so it takes none for one.
            return 0;
        }
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        // SAFETY: waking looks up the address and reads nothing there.
        let woken = keeping_errno(|| unsafe {
            libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG,
                count,
                ptr::null::<libc::timespec>(),
                ptr::null::<u32>(),
                groups,
            )
        });
        u32::try_from(woken).unwrap_or(0)
    }
}

/// Sleeps for this long, less where a signal interrupts it; yields where a filter refuses the
/// sleep. Async-signal-safe, and leaves `errno` alone.
pub(in crate::native) fn nap(span: Duration) {
    // No thread but this one knows the word.
    let word = AtomicU32::new(0);
    keeping_errno(|| {
        if Native::park(&word, 0, Some(Native::now() + span)) != Parked::TimedOut {
            Native::yield_now();
        }
    });
}

/// The kernel's form of a point in time. Both parts are far below `i64::MAX`.
fn timespec(time: Time) -> libc::timespec {
    let nanos = time.as_nanos();
    libc::timespec {
        tv_sec: (nanos / 1_000_000_000).cast_signed(),
        tv_nsec: (nanos % 1_000_000_000).cast_signed(),
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicI32;
    use std::thread;

    use super::*;
    use crate::Ordering;

    #[test]
    fn a_deadline_is_a_point_on_the_clock() {
        let word = AtomicU32::new(0);
        let before = Native::now();
        let deadline = before + Duration::from_millis(2);
        while Native::park(&word, 0, Some(deadline)) != Parked::TimedOut {}
        assert!(Native::now() >= deadline, "timed out before {deadline}, asked at {before}");
        // A point in the past, the beginning and the end of time are points like any other.
        assert_eq!(Native::park(&word, 0, Some(before)), Parked::TimedOut);
        assert_eq!(Native::park(&word, 0, Some(Time::from_nanos(0))), Parked::TimedOut);
        assert_eq!(Native::park(&word, 1, Some(Time::from_nanos(u64::MAX))), Parked::Changed);
    }

    #[test]
    fn a_signal_ends_a_park() {
        extern "C" fn on_signal(_signal: libc::c_int) {}
        // SAFETY: the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, ptr::null_mut()), 0);
        }
        let (word, sleeper) = (AtomicU32::new(0), AtomicI32::new(0));
        let parked = thread::scope(|scope| {
            let parked = scope.spawn(|| {
                // SAFETY: asks for a number.
                sleeper.store(unsafe { libc::gettid() }, Ordering::Relaxed);
                Native::park(&word, 0, None)
            });
            while !parked.is_finished() {
                let thread = sleeper.load(Ordering::Relaxed);
                if thread != 0 {
                    // SAFETY: a signal with a handler, to a thread that has not been joined.
                    unsafe {
                        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR2)
                    };
                }
                thread::yield_now();
            }
            parked.join().unwrap()
        });
        assert_eq!(parked, Parked::Woken);
    }

    #[test]
    fn a_wake_of_none_wakes_none() {
        let word = &AtomicU32::new(0);
        thread::scope(|scope| {
            let deadline = Native::now() + Duration::from_millis(20);
            let sleeper = scope.spawn(move || Native::park(word, 0, Some(deadline)));
            while !sleeper.is_finished() {
                assert_eq!(Native::wake(word, 0), 0);
                thread::yield_now();
            }
        });
    }

    #[test]
    fn a_wake_needs_no_live_word() {
        let gone = core::ptr::from_ref(Box::new(AtomicU32::new(0)).as_ref());
        assert_eq!(Native::wake(gone, u32::MAX), 0);
        assert_eq!(Native::wake(ptr::null(), 1), 0);
    }
}
