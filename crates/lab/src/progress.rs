//! Progress, on standard error if that is a terminal.

use std::fmt;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

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

    pub(crate) fn progress(&self, what: &str, runs: usize) -> ProgressBar {
        let Whole { all, begun, since: Some(since) } = *self else { return ProgressBar::hidden() };
        // As if all scenarios took equally long.
        let left = move |state: &ProgressState, out: &mut dyn fmt::Write| {
            let done = (begun - 1) as f64 + f64::from(state.fraction());
            let left = since.elapsed().as_secs_f64() * (all as f64 / done.max(0.1) - 1.0);
            let _ = write!(out, "{left:.0} s left");
        };
        let bar = ProgressBar::new(runs as u64).with_message(format!("{begun} of {all}, {what}"));
        match ProgressStyle::with_template("{msg}, {all_left}") {
            Ok(style) => bar.with_style(style.with_key("all_left", left)),
            Err(_) => bar,
        }
    }
}

pub(crate) fn progress(what: &str, runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64).with_message(what.to_owned());
    let style = ProgressStyle::with_template("{msg} {bar:20} {pos}/{len} runs, {eta} left");
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
