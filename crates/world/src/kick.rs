//! Kick: an interrupt to another CPU, and a query whether another thread wants the caller's CPU.

use coreline_topology::CpuId;

use crate::Lacking;

/// The capability *kick*.
pub trait Kick {
    /// Interrupts the thread of this process that runs on `cpu`, if any, and returns after the
    /// interrupt.
    ///
    /// The law has two parts. Every restartable operation that was running on `cpu` at the time of
    /// the call has either committed, and the caller sees its writes, or starts over. Every
    /// operation that starts on `cpu` afterwards sees the caller's earlier writes. A kick is
    /// [`fence_restartable`](crate::Fences::fence_restartable) for one CPU. So it costs one
    /// interrupt, rather than one interrupt for each CPU. No operation is running on a CPU without
    /// a thread of this process, on a CPU that the machine does not have, or on the caller's own
    /// CPU.
    ///
    /// A kick delivers no message and runs no function. To run a function on another CPU, write a
    /// word that a thread there reads, and [wake](crate::Sleep::wake) the thread if it sleeps.
    ///
    /// * `Native` asks `membarrier` to interrupt only that CPU. If the kernel refuses this,
    ///   `Native` fences all CPUs instead.
    /// * `Sim` sends the machine's interrupt, and waits until it was handled. This takes a system
    ///   call, the delivery of the interrupt (`ipi`), the entry and exit (`irq_entry`, `irq_exit`),
    ///   and the transfer of the line with the answer.
    /// * In the model, no operation is ever in progress, so a kick is a heavy fence.
    ///
    /// Do not kick while the caller's own CPU cannot be interrupted, because two CPUs that kick
    /// each other would wait forever.
    ///
    /// # Errors
    ///
    /// [`Lacking`], under the same conditions as for `fence_restartable`. In this case the caller
    /// knows nothing about the other CPU.
    fn kick(cpu: CpuId) -> Result<(), Lacking>;

    /// Whether this world can answer [`need_resched`](Kick::need_resched). If it cannot, the answer
    /// is always no, and a spinning caller limits its spinning by time.
    const KNOWS_RESCHED: bool = false;

    /// Returns whether the caller should give up its CPU. The answer is yes if only the caller's
    /// masking of preemption delays an event. The event is an interrupt for the CPU, or a switch to
    /// a waiting thread after the end of the time slice. The function corresponds to the kernel's
    /// `need_resched`. It is as cheap as a read of the caller's own word.
    ///
    /// A preemptible thread is preempted before it can ask. So the answer matters only to code that
    /// cannot be preempted, such as interrupt handlers, and sections that mask interrupts.
    ///
    /// * `Native` does not know the answer. A kernel tells a program only afterwards, through the
    ///   rseq area or a system call. The slice extension of newer kernels answers another question:
    ///   whether a thread that asked may stay for a moment.
    /// * `Sim` knows the answer. Under a schedule that chooses the next thread, a slice may end at
    ///   every point.
    #[inline]
    fn need_resched() -> bool {
        false
    }
}
