//! The verb `run`: what a scenario's result says, and that it is the same in any process.

use std::io::Read;
use std::process::Stdio;
use std::sync::LazyLock;

use serde_json::Value;

use crate::{MACHINE, SIMULATED, STORM, coreline, json, keys, output};

/// The quick form with one delay: what most tests look at.
pub(crate) fn quick(more: &[&str]) -> Value {
    let arguments =
        ["run", "intermittent", "--world", MACHINE, "--quick", "--json", "--delay", "10"];
    json(&[&arguments, more].concat())
}

/// The whole quick form, which several tests look at.
static WHOLE: LazyLock<Value> =
    LazyLock::new(|| json(&["run", "intermittent", "--world", MACHINE, "--quick", "--json"]));

/// The shorter delay's rows of the whole quick form, of one metric and variant.
fn of_whole(metric: &str, variant: &str) -> Vec<&'static Value> {
    let mut rows = rows(&WHOLE, metric, variant);
    rows.retain(|row| row["params"]["delay_ms"] == 10);
    rows
}

/// The rows of one metric and variant: configuration and figures.
pub(crate) fn rows<'a>(result: &'a Value, metric: &str, variant: &str) -> Vec<&'a Value> {
    let is_it = |row: &&Value| row["metric"] == metric && row["variant"] == variant;
    result["rows"].as_array().unwrap().iter().filter(is_it).collect()
}

pub(crate) fn value(row: &Value) -> f64 {
    row["value"].as_f64().unwrap()
}

/// The least and the greatest of a row's points.
fn ends(row: &Value) -> [f64; 2] {
    let points = row["points"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap());
    points.fold([f64::MAX, f64::MIN], |[low, high], it| [low.min(it), high.max(it)])
}

/// The value of a native row, which there is also where other programs used the CPUs.
pub(crate) fn measured(row: &Value) -> f64 {
    assert_ne!(row["samples"], 0, "{row}");
    value(row)
}

