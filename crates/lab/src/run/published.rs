//! The figures that others published, from `docs/published`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::metric::Metric;
use crate::scenario::{Param, Params, Scenario, Variant};

/// What was published about a scenario.
#[derive(Debug, Deserialize)]
pub(crate) struct Published {
    /// How results name where the figures are from.
    pub(crate) source: String,
    /// The document's file name.
    pub(crate) file: String,
    /// The machine that was measured, as the simulator's preset of it is called; none if the source
    /// does not name it. Then figures stand beside those of all simulated machines.
    pub(crate) machine: Option<String>,
    /// By metric.
    unit: BTreeMap<String, String>,
    row: Vec<PublishedRow>,
}

/// Figures of a configuration and of the parameters that they depend on.
#[derive(Debug, Deserialize)]
struct PublishedRow {
    /// None: any, of a machine that is not named.
    config: Option<String>,
    #[serde(flatten)]
    entries: BTreeMap<String, Entry>,
}

/// What stands at a key of a row.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Entry {
    /// A parameter's value.
    Param(Param),
    /// A metric's figures, by variant.
    Figures(BTreeMap<String, Figure>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Figure {
    One(f64),
    /// From, to.
    Range([f64; 2]),
    /// Not a figure of its own: one published figure over another.
    Over {
        of: f64,
        over: f64,
    },
}

impl Published {
    /// What was published about a scenario, if anything was.
    pub(crate) fn about(scenario: Scenario) -> Option<Published> {
        let text = match scenario {
            Scenario::Intermittent => include_str!("../../../../docs/published/intermittent.toml"),
            Scenario::Switchstorm => include_str!("../../../../docs/published/switchstorm.toml"),
            Scenario::Threadstorm => include_str!("../../../../docs/published/threadstorm.toml"),
            Scenario::Shootdown | Scenario::Tenants => return None,
        };
        Some(toml::from_str(text).expect("the file is compiled in, and a test reads it"))
    }

    /// Whether it belongs beside figures of this machine.
    pub(crate) fn is_of(&self, machine: &str) -> bool {
        self.machine.as_deref().is_none_or(|it| it == machine)
    }

    /// A figure, if it was published in the metric's unit, and where. Of a range the middle.
    pub(crate) fn figure(
        &self,
        metric: Metric,
        config: &str,
        params: &Params,
        variant: Variant,
    ) -> Option<(f64, String)> {
        (self.unit.get(metric.name)? == metric.kind.unit()).then_some(())?;
        let rows = self.row.iter().filter(|row| row.is_for(config, params));
        let figure = rows.filter_map(|row| row.figure(metric.name, variant)).next()?;
        let source = &self.source;
        Some(match figure {
            Figure::One(figure) => (figure, source.clone()),
            Figure::Range([low, high]) => {
                ((low + high) / 2.0, format!("{source}: {low} to {high}, of which the middle"))
            }
            Figure::Over { of, over } => {
                let ratio = super::verdict::round(of / over, metric.kind);
                (ratio, format!("computed from {source}: {of} over {over}"))
            }
        })
    }
}

impl PublishedRow {
    /// Whether the row's configuration and parameters, as far as it has any, are these.
    fn is_for(&self, config: &str, params: &Params) -> bool {
        let here = self.config.as_deref().is_none_or(|it| it == config);
        here && self.entries.iter().all(|(name, entry)| match entry {
            Entry::Param(param) => params.get(name.as_str()) == Some(param),
            Entry::Figures(_) => true,
        })
    }

    fn figure(&self, metric: &str, variant: Variant) -> Option<Figure> {
        match self.entries.get(metric)? {
            Entry::Param(_) => None,
            Entry::Figures(figures) => figures.get(&variant.to_string()).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::run::verdict::FigureKind;

    use super::*;

    #[test]
    fn the_tables_derived_column_follows_from_its_others() {
        let published = Published::about(Scenario::Intermittent).unwrap();
        assert_eq!(published.row.len(), 8);
        for row in &published.row {
            let figure = |metric, variant| match row.figure(metric, variant) {
                Some(Figure::One(figure)) => figure,
                other => panic!("{metric} {variant}: {other:?}"),
            };
            let ns = |variant| figure("ns_per_burst", variant);
            let speedup = figure("speedup", Variant::Recent);
            // The table has one decimal, rounded or cut.
            let off = ns(Variant::FirstFit) / ns(Variant::Recent) - speedup;
            assert!((-0.05..0.1).contains(&off), "{row:?}: off by {off}");
        }
    }

    #[test]
    fn a_figure_is_found_by_all_that_it_depends_on() {
        let published = Published::about(Scenario::Intermittent).unwrap();
        let figure = |kind, config, delay, variant| {
            let params = Params::from([("delay_ms", Param::Number(delay))]);
            let found =
                published.figure(Metric { name: "ns_per_burst", kind }, config, &params, variant);
            found.map(|(figure, _)| figure)
        };
        let ns = FigureKind::Nanoseconds;
        assert_eq!(figure(ns, "24-core/24-L3", 10, Variant::FirstFit), Some(3648.0));
        assert_eq!(figure(ns, "8-core/1-L3", 200, Variant::CpuId), Some(1374.0));
        assert_eq!(figure(ns, "8-core/1-L3", 20, Variant::CpuId), None);
        assert_eq!(figure(ns, "7-core/1-L3", 10, Variant::CpuId), None);
        assert_eq!(figure(FigureKind::Cycles, "8-core/1-L3", 10, Variant::CpuId), None);
    }

    #[test]
    fn a_range_gives_its_middle_and_a_quotient_says_of_what() {
        let published = Published::about(Scenario::Switchstorm).unwrap();
        let params = Params::from([("wake", Param::Name("barrier".to_owned()))]);
        let figure = |name, kind, variant| {
            published.figure(Metric { name, kind }, "120-thread/4-L3", &params, variant).unwrap()
        };
        let (cycles, source) = figure("op_cycles", FigureKind::Cycles, Variant::AlwaysSet);
        assert!(cycles == 12_500.0 && source.contains("10000 to 15000"), "{cycles} {source}");
        let (ratio, source) = figure("throughput", FigureKind::Ratio, Variant::TestFirst);
        assert!(ratio == 1.08 && source.contains("144 over 133"), "{ratio} {source}");
    }

    #[test]
    fn figures_of_a_machine_that_is_not_named_stand_beside_those_of_all() {
        let published = Published::about(Scenario::Threadstorm).unwrap();
        assert!(published.is_of("epyc-9654-2s") && published.is_of("host-2c"));
        assert!(!Published::about(Scenario::Switchstorm).unwrap().is_of("host-2c"));
        let figure = |place: &str, pools| {
            let params = Params::from([
                ("place", Param::Name(place.to_owned())),
                ("pools", Param::Number(pools)),
                ("threads", Param::Number(pools)),
            ]);
            let metric = Metric { name: "creations", kind: FigureKind::Rate };
            let found = published.figure(metric, "2-core/1-L3", &params, Variant::Owned);
            found.map(|(figure, _)| figure)
        };
        assert_eq!((figure("roaming", 8), figure("roaming", 32)), (Some(32_025.0), Some(21_004.0)));
        assert_eq!((figure("roaming", 16), figure("pinned", 8)), (None, None));
    }
}
