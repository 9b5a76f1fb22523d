//! Reported cases of third parties, predicted: docs/third-party.md.
//!
//! ```sh
//! cargo run --release -p coreline-sim --example third_party            # the tables, whole band
//! cargo run --release -p coreline-sim --example third_party -- --quick # request shares only
//! cargo run --release -p coreline-sim --example third_party -- --reported # the reports' own loads
//! ```

mod metrics;
mod mutexes;
mod parking;

use std::error::Error;

use coreline_sim::claim::{Band, Figures};
use coreline_sim::{Allocator, Spec};

use mutexes::{MutexKind, Work};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The machine: the largest part with published figures that comes with the simulator. None of the
/// reporters' machines is among the presets.
const MACHINE: &str = "epyc-9654-2s";

/// Threads of the two reports on parking_lot, each on a core of its own.
const THREADS: [u32; 2] = [36, 120];

/// Threads that add to a metric.
const ADDERS: [u32; 4] = [1, 16, 64, 255];

/// Shards of a metric.
const SHARDS: [usize; 3] = [1, 16, 256];

fn main() -> Result<(), Box<dyn Error>> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let spec = Spec::preset(MACHINE)?;
    let band = if quick { Band::quick(&spec, 1) } else { Band::whole(&spec, 1) };
    if std::env::args().any(|argument| argument == "--reported") {
        print(&reported_table(&Band::quick(&spec, 1))?);
        return Ok(());
    }
    print(&mutex_table(&band)?);
    print(&metrics_table(&band)?);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn print(table: &str) {
    println!("{table}");
}

/// A figure with its band.
fn shown(figures: &Figures) -> String {
    let (low, high) = figures.range();
    format!("{:.1} ({low:.1} to {high:.1})", figures.value())
}

fn ratio(figures: &Figures, to: &Figures) -> String {
    let (low, high) = figures.ratios(to);
    format!("{:.2} ({low:.2} to {high:.2})", figures.value() / to.value())
}

fn mutex_table(band: &Band) -> Result<String, Box<dyn Error>> {
    let mut table =
        "| threads | inside, outside | parking, kHz per thread | std, kHz per thread | \
                     std over parking |\n|---|---|---|---|---|\n"
            .to_owned();
    for threads in THREADS {
        for work in Work::ALL {
            let measure = |kind: MutexKind| {
                let name = format!("mutex {kind:?} threads={threads} work={work:?}");
                band.measure(&name, |machine| mutexes::rate(machine, kind, threads, work))
            };
            let (parking, std) = (measure(MutexKind::Parking)?, measure(MutexKind::Std)?);
            let Work { inside, outside } = work;
            table += &format!(
                "| {threads} | {inside}, {outside} | {} | {} | {} |\n",
                shown(&parking),
                shown(&std),
                ratio(&std, &parking)
            );
        }
    }
    Ok(table)
}

/// The loads of the reports, known only after the predictions.
fn reported_table(band: &Band) -> Result<String, Box<dyn Error>> {
    let mut table = "| case | parking | std | factor |\n|---|---|---|---|\n".to_owned();
    for threads in [18, 36] {
        let measure = |kind: MutexKind| {
            let name = format!("mutex {kind:?} threads={threads} reported");
            band.measure(&name, |machine| mutexes::rate(machine, kind, threads, Work::REPORTED))
        };
        let (parking, std) = (measure(MutexKind::Parking)?, measure(MutexKind::Std)?);
        let factor = ratio(&std, &parking);
        let (parking, std) = (shown(&parking), shown(&std));
        table += &format!("| {threads} threads, kHz per thread | {parking} | {std} | {factor} |\n");
    }
    let bench = |kind: MutexKind| {
        band.measure(&format!("bench {kind:?}"), |machine| mutexes::bench(machine, kind))
    };
    let (parking, std) = (bench(MutexKind::Parking)?, bench(MutexKind::Std)?);
    let factor = ratio(&parking, &std);
    let (parking, std) = (shown(&parking), shown(&std));
    table += &format!("| 32 threads, 2 locks, ms in all | {parking} | {std} | {factor} |\n");
    Ok(table)
}

fn metrics_table(band: &Band) -> Result<String, Box<dyn Error>> {
    let mut table = "| threads | shards | million additions a second | over one shard |\n\
                     |---|---|---|---|\n"
        .to_owned();
    for threads in ADDERS {
        let mut one = None;
        for shards in SHARDS {
            let name = format!("metric threads={threads} shards={shards}");
            let figures = band.measure(&name, |machine| metrics::rate(machine, threads, shards))?;
            let base = one.get_or_insert_with(|| figures.clone());
            let gain = ratio(&figures, base);
            table += &format!("| {threads} | {shards} | {} | {gain} |\n", shown(&figures));
        }
    }
    Ok(table)
}
