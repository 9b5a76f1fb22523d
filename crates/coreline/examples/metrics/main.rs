//! Metrics per CPU: what a metrics SDK and a runtime's monitor count, beside the same on atomics,
//! at 1, 2 and 8 threads of this machine and on 384 simulated CPUs; and a recorder for the facade
//! `metrics`.
//!
//! ```sh
//! cargo run --release -p coreline --example metrics
//! ```

#![allow(clippy::print_stdout, reason = "an example says what it found")]

mod instruments;
mod recorder;

use std::sync::Arc;

use coreline::PerCpuCounter;
use coreline::world::{Integer, JoinHandle, Native, Ordering, Place, Placement, Testbed, Word};
use coreline_sim::{Machine, Sim};

use instruments::{AtomicTaskMonitor, AtomicTracker, Instrument, TaskMonitor, Tracker};
use recorder::PerCpuRecorder;

#[global_allocator]
static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;

/// A static, without a `LazyLock`.
static REPORTS: PerCpuCounter = PerCpuCounter::const_new();

/// Nanoseconds that a thread takes to tell of one request, on average, while all of them do; and
/// those that a report takes afterwards.
fn time<W: Testbed, I: Instrument>(threads: u32, tells: u32, places: Places) -> [f64; 2] {
    let instrument = Arc::new(I::new());
    let ready = Arc::new(W::U32::new_in(0));
    let tell = |number| {
        let (instrument, ready) = (Arc::clone(&instrument), Arc::clone(&ready));
        let body = move || {
            // So that each CPU has its slots before time is taken.
            (0..300).for_each(|n| instrument.tell(n));
            // Relaxed: nothing is handed on.
            ready.fetch_add(1, Ordering::Relaxed);
            ready.wait_until(Ordering::Relaxed, |ready| ready == threads);
            let start = W::now();
            (0..tells).for_each(|n| instrument.tell(n));
            (W::now() - start).as_nanos() as f64 / f64::from(tells)
        };
        W::spawn(places(number), body).expect("there is room for threads")
    };
    let threads: Vec<_> = (0..threads).map(tell).collect();
    let count = threads.len() as f64;
    let telling = threads.into_iter().map(JoinHandle::join).sum::<f64>() / count;
    let start = W::now();
    let _report = instrument.collect();
    [telling, (W::now() - start).as_nanos() as f64]
}

/// Where a thread runs, by its number.
type Places = fn(u32) -> Placement;

/// The middle of some times.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Prints the times of two, which take turns.
fn compare<W: Testbed, A: Instrument, C: Instrument>(
    (what, rounds, tells): (&str, u32, u32),
    threads: u32,
    places: Places,
) {
    let turn = |_| (time::<W, A>(threads, tells, places), time::<W, C>(threads, tells, places));
    let (atomics, ours): (Vec<_>, Vec<_>) = (0..rounds).map(turn).unzip();
    let middle = |times: &[[f64; 2]], at: usize| median(times.iter().map(|it| it[at]).collect());
    let [atomic, report] = [middle(&atomics, 0), middle(&atomics, 1)];
    let [our, our_report] = [middle(&ours, 0), middle(&ours, 1)];
    let ratio = our / atomic;
    print!("{what:<12} {threads:>8} {atomic:>9.1} {our:>9.1} {ratio:>6.2}");
    println!(" {report:>11.0} {our_report:>11.0}");
}

/// All of them with this many threads.
fn compare_all<W: Testbed>(rounds: u32, tells: u32, threads: u32, places: Places) {
    let (tracker, monitor) = (("histogram", rounds, tells), ("16 counters", rounds, tells));
    compare::<W, AtomicTracker<W>, Tracker<W>>(tracker, threads, places);
    compare::<W, AtomicTaskMonitor<W>, TaskMonitor<W>>(monitor, threads, places);
}

fn head(machine: &str) {
    println!("\n{machine}");
    println!(
        "{:<22}{:>9}{:>10}{:>7}{:>12}{:>12}",
        "", "atomics,", "coreline,", "", "report", "report of"
    );
    println!(
        "{:<13}{:>8}{:>10}{:>10}{:>7}{:>12}{:>12}",
        "what", "threads", "ns", "ns", "ratio", "of atomics", "coreline"
    );
}

