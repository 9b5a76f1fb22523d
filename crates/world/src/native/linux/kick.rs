//! Kick: `membarrier` with a CPU's number.
//!
//! `MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ` restarts the sections that threads of this process are
//! in; with `MEMBARRIER_CMD_FLAG_CPU` on one CPU alone, by an interrupt that is sent only if a
//! thread of this process runs there. If the flag is refused, the whole fence takes its place. A
//! CPU that the machine does not have is not an error to the kernel: nothing runs there.
//!
//! Source: `membarrier(2)`; `kernel/sched/membarrier.c` of Linux, commit 2a36ab717e8f.

use coreline_topology::CpuId;

use crate::native::Native;
use crate::native::linux::{fences, rseq};
use crate::{Fences, Kick, Lacking};

impl Kick for Native {
    fn kick(cpu: CpuId) -> Result<(), Lacking> {
        if rseq::sections().is_ok() && fences::restart_on(cpu) {
            return Ok(());
        }
        Self::fence_restartable()
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::Arc;

    use super::*;
    use crate::arch::{self, Watched};
    use crate::native::linux::affinity;
    use crate::{JoinHandle, Placement, Threads};

    /// Sections that last for many kicks of their CPU end by one.
    #[test]
    fn a_kick_aborts_the_section_that_runs_on_its_cpu() {
        let cpus: Vec<CpuId> = affinity::allowed().unwrap_or_default().iter().take(2).collect();
        let (Ok(area), &[watching, kicking]) = (rseq::sections(), &cpus[..]) else { return };
        if !fences::aborts_sections() {
            return;
        }
        let (kicks, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (their_kicks, their_over) = (Arc::clone(&kicks), Arc::clone(&over));
        // Relaxed, here and below: the words carry nothing but themselves.
        let kicker = Native::spawn(Placement::On(kicking), move || {
            while !their_over.load(Ordering::Relaxed) {
                Native::kick(watching).unwrap();
                their_kicks.fetch_add(1, Ordering::Relaxed);
            }
        });
        let watcher = Native::spawn(Placement::On(watching), move || {
            rseq::register_thread();
            let (mut aborted, mut survived) = (0, 0);
            while aborted + survived < 200 {
                let before = kicks.load(Ordering::Relaxed);
                let spins = NonZeroU32::new(5_000).unwrap();
                let outcome = arch::watch(area, &AtomicU32::new(0), spins);
                match outcome {
                    Watched::Aborted => aborted += 1,
                    // Two kicks have ended since, so one began since. It may have come just
                    // before the section or after it, but not as a rule.
                    _ if kicks.load(Ordering::Relaxed) - before >= 2 => survived += 1,
                    _ => {}
                }
            }
            over.store(true, Ordering::Relaxed);
            (aborted, survived)
        });
        let (aborted, survived) = watcher.unwrap().join();
        kicker.unwrap().join();
        assert!(aborted > 10 * survived, "{aborted} sections aborted, {survived} survived kicks");
    }
}
