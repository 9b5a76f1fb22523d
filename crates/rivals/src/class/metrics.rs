//! The class `metrics`: adding 1 to a counter of a metrics library, and recording a value in a
//! histogram of it, with one label.
//!
//! Two forms of both, each with one hot series:
//!
//! - **looked up**: each operation looks the series up by its name and label, as
//!   `counter!("requests", "path" => "/").increment(1)` does. The key itself is a constant, so no
//!   candidate pays for making one;
//! - **bound**: the series was looked up before. The handle is what the library returns.
//!
//! Ours and metrics-exporter-prometheus are called through the facade's trait, as its macros do.
//! OpenTelemetry's instruments have a reader that collects only when it is asked to. Its bound
//! instruments are an experimental feature of the SDK. All histograms have the same bounds. Those
//! of metrics-exporter-prometheus keep each value, and sort it into a bucket only when a page is
//! made, which is not measured.
//!
//! The goals hold on every processor with two CPUs or more: the rivals write to lines that all
//! threads share, and ours writes to none.

use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coreline::Lacking;
use coreline_metrics::DEFAULT_BOUNDS;
use metrics::{Counter, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{
    BoundCounter, BoundHistogram, Counter as SdkCounter, Histogram as SdkHistogram, MeterProvider,
};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use prometheus_client::metrics::counter::Counter as ClientCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram as ClientHistogram;

use super::{Bench, Candidate, Form, Goal, Most, Params, Role, Subject, candidate, rounds};

const OURS: &str = "coreline-metrics";
const RIVALS: [&str; 3] = ["metrics-exporter-prometheus", "prometheus-client", "opentelemetry_sdk"];

/// The goal, set in advance: times the best rival, at two threads.
const MOST: f64 = 1.0 / 3.0;

pub(super) fn bench() -> Bench {
    type Ours<K> = Facade<coreline_metrics::Recorder, K>;
    type Exporter<K> = Facade<PrometheusRecorder, K>;
    type SdkC = Sdk<SdkCounter<u64>>;
    type SdkH = Sdk<SdkHistogram<f64>>;
    let forms = [
        form(
            "metric-counter-looked-up",
            "counter looked up",
            looked_up::<Ours<Counter>, Exporter<Counter>, Client, SdkC>,
        ),
        form(
            "metric-counter-bound",
            "counter bound",
            bound::<Ours<Counter>, Exporter<Counter>, Client, SdkC>,
        ),
        form(
            "metric-histogram-looked-up",
            "histogram looked up",
            looked_up::<Ours<Histogram>, Exporter<Histogram>, ClientHistograms, SdkH>,
        ),
        form(
            "metric-histogram-bound",
            "histogram bound",
            bound::<Ours<Histogram>, Exporter<Histogram>, ClientHistograms, SdkH>,
        ),
    ];
    Bench { operation: "a use of a metric", forms: forms.into() }
}

fn looked_up<O: Library, E: Library, C: Library, S: Library>(
    name: &dyn Fn(&str) -> String,
) -> Vec<Candidate> {
    vec![
        candidate(&name(OURS), Role::Ours, || Ok(Arc::new(LookedUp(O::new())))),
        candidate(&name(RIVALS[0]), Role::Rival, || Ok(Arc::new(LookedUp(E::new())))),
        candidate(&name(RIVALS[1]), Role::Rival, || Ok(Arc::new(LookedUp(C::new())))),
        candidate(&name(RIVALS[2]), Role::Rival, || Ok(Arc::new(LookedUp(S::new())))),
    ]
}

fn bound<O: Library, E: Library, C: Library, S: Library>(
    name: &dyn Fn(&str) -> String,
) -> Vec<Candidate> {
    vec![
        candidate(&name(OURS), Role::Ours, || bind::<O>()),
        candidate(&name(RIVALS[0]), Role::Rival, || bind::<E>()),
        candidate(&name(RIVALS[1]), Role::Rival, || bind::<C>()),
        candidate(&name(RIVALS[2]), Role::Rival, || bind::<S>()),
    ]
}

/// The candidates of a form, which get their names by this rule.
type Candidates = fn(&dyn Fn(&str) -> String) -> Vec<Candidate>;

fn form(title: &'static str, what: &str, candidates: Candidates) -> Form {
    // A row is found by its name, so each form has its own.
    let name = |library: &str| format!("{library}, {what}");
    // One goal for each rival is the goal by the best of them.
    let goal = |rival| Goal {
        threads: Some(2),
        ..Goal::everywhere(&name(OURS), Most::Times(MOST, name(rival)))
    };
    Form {
        title,
        threads: vec![1, 2, 8],
        window: None,
        params: Params::default(),
        candidates: candidates(&name),
        reference: name(RIVALS[0]),
        goals: RIVALS.map(goal).into(),
    }
}

/// A metrics library with one series.
trait Library: Send + Sync + 'static {
    type Bound: Send + Sync;

    fn new() -> Self;

    /// Uses the series, which it looks up, once.
    fn look_up_and_use(&self);

    fn bind(&self) -> Self::Bound;

    fn use_bound(bound: &Self::Bound);

    /// How often the series was used.
    fn uses(&self) -> u64;
}

