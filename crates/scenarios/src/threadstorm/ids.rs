//! The sources of concurrency IDs: a space under a policy, or a source without IDs.

use coreline::cid::{CidError, CidLayout, CidSpace, Policy, Task};
use coreline_sim::WordCost;
use coreline_topology::{Cid, CpuId, CpuSet};
use coreline_world::{Testbed, Time};

/// The calls of a scheduler to its source of IDs, which are the same as for a [`CidSpace`]. A
/// source that overrides no default method hands out no IDs.
pub trait Ids<W: Testbed>: Sized + Send + Sync + 'static {
    /// The source's data of a thread.
    type Task: Send + 'static;

    /// Creates a source for the machine on which the caller runs.
    ///
    /// # Errors
    ///
    /// [`CidError`] if the machine is too large.
    fn new() -> Result<Self, CidError>;

    /// Adds a new thread, which may run on these CPUs.
    ///
    /// # Errors
    ///
    /// [`CidError`] if the source has no room for the thread.
    fn enter(&self, allowed: &CpuSet) -> Result<Self::Task, CidError>;

    /// Removes a thread that has ended.
    fn leave(&self, _: Self::Task) {}

    /// Tells the source that a CPU begins to run a thread. Returns the thread's ID, or `None` if
    /// the source has no IDs.
    ///
    /// # Errors
    ///
    /// [`CidError`] if all IDs are in use.
    fn switch_in(&self, _: Time, _: CpuId, _: &Self::Task) -> Result<Option<Cid>, CidError> {
        Ok(None)
    }

    /// Tells the source that a CPU no longer runs a thread.
    fn switch_out(&self, _: Time, _: CpuId, _: &Self::Task) {}

    /// Tells the source that a thread moved from one CPU to another.
    ///
    /// # Errors
    ///
    /// [`CidError`] if the source does not know one of the CPUs.
    fn migrate(&self, _: Time, _: &Self::Task, _: CpuId, _: CpuId) -> Result<(), CidError> {
        Ok(())
    }

    /// Scans for references that are too old.
    fn expire(&self, _: Time) {}

    /// Returns the number of threads that have begun and not ended.
    fn users(&self) -> usize {
        0
    }
}

impl<P: Policy, W: Testbed> Ids<W> for CidSpace<P, W> {
    type Task = Task<P, W>;

    fn new() -> Result<Self, CidError> {
        Ok(CidSpace::new_in(&CidLayout::new(&W::topology())?))
    }

    fn enter(&self, allowed: &CpuSet) -> Result<Task<P, W>, CidError> {
        self.user_enter(allowed)
    }

    fn leave(&self, task: Task<P, W>) {
        self.user_leave(task).expect("it entered this space");
    }

    fn switch_in(&self, now: Time, cpu: CpuId, task: &Task<P, W>) -> Result<Option<Cid>, CidError> {
        CidSpace::switch_in(self, now, cpu, task).map(Some)
    }

    fn switch_out(&self, now: Time, cpu: CpuId, task: &Task<P, W>) {
        CidSpace::switch_out(self, now, cpu, task);
    }

    fn migrate(
        &self,
        now: Time,
        task: &Task<P, W>,
        from: CpuId,
        to: CpuId,
    ) -> Result<(), CidError> {
        CidSpace::migrate(self, now, task, from, to)
    }

    fn expire(&self, now: Time) {
        CidSpace::expire(self, now);
    }

    fn users(&self) -> usize {
        CidSpace::users(self)
    }
}

/// No IDs: the floor. Its figures are the error of the measurement.
pub(super) struct NoIds;

impl<W: Testbed> Ids<W> for NoIds {
    type Task = ();

    fn new() -> Result<Self, CidError> {
        Ok(NoIds)
    }

    fn enter(&self, _: &CpuSet) -> Result<(), CidError> {
        Ok(())
    }
}

/// The name of the space itself in the simulator's statistics; what it points to has none.
pub(super) const SPACE: &str = "space";

/// Whether accesses are to the source of IDs: to the space itself, its lock included, or, by the
/// place of the access, to what it points to, and to the nodes in which threads wait for the lock.
/// No other lock here is the library's.
pub(super) fn is_of_ids(word: &WordCost) -> bool {
    let is_at = |place: &&str| word.site.file.contains(*place);
    word.names.iter().any(|name| name == SPACE) || ["src/cid/", "src/lock/"].iter().any(is_at)
}
