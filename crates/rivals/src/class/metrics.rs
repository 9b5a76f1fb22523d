//! The class `metrics`: adding 1 to a counter of a metrics library, with one label.
//!
//! Two forms, each with one hot series:
//!
//! - **looked up**: each addition looks the series up by its name and label, as
//!   `counter!("requests", "path" => "/").increment(1)` does. The key itself is a constant, so no
//!   candidate pays for making one;
//! - **bound**: the series was looked up before. The handle is what the library returns.
//!
//! Ours and metrics-exporter-prometheus are called through the facade's trait, as its macros do.
//! OpenTelemetry's instruments have a reader that collects only when it is asked to. Its bound
//! instruments are an experimental feature of the SDK.
//!
//! The goal holds on every processor with two CPUs or more: the rivals write to lines that all
//! threads share, and ours writes to none.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use coreline::Lacking;
use coreline_metrics::{Handle, Recorder as Ours};
use metrics::{Counter, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, Counter as SdkCounter, MeterProvider};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use prometheus_client::metrics::counter::Counter as ClientCounter;
use prometheus_client::metrics::family::Family;

use super::{Bench, Candidate, Form, Goal, Most, Params, Role, Subject, candidate, rounds};

const OURS: [&str; 2] = ["coreline-metrics, looked up", "coreline-metrics, bound"];
const EXPORTER: [&str; 2] =
    ["metrics-exporter-prometheus, looked up", "metrics-exporter-prometheus, bound"];
const CLIENT: [&str; 2] = ["prometheus-client Family, looked up", "prometheus-client, bound"];
const SDK: [&str; 2] = ["opentelemetry_sdk Counter, looked up", "opentelemetry_sdk, bound"];

/// All rivals of the form.
const RIVALS: [[&str; 3]; 2] = [[EXPORTER[0], CLIENT[0], SDK[0]], [EXPORTER[1], CLIENT[1], SDK[1]]];

/// The goal, set in advance: times the best rival, at two threads.
const MOST: f64 = 1.0 / 3.0;

pub(super) fn bench() -> Bench {
    let looked_up = vec![
        candidate(OURS[0], Role::Ours, || Ok(Arc::new(LookedUp(facade_ours())))),
        candidate(EXPORTER[0], Role::Rival, || Ok(Arc::new(LookedUp(facade_theirs())))),
        candidate(CLIENT[0], Role::Rival, || Ok(Arc::new(LookedUp(Client::default())))),
        candidate(SDK[0], Role::Rival, || Ok(Arc::new(LookedUp(Sdk::new())))),
    ];
    let bound = vec![
        candidate(OURS[1], Role::Ours, || bound(facade_ours())),
        candidate(EXPORTER[1], Role::Rival, || bound(facade_theirs())),
        candidate(CLIENT[1], Role::Rival, || bound(Client::default())),
        candidate(SDK[1], Role::Rival, || bound(Sdk::new())),
    ];
    let forms = [looked_up, bound].into_iter().enumerate();
    Bench { operation: "an addition to a metric", forms: forms.map(form).collect() }
}

fn form((number, candidates): (usize, Vec<Candidate>)) -> Form {
    // One goal for each rival is the goal by the best of them.
    let goal = |rival: &str| Goal {
        threads: Some(2),
        ..Goal::everywhere(OURS[number], Most::Times(MOST, rival.to_owned()))
    };
    Form {
        title: ["metric-looked-up", "metric-bound"][number],
        threads: vec![1, 2, 8],
        window: None,
        params: Params::default(),
        candidates,
        reference: EXPORTER[number].to_owned(),
        goals: RIVALS[number].map(goal).into(),
    }
}

/// A metrics library with a counter.
trait Library: Send + Sync + 'static {
    type Bound: Send + Sync;

    /// Adds 1 to the series, which it looks up.
    fn add(&self);

    fn bind(&self) -> Self::Bound;

    fn add_bound(bound: &Self::Bound);

    fn sum(&self) -> u64;
}

struct LookedUp<L>(L);

impl<L: Library> Subject for LookedUp<L> {
    fn run(&self, _: usize, ops: u64) {
        rounds(ops, |_| self.0.add());
    }

    fn total(&self) -> Option<u64> {
        Some(self.0.sum())
    }
}

struct Bound<L: Library> {
    library: L,
    bound: L::Bound,
}

