//! Concurrency IDs: small numbers for running threads, which index memory.
//!
//! Memory that is indexed by CPU needs as many slots as the machine has CPUs, even for a process, a
//! tenant or a table with few threads. A *concurrency ID* is a number that no two running threads
//! of one process, tenant or table have at the same time. It is usually below the number of
//! threads. For example, four threads on 384 CPUs use slots 0 to 3. A [`CidSpace`] hands out these
//! IDs under one of four policies:
//!
//! | policy | a CPU without an ID gets | in Linux |
//! |---|---|---|
//! | [`FirstFit`] | the lowest free ID | 6.4 to 6.12 |
//! | [`Recent`] | the ID it had last; else a new ID; else the lowest free | 6.13 to 6.18 |
//! | [`Owned`] | its task's ID; with many tasks, the CPU's own ID | since 6.19 |
//! | [`Clustered`] | as `Recent`, from the range of numbers of its last-level cache | never |
//!
//! In the repository, `docs/concurrency-ids.md` has a drawing of each policy, and says which to
//! choose.
//!
//! # Two ways to drive a space
//!
//! **By hooks**, as a scheduler does (a runtime with its own tasks, the simulated kernel): tasks
//! [enter](CidSpace::user_enter) the space, are [switched in](CidSpace::switch_in) and
//! [out](CidSpace::switch_out), [migrate](CidSpace::migrate) and leave. A timer calls
//! [`expire`](CidSpace::expire). The ID belongs to the task from the switch in to the switch out.
//!
//! **By use**, if no hook is called at a switch, as in any process. A CPU's *row* holds an ID that
//! restartable sections on that CPU may work with. [`use_at`](CidSpace::use_at) assigns an ID when
//! a section finds none, and [`expire_unused`](CidSpace::expire_unused) frees unused IDs. The law
//! then holds for each commit of a section, because a preempted thread holds no ID. `row.rs`
//! describes the words that a section reads.
//!
//! Drive a space in only one of these ways.
//!
//! # Laws
//!
//! * No two running tasks, and no two CPUs' sections, have the same ID at the same time. The next
//!   holder of an ID sees everything that was done under this ID.
//! * If hooks drive the space, an ID is within the space's [`bounds`](CidSpace::bounds) when a task
//!   gets it. It is below min(allowed CPUs, users). Under `Clustered`, only the allowed CPUs of the
//!   group count. Under `Owned`, the bound is a quarter higher. Two racing switches may exceed this
//!   bound, up to the number of allowed CPUs.
//! * After users have left and the expiry has passed, the IDs in use become compact again.
//! * Getting an ID takes a bounded number of steps, and at most one lock, which is held for at most
//!   one scan of the rows.
//!
//! In the repository, `tests/laws/memory/cid.rs` checks these laws in all three worlds. For each
//! step of a policy, `cid/tests.rs` lists the test that fails without that step.
//!
//! # Sources
//!
//! Desnoyers, ["sched: Improve cache locality of RSEQ concurrency IDs for intermittent
//! workloads"][recent] (2024); commit 223baf9d17f2; `kernel/sched/core.c` and `sched.h` of Linux
//! 6.18 and 6.19 (the latter from memory); Gleixner, ["sched: Rewrite MM CID management"][owned]
//! (2025), which has the rules of 6.19.
//!
//! [recent]: https://lore.kernel.org/lkml/20240904013127.75064-2-mathieu.desnoyers@efficios.com
//! [owned]: https://lore.kernel.org/r/20251015164952.694882104@linutronix.de

mod base;
mod bitmap;
#[cfg(test)]
mod by_use;
mod hooked;
mod layout;
mod owned;
mod places;
mod policy;
mod references;
mod row;
#[cfg(test)]
mod tests;

use core::ops::Range;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;
use std::sync::Arc;

use coreline_topology::{Cid, CpuId, CpuSet};
use coreline_world::{Lacking, Native, Time, World};

