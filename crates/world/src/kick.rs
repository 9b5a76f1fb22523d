//! Kick: an interrupt to another CPU, and whether another thread wants the caller's CPU.

use coreline_topology::CpuId;

use crate::Lacking;

/// The capability *kick*.
pub trait Kick {
    /// Interrupts what `cpu` runs of this process, if anything, and returns after that.
    ///
    /// The law: every restartable operation that was under way on `cpu` at the time of the call has
    /// either committed, and the caller sees what it wrote, or starts over. Every operation that
    /// starts on `cpu` from then on sees what the caller wrote before. It is
    /// [`fence_restartable`](crate::Fences::fence_restartable) for one CPU, at the cost of one
    /// interrupt and not of one for each CPU. A CPU that runs nothing of this process, or that the
    /// machine does not have, has nothing under way. Nor does the caller's own CPU.
    ///
    /// A kick delivers nothing and runs nothing. To have a function run elsewhere, write a word
    /// that a thread there looks at, and [wake](crate::Sleep::wake) the thread if it sleeps.
    ///
    /// * `Native` asks `membarrier` to interrupt only that CPU. If the kernel refuses that, it
    ///   fences all CPUs instead.
    /// * `Sim` sends the machine's interrupt, and waits until it was handled. This takes a system
    ///   call, the way there (`ipi`), entry and exit (`irq_entry`, `irq_exit`) and the answer's
    ///   line.
    /// * In the model no operation is ever under way, so a kick is a heavy fence.
    ///
    /// Do not call it if the caller's own CPU cannot be interrupted: two CPUs that kick each other
    /// would wait forever.
    ///
    /// # Errors
    ///
    /// [`Lacking`], as for `fence_restartable`. Then the caller knows nothing about the other CPU.
    fn kick(cpu: CpuId) -> Result<(), Lacking>;

    /// Whether this world can answer [`need_resched`](Kick::need_resched). If it cannot, the answer
    /// is always no, and a caller that spins bounds its spinning by time.
    const KNOWS_RESCHED: bool = false;

    /// Whether the caller should give up its CPU: its time slice is over and another thread waits
    /// for the CPU, or an interrupt does, and only the caller's masking of preemption keeps the CPU
    /// from them. It corresponds to the kernel's `need_resched`. It is as cheap as a read of the
    /// caller's own word.
    ///
    /// A thread that can be preempted is preempted before it could ask. So the answer matters only
    /// to code that cannot be: handlers of interrupts, and sections that mask them.
    ///
    /// * `Native` does not know. A kernel tells a program only afterwards, by the rseq area or by a
    ///   system call. The slice extension of newer kernels answers another question: whether a
    ///   thread that asked may stay for a moment.
    /// * `Sim` knows. Under a schedule that chooses, every point may be the end of a slice.
    #[inline]
    fn need_resched() -> bool {
        false
    }
}
