//! The samples that do not count, because other load ran on the CPUs meanwhile.
//!
//! The rule never looks at the time that was measured, so it cannot prefer fast samples.
//!
//! - **No more threads than CPUs**: each thread has a CPU to itself and should never wait for it.
//!   The kernel keeps, for each thread, how long it waited on a run queue: the second figure of
//!   its `schedstat` (`Documentation/scheduler/sched-stats.rst`). A thread that waited more than
//!   40 us per ms of the sample spoils it. A kernel that keeps no such figure leaves nothing to
//!   judge by, and the report says so.
//! - **More threads than CPUs**: threads wait for each other, so waiting says nothing. What counts
//!   is the time that a CPU had our threads to run and ran something else: from the start of the
//!   sample until the last of the CPU's threads is done, less the CPU time of those threads. More
//!   than 15 % of that spoils the sample. (The busy time in the kernel's `stat` file would say
//!   it in ticks of 10 ms, as long as the whole sample.) The figure is the CPU time of our threads,
//!   which has nothing of that in it. So where every try was spoiled the last one counts: on a busy
//!   machine there would be no figure else.
//! - **Windows**: threads may sleep until others let them go on, so an idle CPU says nothing. What
//!   counts is the busy time in the kernel's `stat` file, less the CPU time of our threads: more
//!   than 5 % of the window and two ticks on a CPU spoils the sample. So does a window in which
//!   nothing was done at all.

/// The work of one thread of a sample. Times are nanoseconds since one moment before the sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane {
    /// The thread's CPU: its place among those allowed.
    pub(crate) cpu: usize,
    /// How many operations it did.
    pub(crate) ops: u64,
    /// When the thread began.
    pub(crate) start: u64,
    /// When it was done.
    pub(crate) end: u64,
    /// How long it ran on its CPU in between; for a window, also while it waited for the others'
    /// start.
    pub(crate) ran: u64,
    /// How long it waited on a run queue in between, and with it what runs for it elsewhere; `None`
    /// where the kernel does not say.
    pub(crate) waited: Option<u64>,
    /// How much of the time in between is measured; `None`: all.
    pub(crate) counted: Option<u64>,
}

/// One sample, thread by thread.
#[derive(Debug)]
pub(crate) struct Sample {
    /// At least one.
    pub(crate) lanes: Vec<Lane>,
    /// How many CPUs the threads were spread over at most.
    pub(crate) cpus: usize,
    pub(crate) kind: Kind,
    /// How much CPU time this process used meanwhile, threads of the candidate's own included.
    pub(crate) cpu_ns: u64,
}

/// The event that ended a sample.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each thread had done as many operations as it was told to.
    Ops,
    /// Time was up.
    Window {
        /// The time for which each CPU was busy meanwhile, in nanoseconds, with the threads of the
        /// sample or otherwise; `None` if the kernel does not say.
        busy: Option<Vec<u64>>,
    },
}

