//! The program `coreline-rivals`: coreline's primitives timed beside what a user would pick
//! instead, in one process and one run.
//!
//! An absolute time says little on a machine that others share, so nothing here is measured alone:
//! every repetition runs each candidate once, in a shuffled order, on threads that are pinned
//! (thread i to the i-th allowed CPU, modulo their number). The figure is
//!
//! ```text
//! ns per operation = wall time x min(threads, CPUs) / (threads x operations of each)
//! ```
//!
//! the CPU time of one operation: where threads do not disturb each other, it is the same at any
//! number of threads. Where the question is what threads get of something that they must take turns
//! at, a sample of several threads is a window of time instead, in which each does what it can:
//!
//! ```text
//! ns per operation = wall time / operations of all threads
//! share            = operations of the unluckiest thread / those of the luckiest
//! ```
//!
//! A candidate that pauses between its operations, or has a worker to wake before the first, says
//! itself how much of the wall time is measured ([`Account`](class::Account)).
//!
//! Samples that other load disturbed are thrown away and repeated (see
//! [`disturbance`]), unless load beside was asked for (`--beside`): then none is, the figure is of
//! the time that passed, and the process's CPU time for an operation stands beside it. After each
//! sample a candidate that keeps a count must have counted every operation.
//!
//! | module | holds |
//! |---|---|
//! | [`class`] | the classes: candidates, forms, thread counts and goals, as tables |
//! | [`crew`] | the pinned threads that take one sample together |
//! | [`disturbance`] | which samples do not count |
//! | [`load`] | load beside what is measured, where it is asked for |
//! | [`plan`] | how much to measure, and how much less where time is short |
//! | [`estimate`] | how long that takes, and the plan that fits into a time |
//! | [`progress`] | how far measuring has come |
//! | [`measure`] | calibration, repetitions, retries |
//! | [`statistics`] | medians, minima, intervals of confidence |
//! | [`report`] | the result as data, schema `coreline.rivals/1` |
//! | [`table`] | the result for people |
//! | [`text`] | words for times and numbers, lines on standard error |
//! | [`native`] | what the native world does not have of the operating system: rivals, clocks |
//!
//! **A new class**: a module in `class` with a function `bench`, and a line in each `match` of
//! [`Class`](class::Class).

mod class;
mod cli;
mod crew;
mod disturbance;
mod error;
mod estimate;
mod load;
mod measure;
mod native;
mod plan;
mod progress;
mod report;
mod statistics;
mod table;
mod text;

use std::env;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let done = match arguments.next() {
        Some(first) if first == load::ARGUMENT => load::compute(arguments.next()),
        _ => cli::Cli::parse().execute(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
