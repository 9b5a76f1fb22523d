//! Which worker the calling thread is.

use core::cell::Cell;
use core::ptr;

use coreline_topology::CpuId;
use coreline_world::{Threads, World, WorldLocal};

use super::Workers;

/// The worker that the calling thread is.
pub(super) struct Current {
    /// The address of the set's `Shared`; null on a thread that is no worker.
    pub(super) shared: Cell<*const ()>,
    pub(super) index: Cell<usize>,
}

static CURRENT: WorldLocal = WorldLocal::new("worker that this thread is");

pub(super) fn with_current<W: World, R>(f: impl FnOnce(&Current) -> R) -> R {
    let none = || Current { shared: Cell::new(ptr::null()), index: Cell::new(0) };
    CURRENT.with::<W, _, _>(none, f)
}

impl<W: World + Threads> Workers<W> {
    /// Returns the CPU whose worker the calling thread is, or `None` if the thread is not one of
    /// these workers, as in a child that a worker has forked.
    ///
    /// The result stays the same as long as the worker lives. The thread may still run on another
    /// CPU, because the kernel moves it if an administrator removes its CPU from the process's
    /// cpuset.
    ///
    /// ```
    /// use coreline::Workers;
    ///
    /// let workers = Workers::new()?;
    /// let cpu = workers.cpus().next().unwrap();
    /// assert_eq!(workers.current(), None);
    /// assert_eq!(workers.call_on(cpu, || workers.current())?, Some(cpu));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn current(&self) -> Option<CpuId> {
        let current = self.shared.current().filter(|_| self.shared.is_here());
        current.map(|index| self.shared.workers[index].cpu)
    }

    /// Returns the number of the worker that the calling thread is: its position in
    /// [`cpus`](Workers::cpus), from zero. Use it as the index of an array with an element for each
    /// worker. Returns `None` in the same cases as [`current`](Workers::current).
    pub fn current_index(&self) -> Option<usize> {
        self.shared.current().filter(|_| self.shared.is_here())
    }
}