struct LookedUp<L>(L);

impl<L: Library> Subject for LookedUp<L> {
    fn run(&self, _: usize, ops: u64) {
        rounds(ops, |_| self.0.look_up_and_use());
    }

    fn total(&self) -> Option<u64> {
        Some(self.0.uses())
    }
}

struct Bound<L: Library> {
    library: L,
    bound: L::Bound,
}

fn bind<L: Library>() -> Result<Arc<dyn Subject>, Lacking> {
    let library = L::new();
    let bound = library.bind();
    Ok(Arc::new(Bound { library, bound }))
}

impl<L: Library> Subject for Bound<L> {
    fn run(&self, _: usize, ops: u64) {
        rounds(ops, |_| L::use_bound(&self.bound));
    }

    fn total(&self) -> Option<u64> {
        Some(self.library.uses())
    }
}

/// What a histogram records: 17 ms.
const VALUE: f64 = 0.017;

static LABELS: [Label; 1] = [Label::from_static_parts("path", "/")];
static KEY: Key = Key::from_static_parts("requests", &LABELS);
static METADATA: Metadata<'_> = Metadata::new("rivals", Level::INFO, None);

/// A kind of metric of the facade.
trait Kind: Send + Sync + Sized + 'static {
    /// The sample that has the number of uses.
    const SAMPLE: &str;

    fn register(recorder: &impl Recorder) -> Self;

    fn once(&self);
}

impl Kind for Counter {
    const SAMPLE: &str = "requests{path=\"/\"} ";

    #[inline(always)]
    fn register(recorder: &impl Recorder) -> Counter {
        recorder.register_counter(&KEY, &METADATA)
    }

    #[inline(always)]
    fn once(&self) {
        self.increment(1);
    }
}

impl Kind for Histogram {
    const SAMPLE: &str = "requests_count{path=\"/\"} ";

    #[inline(always)]
    fn register(recorder: &impl Recorder) -> Histogram {
        recorder.register_histogram(&KEY, &METADATA)
    }

    #[inline(always)]
    fn once(&self) {
        self.record(black_box(VALUE));
    }
}

/// A recorder of the facade.
trait Made: Recorder + Send + Sync + Sized + 'static {
    /// One, and what makes a page of it.
    fn make() -> (Self, Page);
}

type Page = Box<dyn Fn() -> String + Send + Sync>;

impl Made for coreline_metrics::Recorder {
    fn make() -> (Self, Page) {
        let recorder = Self::default();
        let handle = recorder.handle();
        (recorder, Box::new(move || handle.render()))
    }
}

impl Made for PrometheusRecorder {
    fn make() -> (Self, Page) {
        let builder = PrometheusBuilder::new().set_buckets(&DEFAULT_BOUNDS);
        let recorder = builder.expect("there are some").build_recorder();
        let handle = recorder.handle();
        (recorder, Box::new(move || handle.render()))
    }
}

/// A recorder of the facade, with a series of a kind.
struct Facade<R, K> {
    recorder: R,
    page: Page,
    kind: PhantomData<fn() -> K>,
}

impl<R: Made, K: Kind> Library for Facade<R, K> {
    type Bound = K;

    fn new() -> Self {
        let (recorder, page) = R::make();
        Facade { recorder, page, kind: PhantomData }
    }

    #[inline(always)]
    fn look_up_and_use(&self) {
        K::register(&self.recorder).once();
    }

    fn bind(&self) -> K {
        K::register(&self.recorder)
    }

    #[inline(always)]
    fn use_bound(bound: &K) {
        bound.once();
    }

    fn uses(&self) -> u64 {
        let page = (self.page)();
        let sample = page.lines().find_map(|line| line.strip_prefix(K::SAMPLE));
        sample.map_or(0, |value| value.parse().expect("a count is a number"))
    }
}