use hooked::Hooked;
use owned::Ownership;
use policy::{Engine, Sealed};

pub(crate) use bitmap::Bitmap;
pub use layout::CidLayout;
pub(crate) use places::Place;
pub use policy::{Policy, References};
pub(crate) use references::Referring;

/// The time for which a CPU keeps an unused ID. In the kernel, it is `SCHED_MM_CID_PERIOD_NS`.
pub const EXPIRY: Duration = Duration::from_millis(100);

/// The minimum time between two scans. In the kernel, it is `MM_CID_SCAN_DELAY`.
pub const SCAN_DELAY: Duration = Duration::from_millis(100);

/// First fit, the kernel's policy before [Desnoyers 2024](self#sources). A CPU that keeps no
/// reference gets the lowest free ID.
///
/// It has three merits. IDs are compact. Most switches cost one exchange on the CPU's own row.
/// Threads that run on all CPUs within 100 ms find their IDs again. After a longer pause, a CPU
/// gets the lowest free ID, whose memory another CPU may have used last.
///
/// A migration checks only the destination's reference. It compares the number of users with the
/// number of CPUs on which *the task* may run. That is a mistake, which Desnoyers 2024 fixes.
#[derive(Debug)]
pub struct FirstFit;

/// The cache-local policy of [Desnoyers 2024](self#sources). A CPU that keeps no reference gets the
/// first of these that is available:
///
/// 1. the ID that it had last, if it is free, because its memory is in this CPU's caches;
/// 2. an ID that was never handed out, if fewer IDs were handed out so far than there are users,
///    and fewer than there are allowed CPUs. So if there are enough IDs, every CPU gets its own
///    ID, rather than an ID that another CPU will want back;
/// 3. the lowest free ID.
///
/// When users leave, the number of handed-out IDs falls. A recent ID that is not below this number
/// is not taken again. Desnoyers 2024 lacks this rule, so there a process that once had many
/// threads keeps high IDs forever. The kernel has had this rule since 6.14 (from memory).
///
/// When a task moves to another CPU, the reference on its old CPU may move with it. So a few tasks
/// that roam over many CPUs need few IDs. In this table, *has one* means that the CPU has a
/// reference or a recent ID:
///
/// | the destination has one | users | result |
/// |---|---|---|
/// | yes | not fewer than allowed CPUs | nothing: the IDs may all be in use anyway |
/// | yes | fewer | the source's reference is dropped |
/// | no | any | the source's reference moves, and becomes the destination's recent one |
///
/// The source's reference stays if its ID is not the one that the task had, or if another task uses
/// it now. If the reference moves or is dropped, the source forgets its recent ID, too.
#[derive(Debug)]
pub struct Recent;

/// The ownership policy of Linux 6.19. While there are few tasks, tasks own their IDs, so a switch
/// changes no shared data. If there are many tasks, CPUs own the IDs and tasks borrow them.
///
/// IDs are below 1.25 times min(allowed CPUs, users), and below the machine's number of CPUs.
/// `owned.rs` says when the mode changes. The policy cannot be driven by use, because sections do
/// not know tasks.
#[derive(Debug)]
pub struct Owned;

/// [`Recent`] for each last-level cache separately. The IDs of one cache are consecutive. The IDs
/// of a node begin at a multiple of 64, which is one page of slots of one cache line each. So only
/// the CPUs under one cache use the memory of an ID. That memory can be placed on the cache's node
/// once, for all spaces of a machine ([`CidLayout::node_of`]).
///
/// The disadvantage is that IDs are compact only within each range. For example, two users under
/// two caches have the first IDs of two ranges. The numbers in between cost address space, but no
/// memory if slots are populated on first use.
///
/// A task that moves to another cache leaves its reference behind. The reference is dropped if
/// there are fewer users than allowed CPUs under the old cache.
#[derive(Debug)]
pub struct Clustered;

