//! One sample of an experiment: its threads, each timing its own part, in either world.

use std::sync::Arc;

use coreline_topology::CpuId;
use coreline_world::{Integer, JoinHandle, Line, Ordering, Placement, SpawnError, Testbed, Word};

use super::experiment::{Experiment, Subject};
use crate::disturbance::is_disturbed;

/// The work of one thread. Times are nanoseconds of its world.
#[derive(Debug, Clone, Copy)]
struct Lane {
    start: u64,
    end: u64,
    /// How long it wanted its CPU and had none; `None` where that is not known.
    waited: Option<u64>,
}

/// One sample, thread by thread.
#[derive(Debug)]
pub(super) struct Sample(Vec<Lane>);

impl Sample {
    /// The time from the first thread's start to the last one's end, in nanoseconds.
    pub(super) fn wall(&self) -> u64 {
        let start = self.0.iter().map(|lane| lane.start).min().unwrap_or(0);
        let end = self.0.iter().map(|lane| lane.end).max().unwrap_or(0);
        end.saturating_sub(start)
    }

    /// The experiment's figure, if each thread did `ops` operations.
    pub(super) fn ns(&self, experiment: &Experiment, ops: u64) -> f64 {
        self.wall() as f64 / (ops * experiment.units) as f64
    }

    /// Whether other load spoiled it.
    pub(super) fn is_disturbed(&self) -> bool {
        self.0.iter().any(|lane| is_disturbed(lane.waited, self.wall()))
    }
}

/// Added to `missing` if not all threads could be started: threads that wait then give up.
const GIVE_UP: u32 = 1 << 16;

/// Has a thread on each of these CPUs do `warm_up` operations, and `ops` that are timed.
///
/// The threads meet before either part; `waited` says how long its thread wanted a CPU so far.
///
/// # Errors
///
/// [`SpawnError`] if a thread cannot be started.
pub(super) fn take<W: Testbed>(
    subject: &Arc<dyn Subject>,
    cpus: &[CpuId],
    [warm_up, ops]: [u64; 2],
    waited: fn() -> Option<u64>,
) -> Result<Sample, SpawnError> {
    let threads = u32::try_from(cpus.len()).unwrap_or(GIVE_UP);
    // Counts down twice: to `threads`, when all have come, and to nothing, when all are warm.
    let missing = Arc::new(Line(W::U32::new_in(2 * threads)));
    let mut crew = Vec::new();
    for (number, &cpu) in cpus.iter().enumerate() {
        let (subject, theirs) = (Arc::clone(subject), Arc::clone(&missing));
        let meet = move |left: u32| {
            // Relaxed, twice: lines up times and hands nothing over.
            theirs.fetch_sub(1, Ordering::Relaxed);
            let found = theirs.wait_until(Ordering::Relaxed, |now| now <= left || now >= GIVE_UP);
            found < GIVE_UP
        };
        let work = move || {
            // Before they meet: what makes a thread late to the others' start spoils the sample.
            let before = waited();
            if !meet(threads) {
                return None;
            }
            subject.run(number, warm_up);
            meet(0);
            let start = W::now().as_nanos();
            subject.run(number, ops);
            let end = W::now().as_nanos();
            let waited = waited().zip(before).map(|(after, before)| after.saturating_sub(before));
            Some(Lane { start, end, waited })
        };
        match W::spawn(Placement::On(cpu), work) {
            Ok(thread) => crew.push(thread),
            Err(error) => {
                missing.fetch_add(2 * GIVE_UP, Ordering::Relaxed);
                for thread in crew {
                    thread.join();
                }
                return Err(error);
            }
        }
    }
    Ok(Sample(crew.into_iter().filter_map(JoinHandle::join).collect()))
}

#[cfg(test)]
mod tests {
    use coreline_sim::{Machine, Sim};
    use coreline_world::Native;
    use coreline_world::native::{probe, run_queue_wait};

    use super::super::experiment::ALL;
    use super::*;

    fn lane(start: u64, end: u64, waited: Option<u64>) -> Lane {
        Lane { start, end, waited }
    }

    #[test]
    fn a_sample_lasts_from_the_first_start_to_the_last_end() {
        let sample = Sample(vec![lane(100, 900, None), lane(300, 1100, None)]);
        assert_eq!(sample.wall(), 1000);
        let ping_pong = &ALL[0];
        assert_eq!(sample.ns(ping_pong, 5), 100.0, "5 round trips are 10 ways");
        assert!(!sample.is_disturbed(), "nothing to judge by");
    }

    #[test]
    fn a_wait_of_40_us_per_ms_is_the_most() {
        let judge = |waited| {
            let first = lane(0, 1_000_000, Some(0));
            Sample(vec![first, lane(0, 1_000_000, Some(waited))]).is_disturbed()
        };
        assert!(!judge(40_000));
        assert!(judge(40_001));
    }

    #[test]
    fn every_experiment_does_what_it_says_in_both_worlds() {
        let counts = [3, 7];
        for experiment in ALL {
            let run = Machine::preset("host-2c").unwrap().step_limit(1_000_000).run(move || {
                let subject = experiment.subject::<Sim>();
                let cpus = [0, 1].map(CpuId::new);
                let sample = take::<Sim>(&subject, &cpus[..experiment.threads], counts, || None);
                (sample.map(|sample| sample.wall()).unwrap(), subject.is_right(10))
            });
            let (wall, right) = run.unwrap_or_else(|failure| panic!("{failure}")).value;
            assert!(right && wall > 0, "{}: {wall} ns", experiment.name);

            let cpus: Vec<_> = probe().allowed.unwrap().iter().take(experiment.threads).collect();
            // With one CPU, two threads that wait for each other without a pause take time slices.
            if cpus.len() == experiment.threads {
                let subject = experiment.subject::<Native>();
                let sample = take::<Native>(&subject, &cpus, counts, run_queue_wait).unwrap();
                assert!(subject.is_right(10), "{}: {sample:?}", experiment.name);
                // These two leave no trace: a game that lost a move does not end.
                let no_trace = ["ping-pong-cas", "read-own"].contains(&experiment.name);
                assert_eq!(subject.is_right(9), no_trace, "{}", experiment.name);
            }
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error_and_no_thread_waits_for_it() {
        let experiment = ALL.iter().find(|it| it.name == "fetch-add-2").unwrap();
        let first = probe().allowed.unwrap().iter().next().unwrap();
        let subject = experiment.subject::<Native>();
        let cpus = [first, CpuId::new(60_000)];
        let error = take::<Native>(&subject, &cpus, [1, 1], || None).unwrap_err();
        assert!(matches!(error, SpawnError::Cpu { .. }), "{error}");
        assert!(subject.is_right(0), "the other thread gave up");
    }
}
