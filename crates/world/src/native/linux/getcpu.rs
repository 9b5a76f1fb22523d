//! The CPU of the calling thread, as the kernel answers.

use coreline_topology::CpuId;

/// The CPU that runs the caller, by asking the kernel.
#[cold]
pub(crate) fn cpu_by_call() -> CpuId {
    if cfg!(miri) {
        // A call that Miri does not know.
        return CpuId::new(0);
    }
    // SAFETY: asks for a number.
    let cpu = unsafe { libc::sched_getcpu() };
    // The call fails only under a filter. CPU 0 is always there, and any answer is only a hint.
    CpuId::new(u32::try_from(cpu).unwrap_or(0))
}
