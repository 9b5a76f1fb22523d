//! The recorder, and the handle through which a program reads it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use coreline::Mutex;
use coreline::lock::BiasedRwLock;
use coreline::world::Word;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
    SharedString, Unit,
};

use crate::bounds::{self, AllBounds, BoundsError, Matcher};
use crate::cache::{self, Cached, Found, Own};
use crate::name;
use crate::registry::{Description, Kind, Refusals, Refused, Registry, Series, Values};
use crate::series::{CounterSeries, GaugeSeries, HistogramSeries};

/// The reason why no recorder was installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The program has a recorder already. It stays.
    #[error("this program already has a recorder for metrics; install only one, in main")]
    Installed,
}

/// The options of a [`Recorder`].
///
/// ```
/// use std::time::Duration;
///
/// use coreline_metrics::{Kind, Matcher, Recorder};
///
/// let recorder = Recorder::builder()
///     .bounds(&[0.01, 0.1, 1.0])?
///     .bounds_for(Matcher::Prefix("bytes_".into()), &[64.0, 4096.0])?
///     .idle_timeout(Kind::Gauge, Duration::from_secs(600))
///     .max_series(10_000)
///     .label("service", "checkout")
///     .build();
/// # let _ = recorder;
/// # Ok::<(), coreline_metrics::BoundsError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Builder {
    bounds: AllBounds,
    idle: [Option<Duration>; 3],
    most: Option<usize>,
    labels: Vec<(String, String)>,
}

impl Builder {
    /// Sets the upper bounds of all histograms for which [`bounds_for`](Builder::bounds_for)
    /// chooses none. A value that equals a bound is in the bound's bucket. The bucket `+Inf` is
    /// always there. The default is [`DEFAULT_BOUNDS`](crate::DEFAULT_BOUNDS).
    ///
    /// # Errors
    ///
    /// [`BoundsError`] if the bounds are empty, not finite or not ascending.
    pub fn bounds(mut self, bounds: &[f64]) -> Result<Self, BoundsError> {
        self.bounds.default = bounds::checked(bounds)?;
        Ok(self)
    }

    /// Sets the upper bounds of some histograms. A name takes precedence over a prefix, and a
    /// longer prefix over a shorter one. Names are compared as pages show them, so `a.b` and `a_b`
    /// are equal.
    ///
    /// # Errors
    ///
    /// [`BoundsError`] if the bounds are empty, not finite or not ascending.
    pub fn bounds_for(mut self, matcher: Matcher, bounds: &[f64]) -> Result<Self, BoundsError> {
        self.bounds.add(matcher, bounds::checked(bounds)?);
        Ok(self)
    }

    /// Hides series of this kind that were not used for this time: see [idle
    /// series](crate#idle-series). By default, series are shown forever. A timeout of more than 49
    /// days has no effect.
    #[must_use]
    pub fn idle_timeout(mut self, kind: Kind, timeout: Duration) -> Self {
        self.idle[kind as usize] = Some(timeout);
        self
    }

    /// Refuses new series while there are `most` series: see [limits](crate#limits). By default,
    /// there is no limit.
    #[must_use]
    pub fn max_series(mut self, most: usize) -> Self {
        self.most = Some(most);
        self
    }

    /// Adds a label to all series that have no label of this name.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        let key = name::label(key).into_owned();
        self.labels.retain(|(other, _)| *other != key);
        self.labels.push((key, value.to_owned()));
        self
    }

    /// Creates a recorder that is not installed, for [`metrics::with_local_recorder`] or as a layer
    /// of another recorder.
    pub fn build(self) -> Recorder {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let shared = Shared {
            // Relaxed: a number hands nothing over. After 2^32 recorders, two of them might find
            // each other's series in a thread's cache.
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            registry: BiasedRwLock::new(Registry::default()),
            bounds: self.bounds,
            idle: self.idle,
            most: self.most.unwrap_or(usize::MAX),
            labels: self.labels,
            made: Instant::now(),
            looking: Mutex::new(()),
            refused_series: Refusals::new(0),
        };
        Recorder(Arc::new(shared))
    }

    /// Installs the recorder for this program. The macros of `metrics` use it from now on.
    ///
    /// # Errors
    ///
    /// [`InstallError`] if the program has installed a recorder already.
    pub fn install(self) -> Result<Handle, InstallError> {
        let recorder = self.build();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).map_err(|_| InstallError::Installed)?;
        Ok(handle)
    }
}

