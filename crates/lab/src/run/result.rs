//! The result of a run: rows of figures, each beside what was published. The schema is
//! `coreline.run/1`.

use std::collections::BTreeMap;
use std::io::Write;

use coreline_sim::NOT_MODELLED;
use serde::Serialize;

use super::published::Published;
use super::verdict::{self, Kind, Verdict};
use super::{Case, Choice, Measured, table};
use crate::error::Error;
use crate::scenario::intermittent::Miss;
use crate::scenario::{Scenario, Variant, intermittent};
use crate::world::World;

/// The result of a run. The order of fields is that of the schema.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    schema: &'static str,
    pub(super) scenario: String,
    pub(super) world: String,
    pub(super) seed: u64,
    pub(super) not_modelled: &'static [&'static str],
    pub(super) rows: Vec<Row>,
    /// The command that gives the same result again. Not data.
    #[serde(skip)]
    pub(super) command: String,
    /// The document that published figures are from.
    #[serde(skip)]
    pub(super) file: Option<String>,
}

/// One figure.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) config: String,
    pub(super) params: BTreeMap<&'static str, u64>,
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

const NS_PER_BURST: &str = "ns_per_burst";
const RATIO: &str = "kernel_cid_over_cpu_id";

impl Outcome {
    pub(super) fn new(scenario: Scenario, choice: &Choice, measured: &[Measured]) -> Outcome {
        let simulated = matches!(choice.world, World::Simulated { .. });
        let published = Some(Published::about(scenario))
            .filter(|published| simulated && published.machine == choice.world.name());
        let mut rows = Vec::new();
        for (index, this) in measured.iter().enumerate() {
            rows.push(time_row(this, published.as_ref(), simulated));
            // The variants of a configuration and delay follow each other.
            if let Some(before) = index.checked_sub(1).map(|before| &measured[before])
                && is_pair(&before.case, &this.case)
            {
                rows.push(ratio_row(before, this, published.as_ref(), simulated));
            }
        }
        Outcome {
            schema: "coreline.run/1",
            scenario: scenario.to_string(),
            world: choice.world.name().to_owned(),
            seed: choice.seed,
            not_modelled: if simulated { NOT_MODELLED } else { &[] },
            rows,
            command: choice.command(scenario),
            file: published.map(|published| published.file),
        }
    }

    pub(crate) fn show(&self, out: &mut dyn Write) -> Result<(), Error> {
        table::show(self, out)
    }
}

fn is_pair(before: &Case, this: &Case) -> bool {
    (before.variant, this.variant) == (Variant::CpuId, Variant::KernelCid)
        && (&before.config.name, before.delay_ms) == (&this.config.name, this.delay_ms)
}

fn time_row(measured: &Measured, published: Option<&Published>, simulated: bool) -> Row {
    let Case { config, delay_ms, variant } = &measured.case;
    let figure = published.and_then(|published| {
        let figure = published.figure(NS_PER_BURST, "ns", &config.name, *delay_ms, *variant)?;
        Some((figure, published.source.clone()))
    });
    let figures = Figures { value: measured.value, points: &measured.points, decimals: 1 };
    figures.row(&measured.case, NS_PER_BURST, Kind::Nanoseconds, figure, simulated)
}

/// How many times as long `kernel-cid` takes; point by point of the band.
fn ratio_row(
    cpu_id: &Measured,
    kernel_cid: &Measured,
    published: Option<&Published>,
    simulated: bool,
) -> Row {
    let Case { config, delay_ms, .. } = &kernel_cid.case;
    let figure = published.and_then(|published| {
        let time = |variant| published.figure(NS_PER_BURST, "ns", &config.name, *delay_ms, variant);
        let ratio = time(Variant::KernelCid)? / time(Variant::CpuId)?;
        Some((round(ratio, 2), format!("computed from the times of {}", published.source)))
    });
    let points: Vec<f64> =
        kernel_cid.points.iter().zip(&cpu_id.points).map(|(cid, cpu)| cid / cpu).collect();
    let value = kernel_cid.value / cpu_id.value;
    let figures = Figures { value, points: &points, decimals: 2 };
    figures.row(&kernel_cid.case, RATIO, Kind::Ratio, figure, simulated)
}

/// A figure and its spread, before they are rounded.
struct Figures<'a> {
    value: f64,
    points: &'a [f64],
    decimals: i32,
}

impl Figures<'_> {
    fn miss(&self, kind: Kind, published: Option<f64>) -> Miss {
        match kind {
            Kind::Ratio => Miss::Ratio,
            Kind::Nanoseconds if published.is_some_and(|published| self.value > published) => {
                Miss::Above
            }
            Kind::Nanoseconds => Miss::Below,
        }
    }

    fn row(
        &self,
        case: &Case,
        metric: &'static str,
        kind: Kind,
        published: Option<(f64, String)>,
        simulated: bool,
    ) -> Row {
        let low = self.points.iter().copied().fold(self.value, f64::min);
        let high = self.points.iter().copied().fold(self.value, f64::max);
        let verdict = match &published {
            _ if !simulated && case.config.caches == 1 => Verdict::NotTestable,
            Some((published, _)) => {
                let asleep = case.delay_ms >= intermittent::ASLEEP_MS;
                verdict::judge(kind, low, high, *published, asleep)
            }
            None => Verdict::None,
        };
        let (published, source) = published.unzip();
        let why = why(case, verdict, kind, self.miss(kind, published));
        Row {
            config: case.config.name.clone(),
            params: BTreeMap::from([("delay_ms", case.delay_ms)]),
            variant: case.variant.to_string(),
            metric,
            value: round(self.value, self.decimals),
            low: round(low, self.decimals),
            high: round(high, self.decimals),
            unit: match kind {
                Kind::Nanoseconds => "ns",
                Kind::Ratio => "ratio",
            },
            published,
            source,
            verdict,
            why: why.map(str::to_owned),
        }
    }
}

fn round(value: f64, decimals: i32) -> f64 {
    let unit = 10f64.powi(decimals);
    (value * unit).round() / unit
}

/// The reason of a verdict that is not the best, or what a good one is not.
fn why(case: &Case, verdict: Verdict, kind: Kind, miss: Miss) -> Option<&'static str> {
    match verdict {
        Verdict::Reached if kind == Kind::Nanoseconds => intermittent::why_reached(case.variant),
        Verdict::Reached | Verdict::None => None,
        Verdict::NotTestable => Some(
            "all CPUs share one L3, so no area is farther than another: no evidence on locality",
        ),
        Verdict::DirectionOnly | Verdict::NotReached => {
            Some(intermittent::why_off(case.variant, case.delay_ms, miss))
        }
    }
}
