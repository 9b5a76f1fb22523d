//! What hands out concurrency IDs: a space under a policy, or nothing.

use coreline::cid::{CidError, CidLayout, CidSpace, Policy, Task};
use coreline_sim::WordCost;
use coreline_topology::{Cid, CpuId, CpuSet};
use coreline_world::{Testbed, Time};

/// What a scheduler asks of its source of IDs; the calls are those of [`CidSpace`]. A source that
/// says no more hands out nothing.
pub trait Ids<W: Testbed>: Sized + Send + Sync + 'static {
    /// A thread, as the source knows it.
    type Task: Send + 'static;

    /// For the machine that the caller runs on.
    ///
    /// # Errors
    ///
    /// [`CidError`] if the machine is too large.
    fn new() -> Result<Self, CidError>;

    /// A thread begins, which may run on these CPUs.
    ///
    /// # Errors
    ///
    /// [`CidError`] if the source has no room for it.
    fn enter(&self, allowed: &CpuSet) -> Result<Self::Task, CidError>;

    /// A thread has ended.
    fn leave(&self, _: Self::Task) {}

    /// A CPU begins to run a thread. Gives the thread's ID; `None` if there are no IDs.
    ///
    /// # Errors
    ///
    /// [`CidError`] if all are in use.
    fn switch_in(&self, _: Time, _: CpuId, _: &Self::Task) -> Result<Option<Cid>, CidError> {
        Ok(None)
    }

    /// A CPU no longer runs a thread.
    fn switch_out(&self, _: Time, _: CpuId, _: &Self::Task) {}

    /// A thread arrives from one CPU at another.
    ///
    /// # Errors
    ///
    /// [`CidError`] if the source does not know one of them.
    fn migrate(&self, _: Time, _: &Self::Task, _: CpuId, _: CpuId) -> Result<(), CidError> {
        Ok(())
    }

    /// Looks for references that are too old.
    fn expire(&self, _: Time) {}

    /// How many threads have begun and not ended.
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