impl Policy for FirstFit {
    const NAME: &'static str = "first-fit";
}

impl Policy for Recent {
    const NAME: &'static str = "recent";
}

impl Policy for Owned {
    const NAME: &'static str = "owned";
}

impl Policy for Clustered {
    const NAME: &'static str = "clustered";
}

impl Sealed for FirstFit {
    type Engine<W: World> = Hooked<Self, W>;
}

impl Sealed for Recent {
    type Engine<W: World> = Hooked<Self, W>;
}

impl Sealed for Owned {
    type Engine<W: World> = Ownership<W>;
}

impl Sealed for Clustered {
    type Engine<W: World> = Hooked<Self, W>;
    const CLUSTERED: bool = true;
}

impl References for FirstFit {
    const CACHE_LOCAL: bool = false;
}

impl References for Recent {
    const CACHE_LOCAL: bool = true;
}

impl References for Clustered {
    const CACHE_LOCAL: bool = true;
}

/// The error of an operation on a space. The operation changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CidError {
    /// The CPU has no position in the layout.
    #[error(
        "no row for {cpu}: the layout is that of a machine whose CPU numbers are below {limit}; \
         make it from a topology that has this CPU"
    )]
    NoSuchCpu {
        /// The CPU.
        cpu: CpuId,
        /// The limit of the layout's CPU numbers, which are all below it.
        limit: usize,
    },
    /// The machine needs higher IDs than a row can hold.
    #[error(
        "the CPUs of this machine need {width} IDs, but there are at most {most}; use fewer CPUs"
    )]
    TooWide {
        /// The number of IDs that the machine needs.
        width: usize,
        /// The largest possible number of IDs.
        most: usize,
    },
    /// A task was switched in on a CPU where another task runs, or while it runs on another CPU. A
    /// space detects the first case, except under [`Owned`] while tasks own IDs. In that mode, it
    /// detects the second case. A space also detects that no ID is left because tasks left the
    /// space while they were running.
    #[error(
        "cannot switch the task in on {cpu}: another task is switched in there, or this task on \
         another CPU; switch that task out first"
    )]
    Busy {
        /// The CPU.
        cpu: CpuId,
    },
    /// There is no memory for the row of the CPU.
    #[error(
        "no memory for the row of {cpu}: free some, or raise the limit on address space (ulimit \
         -v), and call again"
    )]
    NoMemory {
        /// The CPU.
        cpu: CpuId,
    },
    /// A task entered another space.
    #[error("this task belongs to another space; give it to the space that it entered")]
    ForeignTask,
}

/// The error for a task that should leave a space which it did not enter. The error contains the
/// task, which is still a user of its own space.
#[derive(thiserror::Error)]
#[error("{}", CidError::ForeignTask)]
pub struct ForeignTask<P: Policy, W: World = Native>(pub Task<P, W>);

impl_debug!([P: Policy, W: World] ForeignTask<P, W> as it (it.0));

/// A task in a space. [`user_enter`](CidSpace::user_enter) returns it, and
/// [`user_leave`](CidSpace::user_leave) takes it back. A task that is dropped stays a user forever.
/// Other spaces reject the task.
pub struct Task<P: Policy, W: World = Native> {
    task: <P::Engine<W> as Engine<W>>::Task,
    space: Arc<SpaceName>,
}

/// Tells spaces apart by their addresses. No two spaces share one while one of their tasks knows
/// it.
struct SpaceName;

impl_debug!([P: Policy, W: World] Task<P, W> { .. });

