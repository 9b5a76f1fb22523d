//! Kick: an interrupt to another CPU; and whether the own CPU is wanted.

use coreline_topology::CpuId;

use crate::Lacking;

/// The capability *kick*.
pub trait Kick {
    /// Interrupts what `cpu` runs of this process, if anything, and returns when it was.
    ///
    /// The law: every restartable operation that was under way on `cpu` at the time of the call has
    /// either committed, and the caller sees what it wrote, or starts over; and what the caller
    /// wrote before is seen by every operation that starts on `cpu` from then on. It is
    /// [`fence_restartable`](crate::Fences::fence_restartable) for one CPU, at the cost of one
    /// interrupt and not of one for each CPU. A CPU that runs nothing of this process, or that the
    /// machine does not have, has nothing under way; neither has the caller's own CPU.
    ///
    /// A kick delivers nothing and runs nothing. To have something done elsewhere, write a word
    /// that a thread there looks at, and [wake](crate::Sleep::wake) the thread if it sleeps.
    ///
    /// * `Native` asks `membarrier` for an interrupt of that CPU alone. Where the kernel refuses
    ///   that, the fence of all CPUs takes its place.
    /// * `Sim` sends the machine's interrupt, and waits until it was handled: a system call, the
    ///   way there (`ipi`), its entry and exit (`irq_entry`, `irq_exit`) and the answer's line.
    /// * In the model no operation is ever under way, so a kick is a heavy fence.
    ///
    /// Not to be called where the caller's own CPU cannot be interrupted: two CPUs that kick each
    /// other would wait for ever.
    ///
    /// # Errors
    ///
    /// [`Lacking`], as for `fence_restartable`. Nothing is known then.
    fn kick(cpu: CpuId) -> Result<(), Lacking>;

    /// Whether this world knows what [`need_resched`](Kick::need_resched) asks. Where it does not,
    /// the answer is always no, and a caller that spins bounds its spinning by time.
    const KNOWS_RESCHED: bool = false;

    /// Whether the caller should give up its CPU: its time slice is over and another thread waits
    /// for the CPU, or an interrupt does, and only the caller's holding preemption off keeps the
    /// CPU from them. The kernel's `need_resched`. As cheap as a look at a word of one's own.
    ///
    /// A thread that can be preempted is, before it could ask. So the answer matters to code that
    /// cannot: handlers of interrupts, and sections that mask them.
    ///
    /// * `Native` does not know. What the kernel tells a program, by the rseq area or by a system
    ///   call, it tells after the fact. The slice extension of newer kernels answers another
    ///   question: whether a thread that asked may stay for a moment.
    /// * `Sim` knows. Under a schedule that chooses, every point may be the end of a slice.
    #[inline]
    fn need_resched() -> bool {
        false
    }
}
