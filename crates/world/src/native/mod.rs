//! The native world: this machine, which must have 64 bits.
//!
//! | file | capability | made of |
//! |---|---|---|
//! | `words` | words | `core::sync::atomic`, cells of no cost |
//! | `backoff` | words: how a thread waits | `sched_yield`, `futex` |
//! | `statics` | statics | a slot beside the key, a thread-local list |
//! | `threads` | threads | `std::thread` |
//! | `work` | work | the clock |
//! | `publication`, `found` | none: for `coreline stat` | files in memory |
//! | `linux` | all others, on Linux | rseq, futex, membarrier |
//! | `portable` | all others elsewhere, or with the feature `portable` | std |
//! | `overflow`, a feature | none: a hook for the simulator | `SIGSEGV`, an alternate stack |
//! | `fixed`, of that feature | none: the simulator's addresses | `mmap` at an address |
//! | `image`, of that feature | none: what an address is | `dladdr` |
//! | `looks`, of that feature | none: the simulator's watchdog | `SIGURG`, `/proc` |
//!
//! Without Linux, and with the feature `portable` on Linux, the world is built on std. It passes
//! the same laws. The front page of `coreline` has a table of the missing features. This module
//! then has only [`Native`] and the types of its capabilities, and on Linux the simulator's hooks.
//!
//! # On Linux
//!
//! The library tests once per process which features the kernel, C library, sandbox or emulator
//! really has. [`probe()`] reports the result.
//!
//! **Environment.** With `CORELINE_RSEQ=off`, restartable operations run on atomics, and everything
//! else works without rseq as well. The library reads the variable once.
//!
//! **Unloading.** A program may close a library that contains coreline by `dlclose`, even while
//! threads are alive that have used it. If restartable operations run in sections, the library
//! stays mapped from the first per-CPU memory on. If it is loaded again, it has its old statics.
//!
//! **Fork.** The child inherits every choice, and repeats a choice that was incomplete at the time
//! of the fork. No thread waits for a choice that the fork left incomplete. This holds if the C
//! library repairs its allocator in the child, as glibc does, and musl from version 1.2.2 on.
//!
//! **Filters.** The library detects which calls a system-call filter forbids at the start, even if
//! the filter reports success. If a filter is installed later, no update is lost. An operation that
//! needs a forbidden call fails with an error, or works without the call:
//!
//! | refused later | effect |
//! |---|---|
//! | `membarrier` | heavy fences and fences of sections fail, and so do operations that need one |
//! | `mmap` | new per-CPU memory is refused; operations that need some use the shared slot |
//! | `munmap` | memory stays mapped |
//! | `mbind`, `madvise` | the kernel decides where memory lies and how it is paged |
//! | `rseq` | threads that are not registered yet use the shared slot; beware of musl |
//! | `prctl` | threads that did not enable slice extensions before have none |
//! | `rseq_slice_yield` | a thread with a grant gives way, but the outcome is `Lost` |
//! | `rt_sigprocmask` | signals are not blocked: handlers must not use stacks |
//! | `futex`, `sched_yield` | waits spin; glibc ends a process whose locks cannot wait |
//!
//! A filter that ends the process for `rseq_slice_yield` does so when a thread enables slice
//! extensions. If it is installed later, it does so at the first grant, at a random time.
//!
//! musl unmaps the stack of a detached thread that ends, and the rseq area on it. If a later filter
//! refuses `rseq`, the thread stays registered, and the kernel may end the process (`SIGSEGV`).
//!
//! The library does not detect a later filter that reports success although the call did nothing.
//! Do not run a process under such a filter.
//!
//! **Vfork.** Between `vfork` and `exec` the child runs on its parent's memory, including the rseq
//! area, but the kernel aborts nothing for it. Neither the child nor a signal handler in it may run
//! restartable operations. `posix_spawn`, which `std::process::Command` uses, blocks signals.
//!
//! **Constructors.** The first per-CPU memory may be created in a constructor of a library that
//! `dlopen` loads, and inside a Rust global allocator. It must not be created inside a `malloc`,
//! because the self-test starts threads, which allocate. In that case the self-test takes seconds,
//! and operations run on atomics for the rest of the process.
//!
//! **Debuggers.** A section that a debugger steps through never ends, because each step preempts
//! the thread. Step over the section with a breakpoint after it, or debug with `CORELINE_RSEQ=off`.

mod backoff;
#[cfg(all(target_os = "linux", feature = "overflow"))]
pub mod fixed;
mod found;
#[cfg(all(target_os = "linux", any(not(feature = "portable"), feature = "overflow")))]
mod host;
#[cfg(all(target_os = "linux", feature = "overflow"))]
pub mod image;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) mod linux;
#[cfg(all(target_os = "linux", feature = "overflow"))]
pub mod looks;
#[cfg(all(target_os = "linux", feature = "overflow"))]
pub mod overflow;
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
mod portable;
mod publication;
mod section;
mod statics;
mod threads;
mod words;
mod work;

pub use found::Found;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub use linux::{
    Held, HugePool, NoSections, Probe, Registrar, Registration, RseqAbi, SelfTestError,
    ThreadRegistration, area_of_sections, exec, has_ended, is_executable, note_interrupts,
    note_output, output_was_unwritable, probe, rseq_registrations, run_queue_wait, runs_as_owner,
    stay_mapped, was_interrupted,
};
pub use publication::{FoundAll, Publication, PublicationError, publications};
pub use section::Section;
pub use threads::JoinHandle;
pub use words::Untracked;

// What lies below the rest of this module. `crate::arch` is chosen by the same condition.
#[cfg(all(target_os = "linux", not(feature = "portable")))]
use linux as system;
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
use portable as system;

use std::time::Instant;

use crate::{Clock, Time, World};

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

/// The time of [`Native`] at an instant, or now if the instant has passed. It may be later than the
/// instant by the time of two reads of the clock, and is never earlier.
impl From<Instant> for Time {
    fn from(instant: Instant) -> Time {
        let left = instant.saturating_duration_since(Instant::now());
        Native::now() + left
    }
}

// System calls are made with 64-bit words and times.
const _: () = assert!(size_of::<usize>() == 8, "coreline needs a 64-bit processor");
