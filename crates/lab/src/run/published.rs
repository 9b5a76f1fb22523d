//! The figures that others published, which scenarios have with them.

use std::collections::{BTreeMap, BTreeSet};

use coreline_scenarios::config::Config;
use coreline_scenarios::metric::Metric;
use coreline_scenarios::param::Value;
use coreline_scenarios::point::Point;
use coreline_scenarios::{SOURCES, Source};
use coreline_sim::Spec;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Published {
    /// The name of the [`Source`] that the figures are from, unless their row has another.
    source: String,
    /// The machine that was measured, as the simulator's preset of it is called; none if the source
    /// does not name it. Then figures stand beside those of all simulated machines.
    machine: Option<String>,
    /// The configuration with all CPUs.
    #[serde(skip)]
    whole: String,
    /// By metric.
    unit: BTreeMap<String, String>,
    row: Vec<PublishedRow>,
    note: Vec<Note>,
}

/// Why a figure is off the published one, or what a reader should know about one that is near. A
/// note applies to all values of a parameter that it does not name.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Note {
    near: bool,
    /// Metrics.
    of: Vec<String>,
    variants: Vec<String>,
    config: Option<String>,
    /// Whether ours is the larger one.
    above: Option<bool>,
    /// The values of parameters, as rows have them; and the least that they are.
    with: BTreeMap<String, Value>,
    least: BTreeMap<String, u64>,
    text: String,
}

impl Note {
    fn fits(&self, metric: &str, point: &Point, above: bool) -> bool {
        let is_in = |all: &[String], name: &str| all.is_empty() || all.iter().any(|it| it == name);
        let params = point.params();
        let is_least = |(name, least): (&String, &u64)| match params.get(name) {
            Some(Value::Number(number)) => number >= least,
            _ => false,
        };
        is_in(&self.of, metric)
            && is_in(&self.variants, point.variant)
            && self.config.as_ref().is_none_or(|it| *it == point.config)
            && self.above.is_none_or(|it| it == above)
            && self.with.iter().all(|(name, value)| params.get(name) == Some(value))
            && self.least.iter().all(is_least)
    }
}

/// Figures of a configuration and of the parameters that they depend on.
#[derive(Debug, Deserialize)]
struct PublishedRow {
    /// None: the whole machine.
    config: Option<String>,
    /// None: that of the file.
    source: Option<String>,
    #[serde(flatten)]
    entries: BTreeMap<String, Entry>,
}

/// The value of a key of a row.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Entry {
    Param(Value),
    /// A metric's figures, by variant.
    Figures(BTreeMap<String, Figure>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Figure {
    One(f64),
    Range([f64; 2]),
    /// Not a figure of its own: one published figure over another.
    Over {
        of: f64,
        over: f64,
    },
}

/// The parameters that such a file's figures depend on, as rows call them.
pub(crate) fn params(file: &str) -> BTreeSet<String> {
    let published: Published =
        toml::from_str(file).expect("the file is compiled in, and a test reads it");
    let entries = published.row.into_iter().flat_map(|row| row.entries);
    let is_param = |(_, entry): &(String, Entry)| matches!(entry, Entry::Param(_));
    entries.filter(is_param).map(|(name, _)| name).collect()
}

impl Published {
    /// The content of such a file about a machine, if there is any.
    pub(crate) fn about(file: &str, machine: &Spec) -> Option<Published> {
        let published: Published =
            toml::from_str(file).expect("the file is compiled in, and a test reads it");
        let whole = Config::all(machine.topology()).pop()?.name;
        let is_of = published.machine.as_deref().is_none_or(|it| it == machine.name());
        is_of.then_some(Published { whole, ..published })
    }

    /// The note on a figure of ours that is near the published one, or off it.
    pub(super) fn note(
        &self,
        near: bool,
        metric: &str,
        point: &Point,
        above: bool,
    ) -> Option<&str> {
        let fits = |note: &&Note| note.near == near && note.fits(metric, point, above);
        self.note.iter().find(fits).map(|note| note.text.as_str())
    }

    pub(super) fn sources(&self) -> Vec<&'static Source> {
        let all = || self.row.iter().map(|row| self.source(row).name);
        SOURCES.iter().filter(|source| all().any(|name| name == source.name)).collect()
    }

    fn source(&self, row: &PublishedRow) -> &'static Source {
        let name = row.source.as_ref().unwrap_or(&self.source);
        Source::named(name).expect("the file is compiled in, and a test reads it")
    }

    /// A figure, if it was published in the metric's unit, and where. Of a range the middle.
    pub(crate) fn figure(&self, metric: Metric, point: &Point) -> Option<(f64, String)> {
        (self.unit.get(metric.name)? == metric.kind.unit()).then_some(())?;
        let params = point.params();
        let config = |row: &PublishedRow| row.config.as_ref() == Some(&point.config);
        let whole = |row: &PublishedRow| row.config.is_none() && point.config == self.whole;
        let rows = self.row.iter().filter(|row| (config(row) || whole(row)) && row.is_for(&params));
        let of = |row| Some((row, PublishedRow::figure(row, metric.name, point.variant)?));
        let (row, figure) = rows.filter_map(of).next()?;
        let Source { name, link, .. } = self.source(row);
        Some(match figure {
            Figure::One(figure) => (figure, format!("{name}: {link}")),
            Figure::Range([low, high]) => {
                let middle = (low + high) / 2.0;
                (middle, format!("{name}: midpoint of {low} to {high}: {link}"))
            }
            Figure::Over { of, over } => {
                let ratio = metric.kind.round(of / over);
                (ratio, format!("computed from {name}: {of} over {over}: {link}"))
            }
        })
    }
}

