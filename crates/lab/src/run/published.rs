//! The figures that others published, from `docs/published`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::scenario::{Scenario, Variant};

/// What was published about a scenario.
#[derive(Debug, Deserialize)]
pub(crate) struct Published {
    /// How results name where the figures are from.
    pub(crate) source: String,
    /// The document's file name.
    pub(crate) file: String,
    /// The machine that was measured, as the simulator's preset of it is called.
    pub(crate) machine: String,
    /// By metric.
    unit: BTreeMap<String, String>,
    row: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    config: String,
    delay_ms: u64,
    /// By metric and variant.
    #[serde(flatten)]
    figures: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Published {
    /// What was published about a scenario.
    pub(crate) fn about(scenario: Scenario) -> Published {
        let text = match scenario {
            Scenario::Intermittent => {
                include_str!("../../../../docs/published/intermittent.toml")
            }
        };
        toml::from_str(text).expect("the file is compiled in, and a test reads it")
    }

    /// A figure, if it was published in this unit.
    pub(crate) fn figure(
        &self,
        metric: &str,
        unit: &str,
        config: &str,
        delay_ms: u64,
        variant: Variant,
    ) -> Option<f64> {
        let row = self.row.iter().find(|row| row.config == config && row.delay_ms == delay_ms)?;
        (self.unit.get(metric)? == unit).then_some(())?;
        row.figures.get(metric)?.get(&variant.to_string()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_derived_column_follows_from_its_others() {
        let published = Published::about(Scenario::Intermittent);
        assert_eq!(published.row.len(), 8);
        for row in &published.row {
            let ns = &row.figures["ns_per_burst"];
            let speedup = row.figures["speedup"]["recent"];
            // The table has one decimal, rounded or cut.
            let off = ns["first-fit"] / ns["recent"] - speedup;
            assert!((-0.05..0.1).contains(&off), "{row:?}: off by {off}");
        }
    }

    #[test]
    fn a_figure_is_found_by_all_that_it_depends_on() {
        let published = Published::about(Scenario::Intermittent);
        let figure = |unit, config, delay, variant| {
            published.figure("ns_per_burst", unit, config, delay, variant)
        };
        assert_eq!(figure("ns", "24-core/24-L3", 10, Variant::FirstFit), Some(3648.0));
        assert_eq!(figure("ns", "8-core/1-L3", 200, Variant::CpuId), Some(1374.0));
        assert_eq!(figure("ns", "8-core/1-L3", 20, Variant::CpuId), None);
        assert_eq!(figure("ns", "7-core/1-L3", 10, Variant::CpuId), None);
        assert_eq!(figure("us", "8-core/1-L3", 10, Variant::CpuId), None);
    }
}
