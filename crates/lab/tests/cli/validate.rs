//! The verb `validate`.

use serde_json::Value;

use crate::{assert_comes_back, file, json, keys, output};

#[test]
fn validate_measures_beside_what_was_predicted() {
    // Nothing but the game that machine files are calibrated by: the time of everything else is to
    // be seen after its prediction only.
    let result = json(&["validate", "--quick", "--json", "--only", "ping-pong-cas"]);
    assert_eq!(
        keys(&result),
        [
            "schema",
            "world",
            "machine",
            "is_here",
            "quick",
            "not_modelled",
            "score",
            "rows",
            "core_to_core"
        ]
    );
    assert_eq!(
        (&result["schema"], &result["world"], &result["machine"]),
        (&"coreline.validate/2".into(), &"native".into(), &"this-machine".into())
    );
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(
        keys(row),
        [
            "name",
            "what",
            "threads",
            "unit",
            "predicted",
            "tolerance",
            "measured",
            "ratio",
            "in_band",
            "verdict",
            "why"
        ]
    );
    assert_eq!(keys(&row["predicted"]), ["value", "low", "high"]);
    match row["verdict"].as_str().unwrap() {
        "calibration" => {
            assert_eq!(
                keys(&row["measured"]),
                ["median", "low", "high", "samples", "discarded", "elsewhere"]
            );
            let [low, median, high] =
                ["low", "median", "high"].map(|key| row["measured"][key].as_f64().unwrap());
            assert!(0.0 < low && low <= median && median <= high, "{row}");
            assert!(row["ratio"].as_f64().unwrap() > 0.0, "{row}");
        }
        // All samples were disturbed.
        "none" => assert_eq!(row["measured"], Value::Null),
        other => {
            assert_eq!(other, "not-testable");
            assert!(row["why"].as_str().unwrap().starts_with("not testable here"), "{row}");
        }
    }
    // Nothing of another machine stands beside it.
    let transfers = result["core_to_core"].as_array().unwrap();
    assert!(transfers.iter().all(|it| it["machine"] == "this-machine"), "{transfers:?}");
    // This machine may be faster than its own game, such as a virtual machine whose CPUs were two
    // threads of one core for a moment. Then the result says so.
    let (reached, beyond): (Vec<_>, Vec<_>) =
        transfers.iter().partition(|it| it["reached"] == true);
    reached.into_iter().for_each(assert_comes_back);
    for transfer in beyond {
        let [of_file, simulated] =
            ["file_ns", "simulated_ns"].map(|key| transfer[key].as_f64().unwrap());
        assert!(simulated > of_file, "only what is too fast is beyond reach: {transfer}");
    }
}

#[test]
fn a_file_of_this_machine_is_measured_and_one_of_another_is_not() {
    let made = file("measured-here.toml", "");
    let made = made.to_str().unwrap();
    let told = output(&["measure", "--quick", "--out", made]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let only = ["--json", "--quick", "--only", "ping-pong-cas"];
    let here = json(&[&["validate", "--world", made][..], &only].concat());
    assert_eq!((&here["is_here"], &here["machine"]), (&true.into(), &"this-machine".into()));
    let verdict = here["rows"][0]["verdict"].as_str().unwrap();
    assert!(["calibration", "none", "not-testable"].contains(&verdict), "{verdict}");
    // The same file, of another processor.
    let text = std::fs::read_to_string(made).unwrap();
    let foreign = text.replacen("summary = \"", "summary = \"Another ", 1);
    assert_ne!(foreign, text);
    let foreign = file("measured-elsewhere.toml", &foreign);
    let there = json(&[&["validate", "--world", foreign.to_str().unwrap()][..], &only].concat());
    let row = &there["rows"][0];
    assert_eq!((&there["is_here"], &row["measured"]), (&false.into(), &Value::Null));
    assert!(row["predicted"].is_object() && row["verdict"] == "none", "{row}");
}

#[test]
fn validate_predicts_for_a_simulated_machine_and_measures_nothing() {
    let arguments = ["validate", "--world", "desktop-12c", "--json", "--only", "fetch-add-2"];
    let first = output(&arguments);
    assert!(first.status.success() && first.stderr.is_empty());
    assert_eq!(first.stdout, output(&arguments).stdout, "the same bytes in any process");
    let result: Value = serde_json::from_slice(&first.stdout).unwrap();
    let row = &result["rows"][0];
    assert_eq!((&row["measured"], &row["verdict"]), (&Value::Null, &"none".into()));
    let [low, value, high] =
        ["low", "value", "high"].map(|key| row["predicted"][key].as_f64().unwrap());
    assert!(0.0 < low && low <= value && value <= high, "{row}");
    assert_eq!((&result["machine"], &result["is_here"]), (&"desktop-12c".into(), &false.into()));
    assert_eq!(result["core_to_core"].as_array().unwrap().len(), 2 * 3);
}

#[test]
fn what_takes_two_cores_is_not_testable_on_one() {
    let text = include_str!("../../../sim/machines/host-2c.toml");
    let text = text.replace("cores_per_cache = 2", "cores_per_cache = 1");
    let path = file("one-core.toml", &text.replace("\"host-2c\"", "\"one-core\""));
    let arguments = ["validate", "--world", path.to_str().unwrap(), "--json"];
    let only = ["--only", "ticket-1", "--only", "ticket-2"];
    let result = json(&[&arguments[..], &only].concat());
    let rows = result["rows"].as_array().unwrap();
    assert!(rows[0]["predicted"].is_object() && rows[0]["verdict"] == "none", "{}", rows[0]);
    assert_eq!(
        (&rows[1]["predicted"], &rows[1]["verdict"]),
        (&Value::Null, &"not-testable".into())
    );
    assert!(rows[1]["why"].as_str().unwrap().contains("two cores"), "{}", rows[1]);
    assert_eq!(result["core_to_core"], Value::Array(Vec::new()));
}

#[test]
fn validate_fits_where_no_width_is_known() {
    for arguments in [&["validate", "--world", "desktop-12c"][..], &["validate", "--quick"]] {
        let told = output(&[arguments, &["--only", "fetch-add-1"]].concat());
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let text = String::from_utf8(told.stdout).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("\nfetch-add-1"), "{text}");
    }
}

#[test]
fn predict_writes_the_file_of_predictions() {
    let committed = include_str!("../../host-2c.predictions.toml");
    let engine = committed.lines().find(|line| line.starts_with("engine = ")).unwrap();
    let told = output(&["validate", "--predict", "abcdef0"]);
    assert!(told.status.success());
    let told = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.replace("engine = \"abcdef0\"", engine), committed);
}