/// All variants run if none is chosen.
#[test]
fn one_seed_gives_the_same_bytes_in_any_process() {
    let run = |scenario, seed, more: &[&str]| {
        let arguments = ["run", scenario, "--world", MACHINE, "--json", "--quick", "--seed", seed];
        let output = output(&[&arguments[..], more].concat());
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let small = ["--config", "8-core/1-L3"];
    let wakes = [&small[..], &["--wake", "barrier", "--wake", "independent"]].concat();
    let present = [&small[..], &["--present", "1", "--present", "8"]].concat();
    for (scenario, more, variants) in [
        ("intermittent", &small[..], &SIMULATED[..]),
        ("switchstorm", &wakes, &STORM),
        ("shootdown", &present, &["eager", "lazy"]),
        ("threadstorm", &small, &["none", "first-fit", "recent", "owned", "clustered"]),
        ("lockscale", &small, &["fifo", "near", "mcs", "cna", "reciprocating", "parking-lot"]),
        ("readscale", &small, &["none", "glibc", "std", "parking-lot", "bravo", "biased"]),
        ("filecopy", &small, &["fifo", "per-node", "near"]),
        ("execstorm", &small, &["ungrouped", "global-mutex", "ctor-dtor-no-magazine", "ctor-dtor"]),
    ] {
        let first = run(scenario, "7", more);
        assert_eq!(first, run(scenario, "7", more));
        assert_ne!(first, run(scenario, "8", more));
        assert!(first.contains("\"seed\": 7,"), "{first}");
        for variant in variants {
            assert!(first.contains(&format!("\"variant\": \"{variant}\"")), "{variant}");
        }
    }
    let narrow = ["--config", "192-core/24-L3", "--delay", "10", "--scan"];
    let [switch, tick] = ["switch", "tick"].map(|scan| [&narrow[..], &[scan]].concat());
    assert_eq!(run("intermittent", "7", &tick), run("intermittent", "7", &tick));
    assert_ne!(run("intermittent", "7", &switch), run("intermittent", "8", &switch));
}

/// Variants without published figures.
const NEW: [&str; 2] = ["owned", "clustered"];

#[test]
fn the_result_keeps_its_schema() {
    let result = &*WHOLE;
    let [program, machine] =
        [["schema", "program", "scenario", "world"], ["machine_digest", "here", "quick", "spans"]];
    let how = ["seed", "seeds", "arbitrations", "overlap", "not_modelled"];
    assert_eq!(keys(result), [&program[..], &machine, &how, &["rows"]].concat());
    assert_eq!(result["program"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&result["here"], &result["spans"]), (&Value::Null, &"point".into()));
    assert_eq!(result["machine_digest"].as_str().unwrap().len(), 16);
    assert_eq!(result["schema"], "coreline.run/2");
    assert_eq!(
        (&result["scenario"], &result["world"], &result["seed"]),
        (&"intermittent".into(), &MACHINE.into(), &1.into())
    );
    assert!(!result["not_modelled"].as_array().unwrap().is_empty());
    let rows = result["rows"].as_array().unwrap();
    // Five times, four of them also over that of cpu-id, and the speedup.
    assert_eq!(rows.len(), 4 * 2 * (5 + 4 + 1), "of four configurations and both delays");
    for row in rows {
        assert_eq!(
            keys(row),
            [
                "config",
                "params",
                "variant",
                "metric",
                "value",
                "low",
                "high",
                "points",
                "samples",
                "discarded",
                "disturbed",
                "disturbed_rounds",
                "unit",
                "derived",
                "better",
                "published",
                "source",
                "verdict",
                "times",
                "why",
                "lack"
            ]
        );
        let delay = row["params"]["delay_ms"].as_u64().unwrap();
        assert!([10, 200].contains(&delay), "{row}");
        assert_eq!(
            row["params"],
            serde_json::json!({"delay_ms": delay, "scan": "tick", "turns": "timed"})
        );
        assert!(row["low"].is_null() && row["high"].is_null(), "a quick figure is a point: {row}");
        let (value, [low, high]) = (value(row), ends(row));
        assert!(0.0 < low && low <= value && value <= high, "{row}");
        let points: Vec<f64> =
            row["points"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect();
        assert!(points.len() == 3 && points[0] == value && points.contains(&low), "{row}");
        let verdict = row["verdict"].as_str().unwrap();
        if NEW.contains(&row["variant"].as_str().unwrap()) {
            let nothing = [&row["published"], &row["source"], &row["why"]];
            assert!(nothing.into_iter().all(Value::is_null) && verdict == "none", "{row}");
            continue;
        }
        assert!(row["published"].as_f64().unwrap() > 0.0, "{row}");
        let source = row["source"].as_str().unwrap();
        assert!(source.contains("Desnoyers 2024: ") && source.contains("https://"), "{row}");
        assert!(
            ["reached", "direction", "against", "no-effect", "off", "undecided"].contains(&verdict),
            "{row}"
        );
        // A time that is near is explained as well where an assumption makes it so.
        let assumed = row["metric"] == "ns_per_burst" && row["variant"] == "first-fit";
        assert_eq!(row["why"].is_string(), verdict != "reached" || assumed, "{row}");
    }
}

#[test]
fn an_area_that_stays_with_its_cpu_costs_the_same_everywhere() {
    let times: Vec<f64> = of_whole("ns_per_burst", "cpu-id").into_iter().map(value).collect();
    assert_eq!(times.len(), 4);
    for time in &times {
        assert!((time / times[0] - 1.0).abs() < 0.1, "{times:?}");
    }
}

#[test]
fn first_fit_loses_its_areas_once_a_round_outlasts_the_expiry() {
    let ratio = |config| {
        let rows = of_whole("over_cpu_id", "first-fit");
        ends(rows.iter().find(|row| row["config"] == config).unwrap())
    };
    // A round of 8 threads takes 80 ms. Its order is random, so a thread may pause up to 150 ms and
    // lose its reference; mostly it finds its own ID again, the only one that is free. Two such
    // threads may swap, within one L3.
    let [low, high] = ratio("8-core/1-L3");
    assert!(0.99 <= low && high <= 1.5, "{low} .. {high}");
    // A round of 192 takes 1.9 s: every reference expires, and every area comes from another CPU.
    for config in ["192-core/24-L3", "384-thread/24-L3"] {
        let [low, _] = ratio(config);
        assert!(low >= 3.0, "{config}: {low}");
    }
}

#[test]
fn a_speedup_is_first_fits_time_over_that_of_recent() {
    let result =
        quick(&["--config", "192-core/24-L3", "--variant", "first-fit", "--variant", "recent"]);
    let all = result["rows"].as_array().unwrap();
    assert_eq!(all.len(), 3, "nothing over cpu-id without cpu-id");
    let time = |variant| value(rows(&result, "ns_per_burst", variant)[0]);
    let speedup = rows(&result, "speedup", "recent")[0];
    let computed = time("first-fit") / time("recent");
    assert!((value(speedup) / computed - 1.0).abs() < 0.01, "{speedup} {computed}");
    assert_eq!(speedup["published"], 7.3);
    assert!(speedup["source"].as_str().unwrap().starts_with("Desnoyers 2024: https://"));
}

#[test]
fn every_published_figure_that_is_not_reached_says_why() {
    let rows = WHOLE["rows"].as_array().unwrap();
    for row in rows.iter().filter(|row| !NEW.contains(&row["variant"].as_str().unwrap())) {
        assert!(row["published"].is_number(), "{row}");
        assert!(row["verdict"] == "reached" || row["why"].is_string(), "{row}");
        // Sleep states are in the longer delay's figures, and not in the model.
        assert!(row["params"]["delay_ms"] == 10 || row["verdict"] != "reached", "{row}");
    }
}

#[test]
fn a_choice_narrows_what_runs() {
    let result = quick(&["--config", "8-core/1-L3", "--variant", "recent"]);
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "no ratio without another variant");
    assert_eq!(
        (&rows[0]["config"], &rows[0]["variant"]),
        (&"8-core/1-L3".into(), &"recent".into())
    );
}

#[test]
fn the_whole_band_holds_the_quick_one() {
    let narrow = ["--config", "8-core/1-L3", "--variant", "first-fit"];
    let quick_row = quick(&narrow)["rows"][0].clone();
    let whole = quick(&[&narrow[..], &["--band"]].concat());
    assert_eq!(whole["arbitrations"], serde_json::json!(["fifo", "nearest"]));
    let whole_row = whole["rows"][0].clone();
    assert_eq!(quick_row["value"], whole_row["value"]);
    assert_eq!(["low", "high"].map(|end| whole_row[end].as_f64().unwrap()), ends(&whole_row));
    let ([low, high], [lowest, highest]) = (ends(&quick_row), ends(&whole_row));
    assert!(lowest < low && high < highest, "{quick_row} {whole_row}");
}

/// 24 threads want one lock: the arbitration decides which of them get it.
#[test]
fn an_arbitration_is_chosen_and_a_band_has_both() {
    let run = |more: &[&str]| {
        let program = ["run", "lockscale", "--world", "desktop-12c", "--quick", "--json"];
        let narrow = ["--threads", "24", "--variant", "ticket"];
        json(&[&program[..], &narrow, more].concat())
    };
    let [usual, first_come, nearest] =
        [&[][..], &["--arbitration", "fifo"], &["--arbitration", "nearest"]].map(run);
    assert_eq!(usual, first_come);
    assert_eq!(nearest["arbitrations"], serde_json::json!(["nearest"]));
    assert_ne!(usual["rows"], nearest["rows"]);
    let refused = output(&["run", "lockscale", "--arbitration", "nearest"]);
    assert_eq!(refused.status.code(), Some(2));
    let says = String::from_utf8(refused.stderr).unwrap();
    assert!(says.contains("this run is on the real machine"), "{says}");
}

/// A thread that builds an object of its own touches many lines that do not depend on each other.
#[test]
fn accesses_overlap_if_the_run_says_so() {
    let run = |more: &[&str]| {
        let program = ["run", "execstorm", "--world", "desktop-12c", "--quick", "--json"];
        json(&[&program[..], &["--threads", "2", "--variant", "ctor-dtor"], more].concat())
    };
    let [usual, serial, overlapped] =
        [&[][..], &["--overlap", "serial"], &["--overlap", "independent"]].map(run);
    assert_eq!(usual, serial);
    let overlap = |result: &Value| result["overlap"].clone();
    assert_eq!([&serial, &overlapped].map(overlap), ["serial", "independent"]);
    let value = |result: &Value| result["rows"][0]["value"].as_f64().unwrap();
    assert!(value(&overlapped) > value(&serial), "{serial} {overlapped}");
    let refused = output(&["run", "execstorm", "--overlap", "independent"]);
    assert_eq!(refused.status.code(), Some(2));
    let says = String::from_utf8(refused.stderr).unwrap();
    assert!(says.contains("--overlap") && says.contains("real machine"), "{says}");
}

/// It was infinite.
#[test]
fn a_ratio_to_what_completed_no_operation_has_no_value_and_says_why() {
    let long = ["--section", "1000000", "--outside", "1000000", "--threads", "24"];
    let program = ["run", "lockscale", "--world", "desktop-12c", "--quick"];
    let program = [&program[..], &long, &["--variant", "fifo", "--variant", "near"]].concat();
    let result = json(&[&program[..], &["--json"]].concat());
    let ratio = rows(&result, "turns_over_fifo", "near")[0];
    assert!(ratio["value"].is_null(), "{ratio}");
    assert_eq!(ratio["lack"], "no-operation");
    assert!(ratio["why"].as_str().unwrap().contains("completed no operation"), "{ratio}");
    let text = String::from_utf8(output(&program).stdout).unwrap();
    assert!(!text.contains("inf"), "{text}");
}

#[test]
fn native_figures_are_medians_of_samples_with_a_band() {
    let result = json(&["run", "shootdown", "--quick", "--json"]);
    for row in result["rows"].as_array().unwrap() {
        let samples = row["samples"].as_u64().unwrap();
        assert!((3..=7).contains(&samples), "a third of those that were wanted, or more: {row}");
        let [low, high] = ["low", "high"].map(|end| row[end].as_f64());
        assert_eq!((low.is_some(), high.is_some()), (samples > 1, samples > 1), "{row}");
        if let (value, Some(low), Some(high)) = (measured(row), low, high) {
            assert!(low <= value && value <= high, "{row}");
        }
        // Without any disturbance all seven are kept; each that is not was discarded.
        assert!(samples == 7 || row["discarded"].as_u64() > Some(7 - samples), "{row}");
    }
}

#[test]
fn what_this_machine_lacks_is_exit_code_3() {
    let off =
        |arguments: &[&str]| coreline(arguments).env("CORELINE_RSEQ", "off").output().unwrap();
    let quick = ["run", "intermittent", "--quick", "--json", "--delay", "1"];
    let output = off(&[&quick[..], &["--variant", "kernel-cid"]].concat());
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stderr).unwrap().contains("kernel-cid"));

    // Together with a variant that is available, it is left out with a note.
    let output = off(&quick);
    assert!(output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("left out"));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["rows"].as_array().unwrap().len(), 1);
    assert_eq!(result["rows"][0]["published"], Value::Null, "another machine was measured");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut child = coreline(&[
        "run",
        "intermittent",
        "--world",
        MACHINE,
        "--quick",
        "--config",
        "8-core/1-L3",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((status.code(), told.as_str()), (Some(0), ""));
}
