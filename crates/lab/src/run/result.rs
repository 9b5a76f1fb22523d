//! The result of a run: rows of figures, each beside what was published. The schema is
//! `coreline.run/1`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;

use coreline_sim::NOT_MODELLED;
use serde::Serialize;

use super::published::Published;
use super::verdict::{self, Kind, Verdict};
use super::{Case, Choice, Measured, table};
use crate::error::Error;
use crate::kernel::Scan;
use crate::scenario::intermittent::Quantity;
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

/// What a figure depends on.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Param {
    Number(u64),
    Name(String),
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Param::Number(number) => write!(f, "{number}"),
            Param::Name(name) => f.write_str(name),
        }
    }
}

/// One figure.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) config: String,
    pub(super) params: BTreeMap<&'static str, Param>,
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

impl Quantity {
    fn metric(self) -> &'static str {
        match self {
            Quantity::Time => "ns_per_burst",
            Quantity::OverCpuId => "over_cpu_id",
            Quantity::Speedup => "speedup",
        }
    }

    fn kind(self) -> Kind {
        match self {
            Quantity::Time => Kind::Nanoseconds,
            Quantity::OverCpuId | Quantity::Speedup => Kind::Ratio,
        }
    }

    fn unit(self) -> &'static str {
        match self.kind() {
            Kind::Nanoseconds => "ns",
            Kind::Ratio => "ratio",
        }
    }

    fn decimals(self) -> i32 {
        match self.kind() {
            Kind::Nanoseconds => 1,
            Kind::Ratio => 2,
        }
    }
}

impl Outcome {
    pub(super) fn new(scenario: Scenario, choice: &Choice, measured: &[Measured]) -> Outcome {
        let simulated = matches!(choice.world, World::Simulated { .. });
        let published = Some(Published::about(scenario))
            .filter(|published| simulated && published.machine == choice.world.name());
        let scan = simulated.then(|| choice.scan());
        let beside = Beside { published: published.as_ref(), scan };
        // The variants of a configuration and delay follow each other.
        let together = |this: &Measured, next: &Measured| {
            (&this.case.config.name, this.case.delay_ms)
                == (&next.case.config.name, next.case.delay_ms)
        };
        let rows = measured.chunk_by(together).flat_map(|variants| beside.rows(variants)).collect();
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

/// What figures are set beside.
struct Beside<'a> {
    published: Option<&'a Published>,
    /// `None` natively.
    scan: Option<Scan>,
}

impl Beside<'_> {
    /// The rows of a configuration and delay.
    fn rows(&self, variants: &[Measured]) -> Vec<Row> {
        let of = |variant| variants.iter().find(|measured| measured.case.variant == variant);
        let mut rows = Vec::new();
        for this in variants {
            rows.push(self.row(Quantity::Time, &this.case, this.value, &this.points));
            if this.case.variant == Variant::CpuId {
                continue;
            }
            if let Some(cpu_id) = of(Variant::CpuId) {
                let (value, points) = quotient(this, cpu_id);
                rows.push(self.row(Quantity::OverCpuId, &this.case, value, &points));
            }
            if this.case.variant == Variant::Recent
                && let Some(first_fit) = of(Variant::FirstFit)
            {
                let (value, points) = quotient(first_fit, this);
                rows.push(self.row(Quantity::Speedup, &this.case, value, &points));
            }
        }
        rows
    }

    /// The published figure and where it is from. That over `cpu-id` follows from two others.
    fn figure(&self, quantity: Quantity, case: &Case) -> Option<(f64, String)> {
        let published = self.published?;
        let Case { config, delay_ms, variant } = case;
        let figure = |quantity: Quantity, variant| {
            let (metric, unit) = (quantity.metric(), quantity.unit());
            published.figure(metric, unit, &config.name, *delay_ms, variant)
        };
        if quantity != Quantity::OverCpuId {
            return Some((figure(quantity, *variant)?, published.source.clone()));
        }
        let time = |variant| figure(Quantity::Time, variant);
        let ratio = time(*variant)? / time(Variant::CpuId)?;
        let source = format!("computed from the times of {}", published.source);
        Some((round(ratio, quantity.decimals()), source))
    }

    fn row(&self, quantity: Quantity, case: &Case, value: f64, points: &[f64]) -> Row {
        let Case { config, delay_ms, variant } = case;
        let low = points.iter().copied().fold(value, f64::min);
        let high = points.iter().copied().fold(value, f64::max);
        let (published, source) = self.figure(quantity, case).unzip();
        let verdict = match published {
            _ if self.scan.is_none() && config.caches == 1 => Verdict::NotTestable,
            Some(published) => {
                let asleep = *delay_ms >= intermittent::ASLEEP_MS;
                verdict::judge(quantity.kind(), low, high, published, asleep)
            }
            None => Verdict::None,
        };
        let why = match verdict {
            Verdict::None => None,
            Verdict::Reached => intermittent::why_reached(quantity, *variant),
            Verdict::NotTestable => Some(
                "all CPUs share one L3, so no area is farther than another: no evidence on \
                 locality",
            ),
            Verdict::DirectionOnly | Verdict::NotReached => {
                let above = published.is_some_and(|published| value > published);
                let scan = self.scan.unwrap_or_default();
                Some(intermittent::why_off(quantity, *variant, *delay_ms, scan, above))
            }
        };
        let mut params = BTreeMap::from([("delay_ms", Param::Number(*delay_ms))]);
        params.extend(self.scan.map(|scan| ("scan", Param::Name(scan.to_string()))));
        let round = |value| round(value, quantity.decimals());
        Row {
            config: config.name.clone(),
            params,
            variant: variant.to_string(),
            metric: quantity.metric(),
            value: round(value),
            low: round(low),
            high: round(high),
            unit: quantity.unit(),
            published,
            source,
            verdict,
            why: why.map(str::to_owned),
        }
    }
}

/// One figure over another, and point by point of the band.
fn quotient(this: &Measured, that: &Measured) -> (f64, Vec<f64>) {
    let points = this.points.iter().zip(&that.points).map(|(this, that)| this / that).collect();
    (this.value / that.value, points)
}

fn round(value: f64, decimals: i32) -> f64 {
    let unit = 10f64.powi(decimals);
    (value * unit).round() / unit
}
