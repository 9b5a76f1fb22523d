//! Pages in the text formats of Prometheus and OpenMetrics.
//!
//! Sources: [Prometheus's exposition formats][text] (0.0.4) and [OpenMetrics 1.0][open].
//!
//! [text]: https://prometheus.io/docs/instrumenting/exposition_formats/
//! [open]: https://prometheus.io/docs/specs/om/open_metrics_spec/

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::sync::Arc;

use crate::name;
use crate::recorder::{Handle, Shared};
use crate::registry::{Kind, SAMPLES, Series, Values};
use crate::series::{CounterSeries, Counts, GaugeSeries, HistogramSeries};

/// The format of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Prometheus's text format 0.0.4.
    #[default]
    Text,
    /// OpenMetrics 1.0. All samples have the same names as in [`Text`](Format::Text), so a counter
    /// whose name does not end with `_total` has the type `unknown`.
    OpenMetrics,
}

impl Format {
    /// Returns the header `Content-Type` of such a page.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns the format that a client asks for with the header `Accept`: OpenMetrics if it names
    /// that type and does not refuse it with `q=0`.
    pub fn accepted(accept: &str) -> Self {
        let is_open = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            let named = parts
                .next()
                .is_some_and(|it| it.eq_ignore_ascii_case("application/openmetrics-text"));
            let quality = |part: &str| part.strip_prefix("q=").and_then(|q| q.parse::<f64>().ok());
            named && parts.find_map(quality).is_none_or(|q| q > 0.0)
        };
        if accept.split(',').any(is_open) { Format::OpenMetrics } else { Format::Text }
    }
}

/// A value as the formats have it.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            it if it.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            it => write!(f, "{it}"),
        }
    }
}

/// What a page has of a kind.
trait Shown: Values {
    type Value;

    const TYPE: &'static str;

    fn value(&self) -> Self::Value;

    /// Adds the value of a series that has the same text.
    fn merge(into: &mut Self::Value, more: Self::Value);

    fn write(
        page: &mut Page<'_>,
        name: &str,
        labels: &str,
        series: &Self,
        value: &Self::Value,
    ) -> fmt::Result;
}

impl Shown for CounterSeries {
    type Value = u64;

    const TYPE: &'static str = "counter";

    fn value(&self) -> u64 {
        self.read()
    }

    fn merge(into: &mut u64, more: u64) {
        *into = into.wrapping_add(more);
    }

    fn write(page: &mut Page<'_>, name: &str, labels: &str, _: &Self, value: &u64) -> fmt::Result {
        page.sample(name, labels, None, format_args!("{value}"))
    }
}

impl Shown for GaugeSeries {
    type Value = f64;

    const TYPE: &'static str = "gauge";

    fn value(&self) -> f64 {
        self.read()
    }

    fn merge(into: &mut f64, more: f64) {
        *into += more;
    }

    fn write(page: &mut Page<'_>, name: &str, labels: &str, _: &Self, value: &f64) -> fmt::Result {
        page.sample(name, labels, None, format_args!("{}", Number(*value)))
    }
}

impl Shown for HistogramSeries {
    type Value = Counts;

    const TYPE: &'static str = "histogram";

    fn value(&self) -> Counts {
        self.read()
    }

    fn merge(into: &mut Counts, more: Counts) {
        // Series of one family have the same bounds.
        let buckets = into.buckets.iter_mut().zip(more.buckets);
        buckets.for_each(|(all, more)| *all = all.wrapping_add(more));
        into.sum += more.sum;
    }

    fn write(
        page: &mut Page<'_>,
        name: &str,
        labels: &str,
        series: &Self,
        value: &Counts,
    ) -> fmt::Result {
        let (bucket, mut count) = (format!("{name}_bucket"), 0_u64);
        let bounds = series.bounds().iter().copied().chain([f64::INFINITY]);
        for (bound, more) in bounds.zip(&value.buckets) {
            count = count.wrapping_add(*more);
            page.sample(&bucket, labels, Some(bound), format_args!("{count}"))?;
        }
        let sum = format_args!("{}", Number(value.sum));
        page.sample(&format!("{name}_sum"), labels, None, sum)?;
        page.sample(&format!("{name}_count"), labels, None, format_args!("{count}"))
    }
}

/// The families of all kinds, by name, each as text.
type Families = BTreeMap<String, String>;

struct Page<'a> {
    shared: &'a Shared,
    format: Format,
    text: String,
    /// The names of families so far, and those that histograms reserve.
    names: BTreeSet<String>,
}

/// The counters that a recorder has of itself.
const OWN: [(&str, &str); 2] = [
    ("coreline_metrics_refused_series_total", "New series that were refused"),
    ("coreline_metrics_refused_values_total", "Values of histograms that were NaN"),
];

