//! Functions that are refused, and why.

use core::fmt;

use coreline_topology::CpuId;
use coreline_world::{Native, Threads, World};

use super::Workers;

/// The reason why a function was not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The CPU has no worker.
    #[error("there is no worker on {0}; `Workers::cpus` lists the CPUs that have one")]
    NoWorker(CpuId),
    /// The workers were closed.
    #[error("the workers are closed; start new workers and repeat the call")]
    Closed,
    /// The worker has not taken the message in its mailbox yet.
    #[error(
        "the worker has not taken the message in its mailbox yet; try again, or use `call_on`, \
         which queues"
    )]
    Busy,
    /// The queues in which the task may wait have as many tasks as
    /// [`queue_limit`](super::Builder::queue_limit) allows.
    #[error(
        "the queue of tasks is full; try again when tasks have run, or allow more by `queue_limit`"
    )]
    Full,
    /// The calling thread is not one of the workers.
    #[error(
        "the calling thread is not one of these workers; use `spawn_local_on`, which names one"
    )]
    NotAWorker,
    /// This process is a forked child, and the workers belong to its parent.
    #[error("the workers are threads of the parent process; start new workers after a fork")]
    Forked,
}

/// The error for a function that was not run. It returns the function to the caller.
///
/// The operator `?` turns it into a [`CallError`], or into a boxed error with the `CallError`. It
/// drops the function, even if the function borrows. For other types of errors, use
/// `.map_err(CallError::from)?`.
///
/// ```
/// use coreline::Workers;
///
/// fn length(workers: &Workers, text: &mut String) -> Result<usize, Box<dyn std::error::Error>> {
///     let cpu = workers.cpus().next().ok_or("no CPU")?;
///     let length = workers.call_on(cpu, || {
///         text.push('!');
///         text.len()
///     })?;
///     Ok(length)
/// }
///
/// assert_eq!(length(&Workers::new()?, &mut "four".to_owned())?, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Refused<F> {
    /// The reason.
    pub why: CallError,
    /// The function that was not run.
    pub function: F,
}

impl_debug!([F] Refused<F> as it { why: it.why, .. });

impl<F> fmt::Display for Refused<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.why, f)
    }
}

impl<F> From<Refused<F>> for CallError {
    fn from(refused: Refused<F>) -> CallError {
        refused.why
    }
}

// `Refused` is no `Error`: then std's conversion would be the only one, and would refuse functions
// that borrow, because a `Box<dyn Error>` outlives what they borrow.
impl<F> From<Refused<F>> for Box<dyn core::error::Error> {
    fn from(refused: Refused<F>) -> Self {
        refused.why.into()
    }
}

impl<F> From<Refused<F>> for Box<dyn core::error::Error + Send + Sync> {
    fn from(refused: Refused<F>) -> Self {
        refused.why.into()
    }
}

/// The error for a worker that would wait for its own end. The error contains the workers.
pub struct OwnWorker<W: World + Threads = Native> {
    /// The workers, unchanged.
    pub workers: Workers<W>,
}

impl_debug!([W: World + Threads] OwnWorker<W> { .. });

impl<W: World + Threads> fmt::Display for OwnWorker<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the calling thread is one of these workers, and cannot wait for its own end: join \
             them on another thread, or drop them, which does not wait on a worker",
        )
    }
}

impl<W: World + Threads> core::error::Error for OwnWorker<W> {}
