//! The progress of a command, on standard error: a bar on a terminal, elsewhere a line at times.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// If standard error is not a terminal, a line is written at most this often.
const BETWEEN_LINES: Duration = Duration::from_secs(30);

/// When the next line is due. A command may have many parts, each shorter than this time.
static DUE: Mutex<Option<Instant>> = Mutex::new(None);

/// Several scenarios that are run one after the other, with one progress for all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole {
    all: usize,
    begun: usize,
    /// `None`: what runs is a part of something that has a progress of its own.
    since: Option<Instant>,
}

impl Whole {
    pub(crate) const HIDDEN: Whole = Whole { all: 1, begun: 1, since: None };

    pub(crate) fn new(all: usize) -> Whole {
        Whole { all, begun: 0, since: Some(Instant::now()) }
    }

    /// One more has begun.
    pub(crate) fn next(&mut self) -> Whole {
        self.begun += 1;
        *self
    }

    pub(crate) fn progress(&self, what: &str, runs: usize) -> Progress {
        let Whole { all, begun, since: Some(since) } = *self else { return Progress::Hidden };
        let part = Part { begun, all, since };
        let left = move |state: &ProgressState, out: &mut dyn fmt::Write| {
            // A first guess is not made of the first few runs alone.
            let least = if begun == 1 { 0.1 } else { 0.0 };
            let left = part.left(f64::from(state.fraction()).max(least), since.elapsed());
            let _ = write!(out, "{} s left", left.as_secs());
        };
        let what = format!("{begun} of {all}, {what}");
        Progress::new(what, runs, part, "{msg}, {all_left}", |style| {
            style.with_key("all_left", left)
        })
    }
}

/// The progress of this many runs.
pub(crate) fn progress(what: &str, runs: usize) -> Progress {
    let form = "{msg} {bar:20} {pos}/{len} runs, {eta} left";
    let whole = Part { begun: 1, all: 1, since: Instant::now() };
    Progress::new(what.to_owned(), runs, whole, form, |style| style)
}

/// One of the parts of a command, from 1 on, and when the first of them began.
#[derive(Debug, Clone, Copy)]
struct Part {
    begun: usize,
    all: usize,
    since: Instant,
}

impl Part {
    /// The time that is left for all parts if this much of this part is done, as if all parts took
    /// equally long. Something is done.
    fn left(&self, done: f64, elapsed: Duration) -> Duration {
        let done = (self.begun - 1) as f64 + done;
        elapsed.mul_f64((self.all as f64 / done - 1.0).max(0.0))
    }
}

pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines(Mutex<Lines>),
    Hidden,
}

impl Progress {
    fn new(
        what: String,
        runs: usize,
        part: Part,
        form: &str,
        style: impl FnOnce(ProgressStyle) -> ProgressStyle,
    ) -> Progress {
        if !io::stderr().is_terminal() {
            lock(&DUE).get_or_insert(Instant::now() + BETWEEN_LINES);
            return Progress::Lines(Mutex::new(Lines { what, runs: runs as u64, done: 0, part }));
        }
        let bar = ProgressBar::new(runs as u64).with_message(what);
        Progress::Bar(match ProgressStyle::with_template(form) {
            Ok(plain) => bar.with_style(style(plain)),
            Err(_) => bar,
        })
    }

    /// This many more runs have ended.
    pub(crate) fn inc(&self, runs: u64) {
        match self {
            Progress::Bar(bar) => bar.inc(runs),
            Progress::Lines(lines) => {
                let mut lines = lock(lines);
                lines.done += runs;
                let now = Instant::now();
                if lines.done < lines.runs && lines.done > 0 && is_due(&mut lock(&DUE), now) {
                    // Nothing depends on it.
                    let _ = writeln!(io::stderr(), "coreline: {}", lines.line(now));
                }
            }
            Progress::Hidden => {}
        }
    }

    pub(crate) fn finish(&self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// The lines, without a clock.
pub(crate) struct Lines {
    what: String,
    runs: u64,
    done: u64,
    part: Part,
}

impl Lines {
    fn line(&self, now: Instant) -> String {
        let Lines { what, runs, done, part } = self;
        let left = part.left(*done as f64 / *runs as f64, now - part.since);
        let what = if what.is_empty() { String::new() } else { format!("{what}: ") };
        format!("{what}{done} of {runs} runs, about {} left", took(left))
    }
}

/// Whether a line is due now. If so, the next one is due after some time.
fn is_due(due: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = due.is_some_and(|due| due <= now);
    if is_due {
        *due = Some(now + BETWEEN_LINES);
    }
    is_due
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A time as people say it.
pub(crate) fn took(time: Duration) -> String {
    match time.as_secs() {
        0..2 => format!("{} ms", time.as_millis()),
        seconds @ 2..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_line_is_due_every_half_minute_also_where_parts_are_shorter() {
        let begin = Instant::now();
        let mut due = Some(begin + BETWEEN_LINES);
        let mut is_due = |second| is_due(&mut due, begin + second * SECOND);
        assert_eq!(
            [15, 29, 40, 55, 69, 71].map(&mut is_due),
            [false, false, true, false, false, true]
        );
    }

    #[test]
    fn what_is_left_is_that_of_all_parts() {
        let since = Instant::now();
        let line = |begun, all, done| {
            let part = Part { begun, all, since };
            Lines { what: String::new(), runs: 100, done, part }.line(since + 30 * SECOND)
        };
        assert_eq!(line(1, 1, 10), "10 of 100 runs, about 4 min left");
        assert_eq!(line(1, 1, 50), "50 of 100 runs, about 30 s left");
        assert_eq!(line(2, 3, 50), "50 of 100 runs, about 30 s left");
        assert_eq!(line(1, 3, 10), "10 of 100 runs, about 14 min left");
        assert_eq!(line(1, 1, 1), "1 of 100 runs, about 49 min left");
        assert_eq!(line(3, 3, 100), "100 of 100 runs, about 0 ms left");
    }
}