/// The concurrency IDs of one process, tenant or table, under a policy.
///
/// ```
/// use coreline::cid::{CidLayout, CidSpace, Recent};
/// use coreline::topology::{CpuId, CpuSet, Shape, Topology};
/// use coreline::world::Time;
///
/// let shape = Shape {
///     sockets: 2,
///     nodes_per_socket: 1,
///     caches_per_node: 12,
///     cores_per_cache: 8,
///     threads_per_core: 2,
/// };
/// let layout = CidLayout::<Recent>::new(&Topology::uniform(shape)?)?;
/// let space: CidSpace<Recent> = CidSpace::new(&layout);
/// // Two tasks of a machine with 384 CPUs.
/// let cpus: CpuSet = "0-383".parse()?;
/// let tasks = [space.user_enter(&cpus)?, space.user_enter(&cpus)?];
/// let now = Time::from_nanos(0);
/// let [near, far] = [7, 300].map(CpuId::new);
/// assert_eq!(space.switch_in(now, far, &tasks[0])?.get(), 0);
/// assert_eq!(space.switch_in(now, near, &tasks[1])?.get(), 1);
/// space.switch_out(now, far, &tasks[0]);
/// // It moves, and takes its ID along.
/// space.migrate(now, &tasks[0], far, CpuId::new(8))?;
/// assert_eq!(space.switch_in(now, CpuId::new(8), &tasks[0])?.get(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// **Memory**: a space uses 8 bytes for each 16 CPU numbers, and a cache line for each group of 16
/// CPU numbers with a CPU that was used. It uses 2 bits for each number below the layout's
/// [width](CidLayout::width), which is the number of CPUs, except for gaps between nodes under
/// [`Clustered`]. Under [`Clustered`], it uses 8 bytes for each last-level cache. Under [`Owned`],
/// it uses up to 40 bytes times the peak number of tasks, plus allocator and vector overhead. When
/// a task leaves, 24 of its 40 bytes are freed. The cache lines are mapped. If there is no memory
/// for them, the operation returns an error. All other memory comes from the global allocator when
/// the space is created and when tasks enter. If that has no memory, the process ends, as with a
/// [`Box`].
///
/// **Concurrency**: calls about one task must not overlap. Switches and migrations to one CPU must
/// not overlap either, as in a kernel that holds the CPU's run-queue lock. All other calls may
/// overlap. Everything that happens before a call about a task or a CPU is visible to the next call
/// about the same task or CPU.
///
/// **Priorities**: calls take a lock, whatever the threads' priorities. Waiting threads get it in
/// FIFO order. A running thread may overtake the first waiter. While that waiter is running, it is
/// overtaken a bounded number of times. Natively, a waiter with a real-time priority begins to
/// sleep between checks after about 1 ms, so that a holder of lower priority can run on its CPU.
///
/// **Signals, fork**: calls allocate, and take a lock whose waiters spin. So no call may run in a
/// signal handler that can interrupt another call. A forked child has a copy of the space, which is
/// unusable if another thread was in a call.
pub struct CidSpace<P: Policy, W: World = Native> {
    layout: CidLayout<P>,
    engine: P::Engine<W>,
    name: Arc<SpaceName>,
}

// Nothing under the lock panics half-way.
impl<P: Policy, W: World> UnwindSafe for CidSpace<P, W> {}
impl<P: Policy, W: World> RefUnwindSafe for CidSpace<P, W> {}

impl<P: Policy> CidSpace<P> {
    /// Creates a space without users, in the native world.
    pub fn new(layout: &CidLayout<P>) -> Self {
        CidSpace::new_in(layout)
    }
}

impl<P: Policy, W: World> CidSpace<P, W> {
    /// Creates a space without users, in world `W`.
    pub fn new_in(layout: &CidLayout<P>) -> Self {
        let engine = Engine::new_in(layout.parts());
        CidSpace { layout: layout.clone(), engine, name: Arc::new(SpaceName) }
    }

    /// Returns the layout, which determines the IDs that CPUs can get.
    pub fn layout(&self) -> &CidLayout<P> {
        &self.layout
    }

    fn place(&self, cpu: CpuId) -> Result<Place, CidError> {
        self.layout.parts().place(cpu)
    }

