//! Predictions for figures that are published elsewhere: ratios of two variants of a scenario, on
//! the machine for which the figures were published.
//!
//! `coreline validate --blind COMMIT` writes the file, which is then committed and compared with
//! the figures of other authors. Each row says what its author knew of these figures.

use core::ops::RangeInclusive;
use std::fmt::Write;

use coreline_scenarios::point::Point;
use coreline_scenarios::{ALL, simulate};
use coreline_sim::claim::Band;
use coreline_sim::{Arbitration, Machine, Spec};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::progress::progress;

const SCHEMA: &str = "coreline.validate.blind/1";

const HEADER: &str = "\
# What the simulator says of figures that are published elsewhere. Made by `coreline validate
# --blind COMMIT`; see README.md beside it. `seen` says what the author of a row knew of figures.
#
# `ratio` is the rate of `variant` over that of `beside`: the mean over 16 seeds at the usual share
# of requests. `low` and `high` are the ends of the band: three request shares with 16 seeds, and
# each uncertain cost of the machine at 70 % and 130 %. `widest` has also what does not depend on
# the variant at half and at twice its time. Rates are in 1/s.
";

/// A curve: what is predicted at each number of threads.
struct Row {
    name: &'static str,
    what: &'static str,
    machine: &'static str,
    /// `{at}`, `{rest}` and `{variant}` are filled in.
    program: &'static str,
    variant: &'static str,
    beside: &'static str,
    at: &'static [u64],
    seen: &'static str,
    decides: &'static str,
}

const NOT_BLIND: &str = "not blind: the author had read figures of this row elsewhere, before the \
                         model was made, and remembers them in part; no cost and no parameter was \
                         set or changed by them";

const OWN_NOTES: &str = "not blind: figures of this row are in the research notes of this project, \
                         which the author had to read first; no cost and no parameter was set or \
                         changed by them";

const ROWS: &[Row] = &[
    Row {
        name: "a",
        what: "context_switch1_threads of will-it-scale: a slot for each CPU over reference counts",
        machine: "epyc-9654-2s",
        program: "lazymm config=384-thread/24-L3 tasks={at} rest={rest} variant={variant} \
                  window=4000",
        variant: "slots",
        beside: "refcounted",
        at: &[1, 12, 24, 48, 96, 192, 384, 768],
        seen: NOT_BLIND,
        decides: "how long a round of a pair takes without the count, beside how many additions to \
                  one line the machine serves; from two pairs to a core on, that no CPU idles",
    },
    Row {
        name: "b",
        what: "context_switch1_threads of will-it-scale: shootdown over reference counts",
        machine: "power8-16s",
        program: "lazymm config=1536-thread/16-L3 tasks={at} rest={rest} variant={variant} \
                  window=10000",
        variant: "shootdown",
        beside: "refcounted",
        at: &[1, 12, 48, 192],
        seen: OWN_NOTES,
        decides: "as a; what a line between drawers of the machine costs, which is a guess",
    },
    Row {
        name: "c-open",
        what: "open1_threads of will-it-scale: CNA over the queued spin lock",
        machine: "haswell-ex-4s",
        program: "kernlock config=144-thread/4-L3 load=open threads={at} rest={rest} \
                  variant={variant} window=12000",
        variant: "near",
        beside: "queued",
        at: C_THREADS,
        seen: OWN_NOTES,
        decides: "that with CNA the lock and the lines it guards stay on a socket; \
                  how much of a round is outside, where the credentials' count goes round",
    },
    Row {
        name: "c-lock",
        what: "lock2_threads of will-it-scale: CNA over the queued spin lock",
        machine: "haswell-ex-4s",
        program: "kernlock config=144-thread/4-L3 load=lock threads={at} rest={rest} \
                  variant={variant} window=12000",
        variant: "near",
        beside: "queued",
        at: C_THREADS,
        seen: "not quite blind: the author had read figures of such benchmarks, and does not \
               remember those of this one; no cost and no parameter was set or changed by them",
        decides: "as c-open; the lock object, which goes from its inserter to its deleter",
    },
    Row {
        name: "d-write",
        what: "a semaphore taken for writing, threads on one socket after the other: bits over \
               biases",
        machine: "ivybridge-ex-8s",
        program: "rwsem config=240-thread/8-L3 load=write threads={at} place=spread rest={rest} \
                  variant={variant} window=2000",
        variant: "bits",
        beside: "biases",
        at: D_THREADS,
        seen: NOT_BLIND,
        decides: "the addition that a writer makes in vain and takes back, which hinders others",
    },
    Row {
        name: "d-write-packed",
        what: "a semaphore taken for writing, threads on as few sockets as can be: bits over \
               biases",
        machine: "ivybridge-ex-8s",
        program: "rwsem config=240-thread/8-L3 load=write threads={at} place=packed rest={rest} \
                  variant={variant} window=2000",
        variant: "bits",
        beside: "biases",
        at: D_THREADS,
        seen: NOT_BLIND,
        decides: "as d-write",
    },
    Row {
        name: "d-read",
        what: "a semaphore taken for reading: bits over biases",
        machine: "ivybridge-ex-8s",
        program: "rwsem config=240-thread/8-L3 load=read threads={at} place=spread rest={rest} \
                  variant={variant} window=2000",
        variant: "bits",
        beside: "biases",
        at: D_THREADS,
        seen: NOT_BLIND,
        decides: "nothing: readers do the same in both, by construction",
    },
];

