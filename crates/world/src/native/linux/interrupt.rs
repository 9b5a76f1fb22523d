//! An interrupt from the keyboard (`SIGINT`), as a flag that a program polls.

use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether the signal came.
static CAME: AtomicBool = AtomicBool::new(false);

/// All that is done in the handler: a store to a word, which is safe on any stack and between any
/// two instructions, those of a restartable section too.
extern "C" fn note(_signal: libc::c_int) {
    // Relaxed: pairs with the load in `was_interrupted`. The flag is all that is told.
    CAME.store(true, Ordering::Relaxed);
}

/// Makes the first `SIGINT` set the flag of [`was_interrupted`] instead of ending the process. The
/// second `SIGINT` ends the process as usual, so that a program that does not poll can still be
/// stopped.
///
/// A process that was started with the signal ignored, as a shell starts background jobs, continues
/// to ignore it. System calls that the signal interrupts are restarted where the kernel can.
///
/// Use it only in programs. If `dlclose` closes a library, the handler stays installed, but its
/// code may be gone.
///
/// The function never fails. If a filter refuses `rt_sigaction`, `SIGINT` ends the process as
/// before. Do not call it in a signal handler. A forked child has the same handler, and its own
/// flag.
///
/// ```
/// use coreline_world::native::{note_interrupts, was_interrupted};
///
/// note_interrupts();
/// for part in 0..3 {
///     if was_interrupted() {
///         break;
///     }
///     println!("part {part}");
/// }
/// ```
pub fn note_interrupts() {
    if cfg!(miri) {
        // Miri has no signals.
        return;
    }
    // SAFETY: zeros are an action, whose mask is empty. The first call only reads, into `before`,
    // and what it leaves there if it is refused is not used. The handler stores to a static.
    unsafe {
        let mut before: libc::sigaction = mem::zeroed();
        let asked = libc::sigaction(libc::SIGINT, ptr::null(), &raw mut before);
        if asked != 0 || before.sa_sigaction == libc::SIG_IGN {
            return;
        }
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // On the thread's signal stack: threads of other kinds may have little of their own.
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGINT, &raw const action, ptr::null_mut());
    }
}

/// Returns whether a `SIGINT` has arrived since the call of [`note_interrupts`]. Once true, it
/// stays true.
///
/// The function reads one word. It may be called anywhere, also in signal handlers.
pub fn was_interrupted() -> bool {
    // Relaxed: pairs with the store in `note`. The flag is all that is told.
    CAME.load(Ordering::Relaxed)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// The exit status of a child that has interrupts as `before` says, does `run` and is then
    /// interrupted once more.
    fn status(before: libc::sighandler_t, run: fn() -> libc::c_int) -> libc::c_int {
        let mut status = 0;
        // SAFETY: the child of a program with threads calls nothing but what signal handlers may;
        // the parent waits for its own child alone.
        unsafe {
            match libc::fork() {
                0 => {
                    libc::signal(libc::SIGINT, before);
                    let code = run();
                    libc::raise(libc::SIGINT);
                    libc::_exit(code);
                }
                child => assert_eq!(libc::waitpid(child, &raw mut status, 0), child),
            }
        }
        status
    }

    fn interrupted_once() -> libc::c_int {
        note_interrupts();
        // SAFETY: sends a signal to this thread.
        unsafe { libc::raise(libc::SIGINT) };
        libc::c_int::from(was_interrupted())
    }

    #[test]
    fn the_first_interrupt_is_told_and_the_second_ends_the_process() {
        let first = status(libc::SIG_DFL, || {
            if interrupted_once() == 1 {
                return 0;
            }
            // SAFETY: ends the child.
            unsafe { libc::_exit(9) }
        });
        assert!(libc::WIFSIGNALED(first), "{first:#x}");
        assert_eq!(libc::WTERMSIG(first), libc::SIGINT);
    }

    #[test]
    fn a_process_that_ignores_interrupts_goes_on_so() {
        let ignored = status(libc::SIG_IGN, interrupted_once);
        assert!(libc::WIFEXITED(ignored), "{ignored:#x}");
        assert_eq!(libc::WEXITSTATUS(ignored), 0, "it was told of none");
    }
}
