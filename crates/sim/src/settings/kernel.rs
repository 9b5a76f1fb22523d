//! The simulated kernel's hooks: what happens when threads start, end and move, and at ticks.
//!
//! The simulator knows no primitive, and so no policy for concurrency IDs. The host program
//! installs a [`Kernel`] that hands them out, as the real kernel does at a switch.

use coreline_topology::{Cid, CpuId};
use coreline_world::Time;

/// What a simulated kernel does when threads come and go.
///
/// The machine, and not a simulated thread, makes the calls in the order of simulated time, up to
/// the length of a thread's uninterrupted computation. They cost nothing, and must not use the
/// functions of [`Sim`](crate::Sim).
pub trait Kernel {
    /// What a replay line calls the kernel: one word. Kernels that behave differently have
    /// different names.
    fn name(&self) -> &str {
        "custom"
    }

    /// `thread` gets `cpu`. Returns its concurrency ID until it is switched out.
    ///
    /// The ID must be below the number of CPUs and not in use by another thread that has a CPU.
    fn switch_in(&mut self, at: Time, cpu: CpuId, thread: usize) -> Cid;

    /// `thread` loses `cpu`: it was preempted, blocks, moves away or ends.
    fn switch_out(&mut self, at: Time, cpu: CpuId, thread: usize);

    /// `thread` moves: after its [`switch_out`](Kernel::switch_out) at `from`, and before its
    /// [`switch_in`](Kernel::switch_in) at `to`. A thread that moves again before it ran moves from
    /// where it waited.
    fn migrated(&mut self, at: Time, thread: usize, from: CpuId, to: CpuId) {
        let _ = (at, thread, from, to);
    }

    /// The timer ticked on `cpu`, where `thread` runs: once in the machine's `tick` cost, at a
    /// phase that each CPU draws from the seed. A CPU without a thread has no tick (NOHZ), so a
    /// scan driven by ticks alone does not see sleeping threads.
    fn tick(&mut self, at: Time, cpu: CpuId, thread: usize) {
        let _ = (at, cpu, thread);
    }

    /// `thread` began another program, on the CPU that it has: see [`exec`](crate::exec()).
    fn exec(&mut self, at: Time, thread: usize) {
        let _ = (at, thread);
    }

    /// A thread was started; `cpu` is where it will run first, and if `bound` will stay.
    fn spawned(&mut self, thread: usize, cpu: CpuId, bound: bool);

    /// A thread ended, after its last [`switch_out`](Kernel::switch_out).
    fn exited(&mut self, thread: usize);
}
