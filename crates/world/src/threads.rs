//! Threads.

use core::time::Duration;

use coreline_topology::{CpuId, CpuSet};

use crate::Place;

/// Where a new thread may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// On any CPU that the spawning thread may use.
    Anywhere,
    /// On this CPU only.
    On(CpuId),
}

/// Why a thread could not be spawned. Nothing was started; the closure was dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The CPU does not exist, is offline, or is not among those that this process may use.
    #[error("cannot run a thread on {cpu}: {why}; choose one of {allowed}")]
    Cpu {
        /// The CPU that was asked for.
        cpu: CpuId,
        /// Why it cannot be had.
        why: String,
        /// The CPUs that can be had, as "CPUs" and a CPU list.
        allowed: String,
    },
    /// The machine has no room for another thread.
    #[error("cannot start another thread: {0}")]
    Exhausted(String),
}

/// A thread that can be waited for.
///
/// Dropping the handle detaches the thread.
pub trait JoinHandle<T> {
    /// Waits for the thread and returns its value; everything that it did is visible afterwards.
    ///
    /// # Panics
    ///
    /// If the thread panicked, with that panic: a panic is never lost by joining.
    fn join(self) -> T;

    /// Whether the calling thread is this one, which then cannot be joined. True also while what
    /// the thread has of its own is dropped at its end.
    fn is_current(&self) -> bool;
}

/// The capability *threads*, for [programs](crate::Testbed).
pub trait Threads {
    /// The handle of a spawned thread.
    type JoinHandle<T: Send + 'static>: JoinHandle<T> + Send + Sync;

    /// Starts a thread.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if it cannot be placed as asked or there is no room for it.
    fn spawn<T, F>(placement: Placement, f: F) -> Result<Self::JoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static;

    /// As [`spawn`](Threads::spawn), with a name that debuggers and tools such as `top` show. A
    /// world may cut it, and one that shows no names ignores it; NUL characters are left out.
    ///
    /// # Errors
    ///
    /// As for `spawn`.
    fn spawn_named<T, F>(
        _name: &str,
        placement: Placement,
        f: F,
    ) -> Result<Self::JoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        Self::spawn(placement, f)
    }

    /// The CPUs that the calling thread may use, and so those that it starts and places nowhere.
    ///
    /// They are what the user or an administrator gave the process, by `taskset` or a cpuset, less
    /// what the program itself has kept the thread from. A thread can often be
    /// [placed](Placement::On) on others, too: that it can be does not say that it may. All CPUs,
    /// where nothing is known.
    fn allowed() -> CpuSet
    where
        Self: Place,
    {
        Self::topology().set()
    }

    /// Lets the other threads of this CPU run.
    fn yield_now();

    /// Sleeps for at least `span`. The model, which has no time, yields instead.
    fn sleep(span: Duration);
}
