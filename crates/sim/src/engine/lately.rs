//! The recent activity of a machine, which distinguishes a livelock from slow progress.
//!
//! From time to time, and before the step limit, the machine observes its threads. This costs host
//! time, so it observes at most [`WINDOW`] steps.

use super::{Engine, Site};
use crate::results::failure::{FailureKind, Lately};
use crate::results::statistics::Ledger;

/// How many steps the machine observes before it judges them.
const WINDOW: u64 = CHECK / 500;

/// How many steps lie between two judgements whether the threads make progress. Few in this crate's
/// own tests, so that these reach several.
const CHECK: u64 = if cfg!(test) { 100_000 } else { 500_000_000 };

/// The observed accesses and changes.
#[derive(Debug, Default)]
pub(super) struct Observation {
    accesses: u64,
    changes: u64,
    /// The acquisitions of locks before.
    acquired: u64,
    /// For each CPU: the latest word that was written, and its old value.
    written: Vec<Option<(usize, u64)>>,
    /// For each thread: the source location of its latest access.
    sites: Vec<Option<Site>>,
}

impl Observation {
    /// The source location of a thread's latest access.
    pub(super) fn site(&self, thread: usize) -> Option<Site> {
        self.sites.get(thread).copied().flatten()
    }
}

/// How many steps a machine with this limit observes at its end.
fn window(limit: u64) -> u64 {
    WINDOW.min(limit / 2)
}

/// The first step at which a machine with this limit begins to observe.
pub(super) fn first(limit: u64) -> u64 {
    let end = limit.min(CHECK);
    end - window(end)
}

impl Engine {
    /// Starts or stops an observation, at the step at which that is due.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_or_end_observation(&mut self) {
        let steps = self.report.steps - 1;
        let Some(observed) = &self.observation else {
            let acquired = self.locks.acquisitions();
            self.observation = Some(Box::new(Observation { acquired, ..Observation::default() }));
            if self.ledger.is_none() {
                self.ledger = Some(Box::new(Ledger::new(self.cpus.len(), None)));
            }
            let end = self.step_limit.min((steps / CHECK + 1) * CHECK);
            self.next_observation = end;
            return;
        };
        let lately = Lately {
            steps: window(steps.min(self.step_limit)),
            accesses: observed.accesses,
            changes: observed.changes,
            acquisitions: self.locks.acquisitions() - observed.acquired,
        };
        if steps >= self.step_limit || !lately.is_progress() {
            self.fail(FailureKind::Livelock { steps, lately });
            return;
        }
        self.observation = None;
        if !self.is_full {
            self.ledger = None;
        }
        let end = self.step_limit.min((steps / CHECK + 1) * CHECK);
        self.next_observation = end - window(end).min(end - steps);
    }

    /// Notes an access of a CPU, before it takes effect.
    pub(super) fn observe_access(&mut self, cpu: usize, address: usize, writes: bool, site: Site) {
        self.observe_change(cpu);
        let thread = self.cpus[cpu].current;
        let word = address & !7;
        let value = (writes && self.line_of(word).is_some()).then(|| peek(word));
        let Some(observation) = &mut self.observation else { return };
        observation.accesses += 1;
        if let Some(thread) = thread {
            resize(&mut observation.sites, thread)[thread] = Some(site);
        }
        resize(&mut observation.written, cpu)[cpu] = value.map(|value| (word, value));
    }

    /// Whether the word that a CPU wrote last has changed since.
    fn observe_change(&mut self, cpu: usize) {
        let written = self.observation.as_mut().and_then(|it| it.written.get_mut(cpu)?.take());
        // A stack may be gone by now.
        if let Some((word, before)) = written.filter(|&(word, _)| self.line_of(word).is_some())
            && peek(word) != before
            && let Some(observation) = &mut self.observation
        {
            observation.changes += 1;
        }
    }
}

/// The eight bytes at an address, which is a multiple of eight and the machine's memory.
pub(super) fn peek(word: usize) -> u64 {
    // SAFETY: the caller has asked `line_of`: the arena or a stack, which are mapped, and whole
    // lines of which one machine has; its simulated threads run on this host thread, one at a time.
    // The value is only compared, and any bytes are one.
    unsafe { std::ptr::with_exposed_provenance::<u64>(word).read_volatile() }
}

/// A table with room for an index.
fn resize<T: Clone>(table: &mut Vec<Option<T>>, index: usize) -> &mut Vec<Option<T>> {
    if table.len() <= index {
        table.resize(index + 1, None);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::Job;
    use super::super::run::{Setup, run};
    use super::*;
    use crate::hardware::spec::Spec;
    use crate::mirrors::atomic::{AtomicU64, Ordering};
    use crate::results::replay::Replay;
    use crate::results::report::Statistics;
    use crate::settings::schedule::Schedule;

    /// Runs a program on a word, with room for ten checks: why it failed.
    fn failure_of(program: fn(&AtomicU64)) -> Option<FailureKind> {
        let setup = Setup {
            spec: Spec::preset("host-2c").unwrap(),
            home: None,
            seed: 1,
            request_percent: 30,
            faults: Default::default(),
            schedule: Schedule::Time,
            step_limit: 10 * CHECK,
            kernel: None,
            statistics: Statistics::Totals,
            tape: None,
            trace: false,
            races: false,
            arbitration: Default::default(),
            overlap: Default::default(),
            replay: Replay::new("host-2c", "lately"),
            memory: Default::default(),
            patience: std::time::Duration::MAX,
            leaks: None,
        };
        run(setup, Job::new(move || program(&AtomicU64::new(0)))).err().map(|failed| failed.kind)
    }

    /// Endless accesses without an effect.
    fn stuck(word: &AtomicU64) {
        while word.swap(0, Ordering::Relaxed) == 0 {}
    }

    /// This many accesses that change something.
    fn count(word: &AtomicU64, times: u64) {
        (0..times).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed));
    }

    fn livelock_after(failure: Option<FailureKind>) -> u64 {
        let Some(FailureKind::Livelock { steps, lately }) = failure else { panic!("{failure:?}") };
        assert_eq!((lately.steps, lately.changes, lately.acquisitions), (WINDOW, 0, 0));
        // One step in the window may be a decision about a thread.
        assert!(lately.accesses + 10 > WINDOW, "{lately:?}");
        steps
    }

    #[test]
    fn a_livelock_ends_at_the_first_look_long_before_the_limit() {
        assert_eq!(livelock_after(failure_of(stuck)), CHECK);
    }

    #[test]
    fn a_livelock_that_begins_late_ends_at_the_next_look() {
        let late = failure_of(|word| {
            count(word, 2 * CHECK + CHECK / 2);
            word.store(0, Ordering::Relaxed);
            stuck(word);
        });
        assert_eq!(livelock_after(late), 3 * CHECK);
    }

    #[test]
    fn slow_progress_goes_on_through_all_looks() {
        assert_eq!(failure_of(|word| count(word, 5 * CHECK)), None);
        // Up to the limit, which is told as what it is.
        let endless = failure_of(|word| count(word, u64::MAX));
        let Some(FailureKind::Livelock { steps, lately }) = endless else { panic!("{endless:?}") };
        assert!(steps == 10 * CHECK && lately.is_progress(), "{lately:?}");
    }
}
