//! The result of a run: rows of figures, each beside what was published. The schema is
//! `coreline.run/1`.

use coreline_sim::NOT_MODELLED;
use serde::Serialize;

use super::Choice;
use super::plan::{About, Figure, Measured, Plan, differ_in_variant};
use super::published::Published;
use super::verdict::{self, Better, FigureKind, Judged, Verdict};
use crate::scenario::{Params, Program};

/// The result of a run. The order of fields is that of the schema.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    schema: &'static str,
    pub(crate) scenario: String,
    pub(crate) world: String,
    pub(super) seed: u64,
    pub(crate) not_modelled: &'static [&'static str],
    pub(crate) rows: Vec<FigureRow>,
    /// The command that gives the same result again. Not data.
    #[serde(skip)]
    pub(super) command: String,
    /// The document that published figures are from.
    #[serde(skip)]
    pub(super) file: Option<String>,
}

/// One figure.
#[derive(Debug, Serialize)]
pub(crate) struct FigureRow {
    pub(crate) config: String,
    pub(crate) params: Params,
    pub(crate) variant: String,
    pub(crate) metric: &'static str,
    /// Null where all samples were disturbed.
    pub(crate) value: f64,
    /// The lowest and the highest over the band; natively over the samples, null of fewer than
    /// two.
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Natively, how many samples the value is the median of.
    pub(crate) samples: Option<usize>,
    /// Natively, how many did not count, as other load disturbed them; null where the kernel does
    /// not say.
    pub(crate) discarded: Option<u32>,
    pub(crate) unit: &'static str,
    /// Which way is better.
    pub(crate) better: Better,
    pub(crate) published: Option<f64>,
    pub(super) source: Option<String>,
    pub(crate) verdict: Verdict,
    /// By which factor the size is off, where the verdict is about that.
    pub(super) times: Option<f64>,
    /// Why the verdict is not better; never missing where it could be.
    pub(super) why: Option<String>,
}

impl Outcome {
    pub(super) fn new<P: Plan>(choice: &Choice, measured: &[Measured<P::Program>]) -> Outcome {
        let about = About { choice, published: None };
        let simulated = about.simulated();
        let published = Published::about(P::SCENARIO)
            .filter(|published| simulated && published.is_of(choice.world.name()));
        let about = About { published: published.as_ref(), ..about };
        // The variants of a configuration and its parameters follow each other.
        let rows = measured
            .chunk_by(|this, next| differ_in_variant(&this.program, &next.program))
            .flat_map(|variants| P::figures(&about, variants))
            .map(|figure| row::<P>(&about, figure))
            .collect();
        Outcome {
            schema: "coreline.run/1",
            scenario: P::SCENARIO.to_string(),
            world: choice.world.name().to_owned(),
            seed: choice.seed,
            not_modelled: if simulated { NOT_MODELLED } else { &[] },
            rows,
            command: choice.command(P::SCENARIO),
            file: published.map(|published| published.file),
        }
    }
}

impl FigureRow {
    /// The verdict in words.
    pub(crate) fn said(&self) -> String {
        verdict::said(self.verdict, self.times)
    }
}

/// Why nothing can be said where the machine's tree was made up.
const UNKNOWN_CACHES: &str = "which CPUs share a cache is not known here, as sysfs could not be \
                              read (see `coreline doctor`): no evidence on distances";

fn row<P: Plan>(about: &About<'_>, figure: Figure<'_, P::Program>) -> FigureRow {
    let natively = !about.simulated();
    let samples = figure.series.points.len();
    let (low, high) = match samples {
        0 | 1 if natively => (f64::NAN, f64::NAN),
        _ => figure.series.range(),
    };
    let kind = figure.metric.kind;
    let Judged { verdict, times } = match &figure.published {
        _ if natively && figure.of.caches <= 1 => Verdict::NotTestable.into(),
        Some((published, _)) => {
            let limited = P::is_limited(&figure);
            verdict::judge(kind, figure.series.value, (low, high), *published, limited)
        }
        None => Verdict::None.into(),
    };
    let why = match verdict {
        Verdict::None => None,
        Verdict::Reached => P::why_reached(&figure),
        Verdict::NotTestable if figure.of.caches == 0 => Some(UNKNOWN_CACHES),
        Verdict::NotTestable => Some(P::NOT_TESTABLE),
        _ => Some(P::why_off(about, &figure)),
    };
    let program = &figure.of.program;
    let round = |value| verdict::round(value, kind);
    FigureRow {
        config: program.config().to_owned(),
        params: P::params(about, program),
        variant: program.variant().to_string(),
        metric: figure.metric.name,
        value: round(figure.series.value),
        low: round(low),
        high: round(high),
        samples: natively.then_some(samples),
        discarded: figure.of.discarded,
        unit: kind.unit(),
        better: kind.better(),
        published: figure.published.as_ref().map(|published| published.0),
        source: figure.published.map(|published| published.1),
        verdict,
        times: times.map(|times| verdict::round(times, FigureKind::Ratio)),
        why: why.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::plan::{Series, Shootdown};
    use crate::scenario::{Variant, shootdown};
    use crate::world::World;

    /// The first row of a native result with such samples.
    fn row(caches: usize, points: &[f64]) -> FigureRow {
        let config = "2-CPU".to_owned();
        let (variant, updates) = (Variant::Eager, 6);
        let program = shootdown::ShootdownProgram { config, present: 1, variant, updates };
        let value = points.first().copied().unwrap_or(f64::NAN);
        let number = || Series { value, points: points.to_vec() };
        let (numbers, discarded) = (vec![number(), number()], Some(2));
        let measured = [Measured { program, caches, numbers, discarded }];
        let choice = Choice::quick(World::Native);
        Outcome::new::<Shootdown>(&choice, &measured).rows.swap_remove(0)
    }

    #[test]
    fn natively_a_row_says_why_it_is_not_testable() {
        let verdict = |caches| {
            let row = row(caches, &[4.0, 6.0]);
            (row.verdict, row.why.unwrap_or_default())
        };
        let (one, none, two) = (verdict(1), verdict(0), verdict(2));
        assert_eq!(one.0, Verdict::NotTestable);
        assert!(one.1.contains("share one L3"), "{one:?}");
        assert_eq!(none.0, Verdict::NotTestable);
        assert!(none.1.contains("sysfs") && !none.1.contains("one L3"), "{none:?}");
        assert_eq!(two, (Verdict::None, String::new()));
    }

    #[test]
    fn one_sample_has_no_band_and_none_no_figure() {
        let row = |points: &[f64]| serde_json::to_value(row(2, points)).unwrap();
        let shown = |row: &serde_json::Value| {
            ["value", "low", "high", "samples", "discarded"].map(|key| row[key].clone())
        };
        let null = || serde_json::Value::Null;
        let json = |number: f64| serde_json::json!(number);
        let two = shown(&row(&[4.0, 6.0]));
        assert_eq!(two, [json(4.0), json(4.0), json(6.0), 2.into(), 2.into()]);
        assert_eq!(shown(&row(&[4.0])), [json(4.0), null(), null(), 1.into(), 2.into()]);
        assert_eq!(shown(&row(&[])), [null(), null(), null(), 0.into(), 2.into()]);
    }
}
