//! Signals: `pthread_sigmask`, and a page that the kernel wipes when it copies the page for a
//! child.

use core::marker::PhantomData;
use core::mem;
use core::num::NonZeroU32;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::Signals;
use crate::arch;
use crate::native::Native;
use crate::native::host::keeping_errno;

/// Signals that a thread causes itself. The kernel kills the process if such a signal is blocked.
const OWN: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// A guard that blocks the calling thread's signals, except those that the thread causes itself.
/// When the outermost guard drops, the thread gets its previous signal mask back.
pub struct Held {
    /// The thread's previous mask. Only the outermost guard has it.
    before: Option<libc::sigset_t>,
    /// How many there were before.
    outer: u32,
    /// A mask belongs to a thread.
    _thread: PhantomData<*const ()>,
}

/// How many [`Held`] the calling thread has. Its handlers see 0, except for those of signals that
/// the thread causes itself: they run before the first one's system call or after the last one's.
fn holds() -> &'static AtomicU32 {
    // SAFETY: memory of the calling thread for its whole life; the reference does not leave `hold`
    // and `drop`.
    unsafe { &*arch::holds() }
}

impl Drop for Held {
    fn drop(&mut self) {
        let holds = holds();
        // Relaxed, both: the word is the thread's own. Before the mask changes, so that a handler
        // that comes in then makes its system calls. The least, as one inside of this may have been
        // forgotten, or drop later: the next hold must not rely on it.
        holds.store(self.outer.min(holds.load(Ordering::Relaxed)), Ordering::Relaxed);
        if let Some(before) = &self.before {
            // SAFETY: the mask is one that the call itself once wrote, or the call is refused.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}

impl Signals for Native {
    type Held = Held;

    /// Two system calls, one now and one at the end; none inside of another hold. The signals that
    /// the C library keeps for itself cannot be held off: a thread that is cancelled asynchronously
    /// may take a lock with it. Nor are those that a thread causes itself, even if another sends
    /// them. If a filter refuses `rt_sigprocmask`, no signal is blocked.
    fn hold() -> Held {
        let holds = holds();
        // Relaxed, here and below: the word is the thread's own.
        let outer = holds.load(Ordering::Relaxed);
        // Miri has no signals, and not the call.
        let before = (outer == 0 && !cfg!(miri)).then(|| {
            // SAFETY: zeros are a set, and `sigfillset` fills one. The call writes `before`, unless
            // a filter refuses it, as it then refuses the one that would use what is there.
            unsafe {
                let (mut held, mut before): (libc::sigset_t, libc::sigset_t) = mem::zeroed();
                libc::sigfillset(&raw mut held);
                for own in OWN {
                    libc::sigdelset(&raw mut held, own);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const held, &raw mut before);
                before
            }
        });
        // After the mask changed: a handler that came in before makes its own system calls.
        holds.store(outer + 1, Ordering::Relaxed);
        Held { before, outer, _thread: PhantomData }
    }

    /// Async-signal-safe, and leaves `errno` alone. A read, after the first call in a process.
    fn generation() -> NonZeroU32 {
        let Some(word) = wiped_at_fork() else {
            return process();
        };
        // Relaxed, all: the numbers tell processes apart and order nothing.
        let relaxed = Ordering::Relaxed;
        NonZeroU32::new(word.load(relaxed)).unwrap_or_else(|| {
            // Wiped: this is a new copy. What it was copied from had no higher number than this.
            let next = LAST.fetch_add(1, relaxed).wrapping_add(1);
            let set = word.compare_exchange(0, next, relaxed, relaxed);
            // Two threads of the copy may come here at the same time; one number counts.
            NonZeroU32::new(set.map_or_else(|set| set, |_| next)).unwrap_or(NonZeroU32::MIN)
        })
    }

    /// The thread gets its number when it first asks, and keeps it. It is not the kernel's number.
    /// This number identifies lock holders, so it must not depend on a filter.
    ///
    /// Async-signal-safe, and no system call. Numbers come again after 2³² − 1 threads that asked.
    #[inline]
    fn thread_id() -> NonZeroU32 {
        NonZeroU32::new(arch::known_number()).unwrap_or_else(number)
    }

    fn is_unwinding() -> bool {
        std::thread::panicking()
    }
}

/// Gives the calling thread its number.
#[cold]
#[inline(never)]
fn number() -> NonZeroU32 {
    // SAFETY: memory of the calling thread for its whole life; the reference does not leave here.
    let word = unsafe { &*arch::number() };
    // Relaxed, all: only the thread itself, and signal handlers on it, use the word; and each
    // addition has a result of its own.
    let relaxed = Ordering::Relaxed;
    let next = loop {
        let last = arch::last_number().fetch_add(1, relaxed);
        if let Some(next) = NonZeroU32::new(last.wrapping_add(1)) {
            break next;
        }
    };
    // A signal handler may have been faster, and have used its number.
    let set = word.compare_exchange(0, next.get(), relaxed, relaxed);
    set.err().and_then(NonZeroU32::new).unwrap_or(next)
}

/// The highest generation so far, of this memory and of all that it is a copy of.
static LAST: AtomicU32 = AtomicU32::new(0);

/// A word that is zero at first, and again in each copy that a fork makes of this memory. `None` if
/// the kernel has no such pages.
fn wiped_at_fork() -> Option<&'static AtomicU32> {
    /// Null: not asked for yet. `REFUSED`: there is none.
    static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
    static REFUSED: AtomicU32 = AtomicU32::new(0);
    let refused = (&raw const REFUSED).cast_mut();
    // Acquire pairs with the release below: the page is mapped, and will be wiped.
    let mut word = WORD.load(Ordering::Acquire);
    if word.is_null() {
        let mapped = keeping_errno(map_wiped_at_fork);
        let found = mapped.unwrap_or(refused);
        // Release pairs with the acquire above: the page is mapped. Acquire, if another thread was
        // faster: its page counts, and this one stays mapped, once in a process's life.
        word = WORD
            .compare_exchange(ptr::null_mut(), found, Ordering::AcqRel, Ordering::Acquire)
            .map_or_else(|theirs| theirs, |_| found);
    }
    // SAFETY: a page that is never unmapped, or a static.
    (word != refused).then(|| unsafe { &*word })
}

fn map_wiped_at_fork() -> Option<*mut AtomicU32> {
    if cfg!(miri) {
        // Nothing forks in Miri, which does not know the advice.
        return None;
    }
    const LEN: usize = 4096;
    /// Advice that no kernel knows.
    const NO_ADVICE: libc::c_int = -1;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, wherever the kernel likes, replaces none. The advice is about it
    // alone.
    unsafe {
        let page = libc::mmap(ptr::null_mut(), LEN, access, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        let advise = |advice| libc::madvise(page, LEN, advice);
        // Advice is often only a hint, so an emulator may say yes and do nothing (qemu-user did),
        // and a filter may. The kernel refuses what it does not know.
        if advise(NO_ADVICE) == 0 || advise(libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, LEN);
            return None;
        }
        Some(page.cast())
    }
}

/// The process's number, where the kernel wipes no pages. A child in a PID namespace of its own can
/// have its parent's.
fn process() -> NonZeroU32 {
    // SAFETY: asks for a number.
    let process = unsafe { libc::getpid() };
    NonZeroU32::new(process.cast_unsigned()).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
pub(super) mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static HANDLED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count(_signal: libc::c_int) {
        // Relaxed: the handler runs on the thread that looks.
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_signal_comes_when_it_is_no_longer_held_off() {
        let raise = || {
            // SAFETY: the handler is async-signal-safe.
            unsafe { libc::raise(libc::SIGUSR2) };
            HANDLED.load(Ordering::Relaxed)
        };
        // SAFETY: the handler is async-signal-safe; zeros are a valid action.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = count as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, ptr::null_mut()), 0);
        }
        assert_eq!(raise(), 1);
        let outer = Native::hold();
        let inner = Native::hold();
        assert_eq!(raise(), 1);
        drop(inner);
        assert_eq!(HANDLED.load(Ordering::Relaxed), 1, "the outer one still holds");
        drop(outer);
        assert_eq!(HANDLED.load(Ordering::Relaxed), 2);
    }

    /// Calls `f`, which makes system calls only, in a forked child, and returns what it says.
    pub(crate) fn in_a_child(f: impl FnOnce() -> u8) -> u8 {
        // SAFETY: the child runs what is async-signal-safe, and leaves without unwinding.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(f().into());
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
            libc::WEXITSTATUS(status) as u8
        }
    }

    #[test]
    fn each_copy_of_the_memory_has_a_generation() {
        let ours = Native::generation();
        assert_eq!(Native::generation(), ours);
        let differ = in_a_child(|| {
            let child = Native::generation();
            let stable = Native::generation() == child;
            let grandchild = in_a_child(|| {
                u8::from(Native::generation() != child && Native::generation() != ours)
            });
            u8::from(stable && child != ours) + grandchild
        });
        assert_eq!(differ, 2);
    }

    #[test]
    fn a_thread_that_holds_signals_off_can_still_fault() {
        extern "C" fn leave(_signal: libc::c_int) {
            // SAFETY: async-signal-safe.
            unsafe { libc::_exit(7) }
        }
        let left = in_a_child(|| {
            // SAFETY: the handler is async-signal-safe; nothing is mapped at the address.
            unsafe {
                let mut action: libc::sigaction = mem::zeroed();
                action.sa_sigaction = leave as *const () as usize;
                libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut());
                let _held = Native::hold();
                ptr::without_provenance_mut::<u8>(1 << 12).write_volatile(0);
            }
            0
        });
        assert_eq!(left, 7);
    }
}
