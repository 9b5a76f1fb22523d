//! Which samples do not count, because other load ran on the CPUs meanwhile.
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
//!   it in ticks of 10 ms, as long as the whole sample.)

/// What one thread of a sample did. Times are nanoseconds since one moment before the sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane {
    /// The thread's CPU: its place among those allowed.
    pub(crate) cpu: usize,
    /// When the thread began.
    pub(crate) start: u64,
    /// When it was done.
    pub(crate) end: u64,
    /// How long it ran on its CPU in between.
    pub(crate) ran: u64,
    /// How long it waited on a run queue in between; `None` where the kernel does not say.
    pub(crate) waited: Option<u64>,
}

/// One sample, thread by thread.
#[derive(Debug)]
pub(crate) struct Sample {
    /// At least one.
    pub(crate) lanes: Vec<Lane>,
    /// How many CPUs the threads were spread over at most.
    pub(crate) cpus: usize,
}

impl Sample {
    fn start(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.start).min().unwrap_or(0)
    }

    /// From the first thread's start to the last one's end, in nanoseconds.
    pub(crate) fn wall(&self) -> u64 {
        let end = self.lanes.iter().map(|lane| lane.end).max().unwrap_or(0);
        end.saturating_sub(self.start())
    }

    /// The CPU time of one operation in nanoseconds, if each thread did `ops`.
    pub(crate) fn ns_per_op(&self, ops: u64) -> f64 {
        let threads = self.lanes.len();
        let at_once = threads.min(self.cpus) as f64;
        self.wall() as f64 * at_once / (threads as f64 * ops as f64)
    }

    /// Whether other load spoiled it.
    pub(crate) fn is_disturbed(&self) -> bool {
        if self.lanes.len() <= self.cpus {
            let bound = self.wall() * MOST_WAITED_US_PER_MS / 1000;
            self.lanes.iter().any(|lane| lane.waited.is_some_and(|waited| waited > bound))
        } else {
            let (foreign, had) = self.foreign();
            foreign * 100 > had * MOST_FOREIGN_PERCENT
        }
    }

    /// For how long the CPUs ran something else though they had threads of the sample to run, and
    /// for how long they had such threads.
    fn foreign(&self) -> (u64, u64) {
        let mut foreign = 0;
        let mut had = 0;
        for cpu in 0..self.cpus {
            let lanes = || self.lanes.iter().filter(|lane| lane.cpu == cpu);
            if let Some(end) = lanes().map(|lane| lane.end).max() {
                let window = end.saturating_sub(self.start());
                had += window;
                foreign += window.saturating_sub(lanes().map(|lane| lane.ran).sum());
            }
        }
        (foreign, had)
    }
}

const MOST_WAITED_US_PER_MS: u64 = 40;
const MOST_FOREIGN_PERCENT: u64 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const US: u64 = 1_000;

    /// A thread alone on its CPU, for one ms.
    fn alone(cpu: usize, waited: Option<u64>) -> Lane {
        Lane { cpu, start: 5 * MS, end: 6 * MS, ran: MS - waited.unwrap_or(0), waited }
    }

    fn sample(cpus: usize, lanes: &[Lane]) -> Sample {
        Sample { lanes: lanes.to_vec(), cpus }
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
        let first = Lane { cpu: 0, start: 0, end: 6 * MS, ran: 6 * MS, waited: Some(0) };
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
    fn the_figure_is_cpu_time() {
        let lanes = [alone(0, None), alone(1, None), alone(0, None), alone(1, None)];
        assert_eq!(sample(2, &lanes[..1]).ns_per_op(MS), 1.0);
        assert_eq!(sample(2, &lanes[..2]).ns_per_op(MS), 1.0, "both at once");
        assert_eq!(sample(2, &lanes).ns_per_op(MS), 0.5, "twice as much in the same time");
        let late = Lane { start: 5 * MS + 1, end: 7 * MS, ..lanes[1] };
        assert_eq!(sample(2, &[lanes[0], late]).wall(), 2 * MS);
    }
}