impl Sample {
    fn start(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.start).min().unwrap_or(0)
    }

    /// The time from the first thread's start to the last one's end, in nanoseconds.
    pub(crate) fn wall(&self) -> u64 {
        let end = self.lanes.iter().map(|lane| lane.end).max().unwrap_or(0);
        end.saturating_sub(self.start())
    }

    /// How much of that is measured.
    pub(crate) fn counted(&self) -> u64 {
        let counted = self.lanes.iter().filter_map(|lane| lane.counted).max();
        counted.unwrap_or_else(|| self.wall())
    }

    /// How many operations all threads did.
    pub(crate) fn ops(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.ops).sum()
    }

    /// Whether its figure is the CPU time that the threads had, and nothing of what else ran.
    pub(crate) fn is_cpu_time(&self) -> bool {
        let parts = self.lanes.iter().any(|lane| lane.counted.is_some());
        self.kind == Kind::Ops && self.lanes.len() > self.cpus && !parts
    }

    /// Nanoseconds per operation: of CPU time, or of the window.
    pub(crate) fn ns_per_op(&self) -> f64 {
        if self.is_cpu_time() {
            let ran: u64 = self.lanes.iter().map(|lane| lane.ran).sum();
            return ran as f64 / self.ops() as f64;
        }
        self.wall_ns_per_op()
    }

    /// Nanoseconds per operation of the time that passed, other programs' time on these CPUs
    /// included.
    pub(crate) fn wall_ns_per_op(&self) -> f64 {
        let at_once = match self.kind {
            Kind::Ops => self.lanes.len().min(self.cpus),
            Kind::Window { .. } => 1,
        };
        self.counted() as f64 * at_once as f64 / self.ops() as f64
    }

    /// How much CPU time of this process went into an operation, in nanoseconds.
    pub(crate) fn cpu_ns_per_op(&self) -> f64 {
        self.cpu_ns as f64 / self.ops() as f64
    }

    /// The work of the unluckiest thread in a window, as a part of the luckiest thread's work.
    pub(crate) fn share(&self) -> Option<f64> {
        let ops = || self.lanes.iter().map(|lane| lane.ops);
        let (least, most) = ops().min().zip(ops().max())?;
        (self.kind != Kind::Ops && most > 0).then(|| least as f64 / most as f64)
    }

    /// Whether other load spoiled it.
    pub(crate) fn is_disturbed(&self) -> bool {
        if let Kind::Window { busy } = &self.kind {
            let bound = self.wall() * MOST_FOREIGN_PERCENT_OF_WINDOW / 100 + TICKS_NS;
            let foreign = |(cpu, busy): (usize, &u64)| busy.saturating_sub(self.ran(cpu));
            let busy = busy.iter().flatten().enumerate();
            // A window in which nothing was done was over before any thread came to its CPU.
            self.ops() == 0 || busy.map(foreign).any(|foreign| foreign > bound)
        } else if self.lanes.len() <= self.cpus {
            let bound = self.wall() * MOST_WAITED_US_PER_MS / 1000;
            self.lanes.iter().any(|lane| lane.waited.is_some_and(|waited| waited > bound))
        } else {
            let (foreign, had) = self.foreign();
            foreign * 100 > had * MOST_FOREIGN_PERCENT
        }
    }

    /// The time for which the CPUs ran other code although they had threads of the sample to run,
    /// and the time for which they had such threads.
    fn foreign(&self) -> (u64, u64) {
        let mut foreign = 0;
        let mut had = 0;
        for cpu in 0..self.cpus {
            let lanes = || self.lanes.iter().filter(|lane| lane.cpu == cpu);
            if let Some(end) = lanes().map(|lane| lane.end).max() {
                let window = end.saturating_sub(self.start());
                had += window;
                foreign += window.saturating_sub(self.ran(cpu));
            }
        }
        (foreign, had)
    }

    /// The time for which a CPU ran threads of the sample.
    fn ran(&self, cpu: usize) -> u64 {
        self.lanes.iter().filter(|lane| lane.cpu == cpu).map(|lane| lane.ran).sum()
    }
}

const MOST_WAITED_US_PER_MS: u64 = 40;
const MOST_FOREIGN_PERCENT: u64 = 15;
const MOST_FOREIGN_PERCENT_OF_WINDOW: u64 = 5;

