//! Predictions for figures that are published elsewhere: ratios of two variants of a scenario, on
//! the machine for which the figures were published.
//!
//! `coreline validate --blind COMMIT` writes a file of them, which is then committed and compared
//! with the figures of other authors. Each row says what its author knew of these figures. [`rows`]
//! has the rows.

mod rows;
#[cfg(test)]
mod tests;

use core::ops::RangeInclusive;
use std::fmt::Write;

use coreline_scenarios::point::Point;
use coreline_scenarios::{ALL, simulate};
use coreline_sim::claim::{self, Band};
use coreline_sim::{Arbitration, Machine, Overlap, Spec};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::progress::progress;
pub(crate) use rows::Set;
use rows::{ROWS, Row};

const SCHEMA: &str = "coreline.validate.blind/1";

/// What the head of a file says.
const KERNEL_HEADER: &str = "\
# What the simulator predicts for figures that others have published. Made by `coreline validate
# --blind COMMIT`; see README.md beside it. `seen` says what a row's author knew of its figures.
#
# `ratio` is the rate of `variant` over that of `beside`: the mean over 16 seeds at the default
# request share. `low` and `high` are the ends of the band: three request shares with 16 seeds, and
# each uncertain cost of the machine at 70 % and 130 %. `widest` also varies the times that do not
# depend on the variant: it halves and doubles them. Rates are in 1/s.
";

const LINES_HEADER: &str = "\
# What the simulator predicts for operations whose figures others have published. Made by
# `coreline validate --blind COMMIT --set lines`; see lines.md beside it. `seen` says what the
# author of a row knew of its figures.
#
# `ratio` is the rate of `variant` over that of `beside`: the mean over 16 seeds at the default
# request share, under `fifo`. `low` and `high` are the ends of the whole band, under both
# arbitrations. `widest` also halves and doubles all times of the load, and also has the row's other
# loads and independent accesses that overlap. Rates are in 1/s.
";

/// Time that does not depend on the variant, in percent: usual, and the ends of what is thinkable.
const RESTS: [u64; 3] = [100, 50, 200];

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Blind {
    schema: String,
    /// The commit of the engine and of the machine files that say so.
    engine: String,
    #[serde(rename = "row")]
    rows: Vec<Curve>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Curve {
    name: String,
    what: String,
    machine: String,
    program: String,
    variant: String,
    beside: String,
    seen: String,
    decides: String,
    #[serde(rename = "prediction")]
    predictions: Vec<Ratio>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratio {
    at: u64,
    ratio: f64,
    low: f64,
    high: f64,
    widest: [f64; 2],
    rate: f64,
    beside_rate: f64,
}

impl Blind {
    /// The present predictions of the code; `engine` is the file's name for it. Of rows with one of
    /// these names, or of all rows of a set.
    pub(crate) fn now(engine: &str, set: Set, names: &[String]) -> Result<Blind, Error> {
        let is_chosen = |row: &&Row| {
            let is_named = names.iter().any(|name| name == row.name);
            is_named || names.is_empty() && row.set == set
        };
        let chosen = ROWS.iter().filter(is_chosen);
        let rows = chosen.map(|row| row.curve(0..=u64::MAX)).collect::<Result<_, _>>()?;
        Ok(Blind { schema: SCHEMA.to_owned(), engine: engine.to_owned(), rows })
    }

    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name)
    }

    pub(crate) fn text(&self) -> String {
        let is_of_lines =
            |row: &Curve| ROWS.iter().any(|it| it.name == row.name && it.set == Set::Lines);
        let header = if self.rows.iter().any(is_of_lines) { LINES_HEADER } else { KERNEL_HEADER };
        let mut text = header.to_owned();
        // Writing to a string cannot fail, here and below.
        let _ = write!(text, "schema = {:?}\nengine = {:?}\n", self.schema, self.engine);
        for row in &self.rows {
            text += "\n[[row]]\n";
            for (key, value) in [
                ("name", &row.name),
                ("what", &row.what),
                ("machine", &row.machine),
                ("program", &row.program),
                ("variant", &row.variant),
                ("beside", &row.beside),
                ("seen", &row.seen),
                ("decides", &row.decides),
            ] {
                let _ = writeln!(text, "{key} = {value:?}");
            }
            text += "prediction = [\n";
            for Ratio { at, ratio, low, high, widest, rate, beside_rate } in &row.predictions {
                let _ = writeln!(
                    text,
                    "    {{ at = {at}, ratio = {ratio:?}, low = {low:?}, high = {high:?}, \
                     widest = {widest:?}, rate = {rate:?}, beside_rate = {beside_rate:?} }},"
                );
            }
            text += "]\n";
        }
        text
    }
}

