//! The results of [`scaling`](super::scaling()), for a program that compares them with a baseline.
//!
//! If the environment variable [`FOLDER`] names a folder, each call of `scaling` writes a file
//! there. `cargo coreline scale` sets the variable for the tests that it runs.

use std::collections::BTreeMap;
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
    package: &'a str,
    test: &'a str,
    name: &'a str,
    machine: &'a str,
    /// Of everything but the program that figures depend on: the machine and the points.
    band: &'a str,
    scales_to: usize,
    rows: Vec<Row<'a>>,
}

/// What was measured with a number of threads.
#[derive(Serialize)]
struct Row<'a> {
    threads: usize,
    /// Operations per simulated second, at each point of the band, the default first.
    rates: Vec<f64>,
    /// Of the default point.
    replay: &'a str,
    hottest: Option<&'a Hottest>,
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

/// A curve: the throughput of a program, or of one of its roles.
pub(super) struct Curve<'a> {
    pub(super) name: &'a str,
    pub(super) scales_to: usize,
    /// By the number of threads of the whole program.
    pub(super) rates: Vec<(usize, &'a Figures)>,
}

/// Writes curves of one program, of which the first is that of all its threads.
///
/// # Panics
///
/// Panics if a file cannot be written: a curve that is missing would not be compared.
pub(super) fn write(
    folder: &Path,
    band: &Band,
    curves: &[Curve<'_>],
    program: &(impl Fn(usize) -> Parallel + Clone + Send + Sync + 'static),
) -> Result<(), Box<Failure>> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let explained = curves.first().into_iter().flat_map(|whole| &whole.rates);
    let explained = explained.map(|(threads, rates)| {
        explained_by(band, rates.name(), *threads, program).map(|by| (*threads, by))
    });
    let explained = explained.collect::<Result<BTreeMap<_, _>, _>>()?;
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let thread = std::thread::current();
    let digest = of(band);
    for Curve { name, scales_to, rates } in curves {
        let row = |&(threads, rates): &(usize, &Figures)| {
            let (replay, hottest) = explained.get(&threads)?;
            let (rates, hottest) = (rates.values().collect(), hottest.as_ref());
            Some(Row { threads, rates, replay, hottest })
        };
        let record = Record {
            schema: "scale-record/1",
            simulator: env!("CARGO_PKG_VERSION"),
            package: &package,
            test: thread.name().unwrap_or_default(),
            name,
            machine: band.machine_name(),
            band: &digest,
            scales_to: *scales_to,
            rows: rates.iter().filter_map(row).collect(),
        };
        // Relaxed: the number is taken once, and nothing else depends on it.
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let file = folder.join(format!("{}-{number}.toml", process::id()));
        let text = toml::to_string(&record).expect("a record has tables and values");
        if let Err(error) = fs::write(&file, text) {
            panic!("cannot write to {}, which {FOLDER} asks for: {error}", file.display());
        }
    }
    Ok(())
}

/// The digest of the band's replay lines.
fn of(band: &Band) -> String {
    let line = |point| format!("{}\n", band.machine(point, "").replay_line());
    let lines: String = band.points().iter().map(line).collect();
    format!("{:016x}", digest(lines.as_bytes()))
}

/// Runs the default point once more, with statistics: these take no simulated time. Returns the
/// replay line and the hottest word.
fn explained_by(
    band: &Band,
    named: &str,
    threads: usize,
    program: &(impl Fn(usize) -> Parallel + Clone + Send + Sync + 'static),
) -> Result<(String, Option<Hottest>), Box<Failure>> {
    let machine = band.machine(&band.points()[0], named);
    let replay = machine.replay_line().to_string();
    let program = program.clone();
    let run = machine.statistics(Statistics::Full).run(move || program(threads))?;
    Ok((replay, hottest(&run.report)))
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
