//! The result of a run: rows of figures, each beside what was published. The schema is
//! `coreline.run/1`.

use coreline_sim::NOT_MODELLED;
use serde::Serialize;

use super::Choice;
use super::plan::{About, Figure, Measured, Plan};
use super::published::Published;
use super::verdict::{self, Verdict};
use crate::scenario::{Params, Program};

/// The result of a run. The order of fields is that of the schema.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    schema: &'static str,
    pub(super) scenario: String,
    pub(super) world: String,
    pub(super) seed: u64,
    pub(super) not_modelled: &'static [&'static str],
    pub(super) rows: Vec<FigureRow>,
    /// The command that gives the same result again. Not data.
    #[serde(skip)]
    pub(super) command: String,
    /// The document that published figures are from.
    #[serde(skip)]
    pub(super) file: Option<String>,
}

/// One figure.
#[derive(Debug, Serialize)]
pub(super) struct FigureRow {
    pub(super) config: String,
    pub(super) params: Params,
    pub(super) variant: String,
    pub(super) metric: &'static str,
    pub(super) value: f64,
    /// The lowest and the highest over the band; natively over the runs.
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) unit: &'static str,
    pub(super) published: Option<f64>,
    pub(super) source: Option<String>,
    pub(super) verdict: Verdict,
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
        let together = |this: &Measured<P::Program>, next: &Measured<P::Program>| {
            this.program.config() == next.program.config()
                && this.program.params() == next.program.params()
        };
        let rows = measured
            .chunk_by(together)
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

fn row<P: Plan>(about: &About<'_>, figure: Figure<'_, P::Program>) -> FigureRow {
    let (low, high) = figure.series.range();
    let kind = figure.metric.kind;
    let verdict = match &figure.published {
        _ if !about.simulated() && figure.of.caches == 1 => Verdict::NotTestable,
        Some((published, _)) => verdict::judge(kind, low, high, *published, P::is_limited(&figure)),
        None => Verdict::None,
    };
    let why = match verdict {
        Verdict::None => None,
        Verdict::Reached => P::why_reached(&figure),
        Verdict::NotTestable => Some(P::NOT_TESTABLE),
        Verdict::DirectionOnly | Verdict::NotReached => Some(P::why_off(about, &figure)),
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
        unit: kind.unit(),
        published: figure.published.as_ref().map(|published| published.0),
        source: figure.published.map(|published| published.1),
        verdict,
        why: why.map(str::to_owned),
    }
}
