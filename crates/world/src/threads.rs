//! Threads.

use core::time::Duration;

use coreline_topology::{CpuId, CpuSet};

use crate::Place;

/// The CPUs on which a new thread may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Any CPU that the spawning thread may use.
    Anywhere,
    /// This CPU only.
    On(CpuId),
}

/// The options of a new thread, for [`Threads::spawn_with`].
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadOptions<'a> {
    /// The name that debuggers and tools such as `top` show. A world may truncate it. NUL
    /// characters are left out.
    pub name: &'a str,
    /// The minimum size of the thread's stack in bytes. `None` means the usual size of the world.
    pub stack_size: Option<usize>,
}

/// The reason why a thread could not be spawned. No thread was started, and the closure was
/// dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The CPU does not exist, is offline, or is not among those that this process may use.
    #[error("cannot run a thread on {cpu}: {why}; choose one of {allowed}")]
    Cpu {
        /// The requested CPU.
        cpu: CpuId,
        /// The reason why the CPU is not available.
        why: String,
        /// The available CPUs, as "CPUs" and a CPU list.
        allowed: String,
    },
    /// The machine has no room for another thread.
    #[error("cannot start another thread: {0}")]
    Exhausted(String),
}

/// A handle to wait for a thread.
///
/// Dropping the handle detaches the thread.
pub trait JoinHandle<T> {
    /// Waits for the thread and returns its value. All writes of the thread are visible afterwards.
    ///
    /// # Panics
    ///
    /// Panics with the thread's panic payload if the thread panicked, so no panic is lost.
    fn join(self) -> T;

    /// Returns whether the handle belongs to the calling thread, which then cannot join it. This
    /// also holds while the thread's own variables are dropped at its end.
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
    /// [`SpawnError`] if the thread cannot run on the requested CPU, or if there is no room for the
    /// thread.
    fn spawn<T, F>(placement: Placement, f: F) -> Result<Self::JoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static;

    /// Starts a thread like [`spawn`](Threads::spawn), with these options. A world may ignore them.
    ///
    /// # Errors
    ///
    /// The same errors as for [`spawn`](Threads::spawn).
    fn spawn_with<T, F>(
        _options: ThreadOptions<'_>,
        placement: Placement,
        f: F,
    ) -> Result<Self::JoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        Self::spawn(placement, f)
    }

    /// Returns the CPUs that the calling thread may use. Threads that it starts without a placement
    /// may use the same CPUs.
    ///
    /// The user or an administrator gave these CPUs to the process, by `taskset` or a cpuset. The
    /// program itself may have excluded some. A thread can often be [placed](Placement::On) on
    /// other CPUs, too, but the user may not have permitted this. If nothing is known, the result
    /// is all CPUs.
    fn allowed() -> CpuSet
    where
        Self: Place,
    {
        Self::topology().set()
    }

    /// Lets the other threads of this CPU run.
    fn yield_now();

    /// Sleeps for at least `span`. The model has no time, so in the model the thread yields
    /// instead.
    fn sleep(span: Duration);
}
