//! The verb `bench`: how fast the simulator itself is on this host. The schema is
//! `coreline.bench.sim/1`.
//!
//! A rate is accesses of a simulated program per second of host time: of the time that this thread
//! has a CPU, where the kernel says it, and else of the wall clock. The host is noisy, so cases
//! take turns, each in several rounds, and a rate is the median of its rounds. Hosts differ, so
//! each rate is also given over that of the bare coroutine switch, between as many coroutines in
//! the same rounds.

mod bare;
mod program;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use coreline_scenarios::Error::Failed;
use coreline_sim::{Machine, Spec, Statistics};
use serde::Serialize;

use crate::error::Error;
use crate::listing::Listing;
use crate::progress::progress;
use crate::text::{Form, counted};
use program::Case;

/// The structure to time.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Subject {
    /// The simulator's engine: accesses per second of host time, and memory per simulated CPU
    Sim,
}

/// The result. The order of fields is that of the schema.
#[derive(Debug, Serialize)]
pub(crate) struct BenchResult {
    schema: &'static str,
    quick: bool,
    rounds: usize,
    rows: Vec<CaseRow>,
    /// Host memory, resident, of each simulated CPU of a machine of 4,096 that run a thread each;
    /// `None` where the kernel does not say what a process has.
    bytes_per_cpu: Option<u64>,
}

#[derive(Debug, Serialize)]
struct CaseRow {
    case: &'static str,
    coroutines: u32,
    /// Accesses per second of host time, in millions.
    accesses: f64,
    /// The same with full statistics.
    accesses_full: f64,
    /// Bare switches, there and back, per second of host time, in millions.
    switches: f64,
    /// `accesses` over `switches`.
    ratio: f64,
    /// The expected rate of accesses, in millions; `None` if none was promised.
    goal: Option<f64>,
}

/// The kernel's figure of a thread's time on a CPU is exact to a tick; a span of fewer ticks than
/// these is taken from the wall clock.
const MANY_TICKS: Duration = Duration::from_millis(50);

/// How often each case runs, and how long about.
struct Effort {
    rounds: usize,
    accesses: u64,
    switches: u64,
}

/// The first word of the name that a replay line gives to a case.
pub(crate) const PROGRAM: &str = "bench";

pub(crate) fn run(_: Subject, quick: bool) -> Result<BenchResult, Error> {
    let effort = if quick {
        Effort { rounds: 3, accesses: 200_000, switches: 400_000 }
    } else {
        Effort { rounds: 7, accesses: 4_000_000, switches: 20_000_000 }
    };
    let large = program::large()?;
    let mut rates = vec![[const { Vec::new() }; 3]; Case::ALL.len()];
    let bar = progress("cases", effort.rounds * Case::ALL.len());
    for _ in 0..effort.rounds {
        for (case, rates) in Case::ALL.iter().zip(&mut rates) {
            for (rates, statistics) in rates.iter_mut().zip([Statistics::Totals, Statistics::Full])
            {
                rates.push(accesses(case, &large, statistics, effort.accesses)?);
            }
            rates[2].push(switches(case.coroutines(), effort.switches)?);
            bar.inc(1);
        }
    }
    bar.finish();
    let row = |(case, rates): (&Case, [Vec<f64>; 3])| {
        let [accesses, accesses_full, switches] = rates.map(median);
        let ratio = (accesses / switches * 100.0).round() / 100.0;
        let (name, coroutines, goal) = (case.name, case.coroutines(), case.goal);
        CaseRow { case: name, coroutines, accesses, accesses_full, switches, ratio, goal }
    };
    Ok(BenchResult {
        schema: "coreline.bench.sim/1",
        quick,
        rounds: effort.rounds,
        rows: Case::ALL.iter().zip(rates).map(row).collect(),
        bytes_per_cpu: memory(large)?,
    })
}

/// A moment, by the clocks that the host has.
struct Moment {
    cpu: Option<Duration>,
    wall: Instant,
}

impl Moment {
    fn now() -> Moment {
        Moment {
            cpu: coreline_topology::thread_time(Path::new("/")).ok().flatten(),
            wall: Instant::now(),
        }
    }

    /// Millions per second since then.
    fn rate(&self, count: u64) -> f64 {
        let Moment { cpu, wall } = Moment::now();
        let on_cpu = cpu.zip(self.cpu).map(|(now, then)| now.saturating_sub(then));
        let span = on_cpu.filter(|span| *span >= MANY_TICKS);
        let span = span.unwrap_or_else(|| wall.saturating_duration_since(self.wall));
        count as f64 / span.as_secs_f64().max(1e-6) / 1e6
    }
}

/// Accesses of one run of a case, in millions a second.
fn accesses(
    case: &'static Case,
    large: &Spec,
    statistics: Statistics,
    accesses: u64,
) -> Result<f64, Error> {
    let machine = Machine::new(case.spec(large)?).statistics(statistics);
    let machine = machine.program(&format!("{PROGRAM} {}", case.name));
    let start = Moment::now();
    let run = machine.run(move || program::run(case, accesses)).map_err(Failed)?;
    Ok(start.rate(run.report.transfers.total()))
}

/// Bare switches between this many coroutines, in millions a second.
fn switches(coroutines: u32, count: u64) -> Result<f64, Error> {
    let mut ring = bare::Ring::new(coroutines).map_err(Error::Output)?;
    let start = Moment::now();
    let turns = ring.turn(count);
    Ok(start.rate(turns))
}

/// The median, rounded: further digits say nothing.
fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    (rates[rates.len() / 2] * 100.0).round() / 100.0
}

/// Bytes of host memory for each CPU of a machine all of whose CPUs are busy.
fn memory(spec: Spec) -> Result<Option<u64>, Error> {
    let resident = || coreline_topology::resident_memory(Path::new("/")).ok().flatten();
    let cpus = spec.topology().cpu_count() as u64;
    let before = resident();
    let machine = Machine::new(spec).program(&format!("{PROGRAM} memory"));
    let run = machine.run(move || program::hold(resident)).map_err(Failed)?;
    Ok(before.zip(run.value).map(|(before, after)| after.saturating_sub(before) / cpus))
}

impl BenchResult {
    pub(crate) fn show(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        let rounds = counted(self.rounds, "round");
        writeln!(out, "Millions per second of host time, median of {rounds}")?;
        let mut listing = Listing::new(&[
            ("case", false),
            ("accesses", true),
            ("full statistics", true),
            ("bare switches", true),
            ("ratio", true),
            ("goal", true),
        ]);
        for row in &self.rows {
            let figure = |value: f64| format!("{value:.1}");
            listing.row([
                row.case.to_owned(),
                figure(row.accesses),
                figure(row.accesses_full),
                format!("{:.1} ({})", row.switches, row.coroutines),
                format!("{:.2}", row.ratio),
                row.goal.map_or_else(|| "-".to_owned(), figure),
            ]);
        }
        write!(out, "{}", listing.text(form))?;
        match self.bytes_per_cpu {
            Some(bytes) => writeln!(out, "{bytes} bytes of host memory per simulated CPU")?,
            None => writeln!(
                out,
                "host memory per simulated CPU: not known, because the kernel does not report it"
            )?,
        }
        Ok(())
    }
}