    fn places(&self, cpus: &CpuSet) -> Result<(), CidError> {
        cpus.last().map_or(Ok(()), |last| self.place(last).map(drop))
    }

    /// Returns the engine's data of a task of this space.
    fn own<'a>(
        &self,
        task: &'a Task<P, W>,
    ) -> Result<&'a <P::Engine<W> as Engine<W>>::Task, CidError> {
        if Arc::ptr_eq(&self.name, &task.space) {
            Ok(&task.task)
        } else {
            Err(CidError::ForeignTask)
        }
    }

    /// Adds a task that may run on these CPUs. There may be any number of tasks.
    ///
    /// # Errors
    ///
    /// [`CidError::NoSuchCpu`] if a CPU has no position in the layout. All methods that take CPUs
    /// may return it. Methods that take a task may also return [`CidError::ForeignTask`].
    pub fn user_enter(&self, allowed: &CpuSet) -> Result<Task<P, W>, CidError> {
        self.places(allowed)?;
        Ok(Task { task: self.engine.enter(allowed), space: Arc::clone(&self.name) })
    }

    /// Removes a task. The task must not be running, because the ID of a running task is never
    /// freed. If the task was the last user of its ID, the ID becomes free.
    ///
    /// # Errors
    ///
    /// [`ForeignTask`], with the task, if the task entered another space.
    pub fn user_leave(&self, task: Task<P, W>) -> Result<(), ForeignTask<P, W>> {
        match self.own(&task) {
            Ok(own) => self.engine.leave(own),
            Err(_) => return Err(ForeignTask(task)),
        }
        Ok(())
    }

    /// Allows a task to run on these CPUs. The set of allowed CPUs is a union that only grows. A
    /// CPU on which any task was ever allowed counts until the end of the space, or until an
    /// [`exec`](Self::exec).
    pub fn allow(&self, task: &Task<P, W>, cpus: &CpuSet) -> Result<(), CidError> {
        self.places(cpus)?;
        self.engine.allow(self.own(task)?, cpus);
        Ok(())
    }

    /// Switches a task in on a CPU, and returns the ID that it has until it is switched out. A task
    /// that was not allowed on this CPU is allowed from now on.
    ///
    /// # Errors
    ///
    /// The same errors as for [`user_enter`](Self::user_enter), [`CidError::Busy`] if the space
    /// detects that a task already runs on this CPU, and [`CidError::NoMemory`] at the first switch
    /// on a CPU.
    pub fn switch_in(&self, now: Time, cpu: CpuId, task: &Task<P, W>) -> Result<Cid, CidError> {
        let cid = self.engine.switch_in(now, self.place(cpu)?, self.own(task)?);
        let cid = cid.map_err(|_| CidError::NoMemory { cpu })?;
        cid.map(Cid::new).ok_or(CidError::Busy { cpu })
    }

    /// Switches out the task that runs on a CPU. The call does nothing if no task runs on the CPU,
    /// or if the task belongs to another space.
    pub fn switch_out(&self, now: Time, cpu: CpuId, task: &Task<P, W>) {
        if let (Ok(place), Ok(task)) = (self.place(cpu), self.own(task)) {
            self.engine.switch_out(now, place, task);
        }
    }

    /// Moves a task that is not running from the CPU where it last ran or waited to another CPU. If
    /// there is no memory for the other CPU's row, the task moves there without an ID.
    pub fn migrate(
        &self,
        now: Time,
        task: &Task<P, W>,
        from: CpuId,
        to: CpuId,
    ) -> Result<(), CidError> {
        let (task, from, to) = (self.own(task)?, self.place(from)?, self.place(to)?);
        if from != to {
            self.engine.migrate(now, task, from, to);
        }
        Ok(())
    }

    /// Takes back the IDs that have not been used for [`EXPIRY`], and makes IDs compact again. The
    /// call does nothing until [`SCAN_DELAY`] has passed since the last scan, so you may call it as
    /// often as you like. Rows store times in milliseconds, modulo 8.192 s. After a gap of seven
    /// seconds without calls, another 1.1 s with calls may pass before an old ID is detected.
    pub fn expire(&self, now: Time) {
        self.engine.expire(now);
    }

    /// Resets the space for a new program of the task. The task may run on these CPUs. Running
    /// tasks keep their IDs until they are switched out. No other call may overlap.
    pub fn exec(&self, now: Time, task: &Task<P, W>, allowed: &CpuSet) -> Result<(), CidError> {
        self.places(allowed)?;
        self.engine.exec(now, self.own(task)?, allowed);
        Ok(())
    }

    /// Returns the range of IDs that a task gets if it is switched in on this CPU now.
    pub fn bounds(&self, cpu: CpuId) -> Result<Range<u32>, CidError> {
        Ok(self.engine.bounded(self.place(cpu)?))
    }

    /// Returns the taken IDs, in use or not. The result may be out of date when the call returns.
    pub fn taken(&self) -> impl Iterator<Item = Cid> {
        let ids = &self.engine.base().ids;
        (0..self.layout.width() as u32).filter(|&cid| ids.contains(cid)).map(Cid::new)
    }

    /// Returns the number of tasks. The result may be out of date when the call returns.
    pub fn users(&self) -> usize {
        self.engine.base().users() as usize
    }
}

