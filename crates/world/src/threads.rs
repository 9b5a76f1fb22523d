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

/// Why a thread could not be spawned. No thread was started, and the closure was dropped.
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

/// A thread that others can wait for.
///
/// Dropping the handle detaches the thread.
pub trait JoinHandle<T> {
    /// Waits for the thread and returns its value. Everything that it did is visible afterwards.
    ///
    /// # Panics
    ///
    /// Panics with the thread's panic if it panicked: joining never loses a panic.
    fn join(self) -> T;

    /// Whether the calling thread is this one, which then cannot be joined. This is also true while
    /// the thread's own variables are dropped at its end.
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
    /// [`SpawnError`] if the thread cannot be placed as asked, or there is no room for it.
    fn spawn<T, F>(placement: Placement, f: F) -> Result<Self::JoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static;

    /// Like [`spawn`](Threads::spawn), with a name that debuggers and tools such as `top` show. A
    /// world may cut the name, and one that shows no names ignores it. NUL characters are left out.
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

    /// The CPUs that the calling thread may use, and so those of threads that it starts without a
    /// place.
    ///
    /// The user or an administrator gave them to the process, by `taskset` or a cpuset. The program
    /// itself may have excluded some. A thread can often be [placed](Placement::On) on other CPUs,
    /// too, but that does not mean that it may. It returns all CPUs if nothing is known.
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