impl Page<'_> {
    fn sample(
        &mut self,
        name: &str,
        labels: &str,
        bound: Option<f64>,
        value: fmt::Arguments<'_>,
    ) -> fmt::Result {
        let text = &mut self.text;
        text.write_str(name)?;
        match bound {
            Some(bound) => {
                let comma = if labels.is_empty() { "" } else { "," };
                write!(text, "{{{labels}{comma}le=\"{}\"}}", Number(bound))?;
            }
            None if labels.is_empty() => {}
            None => write!(text, "{{{labels}}}")?,
        }
        writeln!(text, " {value}")
    }

    /// `HELP`, `TYPE` and `UNIT` of a family.
    fn head(&mut self, kind: Kind, name: &str, its_type: &str) -> fmt::Result {
        let description = self.shared.description(kind, name).unwrap_or_default();
        let help = description.help.as_str();
        let unit = description.unit.map(|unit| unit.as_str());
        self.described(name, kind == Kind::Counter, its_type, help, unit)
    }

    fn described(
        &mut self,
        name: &str,
        is_counter: bool,
        its_type: &str,
        help: &str,
        unit: Option<&str>,
    ) -> fmt::Result {
        let open = self.format == Format::OpenMetrics;
        let (name, its_type) = match name.strip_suffix("_total") {
            Some(stem) if open && is_counter && self.is_free(stem) => (stem, its_type),
            _ if open && is_counter => (name, "unknown"),
            _ => (name, its_type),
        };
        let text = &mut self.text;
        if !help.is_empty() {
            write!(text, "# HELP {name} ")?;
            name::escaped(text, help, open)?;
            text.write_char('\n')?;
        }
        writeln!(text, "# TYPE {name} {its_type}")?;
        match unit.filter(|unit| open && name.ends_with(&format!("_{unit}"))) {
            Some(unit) => writeln!(text, "# UNIT {name} {unit}"),
            None => Ok(()),
        }
    }

    /// Whether a counter can be the family of this name: a page has one family of a name, and
    /// OpenMetrics reserves one more name for a counter. Counters come last, so that all names are
    /// known.
    fn is_free(&self, stem: &str) -> bool {
        let clashes = |end| self.names.contains(&format!("{stem}{end}"));
        !stem.is_empty() && !["", "_created", "_created_total"].into_iter().any(clashes)
    }

    /// Writes all families of a kind.
    fn families<S: Shown>(&mut self, families: &mut Families, free: &mut bool) -> fmt::Result {
        let mut by_name = BTreeMap::<_, BTreeMap<String, (Arc<Series<S>>, S::Value)>>::new();
        for series in self.shared.shown::<S>(free) {
            let name = name::metric(series.key.name()).into_owned();
            let labels = name::labels(series.key.labels(), self.shared.labels());
            let value = series.values.value();
            match by_name.entry(name).or_default().entry(labels) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert((series, value));
                }
                std::collections::btree_map::Entry::Occupied(mut place) => {
                    S::merge(&mut place.get_mut().1, value);
                }
            }
        }
        for name in by_name.keys() {
            let reserved = SAMPLES.iter().filter(|_| S::KIND == Kind::Histogram);
            self.names.extend(reserved.map(|end| format!("{name}{end}")));
            self.names.insert(name.clone());
        }
        for (name, all) in by_name {
            self.head(S::KIND, &name, S::TYPE)?;
            for (labels, (series, value)) in all {
                S::write(self, &name, &labels, &series.values, &value)?;
            }
            families.insert(name, std::mem::take(&mut self.text));
        }
        Ok(())
    }

    /// The recorder's counters of itself.
    fn own(&mut self, families: &mut Families) -> fmt::Result {
        for ((name, help), count) in OWN.into_iter().zip(self.shared.refused()) {
            self.described(name, true, "counter", help, None)?;
            let labels = name::labels([].iter(), self.shared.labels());
            self.sample(name, &labels, None, format_args!("{count}"))?;
            // A program's metric of this name stays.
            families.entry(name.to_owned()).or_insert(std::mem::take(&mut self.text));
        }
        Ok(())
    }
}

impl Handle {
    /// Returns a page in Prometheus's text format 0.0.4, and does the [upkeep](Handle::upkeep).
    ///
    /// The page includes all changes that happened before the call. A concurrent change may or may
    /// not be included. A page is not a snapshot: series are read one after the other.
    pub fn render(&self) -> String {
        self.render_as(Format::Text)
    }

    /// Returns a page in this format, like [`render`](Handle::render).
    pub fn render_as(&self, format: Format) -> String {
        page(&self.0, format)
    }
}

fn page(shared: &Shared, format: Format) -> String {
    let names = OWN.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut page = Page { shared, format, text: String::new(), names };
    let (mut families, mut free) = (Families::new(), false);
    let written = page
        .families::<HistogramSeries>(&mut families, &mut free)
        .and_then(|()| page.families::<GaugeSeries>(&mut families, &mut free))
        .and_then(|()| page.families::<CounterSeries>(&mut families, &mut free))
        .and_then(|()| page.own(&mut families));
    written.expect("a string takes all");
    if free {
        shared.free_hidden();
    }
    let end = if format == Format::OpenMetrics { "# EOF\n" } else { "" };
    families.into_values().chain([end.to_owned()]).collect()
}
