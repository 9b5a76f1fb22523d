//! Bound instruments for OpenTelemetry's SDK.
//!
//! An instrument of the SDK looks its attributes up at each measurement, and then adds to a word
//! that all threads share. Here, `bind` takes the attributes once, and additions go to per-CPU
//! memory. The SDK sees an *observable* instrument, whose sums it reads when it collects.
//!
//! | of the SDK | here | reported as |
//! |---|---|---|
//! | `u64_counter` | [`Counter`] | observable counter |
//! | `i64_up_down_counter` | [`UpDownCounter`] | observable up-down counter |
//! | `f64_gauge` | [`Gauge`], which can also be added to | observable gauge |
//! | `f64_histogram` | nothing: the SDK has no observable histograms | |
//!
//! The SDK's public interface lets no other code report counts of buckets, so a histogram of ours
//! cannot reach its exporters. Use the SDK's histograms, or those of the
//! [`Recorder`](crate::Recorder), for Prometheus.
//!
//! ```
//! use coreline_metrics::opentelemetry::Counter;
//! use opentelemetry::KeyValue;
//! use opentelemetry::metrics::MeterProvider;
//!
//! let provider = opentelemetry_sdk::metrics::SdkMeterProvider::default();
//! let requests = Counter::build(provider.meter("shop").u64_observable_counter("requests"));
//! let home = requests.bind(&[KeyValue::new("path", "/")]);
//! home.add(1);
//! ```
//!
//! The SDK's views, temporality and limit of attribute sets apply to the observed values, as with
//! any observable instrument. Attribute sets are reported as long as the instrument lives, or until
//! `unbind`. There are no exemplars, because an observable instrument has none.
//!
//! **Signals**: as for [`Recorder`](crate::Recorder)'s bound handles. **Fork**: a child has the
//! values at the time of the fork, but none of the SDK's threads.

use std::fmt;
use std::sync::Arc;

use coreline::Mutex;
use coreline::world::Native;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{
    AsyncInstrumentBuilder, ObservableCounter, ObservableGauge, ObservableUpDownCounter,
};

use crate::series::{CounterSeries, GaugeSeries};

/// A value for each bound set of attributes.
struct Bindings<S>(Mutex<Vec<Binding<S>>>);

struct Binding<S> {
    /// Sorted by key, each key once.
    attributes: Arc<[KeyValue]>,
    series: Arc<S>,
}

/// Sorted by key. Of equal keys, the last one stays, as in the SDK.
fn set(attributes: &[KeyValue]) -> Arc<[KeyValue]> {
    let mut sorted: Vec<_> = attributes.iter().rev().cloned().collect();
    // Stable: the last of equal keys is the first now.
    sorted.sort_by(|one, other| one.key.cmp(&other.key));
    sorted.dedup_by(|later, first| later.key == first.key);
    sorted.into()
}

impl<S> Bindings<S> {
    fn bind(&self, attributes: &[KeyValue], new: impl FnOnce() -> S) -> Arc<S> {
        let attributes = set(attributes);
        let mut all = self.0.lock();
        if let Some(binding) = all.iter().find(|it| it.attributes == attributes) {
            return Arc::clone(&binding.series);
        }
        let series = Arc::new(new());
        all.push(Binding { attributes, series: Arc::clone(&series) });
        series
    }

    fn unbind(&self, attributes: &[KeyValue]) -> bool {
        let attributes = set(attributes);
        let mut all = self.0.lock();
        let place = all.iter().position(|it| it.attributes == attributes);
        place.map(|place| all.swap_remove(place)).is_some()
    }

    /// Shows all to the SDK, without the lock: its callbacks may bind.
    fn observe<T>(&self, read: impl Fn(&S) -> T, observe: impl Fn(T, &[KeyValue])) {
        let pair = |it: &Binding<S>| (Arc::clone(&it.attributes), Arc::clone(&it.series));
        let all: Vec<_> = self.0.lock().iter().map(pair).collect();
        all.iter().for_each(|(attributes, series)| observe(read(series), attributes));
    }
}