/// Methods of a space that is driven by use: see the [module](self).
impl<P, W: World> CidSpace<P, W>
where
    P: References + Sealed<Engine<W> = Hooked<P, W>>,
{
    /// Returns the ID that sections on this CPU may use from now on. If the CPU's row already has
    /// an ID, the call returns that ID. The call also calls [`expire_unused`](Self::expire_unused),
    /// which does not take this ID.
    ///
    /// Tasks may also enter and leave the space. New IDs are handed out while the number of
    /// handed-out IDs is below the number of users. A new ID is below the number of CPUs that were
    /// used or allowed. Under [`Clustered`], this bound counts the CPUs under the same cache, and
    /// is relative to the start of that cache's range.
    ///
    /// # Errors
    ///
    /// [`CidError::NoSuchCpu`] if the CPU has no position in the layout, and [`CidError::NoMemory`]
    /// at the first use of a CPU.
    pub fn use_at(&self, cpu: CpuId) -> Result<Cid, CidError> {
        let place = self.place(cpu)?;
        let use_at = || self.engine.use_at(place).map_err(|_| CidError::NoMemory { cpu });
        let now = W::now();
        use_at()?;
        // Where sections cannot be fenced, IDs stay where they are.
        drop(self.expire_unused(now));
        // The scan marks this row, too.
        use_at().map(Cid::new)
    }

    /// Returns the ID that sections on this CPU may use now, or `None` if they must call
    /// [`use_at`](Self::use_at) first.
    pub fn used_at(&self, cpu: CpuId) -> Option<Cid> {
        self.engine.held(self.place(cpu).ok()?).map(Cid::new)
    }

    /// Frees the IDs of rows for which no section has called [`use_at`](Self::use_at) since the
    /// last scan, or for [`EXPIRY`], whichever is longer. Then it marks all rows, so that the next
    /// section on each CPU calls [`use_at`](Self::use_at) once. The call does nothing until
    /// [`SCAN_DELAY`] has passed since the last scan.
    ///
    /// The call executes one rseq fence if there is an ID to free. An ID in steady use stays, even
    /// if lower IDs have become free.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if sections cannot be fenced. Then nothing was freed.
    pub fn expire_unused(&self, now: Time) -> Result<(), Lacking> {
        self.engine.expire_unused(now, W::fence_restartable)
    }
}

impl_debug!([P: Policy, W: World] CidSpace<P, W> as it {
    policy: P::NAME, users: it.users(), taken: it.taken().count(), ..
});
