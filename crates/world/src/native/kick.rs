//! Kick: `membarrier` with a CPU's number.
//!
//! `MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ` restarts the sections that threads of this process are
//! in; with `MEMBARRIER_CMD_FLAG_CPU` on one CPU alone, by an interrupt that is sent only if a
//! thread of this process runs there. The command and the flag came together. A kernel, sandbox or
//! emulator that has the one and refuses the other is asked for the whole fence instead.
//!
//! A CPU that the machine does not have is no error to the kernel: nothing runs there.
//!
//! Source: `membarrier(2)`; `kernel/sched/membarrier.c` of Linux, commit 2a36ab717e8f.

use coreline_topology::CpuId;

use crate::native::{Native, fences, rseq};
use crate::{Fences, Kick, Lacking};

/// From `linux/membarrier.h`: the call's last argument is a CPU.
const MEMBARRIER_CMD_FLAG_CPU: libc::c_uint = 1;

impl Kick for Native {
    fn kick(cpu: CpuId) -> Result<(), Lacking> {
        if rseq::sections().is_ok() && fences::aborts_sections() && restart_on(cpu) {
            return Ok(());
        }
        Self::fence_restartable()
    }

    const KNOWS_RESCHED: bool = false;

    #[inline]
    fn need_resched() -> bool {
        false
    }
}

/// Has the kernel restart the section that this process is in on a CPU. Whether it did.
fn restart_on(cpu: CpuId) -> bool {
    let Ok(cpu) = libc::c_int::try_from(cpu.get()) else {
        // No kernel has so many CPUs.
        return true;
    };
    let command = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ;
    // SAFETY: the call takes plain numbers, and changes nothing but where threads go on.
    unsafe { libc::syscall(libc::SYS_membarrier, command, MEMBARRIER_CMD_FLAG_CPU, cpu) == 0 }
}