/// The possible error of the busy time: it is kept in ticks of 10 ms, and read before and after.
const TICKS_NS: u64 = 20_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const US: u64 = 1_000;

    /// A thread alone on its CPU, for one ms.
    fn alone(cpu: usize, waited: Option<u64>) -> Lane {
        let ran = MS - waited.unwrap_or(0);
        Lane { cpu, ops: MS, start: 5 * MS, end: 6 * MS, ran, waited, counted: None }
    }

    fn sample(cpus: usize, lanes: &[Lane]) -> Sample {
        Sample { lanes: lanes.to_vec(), cpus, kind: Kind::Ops, cpu_ns: 3 * MS }
    }

    #[test]
    fn a_wait_of_40_us_per_ms_is_the_most() {
        let judge = |first, second| sample(2, &[alone(0, first), alone(1, second)]).is_disturbed();
        assert!(!judge(Some(0), Some(40 * US)));
        assert!(judge(Some(0), Some(40 * US + 1)), "one thread is enough");
        assert!(judge(Some(41 * US), Some(0)));
        assert!(!judge(None, None), "nothing to judge by");
        let long = Lane { end: 15 * MS, ..alone(0, Some(41 * US)) };
        assert!(!sample(1, &[long]).is_disturbed(), "the bound grows with the sample");
    }

    #[test]
    fn threads_that_share_a_cpu_wait_for_each_other() {
        // Two on CPU 0, one after the other, and one on CPU 1, which is idle afterwards.
        let first = Lane { ops: 1, start: 0, ran: 6 * MS, ..alone(0, Some(0)) };
        let second = Lane { start: 6 * MS, end: 12 * MS, waited: Some(6 * MS), ..first };
        let third = Lane { cpu: 1, ..first };
        assert!(!sample(2, &[first, second, third]).is_disturbed());
        // Something else ran for 3 ms on CPU 0.
        let later = Lane { start: 9 * MS, end: 15 * MS, ..second };
        assert_eq!(sample(2, &[first, later, third]).foreign(), (3 * MS, 21 * MS));
        assert!(!sample(2, &[first, later, third]).is_disturbed(), "3 of 21");
        let latest = Lane { end: 16 * MS, ..later };
        assert!(sample(2, &[first, latest, third]).is_disturbed(), "4 of 22");
    }

    #[test]
    fn a_window_is_spoiled_by_what_else_its_cpus_did() {
        const S: u64 = 1000 * MS;
        // Two threads that slept most of the time, and waited for each other when they did not.
        let slept = Lane { start: 0, end: S, ran: 100 * MS, ..alone(0, None) };
        let lane = |cpu, ops| Lane { cpu, ops, waited: Some(S / 2), ..slept };
        let window = |busy: Option<[u64; 2]>| Sample {
            lanes: vec![lane(0, 100), lane(0, 300), lane(1, 600)],
            cpus: 2,
            kind: Kind::Window { busy: busy.map(Vec::from) },
            cpu_ns: 300 * MS,
        };
        // 5 % of a second, and two ticks.
        assert!(!window(Some([270 * MS, 170 * MS])).is_disturbed());
        assert!(window(Some([271 * MS, 170 * MS])).is_disturbed());
        assert!(window(Some([270 * MS, 171 * MS])).is_disturbed(), "one CPU is enough");
        assert!(!window(Some([0, 0])).is_disturbed(), "ticks may miss what ran");
        assert!(!window(None).is_disturbed(), "nothing to judge by");
        let idle = Sample { lanes: vec![lane(0, 0)], ..window(None) };
        assert!(idle.is_disturbed(), "nothing was done");
        assert_eq!(window(None).ns_per_op(), 1e6, "of the window, not of CPUs");
        assert_eq!(window(None).share(), Some(100.0 / 600.0));
        assert_eq!(window(None).cpu_ns_per_op(), 3e5, "all threads of the process");
        assert_eq!(sample(1, &[alone(0, None)]).share(), None);
    }

    #[test]
    fn the_figure_is_cpu_time() {
        let lanes = [alone(0, None), alone(1, None), alone(0, None), alone(1, None)];
        assert_eq!(sample(2, &lanes[..1]).ns_per_op(), 1.0);
        assert_eq!(sample(2, &lanes[..2]).ns_per_op(), 1.0, "both at once");
        let shared = lanes.map(|lane| Lane { ran: MS / 2, ..lane });
        assert_eq!(sample(2, &shared).ns_per_op(), 0.5, "twice as much in the same time");
        assert_eq!(sample(2, &shared).wall_ns_per_op(), 0.5, "two CPUs at a time");
        assert_eq!(sample(2, &shared).cpu_ns_per_op(), 0.75, "as the process says");
        let late = shared.map(|lane| Lane { end: 9 * MS, ..lane });
        assert_eq!(sample(2, &late).ns_per_op(), 0.5, "something else ran for the rest");
        assert!(sample(2, &late).is_disturbed() && sample(2, &late).is_cpu_time());
        assert!(!sample(2, &late[..2]).is_cpu_time(), "each has a CPU to itself");
        let late = Lane { start: 5 * MS + 1, end: 7 * MS, ..lanes[1] };
        assert_eq!(sample(2, &[lanes[0], late]).wall(), 2 * MS);
        let part = Lane { counted: Some(MS / 4), ..late };
        assert_eq!(sample(2, &[part, lanes[0]]).ns_per_op(), 0.25, "what is measured of it");
        assert_eq!(sample(2, &[part, lanes[0]]).wall(), 2 * MS, "all of it");
    }
}
