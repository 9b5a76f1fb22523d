//! The progress of the measurement, and the remaining time.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::estimate::Estimate;
use crate::text::{about, grouped, millis, tell};

/// If standard error is not a terminal, a line is written at most this often.
const BETWEEN_LINES: Duration = Duration::from_secs(30);

/// Shows how far measuring has come: a bar on a terminal, elsewhere a line now and then.
pub(crate) struct Progress {
    begun: Instant,
    pace: Pace,
    /// `None` if standard error is not a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// `budget`: after how long measuring should be over.
    pub(crate) fn new(expected: Estimate, budget: Option<Duration>) -> Progress {
        let bar = io::stderr().is_terminal().then(|| bar(expected.time));
        Progress { begun: Instant::now(), pace: Pace::new(expected, budget), bar }
    }

    /// This begins.
    pub(crate) fn begin(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}; {what}", self.pace.said(self.begun.elapsed())));
        }
    }

    /// This many samples were taken, which were expected to take this long.
    pub(crate) fn done(&mut self, samples: usize, expected: Duration) {
        self.pace.samples += samples;
        self.pace.done += expected;
        match &self.bar {
            Some(bar) => bar.set_position(millis(self.pace.done)),
            None => {
                if let Some(line) = self.pace.line(self.begun.elapsed()) {
                    tell(line);
                }
            }
        }
    }

    /// Whether there is time to repeat a sample.
    pub(crate) fn may_repeat(&self) -> bool {
        self.pace.may_repeat(self.begun.elapsed())
    }

    /// All is done.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar as long as measuring takes: samples differ too much in length to count them.
fn bar(time: Duration) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {msg}");
    let style = style.expect("the template is one");
    ProgressBar::new(millis(time)).with_style(style)
}

/// The expected and the finished work, without a clock.
struct Pace {
    expected: Estimate,
    budget: Option<Duration>,
    /// How many samples were taken.
    samples: usize,
    /// The expected time of everything that is done.
    done: Duration,
    /// When the next line is due.
    next: Duration,
}

impl Pace {
    fn new(expected: Estimate, budget: Option<Duration>) -> Pace {
        Pace { expected, budget, samples: 0, done: Duration::ZERO, next: BETWEEN_LINES }
    }

    /// The finished part of the whole, from 0 to 1.
    fn part(&self) -> f64 {
        let whole = self.expected.time.as_secs_f64();
        if whole > 0.0 { (self.done.as_secs_f64() / whole).min(1.0) } else { 1.0 }
    }

    /// The remaining time, if the rest differs from its estimate by the same factor as the finished
    /// part.
    fn left(&self, elapsed: Duration) -> Duration {
        // As if a twentieth of the whole had gone as expected before: otherwise the first samples,
        // which are few, would say it all.
        let before = self.expected.time / 20;
        let (took, expected) = (before + elapsed, before + self.done);
        let rest = self.expected.time.saturating_sub(self.done);
        if expected.is_zero() {
            return rest;
        }
        rest.mul_f64(took.as_secs_f64() / expected.as_secs_f64())
    }

    fn said(&self, elapsed: Duration) -> String {
        format!(
            "{:.0} % ({} of {} samples), {} left",
            (100.0 * self.part()).floor(),
            grouped(self.samples),
            grouped(self.expected.samples),
            about(self.left(elapsed))
        )
    }

    /// The line to write now, if one is due. None is when all is done.
    fn line(&mut self, elapsed: Duration) -> Option<String> {
        if elapsed < self.next || self.samples == self.expected.samples {
            return None;
        }
        self.next = elapsed + BETWEEN_LINES;
        Some(self.said(elapsed))
    }

    /// Whether a sample may be repeated now, where measuring should be over in some time.
    ///
    /// A quarter of the spare time may be spent from the start, and the rest as the work gets done.
    /// Otherwise disturbances of early samples leave no repeats for late ones.
    fn may_repeat(&self, elapsed: Duration) -> bool {
        let Some(budget) = self.budget else { return true };
        let spare = budget.saturating_sub(self.expected.time);
        let behind = elapsed.saturating_sub(self.done);
        behind <= spare.mul_f64(0.25 + 0.75 * self.part())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::estimate::{Cell, Cost};
    use crate::plan::Plan;

    const SECOND: Duration = Duration::from_secs(1);

    /// 100 s for this many samples.
    fn expected(samples: usize) -> Estimate {
        let mut expected = Estimate::default();
        (expected.time, expected.samples) = (100 * SECOND, samples);
        expected
    }

    fn after(samples: usize, done: Duration, budget: Option<Duration>) -> Pace {
        Pace { samples, done, ..Pace::new(expected(1260), budget) }
    }

    #[test]
    fn what_is_left_follows_from_time_and_not_from_the_number_of_samples() {
        let pace = after(1200, 40 * SECOND, None);
        assert_eq!(pace.left(40 * SECOND), 60 * SECOND);
        assert_eq!(pace.said(40 * SECOND), "40 % (1,200 of 1,260 samples), about 60 s left");
        // Twice as long so far.
        let left = pace.left(80 * SECOND).as_secs_f64();
        assert!((left - 60.0 * 85.0 / 45.0).abs() < 1e-6, "{left}");
        // The very first sample does not say it all.
        let left = after(1, SECOND / 100, None).left(SECOND / 10).as_secs();
        assert_eq!(left, 101);
        assert_eq!(after(1260, 100 * SECOND, None).left(150 * SECOND), Duration::ZERO);
    }

    #[test]
    fn nothing_to_do_is_all_done() {
        let pace = Pace::new(Estimate::default(), None);
        assert_eq!(pace.said(SECOND), "100 % (0 of 0 samples), a few seconds left");
    }

    #[test]
    fn a_line_comes_every_30_seconds_at_most() {
        let mut pace = after(0, Duration::ZERO, None);
        let mut at = Vec::new();
        for seconds in 0..100 {
            if pace.line(seconds * SECOND).is_some() {
                at.push(seconds);
            }
        }
        assert_eq!(at, [30, 60, 90]);
        // A long sample delays one, and those that follow.
        let mut pace = after(0, Duration::ZERO, None);
        let lines = [29, 50, 79, 80].map(|seconds| pace.line(seconds * SECOND).is_some());
        assert_eq!(lines, [false, true, false, true]);
        assert_eq!(after(1260, 100 * SECOND, None).line(100 * SECOND), None, "it is over");
    }

    #[test]
    fn repeats_leave_time_for_the_rest() {
        assert!(after(0, Duration::ZERO, None).may_repeat(1000 * SECOND), "no limit");
        // 20 s are left over: 5 of them at once, 10 after a third of the work.
        let may = |done: u32, elapsed: u32| {
            after(1, done * SECOND, Some(120 * SECOND)).may_repeat(elapsed * SECOND)
        };
        assert!(may(0, 5) && !may(0, 6));
        assert!(may(40, 51) && !may(40, 52));
        assert!(may(100, 120) && !may(100, 121), "all of them, and no more");
    }

    #[test]
    fn what_is_done_adds_up_to_what_was_expected() {
        let bench = Class::Locks.bench();
        let cells = Cell::all(&bench);
        let plan = Plan::full(21);
        let mut progress = Progress::new(Estimate::of(&cells, &plan, 2), None);
        for cost in cells.into_iter().filter_map(|cell| Cost::of(cell, &plan, 2)) {
            progress.done(0, cost.calibration);
            (0..cost.samples).for_each(|_| progress.done(1, cost.sample));
        }
        let Pace { expected, samples, done, .. } = progress.pace;
        assert_eq!((samples, done), (expected.samples, expected.time));
    }
}
