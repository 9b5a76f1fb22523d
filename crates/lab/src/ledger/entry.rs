//! A published figure in the ledger.

use std::collections::{BTreeMap, BTreeSet};

use coreline_scenarios::metric::FigureKind;
use coreline_scenarios::param::Value;
use serde::Serialize;

use super::decides::Deciders;
use crate::run::result::FigureRow;
use crate::run::verdict::{self, Judged, Verdict};

/// A published figure.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    pub(super) config: String,
    pub(super) params: BTreeMap<String, Value>,
    pub(super) variant: &'static str,
    pub(super) metric: &'static str,
    pub(super) unit: &'static str,
    #[serde(skip)]
    pub(super) kind: FigureKind,
    pub(super) published: f64,
    /// At the default point; of several rows the first's.
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// At all points of the band, of all rows.
    #[serde(skip)]
    pub(super) points: Vec<f64>,
    /// How many rows it stands beside.
    pub(super) rows: usize,
    pub(super) verdict: Verdict,
    pub(super) times: Option<f64>,
    /// The declared parameters that decide it: costs without a source, or [`SCENARIO`].
    pub(super) declared: BTreeSet<String>,
    /// The number of its fact, from 1; none of a quotient of other entries.
    pub(super) fact: Option<usize>,
    /// The reason for the verdict, or why it is not better.
    pub(super) why: Option<String>,
}

/// A cause that decides a figure: parameters that the scenario declares, or an effect that it does
/// not model.
const SCENARIO: &str = "scenario";

/// Each published figure once. Only the published parameters are kept.
pub(super) fn entries(
    rows: &[FigureRow],
    known: &BTreeSet<String>,
    deciders: &Deciders,
) -> Vec<Entry> {
    let mut entries = Vec::<Entry>::new();
    for row in rows {
        let Some(published) = row.published else { continue };
        let params: BTreeMap<_, _> =
            row.params.iter().filter(|(name, _)| known.contains(*name)).collect();
        let mut declared: BTreeSet<String> = deciders.of(&row.points).collect();
        let mut judged = Judged { verdict: row.verdict, times: row.times };
        if !declared.is_empty() {
            judged = verdict::judge(row.kind, row.value, (row.low, row.high), published, true);
        }
        declared.extend(row.limited.then(|| SCENARIO.to_owned()));
        let is_it = |entry: &&mut Entry| {
            let of = (&*entry.config, entry.variant, entry.metric);
            of == (&*row.config, row.variant, row.metric) && entry.params.iter().eq(params.clone())
        };
        if let Some(entry) = entries.iter_mut().find(is_it) {
            entry.rows += 1;
            entry.low = entry.low.min(row.low);
            entry.high = entry.high.max(row.high);
            entry.points.extend(&row.points);
            entry.declared.append(&mut declared);
            if entry.verdict != judged.verdict {
                (entry.verdict, entry.times) = (Verdict::Undecided, None);
            }
            continue;
        }
        entries.push(Entry {
            config: row.config.clone(),
            params: params.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            variant: row.variant,
            metric: row.metric,
            unit: row.unit,
            kind: row.kind,
            published,
            value: row.value,
            low: row.low,
            high: row.high,
            points: row.points.clone(),
            rows: 1,
            verdict: judged.verdict,
            times: judged.times.map(|times| FigureKind::Ratio.round(times)),
            declared,
            fact: None,
            why: row.why.clone(),
        });
    }
    entries
}

#[cfg(test)]
pub(super) mod tests {
    use coreline_scenarios::metric::Better;

    use super::*;

    /// A row of a figure that was published as 2.
    pub(in crate::ledger) fn row(delay: u64, scan: &str, verdict: Verdict) -> FigureRow {
        let params = [
            ("delay_ms".to_owned(), Value::Number(delay)),
            ("scan".to_owned(), Value::Name(scan.to_owned())),
        ];
        FigureRow {
            config: "all".to_owned(),
            params: params.into(),
            variant: "first-fit",
            metric: "speedup",
            value: delay as f64,
            low: delay as f64 - 1.0,
            high: delay as f64 + 1.0,
            points: vec![delay as f64, delay as f64 + 1.0],
            samples: None,
            discarded: None,
            disturbed: false,
            disturbed_rounds: None,
            unit: "ratio",
            kind: FigureKind::Gain,
            derived: true,
            better: Better::Higher,
            published: Some(2.0),
            source: None,
            verdict,
            limited: false,
            times: Some(3.0),
            why: None,
            lack: None,
        }
    }

    /// Returns the entries of these rows, for a source that states its delay.
    pub(in crate::ledger) fn entries(rows: &[FigureRow]) -> Vec<Entry> {
        super::entries(rows, &BTreeSet::from(["delay_ms".to_owned()]), &Deciders::none())
    }

    #[test]
    fn a_figure_stands_once_and_is_undecided_where_its_rows_disagree() {
        let unpublished = FigureRow { published: None, ..row(9, "tick", Verdict::None) };
        let rows = [
            row(1, "tick", Verdict::Reached),
            row(2, "tick", Verdict::Direction),
            row(1, "switch", Verdict::Reached),
            row(2, "switch", Verdict::Against),
            unpublished,
        ];
        let entries = entries(&rows);
        assert_eq!(entries.len(), 2);
        let [one, two] = [&entries[0], &entries[1]];
        assert_eq!((one.verdict, one.rows, one.times), (Verdict::Reached, 2, Some(3.0)));
        assert_eq!((two.verdict, two.rows, two.times), (Verdict::Undecided, 2, None));
        assert_eq!(one.params, BTreeMap::from([("delay_ms".to_owned(), Value::Number(1))]));
        assert_eq!(one.points, [1.0, 2.0, 1.0, 2.0]);
    }

    #[test]
    fn what_a_declared_parameter_decides_is_not_reached() {
        let spec = coreline_sim::Spec::preset("epyc-9654-2s").unwrap();
        let band = coreline_sim::claim::Band::whole(&spec, 1);
        // It follows an assumption, and stays near what was published.
        let value = |point: &coreline_sim::claim::Point| match &point.cost {
            Some((cost, percent)) if cost == "stream_stores" => *percent as f64 / 100.0 * 2.0,
            _ => 2.0,
        };
        let points: Vec<f64> = band.points().iter().map(value).collect();
        let near =
            FigureRow { value: 2.0, low: 1.9, high: 2.1, ..row(1, "tick", Verdict::Reached) };
        let of = |row: FigureRow| {
            let entry = super::entries(&[row], &BTreeSet::new(), &Deciders::of_band(&spec, 1));
            (entry[0].verdict, entry[0].declared.iter().cloned().collect::<Vec<_>>())
        };
        let follows = FigureRow { points, ..near };
        let constant = vec![2.0; follows.points.len()];
        assert_eq!(of(follows.clone()), (Verdict::Direction, vec!["stream_stores".to_owned()]));
        let decided_by_none = FigureRow { points: constant, ..follows.clone() };
        assert_eq!(of(decided_by_none), (Verdict::Reached, vec![]));
        let by_scenario =
            FigureRow { limited: true, verdict: Verdict::Direction, points: vec![], ..follows };
        assert_eq!(of(by_scenario), (Verdict::Direction, vec![SCENARIO.to_owned()]));
    }
}
