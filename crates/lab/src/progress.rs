//! The progress of a command, on standard error: a bar on a terminal, elsewhere a line now and then.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// If standard error is not a terminal, a line is written at most this often.
const BETWEEN_LINES: Duration = Duration::from_secs(30);

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
        // As if all scenarios took equally long.
        let left = move |state: &ProgressState, out: &mut dyn fmt::Write| {
            let done = (begun - 1) as f64 + f64::from(state.fraction());
            let left = since.elapsed().as_secs_f64() * (all as f64 / done.max(0.1) - 1.0);
            let _ = write!(out, "{left:.0} s left");
        };
        Progress::new(format!("{begun} of {all}, {what}"), runs, "{msg}, {all_left}", |style| {
            style.with_key("all_left", left)
        })
    }
}

/// The progress of this many runs.
pub(crate) fn progress(what: &str, runs: usize) -> Progress {
    let form = "{msg} {bar:20} {pos}/{len} runs, {eta} left";
    Progress::new(what.to_owned(), runs, form, |style| style)
}

pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines(Instant, Mutex<Lines>),
    Hidden,
}

impl Progress {
    fn new(
        what: String,
        runs: usize,
        form: &str,
        style: impl FnOnce(ProgressStyle) -> ProgressStyle,
    ) -> Progress {
        if !io::stderr().is_terminal() {
            return Progress::Lines(Instant::now(), Mutex::new(Lines::new(what, runs as u64)));
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
            Progress::Lines(begun, lines) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(line) = lines.done(runs, begun.elapsed()) {
                    // Nothing depends on it.
                    let _ = writeln!(io::stderr(), "coreline: {line}");
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
    all: u64,
    done: u64,
    /// When the next line is due.
    next: Duration,
}

impl Lines {
    fn new(what: String, all: u64) -> Lines {
        Lines { what, all, done: 0, next: BETWEEN_LINES }
    }

    /// This many more runs have ended at this time: the line, if one is due.
    fn done(&mut self, runs: u64, elapsed: Duration) -> Option<String> {
        self.done += runs;
        let Lines { what, all, done, next } = self;
        if elapsed < *next || *done == 0 || done >= all {
            return None;
        }
        *next = elapsed + BETWEEN_LINES;
        let left = elapsed.mul_f64((*all - *done) as f64 / *done as f64);
        let what = if what.is_empty() { String::new() } else { format!("{what}: ") };
        Some(format!("{what}{done} of {all} runs, about {} left", took(left)))
    }
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

    #[test]
    fn a_line_is_due_every_half_minute_and_not_at_the_end() {
        let mut lines = Lines::new("lockscale".to_owned(), 100);
        let mut done = |runs, seconds| lines.done(runs, Duration::from_secs(seconds));
        assert_eq!(done(5, 29), None);
        let first = done(5, 30).expect("it is due");
        assert_eq!(first, "lockscale: 10 of 100 runs, about 4 min left");
        assert_eq!(done(40, 59), None);
        let second = done(0, 61).expect("it is due");
        assert_eq!(second, "lockscale: 50 of 100 runs, about 61 s left");
        assert_eq!(done(50, 200), None);
    }

    #[test]
    fn nothing_is_said_of_the_rest_before_a_run_has_ended() {
        assert_eq!(Lines::new(String::new(), 3).done(0, Duration::from_secs(90)), None);
        let line = Lines::new(String::new(), 3).done(1, Duration::from_secs(90));
        assert_eq!(line.as_deref(), Some("1 of 3 runs, about 3 min left"));
    }
}
