//! The series of a recorder, by their keys.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashTable;
use metrics::{Key, Unit};

use crate::bounds::AllBounds;
use crate::name;
use crate::series::{Activity, CounterSeries, GaugeSeries, HistogramSeries};
use coreline::world::Native;

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that is set, or that goes up and down.
    Gauge,
    /// Recorded values, counted in buckets.
    Histogram,
}

/// A key, and its values.
pub(crate) struct Series<S> {
    pub(crate) key: Key,
    /// The recorder's number: threads remember series of all recorders.
    pub(crate) recorder: u32,
    /// When it was last found used, in milliseconds since the recorder was made.
    used: AtomicMillis,
    pub(crate) values: S,
}

/// Milliseconds that wrap after 49 days: differences are what counts.
type AtomicMillis = std::sync::atomic::AtomicU32;

/// The values of a kind.
pub(crate) trait Values: Sized + Send + Sync + 'static {
    const KIND: Kind;

    fn activity(&self) -> &Activity<Native>;

    fn table(tables: &Tables) -> &HashTable<Arc<Series<Self>>>;

    fn table_mut(tables: &mut Tables) -> &mut HashTable<Arc<Series<Self>>>;

    /// New values of a family.
    fn new(family: &str, bounds: &AllBounds) -> Self;
}

macro_rules! values {
    ($($Values:ident, $Kind:ident, $table:ident, |$family:ident, $bounds:ident| $new:expr;)+) => {$(
        impl Values for $Values {
            const KIND: Kind = Kind::$Kind;

            fn activity(&self) -> &Activity<Native> {
                &self.activity
            }

            fn table(tables: &Tables) -> &HashTable<Arc<Series<Self>>> {
                &tables.$table
            }

            fn table_mut(tables: &mut Tables) -> &mut HashTable<Arc<Series<Self>>> {
                &mut tables.$table
            }

            fn new($family: &str, $bounds: &AllBounds) -> Self {
                $new
            }
        }
    )+};
}

values! {
    CounterSeries, Counter, counters, |_family, _bounds| CounterSeries::new();
    GaugeSeries, Gauge, gauges, |_family, _bounds| GaugeSeries::new();
    HistogramSeries, Histogram, histograms, |family, all| {
        HistogramSeries::new(all.of(family), Arc::clone(&all.nans))
    };
}

/// The series of each kind.
#[derive(Default)]
pub(crate) struct Tables {
    counters: HashTable<Arc<Series<CounterSeries>>>,
    gauges: HashTable<Arc<Series<GaugeSeries>>>,
    histograms: HashTable<Arc<Series<HistogramSeries>>>,
}

/// What all series of a name have in common.
#[derive(Debug)]
struct Family {
    kind: Kind,
    series: usize,
}

/// What a program said about a name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Description {
    pub(crate) help: String,
    pub(crate) unit: Option<Unit>,
}

/// Series, families and descriptions.
#[derive(Default)]
pub(crate) struct Registry {
    tables: Tables,
    families: HashMap<String, Family>,
    descriptions: BTreeMap<(Kind, String), Description>,
}

/// Why a series was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There are as many as may be.
    Limit,
    /// A page would have two metrics of one name.
    Name,
}

impl Registry {
    pub(crate) fn len(&self) -> usize {
        let Tables { counters, gauges, histograms } = &self.tables;
        counters.len() + gauges.len() + histograms.len()
    }

    pub(crate) fn find<S: Values>(&self, key: &Key) -> Option<&Arc<Series<S>>> {
        S::table(&self.tables).find(key.get_hash(), |series| series.key == *key)
    }