impl Row {
    fn point(&self, at: u64, rest: u64, load: &str, variant: &str) -> Point {
        let program = self.program.replace("{at}", &at.to_string()).replace("{load}", load);
        let program = program.replace("{rest}", &rest.to_string()).replace("{variant}", variant);
        let point = ALL.iter().find_map(|scenario| Point::parse(scenario, &program));
        point.unwrap_or_else(|| panic!("{program} is not a program, and a test reads all of them"))
    }

    /// At those numbers of threads.
    fn curve(&self, at: RangeInclusive<u64>) -> Result<Curve, Error> {
        let spec = Spec::preset(self.machine).map_err(Error::Machine)?;
        let at: Vec<u64> = self.at.iter().copied().filter(|it| at.contains(it)).collect();
        let predictions =
            at.into_iter().map(|at| self.ratio(&spec, at)).collect::<Result<_, _>>()?;
        let [name, what, machine, program, variant, beside, seen, decides] = [
            self.name,
            self.what,
            self.machine,
            self.program,
            self.variant,
            self.beside,
            self.seen,
            self.decides,
        ]
        .map(str::to_owned);
        Ok(Curve { name, what, machine, program, variant, beside, seen, decides, predictions })
    }

    fn ratio(&self, spec: &Spec, at: u64) -> Result<Ratio, Error> {
        let whole = Band::whole(spec, 1);
        let band = match self.set {
            // The committed file is from when bands had this arbitration alone. The page
            // `docs/validate/blind/published.md` has both.
            Set::Kernel => whole.under(Arbitration::Fifo),
            Set::Lines => whole,
        };
        let [rates, beside] = self.rates(&band, at, RESTS[0], self.loads[0])?;
        let ratios = quotients(&rates, &beside);
        let usual: Vec<usize> =
            (0..ratios.len()).filter(|&index| is_usual(&band.points()[index])).collect();
        let mean = |of: &[f64]| usual.iter().map(|&it| of[it]).sum::<f64>() / usual.len() as f64;
        let [low, high] = ends(&ratios);
        let mut all = ratios.clone();
        for (band, rest, load) in self.wider(spec) {
            let [rates, beside] = self.rates(&band, at, rest, load)?;
            all.extend(quotients(&rates, &beside));
        }
        Ok(Ratio {
            at,
            ratio: round(mean(&ratios)),
            low: round(low),
            high: round(high),
            widest: ends(&all).map(round),
            rate: mean(&rates).round(),
            beside_rate: mean(&beside).round(),
        })
    }

    /// What the widest band has beside the band: a band, the times in percent, and the loads.
    fn wider(&self, spec: &Spec) -> Vec<(Band, u64, [&'static str; 2])> {
        let quick = Band::quick(spec, 1);
        let arbitrations: &[Arbitration] = match self.set {
            Set::Kernel => &[Arbitration::Fifo],
            Set::Lines => &Arbitration::ALL,
        };
        let mut all = Vec::new();
        for band in arbitrations.iter().map(|it| quick.clone().under(*it)) {
            all.extend(RESTS[1..].iter().map(|rest| (band.clone(), *rest, self.loads[0])));
            all.extend(self.loads[1..].iter().map(|load| (band.clone(), RESTS[0], *load)));
            if self.set == Set::Lines {
                let overlapping = band.overlapping(Overlap::Independent);
                all.push((overlapping, RESTS[0], self.loads[0]));
            }
        }
        all
    }

    /// Rates of the variant and of the one beside it, at each point of the band.
    fn rates(
        &self,
        band: &Band,
        at: u64,
        rest: u64,
        loads: [&str; 2],
    ) -> Result<[Vec<f64>; 2], Error> {
        let points = [(loads[0], self.variant), (loads[1], self.beside)]
            .map(|(load, variant)| self.point(at, rest, load, variant));
        let name = format!("{} at {at}", self.name);
        let bar = progress(&name, points.len() * band.points().len());
        let mut done = band.run_all(&points, rate, || bar.inc(1))?;
        bar.finish();
        Ok([done.remove(0), done.remove(0)])
    }
}

/// The rate of a program on a machine.
fn rate(program: &Point, machine: Machine) -> Result<f64, Error> {
    let numbers = simulate(machine.spec(), &machine.replay_line(), program, None)?.numbers;
    Ok(numbers[0])
}

/// Whether a point is the default one, but for the seed.
fn is_usual(point: &claim::Point) -> bool {
    let is_default = point.request_percent == Machine::REQUEST_PERCENT;
    is_default && point.cost.is_none() && point.arbitration == Arbitration::default()
}

fn quotients(rates: &[f64], beside: &[f64]) -> Vec<f64> {
    rates.iter().zip(beside).map(|(rate, beside)| rate / beside).collect()
}

fn ends(of: &[f64]) -> [f64; 2] {
    [of.iter().copied().fold(f64::MAX, f64::min), of.iter().copied().fold(0.0, f64::max)]
}

/// To thousandths.
fn round(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 1000.0
}
