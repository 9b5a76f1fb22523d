//! What hands out concurrency IDs: a space under a policy, or nothing.

use coreline::cid::{CidError, CidLayout, CidSpace, Policy, Task};
use coreline_sim::WordCost;
use coreline_topology::{Cid, CpuId, CpuSet};
use coreline_world::{Testbed, Time};

/// What a scheduler asks of its source of IDs; the calls are those of [`CidSpace`]. A source that
/// says no more hands out nothing.
pub(super) trait Ids<W: Testbed>: Sized + Send + Sync + 'static {
    type Task: Send + 'static;

    /// For the machine that the caller runs on.
    fn new() -> Result<Self, CidError>;

    fn enter(&self, allowed: &CpuSet) -> Result<Self::Task, CidError>;

    fn leave(&self, _: Self::Task) {}

    /// `None` if there are no IDs.
    fn switch_in(&self, _: Time, _: CpuId, _: &Self::Task) -> Result<Option<Cid>, CidError> {
        Ok(None)
    }

    fn switch_out(&self, _: Time, _: CpuId, _: &Self::Task) {}

    fn migrate(&self, _: Time, _: &Self::Task, _: CpuId, _: CpuId) -> Result<(), CidError> {
        Ok(())
    }

    fn expire(&self, _: Time) {}

    /// How many there are.
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
