//! `switchstorm` and `shootdown`: what their results say.

use serde_json::Value;

use crate::scenario::{measured, rows, value};
use crate::{STORM, is_testable, json, output};

const MACHINE: &str = "ivybridge-ex-4s";

fn quick(scenario: &str, more: &[&str]) -> Value {
    json(&[&["run", scenario, "--world", MACHINE, "--quick", "--json"], more].concat())
}

#[test]
fn the_published_storm_stands_beside_ours_with_reasons() {
    let result = quick("switchstorm", &[]);
    let all = result["rows"].as_array().unwrap();
    for row in all {
        assert_eq!(row["config"], "120-thread/4-L3");
        let params = serde_json::json!(
            {"wake": "barrier", "period_us": 25, "path_ns": 1500, "flush_us": 1000}
        );
        assert_eq!(row["params"], params);
        assert_eq!(row["published"].is_number(), row["verdict"] != "none", "{row}");
        assert!(
            ["reached", "none"].contains(&row["verdict"].as_str().unwrap())
                || row["why"].is_string()
        );
    }
    let published = |metric, variant| {
        let row = rows(&result, metric, variant)[0];
        let source = row["source"].as_str().unwrap();
        assert!(source.contains("van Riel 2013: ") && source.contains("https://"), "{row}");
        row["published"].as_f64().unwrap()
    };
    assert_eq!(published("sampled_cycles", "always-set"), 12_500.0);
    assert_eq!(published("sampled_cycles", "test-first"), 600.0);
    assert_eq!(published("switch_share", "always-set"), 24.0);
    assert_eq!(published("switch_share", "test-first"), 5.5);
    assert_eq!(published("line_rank", "test-first"), 84.0);
    assert_eq!(published("line_miss_share", "test-first"), 0.3);
    assert_eq!(published("throughput", "test-first"), 1.08);
    assert_eq!(published("peak_throughput", "test-first"), 1.15);
    let ns = |variant| value(rows(&result, "op_ns", variant)[0]);
    let cycles = |variant| value(rows(&result, "op_cycles", variant)[0]);
    for variant in STORM {
        assert!((cycles(variant) / (2.8 * ns(variant)) - 1.0).abs() < 0.2, "{variant}");
    }
    assert!(ns("always-set") >= 10.0 * ns("test-first"));
}

#[test]
fn switches_take_less_of_a_longer_period() {
    let result = quick(
        "switchstorm",
        &["--config", "15-core/1-L3", "--period", "10", "--period", "100", "--variant", "lazy"],
    );
    let shares: Vec<f64> =
        rows(&result, "switch_share", "lazy").iter().map(|row| value(row)).collect();
    // Two switches of 1.5 us beside 10, and beside 100.
    assert_eq!(shares.len(), 2);
    assert!((22.0..25.0).contains(&shares[0]) && (2.7..3.2).contains(&shares[1]), "{shares:?}");
}

#[test]
fn lazy_updates_pay_for_the_contexts_that_are_present() {
    let result = quick("shootdown", &["--present", "1", "--present", "120"]);
    let ratio = |metric| {
        let rows = rows(&result, metric, "lazy");
        assert_eq!(rows.len(), 2);
        rows.iter().map(|row| value(row)).collect::<Vec<_>>()
    };
    for metric in ["shootdown_over_eager", "update_over_eager"] {
        let ratio = ratio(metric);
        assert!(ratio[0] < 0.5 && (0.95..1.05).contains(&ratio[1]), "{metric}: {ratio:?}");
    }
}

#[test]
fn a_replay_gives_the_figures_of_the_run() {
    let narrow = ["--config", "15-core/1-L3", "--seed", "7", "--variant", "lazy"];
    let storm = quick("switchstorm", &[&narrow[..], &["--flush", "0"]].concat());
    let shots = quick("shootdown", &[&narrow[..], &["--present", "8"]].concat());
    for (program, figures) in [
        (
            "switchstorm config=15-core/1-L3 wake=barrier period=25 path=1500 flush=0 \
             variant=lazy rounds=40",
            vec![(" ns per operation", value(rows(&storm, "op_ns", "lazy")[0]))],
        ),
        (
            "shootdown config=15-core/1-L3 present=8 variant=lazy updates=6",
            vec![
                (" ns per shootdown", value(rows(&shots, "shootdown_ns", "lazy")[0])),
                (" ns per update", value(rows(&shots, "update_ns", "lazy")[0])),
            ],
        ),
    ] {
        let line = format!(
            "coreline-sim/1 machine={MACHINE} seed=7000 request=30 faults=none program={program}"
        );
        let told = String::from_utf8(output(&["replay", &line]).stdout).unwrap();
        let told = told.lines().last().unwrap().strip_prefix("the run succeeded: ").unwrap();
        for (told, (unit, figure)) in told.split(", ").zip(figures) {
            let replayed: f64 = told.strip_suffix(unit).unwrap().parse().unwrap();
            assert!((replayed - figure).abs() < 0.1, "{program}: {replayed} {figure}");
        }
    }
}

#[test]
fn natively_few_cpus_under_one_cache_say_nothing() {
    for scenario in ["switchstorm", "shootdown"] {
        let result = json(&["run", scenario, "--quick", "--json"]);
        let rows = result["rows"].as_array().unwrap();
        assert!(!rows.is_empty());
        for row in rows {
            let is_zero = measured(row) <= 0.0;
            // One thread alone wakes at one time.
            let is_alone = row["config"].as_str().unwrap().starts_with("1-core");
            let may_be_zero =
                row["metric"] == "op_ns" || is_alone && row["metric"] == "wake_spread_ns";
            assert!(!is_zero || may_be_zero, "{row}");
            let testable = is_testable(row);
            assert_eq!(row["verdict"], if testable { "none" } else { "not-testable" }, "{row}");
            assert_eq!(row["why"].is_string(), !testable, "{row}");
        }
    }
}