    /// The series of a key, made if there is none.
    pub(crate) fn find_or_make<S: Values>(
        &mut self,
        (key, recorder): (&Key, u32),
        bounds: &AllBounds,
        most: usize,
        now: Duration,
    ) -> Result<Arc<Series<S>>, Refused> {
        if let Some(series) = self.find(key) {
            return Ok(Arc::clone(series));
        }
        if self.len() >= most {
            return Err(Refused::Limit);
        }
        let family = name::metric(key.name());
        self.join(&family, S::KIND)?;
        let series = Arc::new(Series {
            key: key.clone(),
            recorder,
            used: AtomicMillis::new(millis(now)),
            values: S::new(&family, bounds),
        });
        let table = S::table_mut(&mut self.tables);
        table.insert_unique(key.get_hash(), Arc::clone(&series), |it| it.key.get_hash());
        Ok(series)
    }

    /// Counts a series in its family.
    fn join(&mut self, name: &str, kind: Kind) -> Result<(), Refused> {
        if let Some(family) = self.families.get_mut(name) {
            family.series += 1;
            let fits = family.kind == kind;
            family.series -= usize::from(!fits);
            return fits.then_some(()).ok_or(Refused::Name);
        }
        // A histogram's samples have names of their own, which no other family may have.
        let is_histogram = |name: &str| {
            self.families.get(name).is_some_and(|family| family.kind == Kind::Histogram)
        };
        let stem = |end| name.strip_suffix(end).is_some_and(is_histogram);
        let taken = |end| self.families.contains_key(&format!("{name}{end}"));
        let clashes =
            SAMPLES.into_iter().any(|end| stem(end) || kind == Kind::Histogram && taken(end));
        if clashes {
            return Err(Refused::Name);
        }
        self.families.insert(name.to_owned(), Family { kind, series: 1 });
        Ok(())
    }

    pub(crate) fn describe(&mut self, kind: Kind, name: &str, description: Description) {
        self.descriptions.insert((kind, name::metric(name).into_owned()), description);
    }

    pub(crate) fn description(&self, kind: Kind, family: &str) -> Option<&Description> {
        self.descriptions.get(&(kind, family.to_owned()))
    }

    pub(crate) fn all<S: Values>(&self) -> Vec<Arc<Series<S>>> {
        S::table(&self.tables).iter().map(Arc::clone).collect()
    }

    /// Frees hidden series that no handle uses. The others keep their values until they are shown
    /// again.
    pub(crate) fn free_hidden(&mut self) {
        self.free::<CounterSeries>();
        self.free::<GaugeSeries>();
        self.free::<HistogramSeries>();
    }

    fn free<S: Values>(&mut self) {
        let families = &mut self.families;
        S::table_mut(&mut self.tables).retain(|series| {
            // A handle that was dropped noted its last use before: `get_mut` synchronises with it.
            let free = Arc::get_mut(series).is_some_and(|it| it.values.activity().is_hidden());
            if free {
                let name = name::metric(series.key.name());
                let left = families.get_mut(&*name).map_or(0, |family| {
                    family.series -= 1;
                    family.series
                });
                if left == 0 {
                    families.remove(&*name);
                }
            }
            !free
        });
    }
}

/// How the names of a histogram's samples end. OpenMetrics reserves the last one for it.
pub(crate) const SAMPLES: [&str; 4] = ["_bucket", "_sum", "_count", "_created"];

impl<S: Values> Series<S> {
    /// Looks whether the series was used since the last look, and hides it if its last use was
    /// `idle` ago. Returns whether pages show it. One page at a time calls it, with times that do
    /// not go back.
    pub(crate) fn look(&self, now: Duration, idle: Option<Duration>) -> bool {
        let activity = self.values.activity();
        let Some(idle) = idle else {
            return !activity.is_hidden();
        };
        // Relaxed, here and below: one page at a time.
        if activity.look() {
            self.used.store(millis(now), Ordering::Relaxed);
            return true;
        }
        let since = millis(now).wrapping_sub(self.used.load(Ordering::Relaxed));
        let over = Duration::from_millis(since.into()) >= idle;
        if over && activity.hide_quiet() {
            return false;
        }
        !activity.is_hidden()
    }
}

fn millis(now: Duration) -> u32 {
    // The low bits: differences are what counts.
    now.as_millis() as u32
}

/// A counter of what was refused.
pub(crate) type Refusals = AtomicU64;
