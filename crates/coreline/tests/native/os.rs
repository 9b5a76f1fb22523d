//! What tests ask of the operating system: processes, signals and CPUs. Test programs share it.
//!
//! What a process does once, or cannot undo, is tested in a process of its own: this program again,
//! with one test asked for.

#![allow(dead_code, reason = "each program uses some of it")]

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::{env, mem, ptr};

const CHILD: &str = "CORELINE_TEST_CHILD";

/// Whether this process was started by [`again`].
pub(crate) fn is_again() -> bool {
    env::var_os(CHILD).is_some()
}

/// This program again, to run the test of this name alone.
pub(crate) fn again(test: &str) -> Command {
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["--exact", test]).env(CHILD, "1");
    again
}

/// Runs a test that [`again`] asks for, which must pass.
pub(crate) fn pass(again: &mut Command) {
    let run = again.output().unwrap();
    let [text, errors] = [&run.stdout, &run.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let passed = run.status.success() && text.contains("1 passed");
    assert!(passed, "{again:?}: {}: {text}{errors}", run.status);
}

/// What `f` returns in a forked child. A child that waits for a thread which it does not have is
/// ended, and with it the test.
pub(crate) fn in_a_fork(f: impl FnOnce() -> u8) -> u8 {
    // SAFETY: the C library makes its allocator whole in the child, which leaves without unwinding.
    // What else it does there is what is tested.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "cannot fork");
        if child == 0 {
            libc::alarm(30);
            libc::_exit(catch_unwind(AssertUnwindSafe(f)).unwrap_or(u8::MAX).into());
        }
        end_of(child)
    }
}

/// Waits for a child, and returns what it said at its end.
pub(crate) fn end_of(child: libc::pid_t) -> u8 {
    let mut status = 0;
    // SAFETY: the word is live; the call writes nothing else.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(!libc::WIFSIGNALED(status), "signal {} ended a child", libc::WTERMSIG(status));
    let said = libc::WEXITSTATUS(status) as u8;
    assert_ne!(said, u8::MAX, "a child panicked");
    said
}

/// Has the handler run on each such signal.
pub(crate) fn on_signal(signal: c_int, handler: extern "C" fn(c_int)) {
    // SAFETY: handlers of tests do what is async-signal-safe; whether it is, is what they test.
    // Zeros are an action.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &raw const action, ptr::null_mut()), 0);
    }
}

/// Has the calling thread run on this CPU; false if it may not.
pub(crate) fn run_on(cpu: usize) -> bool {
    pin(0, cpu)
}

/// Keeps a thread on a CPU; false if it may not run there, or has ended.
pub(crate) fn pin(thread: libc::pid_t, cpu: usize) -> bool {
    // SAFETY: the set is live and of the size given, and zeros are the empty one.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) == 0
    }
}
