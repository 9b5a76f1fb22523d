//! Two results beside each other: what counts as a change.

use super::*;

fn row(points: &[f64]) -> Row {
    Row {
        config: "2-CPU".to_owned(),
        params: BTreeMap::from([("threads".to_owned(), 2.into())]),
        variant: "near".to_owned(),
        metric: "op_ns".to_owned(),
        unit: "ns".to_owned(),
        better: Better::Lower,
        derived: false,
        value: points.first().copied(),
        points: points.iter().copied().map(Some).collect(),
        disturbed: false,
    }
}

fn run(rows: Vec<Row>, spans: &str) -> Run {
    Run {
        program: serde_json::json!({ "version": "0.1.0", "commit": null }),
        scenario: "lockscale".to_owned(),
        world: "native".to_owned(),
        machine_digest: Value::Null,
        here: serde_json::json!({ "processor": "x", "kernel": "y", "cpus": "0-1", "day": "z" }),
        quick: true,
        spans: spans.to_owned(),
        seed: 1,
        seeds: 1,
        arbitrations: first_come(),
        overlap: None,
        rows,
    }
}

/// Results of native runs that scatter by 8 %, in an order that looks random.
fn runs(count: u64, shift: u64, factor: f64) -> Vec<Run> {
    let scattered = |at: u64| (at * 7919 + shift * 104_729) % 101;
    let value = |at| factor * (100.0 + 0.08 * scattered(at) as f64);
    (0..count).map(|at| run(vec![row(&[value(at)])], "samples")).collect()
}

#[test]
fn chance_is_that_of_counting_all_orders() {
    // Of the 20 orders of three and three, one has each statistic at its end.
    assert!((by_chance(3, 3, 0) - 0.1).abs() < 1e-12);
    assert!((by_chance(3, 3, 1) - 0.2).abs() < 1e-12);
    // 2 over 10 of 20.
    assert!((by_chance(10, 10, 0) - 2.0 / 184_756.0).abs() < 1e-12);
    assert!((at_best(10, 10) - by_chance(10, 10, 0)).abs() < 1e-12);
    assert!((at_best(3, 7) - by_chance(3, 7, 0)).abs() < 1e-12);
    assert!((by_chance(4, 6, 24) - 1.0).abs() < 1e-12);
    assert_eq!(orders(&[1.0, 2.0, 3.0], &[2.0, 4.0, 5.0]), (2, 8));
}

#[test]
fn a_planted_change_is_found_and_repeats_are_none() {
    let changed = |count, shift, factor| {
        let found = outcome(runs(count, 1, 1.0), runs(count, shift, factor), 5.0).unwrap();
        assert_eq!(found.needed, Some(4));
        (found.worse, found.better, found.untested)
    };
    assert_eq!([changed(5, 2, 1.1), changed(5, 2, 0.9)], [(1, 0, 0), (0, 1, 0)]);
    assert_eq!(changed(10, 2, 1.04), (0, 0, 0), "it is certain and small");
    for shift in 0..100 {
        assert_eq!(changed(10, shift, 1.0), (0, 0, 0), "{shift}");
    }
    assert_eq!(changed(3, 2, 2.0), (0, 0, 1), "too few results");
}

