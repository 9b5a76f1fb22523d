//! Tests of the committed files.

use std::collections::BTreeMap;

use super::*;
use crate::run::verdict::{Judged, Verdict, judge, said};
use coreline_scenarios::metric::FigureKind;

fn text(name: &str) -> String {
    std::fs::read_to_string(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The committed files: the rows of each set.
const FILES: [(Set, &str); 2] =
    [(Set::Kernel, "blind.predictions.toml"), (Set::Lines, "blind.lines.toml")];

fn committed(set: Set) -> Blind {
    let (_, name) = FILES.iter().find(|it| it.0 == set).unwrap();
    toml::from_str(&text(name)).unwrap()
}

/// Recomputed at few threads only: the whole takes minutes of an optimised build, and
/// docs/validate/blind/README.md says how to compare it.
#[test]
fn the_file_is_what_the_code_says_where_threads_are_few() {
    for curve in committed(Set::Kernel).rows {
        let row = ROWS.iter().find(|it| it.name == curve.name).unwrap();
        let few = curve.predictions.iter().filter(|it| it.at <= FEW).cloned().collect();
        let now = row.curve(1..=FEW).unwrap();
        assert!(!now.predictions.is_empty());
        assert_eq!(now, Curve { predictions: few, ..curve });
    }
}

const FEW: u64 = 2;

/// At the default point only: the whole band takes minutes of an optimised build.
#[test]
fn the_rates_of_lines_are_what_the_code_says_for_the_fewest_threads() {
    for curve in committed(Set::Lines).rows {
        let row = ROWS.iter().find(|it| it.name == curve.name).unwrap();
        let spec = Spec::preset(row.machine).unwrap();
        let few = &curve.predictions[0];
        let mean = |load: &str, variant: &str| {
            let program = row.point(few.at, RESTS[0], load, variant);
            let of_seed = |seed| {
                let band = Band::quick(&spec, seed);
                rate(&program, band.machine(&band.points()[0], "")).unwrap()
            };
            ((1..=Band::SEEDS).map(of_seed).sum::<f64>() / Band::SEEDS as f64).round()
        };
        let [[load, beside], ..] = row.loads else { panic!("{} has no load", row.name) };
        let rates = [mean(load, row.variant), mean(beside, row.beside)];
        assert_eq!(rates, [few.rate, few.beside_rate], "{}", row.name);
    }
}

#[test]
fn a_file_says_all_there_is_and_each_ratio_lies_in_its_bands() {
    for (set, name) in FILES {
        let committed = committed(set);
        assert_eq!(committed.text(), text(name));
        assert!(committed.engine.len() >= 7, "{:?} is no commit", committed.engine);
        let names: Vec<&str> = committed.rows.iter().map(|it| &*it.name).collect();
        let all = ROWS.iter().filter(|row| row.set == set).map(|row| row.name);
        assert_eq!(names, all.collect::<Vec<_>>());
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
}

/// The tables of the page, and the points whose hits exclude that nothing changes.
#[test]
fn the_page_of_lines_has_the_ratios_of_the_file() {
    let page = include_str!("../../../../../docs/validate/blind/lines.md");
    let mut decisive = Vec::new();
    for curve in committed(Set::Lines).rows {
        let row = |it: &Ratio| {
            let Ratio { at, ratio, low, high, widest: [least, most], .. } = it;
            let ratio = format!("{ratio:.2} ({low:.2} to {high:.2}; {least:.2} to {most:.2})");
            format!("| {} | {at} | {ratio} |", curve.name)
        };
        let rows: Vec<String> = curve.predictions.iter().map(row).collect();
        let table = rows.join("\n");
        assert!(page.contains(&table), "the rows are\n{table}");
        let excludes_one = |it: &&Ratio| it.low / 1.5 > 1.0 || it.high * 1.5 < 1.0;
        let excluding = curve.predictions.iter().filter(excludes_one);
        decisive.extend(excluding.map(|it| format!("`{}` at {}", curve.name, it.at)));
    }
    let [first, second, third] = &decisive[..] else { panic!("they are {decisive:?}") };
    let says = format!(
        "Only three points exclude 1.0 by this rule: {first} threads, {second} and {third}."
    );
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(&says), "{says}");
}

#[test]
fn what_is_printed_is_what_a_file_has() {
    for (set, name) in FILES {
        let printed = serde_json::to_value(committed(set)).unwrap();
        assert_eq!(printed, toml::from_str::<serde_json::Value>(&text(name)).unwrap());
    }
}

#[test]
fn every_program_is_one_that_its_scenario_reads() {
    for row in ROWS {
        for (at, rest) in row.at.iter().flat_map(|at| RESTS.map(|rest| (*at, rest))) {
            for [load, beside] in row.loads {
                for (load, variant) in [(load, row.variant), (beside, row.beside)] {
                    let program = row.point(at, rest, load, variant).to_string();
                    assert!(program.ends_with(row.program.rsplit(' ').next().unwrap()));
                }
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
    let page = include_str!("../../../../../docs/validate/blind/published.md");
    let (mut table, mut counts) = (String::new(), BTreeMap::new());
    let committed = committed(Set::Kernel);
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