impl PublishedRow {
    /// Whether the row's parameters, as far as it has any, are these.
    fn is_for(&self, params: &BTreeMap<String, Value>) -> bool {
        self.entries.iter().all(|(name, entry)| match entry {
            Entry::Param(param) => params.get(name) == Some(param),
            Entry::Figures(_) => true,
        })
    }

    fn figure(&self, metric: &str, variant: &str) -> Option<Figure> {
        match self.entries.get(metric)? {
            Entry::Param(_) => None,
            Entry::Figures(figures) => figures.get(variant).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coreline_scenarios::metric::FigureKind::{self, Cycles, Nanoseconds, Rate, Ratio};
    use coreline_scenarios::point::Setup;

    /// The published figure of a program's point on a machine, and where it is from.
    fn figure(
        machine: &str,
        program: &str,
        name: &'static str,
        kind: FigureKind,
    ) -> Option<(f64, String)> {
        let point = Setup::new(program, []).point;
        let file = point.scenario.published?;
        let published = Published::about(file, &Spec::preset(machine).unwrap())?;
        published.figure(Metric { name, kind }, &point)
    }

    #[test]
    fn each_figure_has_a_source_with_a_link() {
        let files = coreline_scenarios::ALL.iter().filter_map(|scenario| scenario.published);
        let mut named = BTreeSet::new();
        for file in files {
            let published: Published = toml::from_str(file).unwrap();
            let sources = published.sources();
            assert!(!sources.is_empty(), "{file}");
            named.extend(sources.into_iter().map(|source| source.name));
        }
        for source in SOURCES {
            assert!(source.link.starts_with("https://lore.kernel.org/"), "{source}");
            let (family, _) = source.name.split_once(&format!(" {}", source.year)).unwrap();
            assert!(source.author.contains(family), "{source}");
            assert!(named.contains(source.name), "{source}: no file has a figure of it");
        }
    }

    #[test]
    fn the_tables_derived_column_follows_from_its_others() {
        let file = Setup::new("intermittent config=x delay=1 turns=timed variant=recent", [])
            .scenario
            .published;
        let spec = Spec::preset("epyc-9654-2s").unwrap();
        let published = Published::about(file.unwrap(), &spec).unwrap();
        assert_eq!(published.row.len(), 8);
        for row in &published.row {
            let figure = |metric, variant| match row.figure(metric, variant) {
                Some(Figure::One(figure)) => figure,
                other => panic!("{metric} {variant}: {other:?}"),
            };
            let ns = |variant| figure("ns_per_burst", variant);
            // The table has one decimal, rounded or cut.
            let off = ns("first-fit") / ns("recent") - figure("speedup", "recent");
            assert!((-0.05..0.1).contains(&off), "{row:?}: off by {off}");
        }
    }

    #[test]
    fn a_figure_is_found_by_all_that_it_depends_on() {
        let figure = |kind, config, delay, variant| {
            let program =
                format!("intermittent config={config} delay={delay} turns=timed variant={variant}");
            figure("epyc-9654-2s", &program, "ns_per_burst", kind).map(|(figure, _)| figure)
        };
        assert_eq!(figure(Nanoseconds, "24-core/24-L3", 10, "first-fit"), Some(3648.0));
        assert_eq!(figure(Nanoseconds, "8-core/1-L3", 200, "cpu-id"), Some(1374.0));
        assert_eq!(figure(Nanoseconds, "8-core/1-L3", 20, "cpu-id"), None);
        assert_eq!(figure(Nanoseconds, "7-core/1-L3", 10, "cpu-id"), None);
        assert_eq!(figure(Cycles, "8-core/1-L3", 10, "cpu-id"), None);
    }

    #[test]
    fn a_range_gives_its_middle_and_a_quotient_says_of_what() {
        let figure = |machine, name, kind, variant| {
            let program = format!(
                "switchstorm config=120-thread/4-L3 wake=barrier period=1 path=0 flush=0 \
                 variant={variant} rounds=1"
            );
            figure(machine, &program, name, kind)
        };
        let ivy = "ivybridge-ex-4s";
        let (cycles, source) = figure(ivy, "sampled_cycles", Cycles, "always-set").unwrap();
        assert!(cycles == 12_500.0 && source.contains("10000 to 15000"), "{cycles} {source}");
        let (ratio, source) = figure(ivy, "throughput", Ratio, "test-first").unwrap();
        assert!(ratio == 1.08 && source.contains("144 over 133"), "{ratio} {source}");
        assert_eq!(figure("host-2c", "throughput", Ratio, "test-first"), None);
    }

    #[test]
    fn figures_of_a_machine_that_is_not_named_stand_beside_those_of_all_whole_ones() {
        let figure = |config: &str, place: &str, pools| {
            let rest = if pools == 8 { 507 } else { 2970 };
            let program = format!(
                "threadstorm config={config} size={pools}x{pools} place={place} rest={rest} path=0 \
                 variant=owned rounds=1"
            );
            figure("epyc-9654-2s", &program, "creations", Rate).map(|(figure, _)| figure)
        };
        let whole = "384-thread/24-L3";
        assert_eq!(figure(whole, "roaming", 8), Some(32_025.0));
        assert_eq!(figure(whole, "roaming", 32), Some(21_004.0));
        assert_eq!((figure(whole, "roaming", 16), figure(whole, "pinned", 8)), (None, None));
        assert_eq!(figure("8-core/1-L3", "roaming", 8), None);
    }
}