type ClientLabels = [(&'static str, &'static str); 1];

const CLIENT_LABELS: ClientLabels = [("path", "/")];

/// Families of prometheus-client.
type Client = Family<ClientLabels, ClientCounter>;
type ClientHistograms = Family<ClientLabels, ClientHistogram, fn() -> ClientHistogram>;

impl Library for Client {
    type Bound = ClientCounter;

    fn new() -> Self {
        Self::default()
    }

    #[inline(always)]
    fn look_up_and_use(&self) {
        self.get_or_create(&CLIENT_LABELS).inc();
    }

    fn bind(&self) -> ClientCounter {
        self.get_or_create(&CLIENT_LABELS).clone()
    }

    #[inline(always)]
    fn use_bound(bound: &ClientCounter) {
        bound.inc();
    }

    fn uses(&self) -> u64 {
        self.bind().get()
    }
}

impl Library for ClientHistograms {
    type Bound = ClientHistogram;

    fn new() -> Self {
        Self::new_with_constructor(|| ClientHistogram::new(DEFAULT_BOUNDS))
    }

    #[inline(always)]
    fn look_up_and_use(&self) {
        self.get_or_create(&CLIENT_LABELS).observe(black_box(VALUE));
    }

    fn bind(&self) -> ClientHistogram {
        self.get_or_create(&CLIENT_LABELS).clone()
    }

    #[inline(always)]
    fn use_bound(bound: &ClientHistogram) {
        bound.observe(black_box(VALUE));
    }

    fn uses(&self) -> u64 {
        self.bind().count()
    }
}

/// OpenTelemetry's SDK with an instrument.
struct Sdk<I> {
    provider: SdkMeterProvider,
    instrument: I,
    attributes: [KeyValue; 1],
    exported: Exported,
}

/// The number of uses that was last exported.
#[derive(Clone, Default)]
struct Exported(Arc<Mutex<u64>>);

impl PushMetricExporter for Exported {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        for metric in metrics.scope_metrics().flat_map(|scope| scope.metrics()) {
            let all = match metric.data() {
                AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                    sum.data_points().map(|point| point.value()).sum()
                }
                AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                    histogram.data_points().map(|point| point.count()).sum()
                }
                _ => continue,
            };
            *self.0.lock().expect("no thread panics") = all;
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

impl<I> Sdk<I> {
    fn with(instrument: impl FnOnce(&SdkMeterProvider) -> I) -> Self {
        const NEVER: Duration = Duration::from_secs(1 << 30);
        let exported = Exported::default();
        let reader = PeriodicReader::builder(exported.clone()).with_interval(NEVER).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        let (instrument, attributes) = (instrument(&provider), [KeyValue::new("path", "/")]);
        Sdk { provider, instrument, attributes, exported }
    }

    fn exported(&self) -> u64 {
        self.provider.force_flush().expect("the exporter takes all");
        *self.exported.0.lock().expect("no thread panics")
    }
}

impl Library for Sdk<SdkCounter<u64>> {
    type Bound = BoundCounter<u64>;

    fn new() -> Self {
        Self::with(|provider| provider.meter("rivals").u64_counter("requests").build())
    }

    #[inline(always)]
    fn look_up_and_use(&self) {
        self.instrument.add(1, &self.attributes);
    }

    fn bind(&self) -> BoundCounter<u64> {
        self.instrument.bind(&self.attributes)
    }

    #[inline(always)]
    fn use_bound(bound: &BoundCounter<u64>) {
        bound.add(1);
    }

    fn uses(&self) -> u64 {
        self.exported()
    }
}

impl Library for Sdk<SdkHistogram<f64>> {
    type Bound = BoundHistogram<f64>;

    fn new() -> Self {
        Self::with(|provider| {
            let meter = provider.meter("rivals");
            let histogram = meter.f64_histogram("requests");
            histogram.with_boundaries(DEFAULT_BOUNDS.to_vec()).build()
        })
    }

    #[inline(always)]
    fn look_up_and_use(&self) {
        self.instrument.record(black_box(VALUE), &self.attributes);
    }

    fn bind(&self) -> BoundHistogram<f64> {
        self.instrument.bind(&self.attributes)
    }

    #[inline(always)]
    fn use_bound(bound: &BoundHistogram<f64>) {
        bound.record(black_box(VALUE));
    }

    fn uses(&self) -> u64 {
        self.exported()
    }
}