fn bound<L: Library>(library: L) -> Result<Arc<dyn Subject>, Lacking> {
    let bound = library.bind();
    Ok(Arc::new(Bound { library, bound }))
}

impl<L: Library> Subject for Bound<L> {
    fn run(&self, _: usize, ops: u64) {
        rounds(ops, |_| L::add_bound(&self.bound));
    }

    fn total(&self) -> Option<u64> {
        Some(self.library.sum())
    }
}

static LABELS: [Label; 1] = [Label::from_static_parts("path", "/")];
static KEY: Key = Key::from_static_parts("requests", &LABELS);
static METADATA: Metadata<'_> = Metadata::new("rivals", Level::INFO, None);

/// A recorder of the facade, and what makes a page of it.
struct Facade<R, P> {
    recorder: R,
    page: P,
}

fn facade_ours() -> Facade<Ours, impl Fn() -> String> {
    let recorder = Ours::default();
    let handle: Handle = recorder.handle();
    Facade { recorder, page: move || handle.render() }
}

fn facade_theirs() -> Facade<PrometheusRecorder, impl Fn() -> String> {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle: PrometheusHandle = recorder.handle();
    Facade { recorder, page: move || handle.render() }
}

impl<R, P> Library for Facade<R, P>
where
    R: Recorder + Send + Sync + 'static,
    P: Fn() -> String + Send + Sync + 'static,
{
    type Bound = Counter;

    #[inline(always)]
    fn add(&self) {
        self.recorder.register_counter(&KEY, &METADATA).increment(1);
    }

    fn bind(&self) -> Counter {
        self.recorder.register_counter(&KEY, &METADATA)
    }

    #[inline(always)]
    fn add_bound(bound: &Counter) {
        bound.increment(1);
    }

    fn sum(&self) -> u64 {
        let page = (self.page)();
        let sample = page.lines().find_map(|line| line.strip_prefix("requests{path=\"/\"} "));
        sample.map_or(0, |value| value.parse().expect("a counter is a number"))
    }
}

/// A family of prometheus-client.
type Client = Family<[(&'static str, &'static str); 1], ClientCounter>;

const CLIENT_LABELS: [(&str, &str); 1] = [("path", "/")];

impl Library for Client {
    type Bound = ClientCounter;

    #[inline(always)]
    fn add(&self) {
        self.get_or_create(&CLIENT_LABELS).inc();
    }

    fn bind(&self) -> ClientCounter {
        self.get_or_create(&CLIENT_LABELS).clone()
    }

    #[inline(always)]
    fn add_bound(bound: &ClientCounter) {
        bound.inc();
    }

    fn sum(&self) -> u64 {
        self.get_or_create(&CLIENT_LABELS).get()
    }
}

/// A counter of OpenTelemetry's SDK.
struct Sdk {
    provider: SdkMeterProvider,
    counter: SdkCounter<u64>,
    attributes: [KeyValue; 1],
    exported: Exported,
}

/// The sum that was last exported.
#[derive(Clone, Default)]
struct Exported(Arc<Mutex<u64>>);

impl PushMetricExporter for Exported {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        for metric in metrics.scope_metrics().flat_map(|scope| scope.metrics()) {
            if let AggregatedMetrics::U64(MetricData::Sum(sum)) = metric.data() {
                let all = sum.data_points().map(|point| point.value()).sum();
                *self.0.lock().expect("no thread panics") = all;
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
        Temporality::Cumulative
    }
}

impl Sdk {
    fn new() -> Self {
        const NEVER: Duration = Duration::from_secs(1 << 30);
        let exported = Exported::default();
        let reader = PeriodicReader::builder(exported.clone()).with_interval(NEVER).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        let counter = provider.meter("rivals").u64_counter("requests").build();
        Sdk { provider, counter, attributes: [KeyValue::new("path", "/")], exported }
    }
}

impl Library for Sdk {
    type Bound = BoundCounter<u64>;

    #[inline(always)]
    fn add(&self) {
        self.counter.add(1, &self.attributes);
    }

    fn bind(&self) -> BoundCounter<u64> {
        self.counter.bind(&self.attributes)
    }

    #[inline(always)]
    fn add_bound(bound: &BoundCounter<u64>) {
        bound.add(1);
    }

    fn sum(&self) -> u64 {
        self.provider.force_flush().expect("the exporter takes all");
        *self.exported.0.lock().expect("no thread panics")
    }
}
