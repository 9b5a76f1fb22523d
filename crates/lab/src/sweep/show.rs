//! The verbs `sweep` and `cells`.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use coreline_world::native::{note_interrupts, was_interrupted};
use serde::Serialize;

use super::{ENGINE, Plan, Store, Sweep, SweepError};
use crate::error::Error;
use crate::progress::{Progress, progress, took};

#[derive(Args)]
pub(crate) struct Choice {
    /// The specification: which cells of which scenario; docs/sweeps.md describes it
    #[arg(value_name = "SPEC.toml", value_hint = ValueHint::FilePath)]
    spec: PathBuf,
    /// The folder that keeps the rows; cells whose rows it has do not run again
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: PathBuf,
}

#[derive(Args)]
pub(crate) struct ListChoice {
    /// The specification: which cells of which scenario; docs/sweeps.md describes it
    #[arg(value_name = "SPEC.toml", value_hint = ValueHint::FilePath)]
    spec: PathBuf,
    /// A store of the scenario: list only the cells that it lacks, and estimate from those that it
    /// has
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
}

/// The cells of a sweep, with estimates. The schema is `coreline.cells/1`.
#[derive(Serialize)]
pub(crate) struct Cells {
    schema: &'static str,
    engine: &'static str,
    scenario: &'static str,
    /// Whether no cell was run yet, so that the times are a guess.
    rough: bool,
    /// CPU time of all.
    cpu_s: f64,
    cells: Vec<ListedCell>,
}

#[derive(Serialize)]
struct ListedCell {
    key: String,
    cpu_ms: f64,
    memory_mib: u64,
}

impl Cells {
    pub(crate) fn new(choice: &ListChoice) -> Result<Cells, Error> {
        let sweep = Sweep::from_file(&choice.spec)?;
        let plan = match &choice.store {
            Some(dir) => Store::look(dir, &sweep)?.plan(&sweep)?,
            None => Plan::new(&sweep, |_| false)?,
        };
        let estimate = plan.estimate();
        let listed = plan.cells().map(|(key, cell)| ListedCell {
            key: key.to_owned(),
            cpu_ms: round(cell.time.as_secs_f64() * 1e3),
            memory_mib: cell.memory >> 20,
        });
        Ok(Cells {
            schema: "coreline.cells/1",
            engine: ENGINE,
            scenario: sweep.scenario.name,
            rough: estimate.is_rough,
            cpu_s: round(estimate.time.as_secs_f64()),
            cells: listed.collect(),
        })
    }

    pub(crate) fn show(&self, out: &mut dyn Write) -> Result<(), Error> {
        let (cells, time) = (counted(self.cells.len()), took(Duration::from_secs_f64(self.cpu_s)));
        let guess = if self.rough { ", a guess, because no cell has run yet" } else { "" };
        writeln!(out, "{cells}, about {time} of CPU time{guess}\n")?;
        writeln!(out, "   cpu ms   MiB  key")?;
        for ListedCell { key, cpu_ms, memory_mib } in &self.cells {
            writeln!(out, "{cpu_ms:>9.1} {memory_mib:>5}  {key}")?;
        }
        Ok(())
    }
}

/// The end of a sweep. The schema is `coreline.sweep/1`.
#[derive(Serialize)]
pub(crate) struct Swept {
    schema: &'static str,
    engine: &'static str,
    scenario: &'static str,
    store: PathBuf,
    /// All cells of the specification.
    cells: usize,
    /// Those that the store had before.
    before: usize,
    /// Those that ran now.
    now: usize,
    elapsed_s: f64,
    cpu_s: f64,
    /// Keys of failed cells, and why they failed.
    failed: Vec<Failed>,
    interrupted: bool,
}

#[derive(Serialize)]
struct Failed {
    key: String,
    error: String,
}

/// The state that the threads of a sweep share.
struct Shared {
    plan: Plan,
    store: Store,
    now: usize,
    time: Duration,
    stopped: Option<SweepError>,
}