fn main() {
    head(&format!("This machine, with {} CPUs:", Native::topology().cpus().count()));
    for threads in [1, 2, 8] {
        compare_all::<Native>(15, 200_000, threads, |_| Placement::Anywhere);
    }
    head("epyc-9654-2s, simulated, with 384 CPUs:");
    let machine = Machine::preset("epyc-9654-2s").expect("a preset").seed(1);
    let on_its_cpu: Places = |number| Placement::On(coreline::CpuId::new(number));
    let run = machine.run(move || compare_all::<Sim>(1, 20, 384, on_its_cpu));
    run.unwrap_or_else(|failure| panic!("{failure}"));

    let recorder = PerCpuRecorder::default();
    metrics::with_local_recorder(&recorder, || {
        metrics::counter!("requests", "path" => "/").increment(3);
        metrics::histogram!("latency_ms").record(12.5);
        REPORTS.add(1);
    });
    let report = recorder.report();
    println!("\nReport {} of the facade:", REPORTS.drain());
    report.counters.iter().for_each(|(name, value)| println!("{name} {value}"));
    report.gauges.iter().for_each(|(name, value)| println!("{name} {value}"));
    report.histograms.iter().for_each(|(name, value)| println!("{name} {value:?}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads tell while one collects; all reports together have what was told.
    fn nothing_is_lost<W: Testbed, I: Instrument>(places: Places, sum: fn(&[I::Report]) -> i64) {
        let (threads, tells) = (4, 64);
        let instrument = Arc::new(I::new());
        let tell = |number| {
            let instrument = Arc::clone(&instrument);
            let body = move || (0..tells).for_each(|n| instrument.tell(n));
            W::spawn(places(number), body).unwrap()
        };
        let threads: Vec<_> = (0..threads).map(tell).collect();
        let early = instrument.collect();
        threads.into_iter().for_each(JoinHandle::join);
        let reports = [early, instrument.collect()];
        assert_eq!(sum(&reports), 4 * 64, "{reports:?}");
    }

    fn all_keep_all<W: Testbed>(places: Places) {
        let of_histograms = |reports: &[([i64; 16], f64, f64)]| {
            let times: f64 = reports.iter().map(|report| report.1).sum();
            assert_eq!(times, f64::from(4 * (0..64).sum::<u32>()));
            let longest = reports.iter().map(|report| report.2).fold(0.0, f64::max);
            assert_eq!(longest, 63.0);
            reports.iter().flat_map(|report| report.0).sum()
        };
        nothing_is_lost::<W, Tracker<W>>(places, of_histograms);
        nothing_is_lost::<W, AtomicTracker<W>>(places, of_histograms);
        let polls = |reports: &[[i64; 16]]| reports.iter().map(|report| report[0]).sum();
        nothing_is_lost::<W, TaskMonitor<W>>(places, polls);
        nothing_is_lost::<W, AtomicTaskMonitor<W>>(places, polls);
    }

    #[test]
    fn instruments_lose_nothing_in_two_worlds() {
        all_keep_all::<Native>(|_| Placement::Anywhere);
        let machine = Machine::preset("host-2c").unwrap();
        let on_two: Places = |number| Placement::On(coreline::CpuId::new(number % 2));
        machine.run(move || all_keep_all::<Sim>(on_two)).unwrap();
    }

    #[test]
    fn the_facade_s_macros_reach_the_recorder() {
        let recorder = PerCpuRecorder::default();
        let record = || {
            metrics::with_local_recorder(&recorder, || {
                for n in 0..1_000 {
                    metrics::counter!("requests", "path" => "/").increment(2);
                    metrics::histogram!("latency_ms").record(f64::from(n % 10));
                }
                metrics::counter!("uptime").absolute(7);
                metrics::gauge!("connections").increment(1.0);
            });
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(record))));
        let report = recorder.report();
        let requests = report.counters.iter().find(|(name, _)| name.contains("requests"));
        assert_eq!(requests.map(|(_, value)| *value), Some(8_000), "{report:?}");
        assert_eq!(report.gauges.values().copied().sum::<f64>(), 4.0);
        let uptime = report.counters.iter().find(|(name, _)| name.contains("uptime"));
        assert_eq!(uptime.map(|(_, value)| *value), Some(7), "{report:?}");
        let latency = report.histograms.values().next().unwrap();
        assert_eq!((latency.sum, latency.least, latency.greatest), (18_000.0, 0.0, 9.0));
        assert_eq!(latency.buckets.iter().sum::<i64>(), 4_000);
        let again = recorder.report();
        assert_eq!(again.counters.values().copied().max(), Some(7), "{again:?}");
        assert_eq!(again.histograms.values().next().unwrap().sum, 0.0);
    }
}
