//! First fit: how Linux handed out concurrency IDs before 6.13, the "before" of seed 000.
//!
//! A CPU keeps a *reference* to the ID that a thread of the process last had there. A thread that
//! is switched in takes its CPU's reference if there is one, else the lowest ID that no CPU refers
//! to. A reference that was not used for 100 ms is dropped, by a scan. In favour of the policy: it
//! is compact, it costs a load and a compare at most switches, and threads that run everywhere
//! within 100 ms always find their IDs again. Its weakness is what the seed shows: after a longer
//! pause a CPU gets whatever ID is the lowest, and with it memory that another CPU used last.
//!
//! What is certain: reuse, the lowest free ID, the 100 ms. What is not: when the scan runs. The
//! kernel does it in a thread of the process, asked for by a tick that hits such a thread while it
//! runs, at most every 100 ms. The simulated machine has no ticks; here every switch-in is such an
//! occasion, *after* the thread got its ID, so that no thread drops the reference that it is about
//! to use. Bursts of microseconds are seldom hit by a tick, so the real scan is rarer; references
//! then live longer and the policy does better.
//!
//! Left out: that a thread which migrates may take its reference along. The threads of the
//! scenarios are pinned.
//!
//! Sources: `kernel/sched/core.c` and `sched.h` of Linux 6.12; seed 000 (what the patch changes).

use core::time::Duration;

use coreline_sim::Kernel;
use coreline_topology::{Cid, CpuId};
use coreline_world::Time;

/// How long a reference lives unused, and how often at most a scan looks for such.
pub(crate) const EXPIRY: Duration = Duration::from_millis(100);

/// What a CPU remembers of the last thread of the process that it ran.
#[derive(Debug, Clone, Copy)]
struct Reference {
    cid: Cid,
    /// When a thread was last switched in or out, or seen running by a scan.
    used: Time,
    /// Whether a thread has the ID now: such a reference never expires.
    running: bool,
}

/// The policy. A simulated machine runs one process.
#[derive(Debug)]
pub(crate) struct FirstFit {
    /// By CPU.
    references: Vec<Option<Reference>>,
    /// By ID: whether a CPU refers to it. There are never more references than CPUs, so IDs stay
    /// below the number of CPUs.
    taken: Vec<bool>,
    /// When the next scan may run.
    next_scan: Time,
}

impl FirstFit {
    /// The policy of a machine with this many CPUs.
    pub(crate) fn new(cpus: usize) -> FirstFit {
        FirstFit {
            references: vec![None; cpus],
            taken: vec![false; cpus],
            next_scan: Time::from_nanos(0) + EXPIRY,
        }
    }

    /// Takes the lowest ID that no CPU refers to. The caller's CPU refers to none, so there is one.
    fn take_lowest(&mut self) -> Cid {
        let lowest = self.taken.iter().position(|taken| !taken);
        let lowest = lowest.expect("a CPU without a reference leaves an ID without one");
        self.taken[lowest] = true;
        Cid::new(lowest as u32)
    }

    fn scan(&mut self, at: Time) {
        if at < self.next_scan {
            return;
        }
        self.next_scan = at + EXPIRY;
        for slot in &mut self.references {
            let Some(reference) = slot else { continue };
            if reference.running {
                reference.used = at;
            } else if at - reference.used >= EXPIRY {
                self.taken[reference.cid.index()] = false;
                *slot = None;
            }
        }
    }
}

impl Kernel for FirstFit {
    fn switch_in(&mut self, at: Time, cpu: CpuId, _thread: usize) -> Cid {
        let kept = self.references[cpu.index()].map(|reference| reference.cid);
        let cid = kept.unwrap_or_else(|| self.take_lowest());
        self.references[cpu.index()] = Some(Reference { cid, used: at, running: true });
        self.scan(at);
        cid
    }

    fn switch_out(&mut self, at: Time, cpu: CpuId, _thread: usize) {
        if let Some(reference) = &mut self.references[cpu.index()] {
            reference.used = at;
            reference.running = false;
        }
    }

    fn spawned(&mut self, _thread: usize, _cpu: CpuId, _bound: bool) {}

    fn exited(&mut self, _thread: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy on four CPUs, driven by hand.
    struct Script(FirstFit);

    impl Script {
        fn new() -> Script {
            Script(FirstFit::new(4))
        }

        fn switch_in(&mut self, ms: u64, cpu: u32) -> u32 {
            self.0.switch_in(Time::from_nanos(ms * 1_000_000), CpuId::new(cpu), 0).get()
        }

        fn switch_out(&mut self, ms: u64, cpu: u32) {
            self.0.switch_out(Time::from_nanos(ms * 1_000_000), CpuId::new(cpu), 0);
        }

        /// A thread that has the CPU for less than a millisecond.
        fn burst(&mut self, ms: u64, cpu: u32) -> u32 {
            let cid = self.switch_in(ms, cpu);
            self.switch_out(ms, cpu);
            cid
        }
    }

    #[test]
    fn a_cpu_gets_its_id_again_within_100_ms() {
        let mut script = Script::new();
        assert_eq!([script.burst(0, 3), script.burst(1, 1), script.burst(2, 0)], [0, 1, 2]);
        // Each pause is below 100 ms, and the scans in between find nothing old.
        for ms in [90, 180, 270] {
            assert_eq!([script.burst(ms, 0), script.burst(ms, 3), script.burst(ms, 1)], [2, 0, 1]);
        }
    }

    #[test]
    fn after_the_expiry_a_cpu_gets_the_lowest_free_id() {
        let mut script = Script::new();
        assert_eq!([script.burst(0, 0), script.burst(0, 1), script.burst(0, 2)], [0, 1, 2]);
        // CPU 2 still has its reference, and its scan drops the others'.
        assert_eq!(script.burst(150, 2), 2);
        assert_eq!([script.burst(151, 1), script.burst(152, 0)], [0, 1], "first come, first fit");
    }

    #[test]
    fn a_reference_outlives_100_ms_if_nobody_scans() {
        let mut script = Script::new();
        assert_eq!([script.burst(0, 0), script.burst(10, 1)], [0, 1]);
        // The scan at 105 ms finds CPU 1's reference 95 ms old; the next may run at 205 ms.
        assert_eq!(script.burst(105, 0), 0);
        assert_eq!(script.burst(204, 1), 1);
    }

    #[test]
    fn a_thread_does_not_drop_the_reference_that_it_takes() {
        let mut script = Script::new();
        assert_eq!([script.burst(0, 0), script.burst(0, 1)], [0, 1]);
        assert_eq!(script.burst(500, 1), 1);
        assert_eq!(script.burst(501, 2), 0, "CPU 0's is gone");
    }

    #[test]
    fn no_two_running_threads_have_one_id() {
        let mut script = Script::new();
        assert_eq!(script.switch_in(0, 2), 0);
        // Long after every expiry the running thread's ID is still its own.
        assert_eq!([script.switch_in(300, 1), script.switch_in(600, 0)], [1, 2]);
        script.switch_out(700, 1);
        assert_eq!(script.burst(900, 3), 3, "the scan comes after the ID");
        assert_eq!(script.burst(1100, 1), 1, "the lowest that nobody has");
        script.switch_out(1150, 2);
        assert_eq!(script.burst(1160, 2), 0, "used until a moment ago");
    }
}
