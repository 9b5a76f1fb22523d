//! Bound instruments, as OpenTelemetry's SDK reports them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use coreline_metrics::opentelemetry::{Counter, Gauge, UpDownCounter};
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};

const NEVER: Duration = Duration::from_secs(1 << 30);

/// What an exporter last got: values by instrument and attributes.
type Reported = BTreeMap<String, f64>;

#[derive(Clone)]
struct Exporter(Arc<Mutex<Reported>>, Temporality);

/// The points of an instrument.
fn points(data: &AggregatedMetrics) -> Vec<(Vec<KeyValue>, f64)> {
    macro_rules! points {
        ($data:expr) => {
            match $data {
                MetricData::Gauge(it) => it
                    .data_points()
                    .map(|it| (it.attributes().cloned().collect(), it.value() as f64))
                    .collect(),
                MetricData::Sum(it) => it
                    .data_points()
                    .map(|it| (it.attributes().cloned().collect(), it.value() as f64))
                    .collect(),
                other => panic!("{other:?}"),
            }
        };
    }
    match data {
        AggregatedMetrics::F64(data) => points!(data),
        AggregatedMetrics::U64(data) => points!(data),
        AggregatedMetrics::I64(data) => points!(data),
    }
}

impl PushMetricExporter for Exporter {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let mut reported = self.0.lock().unwrap();
        reported.clear();
        for metric in metrics.scope_metrics().flat_map(|scope| scope.metrics()) {
            for (mut attributes, value) in points(metric.data()) {
                attributes.sort_by(|one, other| one.key.cmp(&other.key));
                let text = attributes.iter().map(|it| format!(" {}={}", it.key, it.value));
                reported.insert(format!("{}{}", metric.name(), text.collect::<String>()), value);
            }
        }
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        self.1
    }
}

/// A provider, and what it reports when it is asked to.
fn provider(temporality: Temporality) -> (SdkMeterProvider, impl Fn() -> Reported) {
    let exporter = Exporter(Arc::default(), temporality);
    let reader = PeriodicReader::builder(exporter.clone()).with_interval(NEVER).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    let asked = provider.clone();
    (provider, move || {
        asked.force_flush().unwrap();
        exporter.0.lock().unwrap().clone()
    })
}

fn reported<const N: usize>(rows: [(&str, f64); N]) -> Reported {
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn bound_instruments_are_reported_with_their_attributes() {
    let (provider, report) = provider(Temporality::Cumulative);
    let meter = provider.meter("test");
    let builder = meter.u64_observable_counter("requests").with_description("All").with_unit("1");
    let requests = Counter::build(builder);
    let open = UpDownCounter::build(meter.i64_observable_up_down_counter("open"));
    let level = Gauge::build(meter.f64_observable_gauge("level"));
    let [a, b] = ["a", "b"].map(|value| KeyValue::new("key", value));
    let more = KeyValue::new("also", 1_i64);
    requests.bind(&[]).add(1);
    requests.bind(&[a.clone(), more.clone()]).add(2);
    requests.bind(&[more.clone(), a.clone()]).add(3);
    requests.bind(&[b.clone(), a.clone()]).add(4);
    open.bind(&[b]).add(-5);
    let bound = level.bind(&[]);
    bound.record(1.0);
    bound.add(0.5);
    let expected = [
        ("requests", 1.0),
        ("requests also=1 key=a", 5.0),
        ("requests key=a", 4.0),
        ("open key=b", -5.0),
        ("level", 1.5),
    ];
    assert_eq!(report(), reported(expected));
    assert!(requests.unbind(&[a.clone(), more]) && requests.unbind(std::slice::from_ref(&a)));
    assert!(!requests.unbind(&[a]));
    requests.clone().bind(&[]).add(1);
    assert_eq!(report(), reported([("requests", 2.0), ("open key=b", -5.0), ("level", 1.5)]));
}

#[test]
fn additions_of_many_threads_are_all_reported_as_deltas_too() {
    for temporality in [Temporality::Cumulative, Temporality::Delta] {
        let (provider, report) = provider(temporality);
        let counter = Counter::build(provider.meter("test").u64_observable_counter("hot"));
        let bound = counter.bind(&[]);
        let add = || (0..50_000).for_each(|_| bound.add(1));
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(add))));
        assert_eq!(report(), reported([("hot", 200_000.0)]));
        bound.add(1);
        let second = if temporality == Temporality::Delta { 1.0 } else { 200_001.0 };
        assert_eq!(report(), reported([("hot", second)]));
    }
}
