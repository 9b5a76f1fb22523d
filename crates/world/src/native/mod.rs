//! The native world: this machine, a 64-bit one, as it is.
//!
//! | file | capability | made of |
//! |---|---|---|
//! | `words` | words | `core::sync::atomic`, cells of no cost |
//! | `giving` | words: how a thread waits | `sched_yield`, `futex` |
//! | `statics` | statics | a slot beside the key, a thread-local list |
//! | `threads` | threads | `std::thread` |
//! | `work` | work | the clock |
//! | `linux` | all others, on Linux | rseq, futex, membarrier |
//! | `portable` | all others elsewhere, or with the feature `portable` | std |
//! | `overflow`, a feature | none: a hook for the simulator | `SIGSEGV`, an alternate stack |
//! | `fixed`, of that feature | none: the simulator's addresses | `mmap` at an address |
//! | `image`, of that feature | none: what an address is | `dladdr` |
//!
//! Where there is no Linux, and with the feature `portable` on Linux too, the world is made of what
//! std has. It passes the same laws. The front page of `coreline` has a table of what is missing
//! there. Of this module there are [`Native`] and the types of its capabilities then; and on Linux
//! the simulator's hooks.
//!
//! # On Linux
//!
//! What a kernel, a C library, a sandbox or an emulator really has is found by trying, once per
//! process, and reported by [`probe()`].
//!
//! **Environment.** `CORELINE_RSEQ=off` has restartable operations run on atomics, and everything
//! else do without rseq as well. Read once.
//!
//! **Unloading.** A library with coreline inside may be closed by `dlclose` while threads live that
//! have used it. Where restartable operations run in sections it stays mapped from the first
//! per-CPU memory on; loaded again, it has the statics that it had.
//!
//! **Fork.** The child inherits every choice, and makes one that was half made at the time of the
//! fork: no thread waits for one that the fork left behind. That is so wherever the C library makes
//! its allocator whole in the child, as glibc does, and musl from version 1.2.2 on.
//!
//! **Filters.** What a system-call filter forbids at the start is found out, also where it answers
//! that all is well. A filter that comes later costs no update: an operation that needs the call
//! fails with an error, or does without it:
//!
//! | refused later | what becomes of it |
//! |---|---|
//! | `membarrier` | heavy fences and fences of sections fail, and all that needs one |
//! | `mmap` | new per-CPU memory is refused; operations that need some use the shared slot |
//! | `munmap` | memory stays mapped |
//! | `mbind`, `madvise` | memory lies, and is paged, as the kernel likes |
//! | `rseq` | threads that are not registered yet use the shared slot; beware of musl |
//! | `rt_sigprocmask` | signals are not held off: handlers must not use lists, stacks and buffers |
//! | `futex`, `sched_yield` | waits burn their CPU; glibc ends a process whose locks cannot wait |
//!
//! musl unmaps the stack of a detached thread that ends, and the rseq area on it. Where `rseq` is
//! refused by then the thread stays registered, and the kernel may end the process (`SIGSEGV`).
//!
//! A filter that comes later and answers that all is well, though nothing was done, is not found
//! out. No process should be put under such a filter.
//!
//! **Vfork.** Between `vfork` and `exec` the child runs on its parent's memory, rseq area included,
//! but the kernel aborts nothing for it: neither it nor a signal handler that may run in it may do
//! restartable operations. (`posix_spawn`, as `std::process::Command` uses it, keeps signals out.)
//!
//! **Constructors.** The first per-CPU memory may be made in a constructor of a library that
//! `dlopen` loads, and inside a Rust global allocator. Inside a `malloc` it may not: the self-test
//! starts threads, which allocate; it takes seconds then, and operations run on atomics for good.
//!
//! **Debuggers.** A section that is stepped through never ends, as each step preempts the thread:
//! step over it with a breakpoint behind it, or debug with `CORELINE_RSEQ=off`.

#[cfg(all(target_os = "linux", feature = "overflow"))]
pub mod fixed;
mod giving;
#[cfg(all(target_os = "linux", any(not(feature = "portable"), feature = "overflow")))]
mod host;
#[cfg(all(target_os = "linux", feature = "overflow"))]
pub mod image;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) mod linux;
#[cfg(all(target_os = "linux", feature = "overflow"))]
pub mod overflow;
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
mod portable;
mod section;
mod statics;
mod threads;
mod words;
mod work;

#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub use linux::{
    Held, HugePool, NoSections, Probe, Registrar, Registration, RseqAbi, SelfTestError,
    ThreadRegistration, note_interrupts, note_output, output_was_unwritable, probe,
    rseq_registrations, run_queue_wait, was_interrupted,
};
pub use section::Section;
pub use threads::JoinHandle;
pub use words::Untracked;

// What lies below the rest of this module. `crate::arch` is chosen by the same condition.
#[cfg(all(target_os = "linux", not(feature = "portable")))]
use linux as system;
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
use portable as system;

use crate::World;

/// The native world.
///
/// ```
/// use coreline_world::{Native, Place};
///
/// assert!(Native::cpu().index() < Native::topology().cpu_limit());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Native;

// SAFETY: it passes the laws: `tests/conformance.rs`, and `tests/native_*.rs`.
unsafe impl World for Native {
    const NAME: &'static str = "native";
}

// System calls are made with 64-bit words and times.
const _: () = assert!(size_of::<usize>() == 8, "coreline needs a 64-bit processor");
