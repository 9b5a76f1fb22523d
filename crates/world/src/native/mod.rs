//! The native world: Linux on a 64-bit processor, as it is.
//!
//! | file | capability | made of |
//! |---|---|---|
//! | `words` | words | `core::sync::atomic`, cells of no cost |
//! | `statics` | statics | a slot beside the key, a thread-local list |
//! | `futex` | sleep and wake | `futex` |
//! | `place` | place | sysfs, the rseq area, `getcpu` |
//! | `restartable` | restartable operations | rseq sections of `crate::arch` |
//! | `rseq`, `self_test`, `marks`, `auxv` | the choice of rseq | libc's rseq area, or ours |
//! | `fences` | fences | `membarrier` |
//! | `kick` | kick | `membarrier` on one CPU |
//! | `threads`, `affinity` | threads | `std::thread`, `sched_setaffinity` |
//! | `clock` | clock | `CLOCK_MONOTONIC` |
//! | `work` | work | the clock |
//! | `signals` | signals | `pthread_sigmask` |
//! | `overflow` | none: a hook for the simulator | `SIGSEGV`, an alternate stack |
//! | `memory` | memory | `mmap`, `mbind`, `madvise` |
//! | `probe`, `machine` | what `coreline doctor` shows | all of these |
//!
//! What a kernel, a C library, a sandbox or an emulator really has is found by trying, never from a
//! version. Each choice that follows is made once per process, before anything depends on it, and
//! reported by [`probe()`].
//!
//! **Environment.** `CORELINE_RSEQ=off` has restartable operations run on atomics, and everything
//! else do without rseq as well. Read once.
//!
//! **Unloading.** Code that runs restartable operations must stay mapped for the life of the
//! process: the kernel looks at a section's descriptor after the section was left. Do not `dlclose`
//! a library with coreline inside.
//!
//! **Fork.** The child inherits every choice, and the kernel's side of each. A choice that another
//! thread was making at the time of the fork is never finished in the child, so make the first
//! per-CPU memory before forking.
//!
//! **Vfork.** Between `vfork` and `exec` the child runs on its parent's memory, rseq area included,
//! but the kernel does not know it by that area and aborts nothing for it: its restartable
//! operations can lose updates. Such a child, and each signal handler that may run in it, must do
//! none. (`posix_spawn`, and with it `std::process::Command`, keeps signals out.)
//!
//! **Constructors.** The first per-CPU memory may be made in a constructor of a library that
//! `dlopen` loads, and inside a Rust global allocator. Inside a `malloc` it may not: the self-test
//! starts threads, which allocate; it takes seconds then, and operations run on atomics for good.
//!
//! **Debuggers.** Each single step preempts the thread, so a section that is stepped through never
//! ends. Step over it with a breakpoint behind it, or debug with `CORELINE_RSEQ=off`.

pub(crate) mod affinity;
mod auxv;
mod clock;
mod fences;
mod futex;
mod kick;
mod machine;
mod marks;
mod memory;
pub mod overflow;
mod place;
mod probe;
mod restartable;
pub(crate) mod rseq;
mod self_test;
mod signals;
mod statics;
mod threads;
mod waits;
mod words;
mod work;

pub use machine::HugePool;
pub use probe::{Probe, Registrar, RseqAbi, probe};
pub use restartable::Section;
pub use rseq::{NoSections, Registration};
pub use self_test::SelfTestError;
pub use signals::Held;
pub use threads::JoinHandle;
pub use waits::run_queue_wait;
pub use words::Untracked;

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
