//! The native world on Linux.
//!
//! | file | capability | made of |
//! |---|---|---|
//! | `futex` | sleep and wake | `futex` |
//! | `place`, `getcpu` | place | sysfs, the rseq area, `getcpu` |
//! | `restartable` | restartable operations | rseq sections of `crate::arch` |
//! | `rseq`, `marks`, `auxv` | the choice of rseq | libc's rseq area, or ours |
//! | `fences` | fences | `membarrier` |
//! | `kick` | kick | `membarrier` on one CPU |
//! | `extension` | slice extension | libc's rseq area, `prctl`, `rseq_slice_yield` |
//! | `affinity` | where threads run | `sched_setaffinity` |
//! | `clock` | clock | `CLOCK_MONOTONIC` |
//! | `signals` | signals | `pthread_sigmask` |
//! | `interrupt` | none: for programs that stop half-way | `sigaction` |
//! | `stdout` | none: for programs that write a result | `fcntl` |
//! | `memory` | memory | `mmap`, `mbind`, `madvise` |
//! | `process` | none: for `coreline doctor --pid` | `ptrace` |
//! | `publications` | none: for `coreline stat` | `/dev/shm`, `/proc` |
//! | `exec` | none: for `coreline preload` | `execve` |
//! | `probe`, `machine` | what `coreline doctor` shows | all of these |
//!
//! [`native`](crate::native) says what a program must know about it.

pub(crate) mod affinity;
mod auxv;
mod clock;
mod exec;
mod extension;
mod fences;
mod futex;
mod getcpu;
mod interrupt;
mod kick;
mod machine;
mod marks;
mod memory;
mod place;
mod probe;
mod process;
pub(crate) mod publications;
mod restartable;
pub(crate) mod rseq;
mod run_queue;
mod signals;
mod stdout;

pub use exec::{exec, is_executable, runs_as_owner};
pub use interrupt::{note_interrupts, was_interrupted};
pub use machine::HugePool;
pub use probe::{Probe, Registrar, RseqAbi, probe};
pub use process::{ThreadRegistration, rseq_registrations};
pub use publications::has_ended;
pub use restartable::area_of_sections;
pub use rseq::{NoSections, Registration, SelfTestError, stay_mapped};
pub use run_queue::run_queue_wait;
pub use signals::Held;
pub use stdout::{note_output, output_was_unwritable};

pub(super) use affinity::{allowed_here, is_real_time, settle, yield_now};
pub(super) use futex::nap;
