//! The reasons why there are no sections.

use core::time::Duration;
use std::io;

use coreline_topology::CpuId;

use super::SWITCH;

/// How long the watcher waits for a preemption: hundreds of time slices.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// How long the caller waits for what the watcher found.
pub(super) const ANSWER: Duration = PATIENCE.saturating_mul(2);

/// The reason why restartable operations do not run in rseq sections here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoSections {
    /// The environment switches rseq off.
    #[error("{SWITCH}=off in the environment turns rseq sections off; unset it to use them")]
    SwitchedOff,
    /// This crate has no assembly for the processor.
    #[error("coreline has no rseq sections for this processor, only for x86-64 and aarch64")]
    Processor,
    /// The C library registers no threads, and the kernel refused our registration. The field is
    /// the system's error number.
    #[error(
        "the C library registers no threads for rseq, and the kernel does not let coreline \
         register them: {}; {}", io::Error::from_raw_os_error(*.0), refused(*.0)
    )]
    Refused(i32),
    /// There is no way to unregister threads when they end. The field is the system's error number,
    /// or `EAGAIN` if the key is too high to be set in a signal handler.
    #[error(
        "coreline must unregister threads at their end, but could not get a thread-specific key \
         for that: {}", io::Error::from_raw_os_error(*.0)
    )]
    NoKey(i32),
    /// The area exists, but did not pass the self-test.
    #[error("rseq sections failed the start-up self-test: {0}")]
    SelfTest(#[from] SelfTestError),
}

fn refused(error: i32) -> &'static str {
    match error {
        libc::ENOSYS => "the kernel has no rseq, or a system-call filter hides it",
        libc::EPERM | libc::EACCES => "a system-call filter forbids rseq",
        libc::EINVAL => "another library registers each thread, and does not say where its area is",
        _ => "no known kernel returns this error",
    }
}

/// The reason why the self-test did not prove that sections work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelfTestError {
    /// The kernel did not abort a section.
    #[error("the kernel preempted a thread in a section and did not abort the section")]
    NotAborted,
    /// The area's IDs are not the thread's IDs.
    #[error(
        "a thread on {pinned} reads other numbers: cpu_id_start {cpu_id_start} and cpu_id {cpu_id}"
    )]
    WrongCpu {
        /// The CPU on which the thread ran.
        pinned: CpuId,
        /// The value of the area's first field.
        cpu_id_start: u32,
        /// The value of the area's second field.
        cpu_id: u32,
    },
    /// The thread was not preempted in time, so the result is unknown.
    #[error("no thread was preempted in a section within {PATIENCE:?}")]
    NotPreempted,
    /// The test could not be run.
    #[error(
        "the self-test could not get {lacking}: {}",
        io::Error::from_raw_os_error(*errno)
    )]
    NotRun {
        /// The missing resource that the test needs.
        lacking: &'static str,
        /// The system's error number.
        errno: i32,
    },
    /// The test, or the thread that ran it, gave no answer in time.
    #[error("the self-test gave no answer within {ANSWER:?}")]
    NoAnswer,
    /// The test was requested inside itself.
    #[error(
        "the C library's allocator asked for per-CPU memory while the test started its threads; \
         make the first per-CPU memory before the allocator needs it"
    )]
    Nested,
}
