//! False sharing, found and fixed: the worked example of docs/simulating.md.
//!
//! ```sh
//! cargo run --release -p coreline-sim --example false_sharing
//! ```

use std::error::Error;
use std::fmt::Write as _;

use coreline_sim::atomic::{AtomicU64, Ordering}; // was std::sync::atomic
use coreline_sim::claim::Band;
use coreline_sim::hint::work;
use coreline_sim::measure::{Parallel, parallel};
use coreline_sim::time::Duration; // was std::time
use coreline_sim::{Failure, Machine, Spec, Statistics, name};

#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

/// What each worker of a server counts.
#[derive(Default)]
struct Served(AtomicU64);

/// The same, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct ServedApart(Served);

/// A worker's counter, wherever it lies.
trait Count: Default + Send + Sync + 'static {
    fn add(&self);
    fn get(&self) -> u64;
}

impl Count for Served {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Count for ServedApart {
    fn add(&self) {
        self.0.add();
    }

    fn get(&self) -> u64 {
        self.0.get()
    }
}

const WORKERS: usize = 64;
const REQUESTS: u64 = 500;

/// The program, from the workers' common start to the end of the last.
fn serve<C: Count>() -> Parallel {
    let served: Vec<C> = (0..WORKERS).map(|_| C::default()).collect();
    for (worker, count) in served.iter().enumerate() {
        name(count, &format!("served[{worker}]"));
    }
    let done = parallel(WORKERS, REQUESTS, |worker| {
        work(Duration::from_nanos(20));
        served[worker].add();
    });
    let all: u64 = served.iter().map(C::get).sum();
    assert_eq!(all, (REQUESTS + 1) * WORKERS as u64, "each did one before the start");
    done
}

/// Nanoseconds that a request takes.
fn per_request<C: Count>(machine: Machine) -> Result<f64, Box<Failure>> {
    let done = machine.run(serve::<C>)?.value;
    Ok(done.span_ns as f64 / REQUESTS as f64)
}

fn look<C: Count>() -> Result<Parallel, Box<dyn Error>> {
    Ok(Machine::preset("epyc-9654-2s")?.seed(1).run(serve::<C>)?.value)
}

/// The hottest line of the packed counters, and which accesses miss on it from where.
fn hottest() -> Result<String, Box<dyn Error>> {
    let machine = Machine::preset("epyc-9654-2s")?.seed(1).statistics(Statistics::Full);
    let details = machine.run(serve::<Served>)?.report.details.ok_or("no details")?;
    let line = &details.lines[0];
    let mut text = format!("the line at {:#x} took {} ns\n", line.address, line.cost.time_ns);
    for word in &line.words {
        let (names, misses) = (word.names.join(", "), word.cost.transfers.misses());
        let file = word.site.file.rsplit('/').next().unwrap_or_default();
        if misses > 0 {
            writeln!(text, "  {names}: {misses} misses at {file}:{}", word.site.line)?;
        }
    }
    Ok(text)
}

/// What the guide shows.
pub(crate) fn story() -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for (name, done) in [("packed", look::<Served>()?), ("apart", look::<ServedApart>()?)] {
        let transfers = done.transfers;
        writeln!(
            text,
            "{name:8} {:6} ns; accesses served by: own cache {}, same L3 {}, other L3 {}, \
             other socket {}, memory {}",
            done.span_ns,
            transfers.private,
            transfers.same_cache,
            transfers.same_node,
            transfers.other_socket,
            transfers.memory
        )?;
    }
    text += &hottest()?;

    let band = Band::whole(&Spec::preset("epyc-9654-2s")?, 1);
    let packed = band.measure("packed", per_request::<Served>)?;
    let apart = band.measure("apart", per_request::<ServedApart>)?;
    packed.at_least(4.0, &apart)?;
    let (low, high) = packed.ratios(&apart);
    writeln!(
        text,
        "packed takes {low:.1} to {high:.1} times as long as apart over {} points",
        band.points().len()
    )?;
    if let Err(broken) = packed.at_least(8.0, &apart) {
        writeln!(text, "{broken}")?;
    }
    Ok(text)
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", story()?);
    Ok(())
}
