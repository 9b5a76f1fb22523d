//! What the metrics of a request cost with two recorders: that of `coreline-metrics`, and that of
//! `metrics-exporter-prometheus`.
//!
//! ```sh
//! cargo run --release -p web-metrics --example compare
//! ```

#![expect(clippy::print_stdout, reason = "it says what it found")]

use std::error::Error;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use metrics::{counter, histogram, with_local_recorder};
use metrics_exporter_prometheus::PrometheusBuilder;
use web_metrics::{BOUNDS, Route};

/// A recorder, and what renders its page.
type Recorder = (Box<dyn metrics::Recorder + Send + Sync>, Box<dyn Fn() -> String>);

fn ours() -> Result<Recorder, Box<dyn Error>> {
    let recorder = coreline_metrics::Recorder::builder().bounds(&BOUNDS)?.build();
    let handle = recorder.handle();
    Ok((Box::new(recorder), Box::new(move || handle.render())))
}

fn exporter() -> Result<Recorder, Box<dyn Error>> {
    let recorder = PrometheusBuilder::new().set_buckets(&BOUNDS)?.build_recorder();
    let handle = recorder.handle();
    Ok((Box::new(recorder), Box::new(move || handle.render())))
}

/// The median times of a request's counter and histogram in ns, with each recorder. The recorders
/// take turns, so that they share what else the machine does.
fn compare(
    bound: bool,
    threads: usize,
    rounds: usize,
    requests: u32,
) -> Result<[f64; 2], Box<dyn Error>> {
    let recorders = [ours()?, exporter()?];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for ((recorder, page), times) in recorders.iter().zip(&mut times) {
            times.push(round(&**recorder, bound, threads, requests));
            // The exporter sorts values into buckets when a page is rendered.
            black_box(page());
        }
    }
    Ok(times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}

/// The time of a request, if each thread records so many.
fn round(
    recorder: &(dyn metrics::Recorder + Sync),
    bound: bool,
    threads: usize,
    requests: u32,
) -> f64 {
    let route = &with_local_recorder(recorder, || Route::new("/l"));
    let (begin, end) = (&Barrier::new(threads + 1), &Barrier::new(threads + 1));
    let took = Duration::from_micros(70);
    let record = move || {
        begin.wait();
        for _ in 0..requests {
            if bound {
                route.record(StatusCode::OK, black_box(took));
            } else {
                let labels = [("route", "/l"), ("status", "2xx")];
                counter!("http_requests_total", &labels).increment(1);
                histogram!("http_request_seconds", "route" => "/l").record(took.as_secs_f64());
            }
        }
        end.wait();
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(move || with_local_recorder(recorder, record));
        }
        begin.wait();
        let begun = Instant::now();
        end.wait();
        begun.elapsed().as_nanos() as f64 / f64::from(requests)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    for (bound, how) in [(true, "bound once"), (false, "looked up each time")] {
        for threads in [1, 2] {
            let [ours, exporter] = compare(bound, threads, 21, 100_000)?;
            let ratio = exporter / ours;
            println!(
                "{how}, {threads} threads: coreline-metrics {ours:.1} ns, \
                 metrics-exporter-prometheus {exporter:.1} ns ({ratio:.2})"
            );
        }
    }
    Ok(())
}

#[test]
fn both_recorders_are_timed() {
    for bound in [true, false] {
        let times = compare(bound, 2, 3, 10).unwrap();
        assert!(times.iter().all(|time| time.is_finite() && *time > 0.0), "{times:?}");
    }
}