pub(crate) struct Shared {
    number: u32,
    registry: BiasedRwLock<Registry>,
    bounds: AllBounds,
    idle: [Option<Duration>; 3],
    most: usize,
    labels: Vec<(String, String)>,
    made: Instant,
    refused_series: Refusals,
    /// Held while series are [looked at](Series::look).
    looking: Mutex<()>,
}

/// A recorder for the facade [`metrics`] that keeps hot series on per-CPU memory.
///
/// ```
/// use coreline_metrics::Recorder;
///
/// let handle = Recorder::builder().install()?;
/// metrics::counter!("requests_total", "path" => "/").increment(3);
/// metrics::gauge!("connections").set(2.0);
/// metrics::histogram!("request_seconds").record(0.017);
/// assert!(handle.render().contains("requests_total{path=\"/\"} 3\n"));
/// # Ok::<(), coreline_metrics::InstallError>(())
/// ```
///
/// **Memory, idle series, limits, signals, fork**: see the [front page](crate).
pub struct Recorder(Arc<Shared>);

impl Recorder {
    /// Returns a builder with the default options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a handle, through which the program can read the recorder after it has given it
    /// away.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.0))
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Builder::default().build()
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("stats", &self.handle().stats()).finish_non_exhaustive()
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.made.elapsed()
    }

    /// The series of a key. `None` if it is refused, which is counted.
    fn series<S: Cached>(&self, key: &Key) -> Option<Found<S>> {
        cache::look_up(self.number, key, || {
            if let Some(series) = self.registry.read().find(key) {
                return Some(Arc::clone(series));
            }
            let mut registry = self.registry.write();
            let key = (key, self.number);
            let made = registry.find_or_make(key, &self.bounds, self.most, self.now());
            if let Err(Refused::Limit | Refused::Name) = made {
                // Relaxed: a count hands nothing over.
                self.refused_series.fetch_add(1, Ordering::Relaxed);
            }
            made.ok()
        })
    }

    fn describe(&self, kind: Kind, name: &KeyName, unit: Option<Unit>, help: &SharedString) {
        let description = Description { help: help.to_string(), unit };
        self.registry.write().describe(kind, name.as_str(), description);
    }

    fn idle<S: Values>(&self) -> Option<Duration> {
        self.idle[S::KIND as usize]
    }

    /// The series of a kind that pages show. Notes in `free` if there are series to free.
    pub(crate) fn shown<S: Values>(&self, free: &mut bool) -> Vec<Arc<Series<S>>> {
        let idle = self.idle::<S>();
        // One page at a time, or this could happen, and a series that was just used would go:
        //   page 1: takes the time
        //   page 2: takes a later time, finds that the series was used, notes this time
        //   page 1: finds no use since; 1 - 2 is no short time in an unsigned number
        let _looking = idle.is_some().then(|| self.looking.lock());
        // Inside, or pages that wait would keep series from being freed.
        let mut all = self.registry.read().all::<S>();
        let now = self.now();
        all.retain(|series| {
            let shown = series.look(now, idle);
            // Two: the registry's, and ours.
            *free |= !shown && Arc::strong_count(series) == 2;
            shown
        });
        all
    }

    pub(crate) fn free_hidden(&self) {
        self.registry.write().free_hidden();
    }

    pub(crate) fn labels(&self) -> &[(String, String)] {
        &self.labels
    }

    pub(crate) fn description(&self, kind: Kind, family: &str) -> Option<Description> {
        self.registry.read().description(kind, family).cloned()
    }

    /// How many series and how many values were refused.
    pub(crate) fn refused(&self) -> [u64; 2] {
        // Relaxed: a count hands nothing over.
        let series = self.refused_series.load(Ordering::Relaxed);
        [series, Word::load(&*self.bounds.nans, Ordering::Relaxed)]
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe(Kind::Counter, &key, unit, &description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe(Kind::Gauge, &key, unit, &description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe(Kind::Histogram, &key, unit, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.0.series::<CounterSeries>(key) {
            Some(Found::Own(own)) => Counter::from_arc(own),
            Some(Found::Shared(series)) => Counter::from_arc(series),
            None => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.0.series::<GaugeSeries>(key) {
            Some(Found::Own(own)) => Gauge::from_arc(own),
            Some(Found::Shared(series)) => Gauge::from_arc(series),
            None => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.0.series::<HistogramSeries>(key) {
            Some(Found::Own(own)) => Histogram::from_arc(own),
            Some(Found::Shared(series)) => Histogram::from_arc(series),
            None => Histogram::noop(),
        }
    }
}

impl CounterFn for Series<CounterSeries> {
    fn increment(&self, value: u64) {
        self.values.add(value);
    }

    fn absolute(&self, value: u64) {
        self.values.raise(value);
    }
}

impl GaugeFn for Series<GaugeSeries> {
    fn increment(&self, value: f64) {
        self.values.add(value);
    }

    fn decrement(&self, value: f64) {
        self.values.add(-value);
    }

    fn set(&self, value: f64) {
        self.values.set(value);
    }
}

impl HistogramFn for Series<HistogramSeries> {
    fn record(&self, value: f64) {
        self.values.record(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        self.values.record(value, count as u64);
    }
}

impl CounterFn for Own<CounterSeries> {
    fn increment(&self, value: u64) {
        self.0.increment(value);
    }

    fn absolute(&self, value: u64) {
        self.0.absolute(value);
    }
}

impl GaugeFn for Own<GaugeSeries> {
    fn increment(&self, value: f64) {
        self.0.increment(value);
    }

    fn decrement(&self, value: f64) {
        self.0.decrement(value);
    }

    fn set(&self, value: f64) {
        self.0.set(value);
    }
}

impl HistogramFn for Own<HistogramSeries> {
    fn record(&self, value: f64) {
        self.0.record(value);
    }

    fn record_many(&self, value: f64, count: usize) {
        self.0.record_many(value, count);
    }
}

/// The numbers of series and refusals of a recorder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of series, including hidden series that a handle may still use.
    pub series: usize,
    /// The number of refused look-ups of a new series: see [limits](crate#limits).
    pub refused_series: u64,
    /// The number of values of histograms that were refused because they were NaN.
    pub refused_values: u64,
}

/// A handle through which a program reads a [`Recorder`]. A clone reads the same recorder.
#[derive(Clone)]
pub struct Handle(pub(crate) Arc<Shared>);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Handle {
    /// Hides [idle series](crate#idle-series), and frees hidden series that no handle uses. Each
    /// page does the same. Call it from time to time if no pages are requested.
    pub fn upkeep(&self) {
        let mut free = false;
        drop(self.0.shown::<CounterSeries>(&mut free));
        drop(self.0.shown::<GaugeSeries>(&mut free));
        drop(self.0.shown::<HistogramSeries>(&mut free));
        if free {
            self.0.free_hidden();
        }
    }

    /// Removes the series of this key, of every kind. Returns how many of them were not hidden. See
    /// [`remove_if`](Handle::remove_if).
    pub fn remove(&self, key: &Key) -> usize {
        self.remove_if(|_, other| other == key)
    }

    /// Removes all series for which `matches` returns true. Returns how many of them were not
    /// hidden.
    ///
    /// If no handle uses a removed series, its memory is freed, and the next use of its key begins
    /// at zero. Otherwise it is hidden, and the next use shows it again with its old value. The
    /// front page says [what a handle is](crate#idle-series).
    ///
    /// `matches` runs without a lock, so it may use metrics.
    pub fn remove_if(&self, mut matches: impl FnMut(Kind, &Key) -> bool) -> usize {
        let removed = self.hide_if::<CounterSeries>(&mut matches)
            + self.hide_if::<GaugeSeries>(&mut matches)
            + self.hide_if::<HistogramSeries>(&mut matches);
        if removed > 0 {
            self.0.free_hidden();
        }
        removed
    }

    fn hide_if<S: Values>(&self, matches: &mut impl FnMut(Kind, &Key) -> bool) -> usize {
        let all = self.0.registry.read().all::<S>();
        let removed = |series: &&Arc<Series<S>>| {
            matches(S::KIND, &series.key) && series.values.activity().hide()
        };
        all.iter().filter(removed).count()
    }

    /// Returns the numbers of series and refusals.
    pub fn stats(&self) -> Stats {
        let series = self.0.registry.read().len();
        let [refused_series, refused_values] = self.0.refused();
        Stats { series, refused_series, refused_values }
    }
}
