//! `compare`: the same result is quiet, a planted regression ends with exit code 1.

use std::path::Path;

use serde_json::Value;

use crate::{file, output, refusal};

const RUN: [&str; 8] =
    ["run", "shootdown", "--world", "host-2c", "--present", "1", "--quick", "--json"];

pub(crate) fn result(name: &str) -> String {
    let path = file(name, "").to_str().unwrap().to_owned();
    assert!(output(&[&RUN[..], &["--out", &path]].concat()).status.success());
    path
}

/// Writes a copy of a result with its first figure 10 % higher, of which lower is better.
fn plant(from: &str, name: &str) -> String {
    let mut result: Value = serde_json::from_slice(&std::fs::read(from).unwrap()).unwrap();
    let row = &mut result["rows"][0];
    assert_eq!(row["better"], "lower");
    for value in row["points"].as_array_mut().unwrap() {
        *value = (value.as_f64().unwrap() * 1.1).into();
    }
    // The first point is the default.
    row["value"] = row["points"][0].clone();
    file(name, &result.to_string()).to_str().unwrap().to_owned()
}

#[test]
fn a_repeat_is_quiet_and_a_planted_regression_is_found() {
    let [one, again] = ["compare_one.json", "compare_again.json"].map(result);
    let quiet = output(&["compare", &one, &again]);
    let told = String::from_utf8(quiet.stdout).unwrap();
    assert!(quiet.status.success() && told.starts_with("shootdown on host-2c: no figure changed"));

    let slower = plant(&one, "compare_slower.json");
    let found = output(&["compare", &one, &slower]);
    let told = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.status.code(), Some(1));
    assert!(told.starts_with("shootdown on host-2c: 1 figure is worse, none is better"), "{told}");
    assert!(told.contains("+10.0 %") && told.lines().all(|line| line.len() <= 80), "{told}");
    assert_eq!(String::from_utf8(found.stderr).unwrap(), "coreline: 1 figure is worse\n");

    let found = output(&["compare", &slower, &one]);
    let told = String::from_utf8(found.stdout).unwrap();
    assert!(found.status.success() && told.contains("1 figure is better, none is worse"), "{told}");
    assert!(output(&["compare", &one, &slower, "--threshold", "11"]).status.success());
}

#[test]
fn what_is_no_result_is_refused_with_what_is() {
    let one = result("compare_mine.json");
    let old = file("compare_old.json", "{\"schema\": \"coreline.run/1\"}");
    let none = file("compare_none.json", "1 2 3");
    for (with, what) in [
        (old.as_path(), "coreline.run/1, and not coreline.run/2"),
        (none.as_path(), "trailing characters"),
        (Path::new("no/such.json"), "No such file"),
    ] {
        let (code, told) = refusal(&["compare", &one, with.to_str().unwrap()]);
        assert_eq!(code, 2, "{told}");
        assert!(told.contains(what) && told.contains("--json --out FILE"), "{told}");
    }
    let (code, told) = refusal(&["compare", &one, &one, "--threshold", "-1"]);
    assert!(code == 2 && told.contains("from 0 to 1000"), "{told}");
}
