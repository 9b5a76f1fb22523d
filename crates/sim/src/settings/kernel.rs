//! The simulated kernel's hooks: its reactions to the start, end and migration of threads, and to
//! ticks.
//!
//! The simulator knows no primitive, and so no policy for concurrency IDs. The host program
//! installs a [`Kernel`] that assigns them, as the real kernel does at a context switch.

use coreline_topology::{Cid, CpuId};
use coreline_world::Time;

/// A simulated kernel's reactions to scheduling events.
///
/// The machine makes the calls, not a simulated thread. The calls follow the order of simulated
/// time, up to the length of a thread's uninterrupted computation. They take no simulated time, and
/// must not use the functions of [`Sim`](crate::Sim).
pub trait Kernel {
    /// Returns the kernel's name in a replay line, which is one word. Kernels that behave
    /// differently have different names.
    fn name(&self) -> &str {
        "custom"
    }

    /// Handles the event that `thread` starts to run on `cpu`. Returns the concurrency ID that the
    /// thread has until it is switched out.
    ///
    /// The ID must be below the number of CPUs and not in use by another thread that has a CPU.
    fn switch_in(&mut self, at: Time, cpu: CpuId, thread: usize) -> Cid;

    /// Handles the event that `thread` stops running on `cpu`, because it is preempted, blocks,
    /// migrates or ends.
    fn switch_out(&mut self, at: Time, cpu: CpuId, thread: usize);

    /// Handles the migration of `thread`, after its [`switch_out`](Kernel::switch_out) at `from`
    /// and before its [`switch_in`](Kernel::switch_in) at `to`. If a thread migrates again before
    /// it runs, `from` is the CPU where it waited.
    fn migrated(&mut self, at: Time, thread: usize, from: CpuId, to: CpuId) {
        let _ = (at, thread, from, to);
    }

    /// Handles a timer tick on `cpu`, where `thread` runs. The period is the machine's `tick` cost,
    /// and each CPU has a random phase. A CPU without a thread has no tick (NOHZ), so a scan driven
    /// by ticks alone does not see sleeping threads.
    fn tick(&mut self, at: Time, cpu: CpuId, thread: usize) {
        let _ = (at, cpu, thread);
    }

    /// Handles the event that `thread` began another program on its present CPU: see
    /// [`exec`](crate::exec()).
    fn exec(&mut self, at: Time, thread: usize) {
        let _ = (at, thread);
    }

    /// Handles the start of a thread. `cpu` is its first CPU. If `bound` is true, the thread stays
    /// on that CPU.
    fn spawned(&mut self, thread: usize, cpu: CpuId, bound: bool);

    /// Handles the end of a thread, after its last [`switch_out`](Kernel::switch_out).
    fn exited(&mut self, thread: usize);
}