#[test]
fn a_disturbed_figure_is_no_evidence_of_a_change() {
    let disturbed = |mut runs: Vec<Run>, count: usize| {
        runs[..count].iter_mut().for_each(|run| run.rows[0].disturbed = true);
        runs
    };
    let found = |before, after| {
        let found = outcome(before, after, 5.0).unwrap();
        (found.worse, found.untested, found.disturbed)
    };
    assert_eq!(found(runs(5, 1, 1.0), runs(5, 2, 2.0)), (1, 0, 0));
    assert_eq!(found(runs(5, 1, 1.0), disturbed(runs(5, 2, 2.0), 5)), (0, 1, 5));
    assert_eq!(found(disturbed(runs(6, 1, 1.0), 1), runs(5, 2, 2.0)), (1, 0, 1), "enough");
    let found = outcome(runs(5, 1, 1.0), disturbed(runs(5, 2, 2.0), 1), 5.0).unwrap();
    let mut text = Vec::new();
    found.show(Form::plain(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap().replace('\n', " ");
    assert!(text.contains("1 value is left out because other programs used the CPUs"), "{text}");
}

#[test]
fn what_one_side_lacks_is_counted_and_what_a_ratio_says_is_left_out() {
    let other = Row { metric: "other".to_owned(), ..row(&[1.0]) };
    let ratio = Row { derived: true, metric: "over".to_owned(), ..row(&[1.0]) };
    let mut after = runs(5, 2, 1.1);
    after[0].rows = vec![other.clone(), other, ratio.clone()];
    let mut before = runs(5, 1, 1.0);
    before[0].rows.push(ratio);
    let found = outcome(before, after, 5.0).unwrap();
    let counts = (found.compared, found.unmatched, found.untested, found.worse);
    assert_eq!(counts, (1, 2, 0, 1), "five beside four are enough for one figure");
}

#[test]
fn a_simulated_figure_changes_if_it_moves_at_every_point() {
    let of = |points: &[f64]| vec![run(vec![row(points)], "request-shares")];
    let worse = |points: &[f64]| outcome(of(&[100.0, 90.0, 110.0]), of(points), 5.0).unwrap().worse;
    assert_eq!(worse(&[110.0, 95.0, 120.0]), 1);
    assert_eq!(worse(&[110.0, 89.0, 120.0]), 0, "one way here, another there");
    assert_eq!(worse(&[101.0, 91.0, 111.0]), 0, "too little");
    assert_eq!(worse(&[100.0, 90.0, 110.0]), 0, "the same");
}

#[test]
fn what_is_worse_depends_on_the_figure_and_nothing_is_lost() {
    let (slow, fast) = (row(&[110.0]), row(&[100.0]));
    let other = Row { metric: "share".to_owned(), ..fast.clone() };
    let higher =
        |row: &Row| Row { metric: "turns".to_owned(), better: Better::Higher, ..row.clone() };
    let before = run(vec![fast.clone(), higher(&fast), other], "whole-band");
    let mut after = run(vec![higher(&slow), slow], "whole-band");
    after.program["commit"] = "abc".into();
    let found = outcome(vec![before], vec![after], 5.0).unwrap();
    assert_eq!((found.compared, found.unmatched, found.untested), (2, 1, 0));
    assert_eq!((found.worse, found.better), (1, 1));
    assert_eq!(found.differences, ["commit: null and abc"]);
    let mut text = Vec::new();
    found.show(Form::plain(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let first = "lockscale on native: 1 figure is worse, 1 figure is better\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let [one, other] = ["samples", "whole-band"].map(|spans| run(Vec::new(), spans));
    let elsewhere = Run { world: "host-2c".to_owned(), ..one.clone() };
    let refused = |before: &[&Run], after: &Run| {
        let before = before.iter().map(|run| (*run).clone()).collect();
        match outcome(before, vec![after.clone()], 5.0) {
            Err(Error::NotComparable { what, .. }) => what,
            Err(Error::Repeated { .. }) => "repeated",
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(&[&one], &other), "span");
    assert_eq!(refused(&[&one, &elsewhere], &one), "world");
    let seeded = Run { seed: 2, ..other.clone() };
    assert_eq!(refused(&[&other], &seeded), "seed");
    let nearest = Run { arbitrations: vec!["nearest".to_owned()], ..other.clone() };
    assert_eq!(refused(&[&other], &nearest), "arbitration");
    let overlapped = Run { overlap: Some("independent".to_owned()), ..other.clone() };
    assert_eq!(refused(&[&other], &overlapped), "overlap");
    assert_eq!(refused(&[&other, &other], &other), "repeated");
}