const C_THREADS: &[u64] = &[1, 2, 4, 8, 16, 32, 36, 72, 108, 142];
const D_THREADS: &[u64] = &[1, 2, 4, 8, 16];

/// The committed file is from when bands had this arbitration alone. The page
/// `docs/validate/blind/published.md` has both.
const ARBITRATION: Arbitration = Arbitration::Fifo;

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
    /// these names, or of all.
    pub(crate) fn now(engine: &str, names: &[String]) -> Result<Blind, Error> {
        let chosen =
            ROWS.iter().filter(|row| names.is_empty() || names.iter().any(|it| it == row.name));
        let rows = chosen.map(|row| row.curve(0..=u64::MAX)).collect::<Result<_, _>>()?;
        Ok(Blind { schema: SCHEMA.to_owned(), engine: engine.to_owned(), rows })
    }

    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = HEADER.to_owned();
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
    fn point(&self, at: u64, rest: u64, variant: &str) -> Point {
        let program = self.program.replace("{at}", &at.to_string());
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
        let band = Band::whole(spec, 1).under(ARBITRATION);
        let [rates, beside] = self.rates(&band, at, RESTS[0])?;
        let ratios = quotients(&rates, &beside);
        let usual: Vec<usize> = (0..ratios.len())
            .filter(|&index| {
                let point = &band.points()[index];
                point.cost.is_none() && point.request_percent == Machine::REQUEST_PERCENT
            })
            .collect();
        let mean = |of: &[f64]| usual.iter().map(|&it| of[it]).sum::<f64>() / usual.len() as f64;
        let [low, high] = ends(&ratios);
        let mut all = ratios.clone();
        for rest in &RESTS[1..] {
            let [rates, beside] = self.rates(&Band::quick(spec, 1), at, *rest)?;
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

    /// Rates of the variant and of the one beside it, at each point of the band.
    fn rates(&self, band: &Band, at: u64, rest: u64) -> Result<[Vec<f64>; 2], Error> {
        let points = [self.variant, self.beside].map(|variant| self.point(at, rest, variant));
        let name = format!("{} at {at}", self.name);
        let bar = progress(&name, points.len() * band.points().len());
        let run = |program: &Point, machine: Machine| {
            let numbers = simulate(machine.spec(), &machine.replay_line(), program, None)?.numbers;
            Ok::<f64, Error>(numbers[0])
        };
        let mut done = band.run_all(&points, run, || bar.inc(1))?;
        bar.finish_and_clear();
        Ok([done.remove(0), done.remove(0)])
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::run::verdict::{Judged, Verdict, judge, said};
    use coreline_scenarios::metric::FigureKind;

    fn file() -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/blind.predictions.toml");
        std::fs::read_to_string(path).unwrap()
    }

    fn committed() -> Blind {
        toml::from_str(&file()).unwrap()
    }

    /// Recomputed at few threads only: the whole takes minutes of an optimised build, and
    /// docs/validate/blind/README.md says how to compare it.
    #[test]
    fn the_file_is_what_the_code_says_where_threads_are_few() {
        for curve in committed().rows {
            let row = ROWS.iter().find(|it| it.name == curve.name).unwrap();
            let few = curve.predictions.iter().filter(|it| it.at <= FEW).cloned().collect();
            let now = row.curve(1..=FEW).unwrap();
            assert!(!now.predictions.is_empty());
            assert_eq!(now, Curve { predictions: few, ..curve });
        }
    }

    const FEW: u64 = 2;

    #[test]
    fn the_file_says_all_there_is_and_each_ratio_lies_in_its_bands() {
        let committed = committed();
        assert_eq!(committed.text(), file());
        assert!(committed.engine.len() >= 7, "{:?} is no commit", committed.engine);
        assert!(!committed.rows.is_empty());
        for curve in &committed.rows {
            let row = ROWS.iter().find(|it| it.name == curve.name).unwrap();
            let at: Vec<u64> = curve.predictions.iter().map(|it| it.at).collect();
            assert_eq!(at, row.at);
            for Ratio { at, ratio, low, high, widest: [least, most], .. } in &curve.predictions {
                assert!(0.0 < *least && least <= low && low <= ratio, "{} {at}", row.name);
                assert!(ratio <= high && high <= most, "{} {at}", row.name);
            }
        }
    }

    #[test]
    fn what_is_printed_is_what_the_file_has() {
        let printed = serde_json::to_value(committed()).unwrap();
        assert_eq!(printed, toml::from_str::<serde_json::Value>(&file()).unwrap());
    }

    #[test]
    fn every_program_is_one_that_its_scenario_reads() {
        for row in ROWS {
            for (at, rest) in row.at.iter().flat_map(|at| RESTS.map(|rest| (*at, rest))) {
                for variant in [row.variant, row.beside] {
                    let program = row.point(at, rest, variant).to_string();
                    assert!(program.ends_with(row.program.rsplit(' ').next().unwrap()));
                }
            }
        }
    }

    /// The published values of a row, at each number of threads: the rate of `variant` over that of
    /// `beside`. Sources are on the page.
    const PUBLISHED: &[(&str, &[(u64, f64)])] = &[
        (
            "a",
            &[
                (1, 0.998),
                (12, 1.008),
                (24, 1.03),
                (48, 1.12),
                (96, 1.21),
                (192, 1.28),
                (384, 1.04),
                (768, 0.994),
            ],
        ),
        (
            "c-open",
            &[
                (1, 0.513 / 0.498),
                (8, 1.687 / 1.667),
                (16, 1.716 / 1.785),
                (32, 1.738),
                (72, 1.651 / 0.823),
                (142, 1.723 / 0.787),
            ],
        ),
        ("c-lock", &[(8, 4.125 / 4.285), (32, 3.999 / 2.450), (142, 3.894 / 1.806)]),
        ("d-write", D_WRITE),
        ("d-write-packed", D_WRITE),
        (
            "d-read",
            &[
                (1, 31283.0 / 31341.0),
                (2, 17659.0 / 16457.0),
                (4, 20233.0 / 15823.0),
                (8, 17140.0 / 14212.0),
                (16, 24607.0 / 25240.0),
            ],
        ),
    ];

    /// The source does not say where threads ran, so two rows have these figures.
    const D_WRITE: &[(u64, f64)] = &[
        (1, 31055.0 / 30659.0),
        (2, 9884.0 / 8909.0),
        (4, 8933.0 / 9028.0),
        (8, 7233.0 / 8410.0),
        (16, 7479.0 / 8217.0),
    ];

    /// By the rule of all verdicts.
    fn judged(ratio: f64, low: f64, high: f64, published: f64) -> Judged {
        judge(FigureKind::ContendedRatio, ratio, (low, high), published, false)
    }

    /// Whether something happens: where nothing does, a null model that always says 1 is right, and
    /// a prediction of 1 could not have failed.
    fn could_fail(published: f64) -> bool {
        judged(published, published, published, published).verdict != Verdict::NoEffect
    }

    #[test]
    fn the_page_of_published_figures_has_the_verdicts_of_the_rule() {
        let page = include_str!("../../../../docs/validate/blind/published.md");
        let (mut table, mut counts) = (String::new(), BTreeMap::new());
        let committed = committed();
        for (name, points) in PUBLISHED {
            let curve = committed.rows.iter().find(|it| it.name == *name).unwrap();
            for &(at, published) in *points {
                let it = curve.predictions.iter().find(|it| it.at == at).unwrap();
                let Ratio { ratio, low, high, .. } = *it;
                let Judged { verdict, times } = judged(ratio, low, high, published);
                let could_fail = could_fail(published);
                *counts.entry((could_fail, verdict)).or_insert(0) += 1;
                table += &format!(
                    "| {name} | {at} | {published:.2} | {ratio:.2} ({low:.2} to {high:.2}) | {} | \
                     {} |\n",
                    said(verdict, times),
                    if could_fail { "yes" } else { "no" },
                );
            }
        }
        assert!(page.contains(&table), "the table is\n{table}");
        let count = |could_fail: bool, verdicts: &[Verdict]| {
            let of = |it: &&Verdict| counts.get(&(could_fail, **it)).copied().unwrap_or(0);
            verdicts.iter().map(|it| of(&it)).sum::<u32>()
        };
        let all: u32 = counts.values().sum();
        let could = counts.iter().filter(|(key, _)| key.0).map(|(_, count)| count).sum::<u32>();
        let says = format!(
            "Of {all} points, {could} could have failed. Of these, {} are reached and {} more have \
             the published direction.",
            count(true, &[Verdict::Reached]),
            count(true, &[Verdict::Direction]),
        );
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(&says), "{says}");
    }
}
