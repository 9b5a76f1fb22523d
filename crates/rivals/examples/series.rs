//! What 10,000 series of a metrics library take, of which one thread uses each some times.
//!
//! ```sh
//! cargo run --release -p coreline-rivals --example series -- coreline
//! ```
//!
//! Libraries: `coreline`, `exporter` (metrics-exporter-prometheus), `client` (prometheus-client),
//! and `sdk` (opentelemetry_sdk). A second argument is the number of additions to each series, 10
//! without it. Prints the bytes of the heap, and of resident memory outside of it, for each series.

#![allow(clippy::print_stdout, reason = "an example says what it found")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs};

use metrics::{Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{SdkMeterProvider, Stream};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

struct Counting;

static HEAP: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, whose calls are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed, here and below: a count hands nothing over.
        HEAP.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // Relaxed: see `alloc`.
        HEAP.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SERIES: usize = 10_000;

/// Bytes that are in memory.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = statm.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a number");
    pages * 4096
}

/// A series by its number.
fn number(number: usize) -> String {
    format!("{number:08}")
}

/// Adds by a recorder of the facade. Each addition creates its key, as `counter!` does if a label
/// is not constant.
fn facade(recorder: &impl Recorder, additions: usize) {
    let metadata = Metadata::new("series", Level::INFO, None);
    for _ in 0..additions {
        for series in 0..SERIES {
            let key = Key::from_parts("requests_total", vec![Label::new("path", number(series))]);
            recorder.register_counter(&key, &metadata).increment(1);
        }
    }
}

fn main() {
    let mut arguments = env::args().skip(1);
    let library = arguments.next().unwrap_or_default();
    let additions = arguments.next().map_or(10, |it| it.parse().expect("a number"));
    let before = (HEAP.load(Ordering::Relaxed), resident());
    let kept: Box<dyn std::any::Any> = match &*library {
        "coreline" => {
            let recorder = coreline_metrics::Recorder::default();
            facade(&recorder, additions);
            Box::new(recorder)
        }
        "exporter" => {
            let recorder = PrometheusBuilder::new().build_recorder();
            facade(&recorder, additions);
            Box::new(recorder)
        }
        "client" => {
            let family = Family::<Vec<(String, String)>, Counter>::default();
            for series in (0..additions).flat_map(|_| 0..SERIES) {
                family.get_or_create(&vec![("path".to_owned(), number(series))]).inc();
            }
            Box::new(family)
        }
        "sdk" => {
            // Without the limit of 2,000 sets of attributes.
            let all = |_: &_| Stream::builder().with_cardinality_limit(2 * SERIES).build().ok();
            let reader = opentelemetry_sdk::metrics::ManualReader::builder().build();
            let provider = SdkMeterProvider::builder().with_reader(reader).with_view(all).build();
            let counter = provider.meter("series").u64_counter("requests").build();
            for series in (0..additions).flat_map(|_| 0..SERIES) {
                counter.add(1, &[KeyValue::new("path", number(series))]);
            }
            Box::new((provider, counter))
        }
        _ => panic!("which library? coreline, exporter, client or sdk"),
    };
    let after = (HEAP.load(Ordering::Relaxed), resident());
    let (heap, resident) = (after.0 - before.0, after.1.saturating_sub(before.1));
    let each = |bytes: usize| bytes as f64 / SERIES as f64;
    let other = each(resident.saturating_sub(heap));
    println!("{library}: heap {:.0}, other resident {other:.0} bytes for a series", each(heap));
    drop(kept);
}
