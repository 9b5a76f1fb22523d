//! Metrics on per-CPU memory: a recorder for the facade [`metrics`], with pages for Prometheus, and
//! bound instruments for OpenTelemetry's SDK.
//!
//! In other recorders, all threads add to one word of a series. If many threads use the series,
//! each addition waits for the word's cache line. Here, a hot series has a word for each CPU, and
//! no thread waits.
//!
//! ```
//! use coreline_metrics::Recorder;
//!
//! let handle = Recorder::builder().install()?;
//! metrics::describe_counter!("requests_total", "Requests that were answered");
//!
//! // Bound: the key is looked up once.
//! let requests = metrics::counter!("requests_total", "path" => "/");
//! requests.increment(1);
//! // Looked up each time. A thread remembers what it used lately.
//! metrics::histogram!("request_seconds").record(0.017);
//!
//! let page = handle.render();
//! assert!(page.contains("requests_total{path=\"/\"} 1\n"), "{page}");
//! assert!(page.contains("request_seconds_bucket{le=\"0.025\"} 1\n"), "{page}");
//! # Ok::<(), coreline_metrics::InstallError>(())
//! ```
//!
//! | module or type | is |
//! |---|---|
//! | [`Recorder`], [`Builder`] | the recorder and its options |
//! | [`Handle`] | pages, removal, upkeep, and the endpoint (feature `http-listener`, a default) |
#![cfg_attr(
    feature = "opentelemetry",
    doc = "| [`opentelemetry`] | bound instruments for OpenTelemetry's SDK |"
)]
#![cfg_attr(
    not(feature = "opentelemetry"),
    doc = "| `opentelemetry` | bound instruments for its SDK (feature `opentelemetry`) |"
)]
//!
//! # What values mean
//!
//! * **Counters** are unsigned and wrap. `absolute(n)` raises a counter to `n`, and does nothing if
//!   it is higher already. Increments count on from there. `absolute` reads the words of all CPUs
//!   that added.
//! * **Gauges**: the last `set` wins, and discards all increments before it. Increments and
//!   decrements after it add to it. Increments of a hot gauge go to the CPU's own word. A `set`
//!   must then empty these words, which interrupts the CPUs that the process runs on once (some
//!   microseconds). After that, the next 4,096 increments, or 32 that move between CPUs, go to one
//!   shared word. So a gauge may be set often or changed often at full speed, and mixing both costs
//!   little. A gauge that becomes NaN stays NaN until it is set. The last digits of a sum of `f64`
//!   depend on the order of the additions. Whole numbers are exact as long as no sum of one CPU's
//!   changes exceeds 2^53.
//! * **Histograms** have buckets with upper bounds, `_sum` and `_count`. There are no summaries
//!   with quantiles. `record(NaN)` is refused and counted. An infinite value counts in the first or
//!   the last bucket, and makes the sum infinite. After both infinities, the sum is NaN. A negative
//!   value counts in the first bucket whose bound is not less. The sum then falls, and Prometheus's
//!   `rate` of it is wrong. A page may count a value that is recorded meanwhile without including
//!   it in the sum.
//!
//! # Names
//!
//! Names on pages consist of letters, digits and `_`. Names of metrics may also have `:`. Any other
//! character becomes `_`. Label values are escaped. Labels are sorted. Series whose names and
//! labels become equal are added up. A label `le` becomes `le_`, and `__` at the start of a label
//! becomes `_`.
//!
//! Descriptions become `HELP` lines. In OpenMetrics, a unit becomes a `UNIT` line if the name ends
//! with the unit. No suffix is added to a name.
//!
//! # Memory
//!
//! A counter with one label of 8 characters takes 183 bytes of the heap, and 351 once one CPU has
//! made it hot. With metrics-exporter-prometheus it takes 240, with prometheus-client 138, and with
//! OpenTelemetry's SDK 212. The resident memory of the process, which includes memory outside of
//! the heap, grows by 258, 526, 310, 215 and 305 bytes. These are averages of 10,000 counters, on
//! an Intel Xeon (family 6, model 207, 2 CPUs). The example `series` of the repository's crate
//! `coreline-rivals` measures them.
//!
//! A gauge has the size of a counter. A histogram also has 8 bytes for each bucket. A hot counter
//! or gauge has 8 bytes for each CPU that adds, and a hot histogram as much for each bucket, in
//! groups of 32 buckets. A series is hot after 4,096 additions, or after 32 that came from a CPU
//! other than the previous one. It stays hot. A thread that looks keys up uses at most 32 KB for
//! handles. If there is no per-CPU memory, a series stays as it is, and loses nothing.
//!
//! # Idle series
//!
//! With [`idle_timeout`](Builder::idle_timeout), a series that was not used for this time
//! disappears from pages. A use is any call on a handle, even one that changes nothing, such as
//! `gauge.set` to the same value. The time is checked when a page is made, and by
//! [`upkeep`](Handle::upkeep), so it is only as exact as the interval between these.
//!
//! If a handle of the series still exists, the series is only hidden. The next use of a handle of
//! the same key shows it again, with its old value. Otherwise its memory is freed, and the next use
//! of the key begins at zero. The macros `counter!`, `gauge!` and `histogram!` return handles. Each
//! thread also keeps up to 256 handles per kind, for keys that it looked up twice.
//!
//! # Limits
//!
//! With [`max_series`](Builder::max_series), a new series is refused while there are this many.
//! Existing series are not affected. A series is also refused if its name belongs to another kind,
//! or to the samples of a histogram (its name with `_bucket`, `_sum`, `_count` or `_created`),
//! because a page cannot have both. The first kind keeps the name. A refused key gets a handle that
//! does nothing. `coreline_metrics_refused_series_total` on each page counts the look-ups that were
//! refused, and `coreline_metrics_refused_values_total` the NaNs.
//!
//! # Signals, fork, panics
//!
//! No call panics. Most calls are not async-signal-safe, because look-ups lock and allocate. Only
//! additions to a bound counter that is already hot are as safe as those of a
//! [`PerCpuCounter`](coreline::PerCpuCounter).
//!
//! A forked child has its own copy of all values. It may add to counters and histograms through
//! bound handles. Suppose that another thread of the parent was in a look-up, a page, a removal or
//! the `set` of a hot gauge at the time of the fork. Then such calls in the child may wait forever.
//! The child has no
#![cfg_attr(feature = "http-listener", doc = "[endpoint](Handle::http_listener).")]
#![cfg_attr(not(feature = "http-listener"), doc = "endpoint.")]
//!
//! # Source
//!
//! The facade is the crate [`metrics`] of Toby Lawrence and others. The counters are those of
//! [`coreline::counter`], whose page names their sources.

mod bounds;
mod cache;
#[cfg(feature = "http-listener")]
mod listener;
mod name;
#[cfg(feature = "opentelemetry")]
pub mod opentelemetry;
mod recorder;
mod registry;
mod series;
mod text;

pub use bounds::{BoundsError, DEFAULT_BOUNDS, Matcher};
#[cfg(feature = "http-listener")]
pub use listener::{ListenError, Listener};
pub use recorder::{Builder, Handle, InstallError, Recorder, Stats};
pub use registry::Kind;
pub use text::Format;

/// The example of this crate's README.md, unchanged.
#[cfg(all(doctest, feature = "http-listener"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the page for users, unchanged. A package does not have it.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/cookbook/metrics.md")]
struct Page;