macro_rules! instruments {
    ($(
        $(#[$doc:meta])*
        $Instrument:ident, $Bound:ident: $Series:ident,
        $Observable:ident<$value:ty>, $builder:literal, |$series:ident| $read:expr;
    )+) => {$(
        $(#[$doc])*
        ///
        /// A clone is the same instrument.
        #[derive(Clone)]
        pub struct $Instrument {
            bindings: Arc<Bindings<$Series>>,
            _observable: $Observable<$value>,
        }

        impl $Instrument {
            /// Creates the instrument from the builder that
            #[doc = concat!("`Meter::", $builder, "`")]
            /// returns, with its description and unit. If the SDK refuses the name, it logs that,
            /// and the instrument is not reported.
            pub fn build(
                builder: AsyncInstrumentBuilder<'_, $Observable<$value>, $value>,
            ) -> Self {
                let bindings = Arc::new(Bindings(Mutex::new(Vec::new())));
                let all = Arc::clone(&bindings);
                let callback = move |to: &dyn opentelemetry::metrics::AsyncInstrument<$value>| {
                    let read = |$series: &$Series| $read;
                    all.observe(read, |value, attributes| to.observe(value, attributes));
                };
                $Instrument { bindings, _observable: builder.with_callback(callback).build() }
            }

            /// Returns the value of a set of attributes. The same set in another order is the same
            /// value. If a key occurs twice, its last value counts.
            ///
            /// A call compares the attributes with those of all bound sets, so bind once, and keep
            /// the result.
            pub fn bind(&self, attributes: &[KeyValue]) -> $Bound {
                $Bound(self.bindings.bind(attributes, $Series::<Native>::new))
            }

            /// Ends the reports of a set of attributes. Handles that are still bound to it add to a
            /// value that is not reported. Returns whether the set was bound.
            pub fn unbind(&self, attributes: &[KeyValue]) -> bool {
                self.bindings.unbind(attributes)
            }
        }

        impl fmt::Debug for $Instrument {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Instrument)).finish_non_exhaustive()
            }
        }

        #[doc = concat!("A [`", stringify!($Instrument), "`] with its attributes.")]
        /// A clone adds to the same value.
        #[derive(Clone)]
        pub struct $Bound(Arc<$Series>);

        impl fmt::Debug for $Bound {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $series = &*self.0;
                f.debug_tuple(stringify!($Bound)).field(&$read).finish()
            }
        }
    )+};
}

instruments! {
    /// A counter that only grows.
    Counter, BoundCounter: CounterSeries,
    ObservableCounter<u64>, "u64_observable_counter", |series| series.read();

    /// A counter that goes up and down.
    UpDownCounter, BoundUpDownCounter: CounterSeries,
    ObservableUpDownCounter<i64>, "i64_observable_up_down_counter",
    |series| series.read().cast_signed();

    /// A value that is set, or that goes up and down.
    Gauge, BoundGauge: GaugeSeries,
    ObservableGauge<f64>, "f64_observable_gauge", |series| series.read();
}

impl BoundCounter {
    /// Adds to the counter, wrapping. The addition is relaxed.
    #[inline]
    pub fn add(&self, value: u64) {
        self.0.add(value);
    }
}

impl BoundUpDownCounter {
    /// Adds to the counter, wrapping. The addition is relaxed.
    #[inline]
    pub fn add(&self, value: i64) {
        self.0.add(value.cast_unsigned());
    }
}

impl BoundGauge {
    /// Sets the gauge. The last call wins, and discards what was added before.
    pub fn record(&self, value: f64) {
        self.0.set(value);
    }

    /// Adds to the gauge.
    #[inline]
    pub fn add(&self, value: f64) {
        self.0.add(value);
    }
}