impl Swept {
    /// Runs the cells that the store lacks, on all CPUs that this process may use.
    pub(crate) fn new(choice: &Choice) -> Result<Swept, Error> {
        note_interrupts();
        let sweep = Sweep::from_file(&choice.spec)?;
        let store = Store::open(&choice.store, &sweep)?;
        let plan = store.plan(&sweep)?;
        let (since, estimate) = (Instant::now(), plan.estimate());
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let all = sweep.keys.len();
        let before = all - estimate.cells;
        announce(&estimate, before, workers);
        let bar = progress("", estimate.cells);
        let shared = Shared { plan, store, now: 0, time: Duration::ZERO, stopped: None };
        let (shared, is_stopped) = (Mutex::new(shared), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 1..workers {
                // If no further thread can start, those that run do all of it.
                let worker = || work(&sweep, workers, &shared, &is_stopped, &bar);
                let _ = thread::Builder::new().spawn_scoped(scope, worker);
            }
            work(&sweep, workers, &shared, &is_stopped, &bar);
        });
        bar.finish();
        let shared = shared.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(stopped) = shared.stopped {
            return Err(stopped.into());
        }
        let in_sweep: HashSet<&String> = sweep.keys.iter().collect();
        let failed = shared.store.errors().iter().filter(|(key, _)| in_sweep.contains(key));
        let failed = failed.map(|(key, error)| Failed { key: key.clone(), error: error.clone() });
        Ok(Swept {
            schema: "coreline.sweep/1",
            engine: ENGINE,
            scenario: sweep.scenario.name,
            store: choice.store.clone(),
            cells: all,
            before,
            now: shared.now,
            elapsed_s: round(since.elapsed().as_secs_f64()),
            cpu_s: round(shared.time.as_secs_f64()),
            failed: failed.collect(),
            interrupted: before + shared.now < all,
        })
    }

    /// Returns the error of a sweep that did not succeed.
    pub(crate) fn end(&self) -> Result<(), Error> {
        match self.failed.len() {
            _ if self.interrupted => Err(Error::Interrupted),
            0 => Ok(()),
            count => Err(Error::FailedCells { count }),
        }
    }

    pub(crate) fn show(&self, out: &mut dyn Write) -> Result<(), Error> {
        let Swept { cells, before, now, .. } = self;
        let store = self.store.display();
        let has = before + now;
        let elapsed = Duration::from_secs_f64(self.elapsed_s);
        let rate = *now as f64 / self.elapsed_s.max(1e-3);
        writeln!(out, "{store} has {has} of {} of {}", counted(*cells), self.scenario)?;
        write!(out, "{before} were there before")?;
        match now {
            0 => writeln!(out, "; none ran")?,
            now => writeln!(out, "; {now} ran in {}, {rate:.1} per second", took(elapsed))?,
        }
        for Failed { key, error } in &self.failed {
            let error = error.lines().next().unwrap_or_default();
            writeln!(out, "failed: {error}\n  replay: {key}")?;
        }
        if self.interrupted {
            writeln!(out, "interrupted: run the same command again to continue")?;
        }
        Ok(())
    }
}

/// Runs tasks until none remains, an interrupt comes, or a thread cannot go on.
fn work(
    sweep: &Sweep,
    workers: usize,
    shared: &Mutex<Shared>,
    is_stopped: &AtomicBool,
    bar: &Progress,
) {
    let lock = || shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Relaxed: what the other thread leaves is behind the lock.
    let stop = || was_interrupted() || is_stopped.load(Ordering::Relaxed);
    while !stop() {
        let Some(keys) = lock().plan.next_keys(workers) else { return };
        let done = sweep.task(keys.clone(), workers).run(stop);
        let mut shared = lock();
        let committed = done.and_then(|done| {
            shared.store.commit(&done)?;
            shared.plan.learn(keys, &done.steps(), done.time);
            Ok(done)
        });
        match committed {
            Ok(done) => {
                shared.now += done.rows.len();
                shared.time += done.time;
                // It may write, and must not keep other threads from the store.
                drop(shared);
                bar.inc(done.rows.len() as u64);
            }
            Err(error) => {
                is_stopped.store(true, Ordering::Relaxed);
                shared.stopped.get_or_insert(error);
            }
        }
    }
}

/// Says what will run, on standard error, before it runs.
fn announce(estimate: &super::Estimate, before: usize, workers: usize) {
    let guess = if estimate.is_rough { ", a guess, because no cell has run yet" } else { "" };
    let time = took(estimate.time / u32::try_from(workers).unwrap_or(1).max(1));
    let there =
        if before > 0 { format!(" ({before} are already in the store)") } else { String::new() };
    let _ = writeln!(
        io::stderr(),
        "coreline: {} to run{there}, about {time} on {workers} CPUs{guess}",
        counted(estimate.cells),
    );
}

fn counted(cells: usize) -> String {
    if cells == 1 { "1 cell".to_owned() } else { format!("{cells} cells") }
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
