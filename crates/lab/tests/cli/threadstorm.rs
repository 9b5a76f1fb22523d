//! `threadstorm`: what its result says.

use serde_json::Value;

use crate::scenario::{measured, rows, value};
use crate::{MACHINE, is_testable, json, output};

const POLICIES: [&str; 4] = ["first-fit", "recent", "owned", "clustered"];

fn quick(more: &[&str]) -> Value {
    json(&[&["run", "threadstorm", "--world", MACHINE, "--quick", "--json"], more].concat())
}

#[test]
fn the_published_rates_stand_beside_ours_at_their_pace_with_reasons() {
    let mut result = quick(&[]);
    for row in result["rows"].as_array().unwrap() {
        assert_eq!(row["config"], "384-thread/24-L3");
        let (place, rest) = (&row["params"]["place"], &row["params"]["rest_us"]);
        let params = serde_json::json!(
            {"pools": 8, "threads": 8, "place": place, "rest_us": rest, "path_ns": 1500}
        );
        assert_eq!(row["params"], params);
        assert!(*rest == 507 || row["published"].is_null(), "{row}");
        assert_eq!(row["published"].is_number(), row["verdict"] != "none", "{row}");
        // What is declared decides it, and the machine is not known: never more than a direction.
        assert_ne!(row["verdict"], "reached", "{row}");
        assert_eq!(row["why"].is_string(), row["published"].is_number(), "{row}");
    }
    // No policy changes the published pace: what is published is not there, and not its opposite.
    let owned = rows(&result, "creations_over_recent", "owned");
    let owned = owned.iter().find(|row| row["published"].is_number()).unwrap();
    assert_eq!((&owned["verdict"], &owned["published"]), (&"no-effect".into(), &1.35.into()));
    let at_pace = |row: &Value| row["params"]["rest_us"] == 507;
    result["rows"].as_array_mut().unwrap().retain(at_pace);
    let published = |metric, variant| {
        let rows = rows(&result, metric, variant);
        let [roaming, pinned] = rows[..] else { panic!("{rows:?}") };
        assert_eq!(
            (&roaming["params"]["place"], &pinned["params"]["place"]),
            (&"roaming".into(), &"pinned".into())
        );
        assert!(pinned["published"].is_null(), "{pinned}");
        roaming["published"].as_f64()
    };
    assert_eq!(published("creations", "recent"), Some(23_666.0));
    assert_eq!(published("creations", "owned"), Some(32_025.0));
    assert_eq!(published("creations_over_recent", "owned"), Some(1.35));
    assert_eq!(published("creations", "none"), None);
    for variant in POLICIES {
        for row in rows(&result, "ids_per_thread_ns", variant) {
            assert!(value(row) > 500.0, "{row}");
        }
        assert_eq!(rows(&result, "ids_migrate_ns", variant).len(), 1, "pinned threads stay");
        assert_eq!(rows(&result, "transfers_per_switch", variant).len(), 2);
    }
    assert!(rows(&result, "ids_per_thread_ns", "none").is_empty());
}

#[test]
fn a_part_of_the_machine_has_nothing_beside_it_and_more_rest_is_fewer_threads() {
    let narrow = |rest| {
        let result = quick(&[
            "--config",
            "8-core/1-L3",
            "--size",
            "2x4",
            "--place",
            "pinned",
            "--variant",
            "recent",
            "--rest",
            rest,
        ]);
        assert!(result["rows"].as_array().unwrap().iter().all(|row| row["published"].is_null()));
        value(rows(&result, "creations", "recent")[0])
    };
    let (short, long) = (narrow("30"), narrow("300"));
    // Two pools, each of which creates a thread in two thirds of that at best.
    assert!(long < 2.0 * 1e6 / 200.0 && short < 2.0 * 1e6 / 20.0, "{short} {long}");
    assert!(short > 5.0 * long, "{short} {long}");
}

#[test]
fn a_replay_gives_the_figures_of_the_run() {
    let result = quick(&["--size", "4x4", "--place", "roaming", "--variant", "owned"]);
    let line = format!(
        "coreline-sim/1 machine={MACHINE} seed=1000 request=30 faults=none program=threadstorm \
         config=384-thread/24-L3 size=4x4 place=roaming rest=30 path=1500 variant=owned rounds=16"
    );
    let told = String::from_utf8(output(&["replay", &line]).stdout).unwrap();
    let told = told.lines().last().unwrap().strip_prefix("the run succeeded: ").unwrap();
    let mut told = told.split(", ");
    for metric in ["creations", "ids_per_thread_ns", "ids_per_switch_ns"] {
        let mut words = told.next().unwrap().split(' ');
        assert_eq!(words.next(), Some(metric));
        let replayed: f64 = words.next().unwrap().parse().unwrap();
        let figure = value(rows(&result, metric, "owned")[0]);
        assert!((replayed - figure).abs() < 1.0, "{metric}: {replayed} {figure}");
    }
}

#[test]
fn natively_this_kernels_own_threads_stand_beside_ours() {
    let result = json(&["run", "threadstorm", "--quick", "--json", "--size", "2x4"]);
    for variant in ["none", "first-fit", "recent", "owned", "clustered", "kernel-cid"] {
        let rates = rows(&result, "creations", variant);
        assert_eq!(rates.len(), 2, "{variant}");
        for row in rates {
            assert!(measured(row) > 0.0, "{row}");
            let testable = is_testable(row);
            assert_eq!(row["verdict"], if testable { "none" } else { "not-testable" }, "{row}");
        }
    }
    assert!(rows(&result, "ids_per_thread_ns", "kernel-cid").is_empty());
}
