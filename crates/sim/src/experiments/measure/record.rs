//! The results of [`scaling`](super::scaling()), for a program that compares them with a baseline.
//!
//! If the environment variable [`FOLDER`] names a folder, each call of `scaling` writes a file
//! there. `cargo coreline scale` sets the variable for the tests that it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::Parallel;
use crate::experiments::claim::{Band, Figures};
use crate::hardware::digest::digest;
use crate::results::failure::Failure;
use crate::results::report::{Details, LineCost, Report, SourceSite, Statistics};

/// The environment variable that names the folder.
const FOLDER: &str = "CORELINE_SCALE";

/// The folder for records, if a program asked for them.
pub(super) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// A file's content. `coreline` reads it back, so a field that changes changes the schema.
#[derive(Serialize)]
struct Record<'a> {
    schema: &'static str,
    /// The version of this crate: another one may have another engine.
    simulator: &'static str,
    /// As Cargo names it, or empty outside of `cargo test`.
    package: String,
    test: String,
    name: &'a str,
    machine: &'a str,
    /// Everything on which figures depend, except the program: the machine and the points.
    band: String,
    rows: Vec<Row>,
}

/// What was measured with a number of threads.
#[derive(Serialize)]
struct Row {
    threads: usize,
    /// Operations per simulated second, at each point of the band, the default first.
    rates: Vec<f64>,
    /// Of the default point.
    replay: String,
    hottest: Option<Hottest>,
}

/// The word whose accesses take the most time. Words of the harness do not count.
#[derive(Serialize)]
struct Hottest {
    names: Vec<String>,
    /// The place whose accesses to the word take the most time.
    file: String,
    line: u32,
    /// The time of the accesses to the word, as a part of the time of all accesses.
    share: f64,
    /// The most expensive places that access other words of the word's line, if the line is
    /// falsely shared.
    shared_with: Vec<String>,
}

/// Writes what was measured: the throughput with each number of threads.
///
/// # Panics
///
/// Panics if the file cannot be written: a curve that is missing would not be compared.
pub(super) fn write(
    folder: &Path,
    band: &Band,
    name: &str,
    rates: &[(usize, &Figures)],
    program: &(impl Fn(usize) -> Parallel + Clone + Send + Sync + 'static),
) -> Result<(), Box<Failure>> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let rows = rates.iter().map(|&(threads, rates)| row(band, threads, rates, program));
    let record = Record {
        schema: "scale-record/1",
        simulator: env!("CARGO_PKG_VERSION"),
        package: std::env::var("CARGO_PKG_NAME").unwrap_or_default(),
        test: std::thread::current().name().unwrap_or_default().to_owned(),
        name,
        machine: band.machine_name(),
        band: of(band),
        rows: rows.collect::<Result<_, _>>()?,
    };
    // Relaxed: the number is taken once, and nothing else depends on it.
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let file = folder.join(format!("{}-{number}.toml", process::id()));
    let text = toml::to_string(&record).expect("a record has tables and values");
    if let Err(error) = fs::write(&file, text) {
        panic!("cannot write to {}, which {FOLDER} asks for: {error}", file.display());
    }
    Ok(())
}

/// The digest of the band's replay lines.
fn of(band: &Band) -> String {
    let line = |point| format!("{}\n", band.machine(point, "").replay_line());
    let lines: String = band.points().iter().map(line).collect();
    format!("{:016x}", digest(lines.as_bytes()))
}

/// Runs the default point once more, with statistics: these take no simulated time.
fn row(
    band: &Band,
    threads: usize,
    rates: &Figures,
    program: &(impl Fn(usize) -> Parallel + Clone + Send + Sync + 'static),
) -> Result<Row, Box<Failure>> {
    let machine = band.machine(&band.points()[0], rates.name());
    let replay = machine.replay_line().to_string();
    let program = program.clone();
    let run = machine.statistics(Statistics::Full).run(move || program(threads))?;
    Ok(Row { threads, rates: rates.values().collect(), replay, hottest: hottest(&run.report) })
}

fn hottest(report: &Report) -> Option<Hottest> {
    let Details { lines, .. } = report.details.as_ref()?;
    let lines: Vec<&LineCost> = lines.iter().filter(|line| !line.of_harness).collect();
    let all: u64 = lines.iter().map(|line| line.cost.time_ns).sum();
    let time = |line: &LineCost, offset: u8| -> u64 {
        let own = line.words.iter().filter(|word| word.offset == offset);
        own.map(|word| word.cost.time_ns).sum()
    };
    let words = lines.iter().flat_map(|&line| line.words.iter().map(move |word| (line, word)));
    let (line, word) = words.max_by_key(|(line, word)| {
        // Of the accesses to one word those from the most expensive place.
        (time(line, word.offset), word.cost.time_ns)
    })?;
    let others = line.words.iter().filter(|other| other.offset != word.offset);
    let place = |site: &SourceSite| site.to_string();
    let mut shared_with: Vec<String> = match line.falsely_shared.len() {
        0 => Vec::new(),
        _ => others.map(|other| place(&other.site)).collect(),
    };
    shared_with.dedup();
    shared_with.truncate(3);
    Some(Hottest {
        names: word.names.clone(),
        file: word.site.file.clone(),
        line: word.site.line,
        share: time(line, word.offset) as f64 / all.max(1) as f64,
        shared_with,
    })
}
