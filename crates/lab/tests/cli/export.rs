//! `run` as CSV and as Parquet.

use serde_json::Value;

use crate::{file, json, output};

const RUN: [&str; 6] = ["run", "shootdown", "--world", "host-2c", "--present", "1"];

#[test]
fn csv_has_the_rows_of_json_with_their_names() {
    let run = [&RUN[..], &["--quick"]].concat();
    let result = json(&[&run[..], &["--json"]].concat());
    let printed = output(&[&run[..], &["--csv"]].concat());
    assert!(printed.status.success());
    let path = file("rows.csv", "");
    let path = path.to_str().unwrap();
    assert!(output(&[&run[..], &["--out", path]].concat()).status.success());
    assert_eq!(std::fs::read(path).unwrap(), printed.stdout);
    let mut read = csv::Reader::from_reader(&printed.stdout[..]);
    let names: Vec<String> = read.headers().unwrap().iter().map(str::to_owned).collect();
    let rows = result["rows"].as_array().unwrap();
    let mut count = 0;
    for (cells, row) in read.records().zip(rows) {
        let cells = cells.unwrap();
        for (name, cell) in names.iter().zip(&cells) {
            let value = match (name.strip_prefix("params."), &row[name]) {
                (Some(param), _) => &row["params"][param],
                (None, Value::Null) => &result[name],
                (None, value) => value,
            };
            let expected = match value {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            assert_eq!(cell, expected, "{name}: {row}");
        }
        count += 1;
    }
    assert_eq!(count, rows.len());
    assert!(["scenario", "params.present", "value"].iter().all(|it| names.iter().any(|n| n == it)));
}

#[test]
fn the_end_of_a_files_name_says_its_format() {
    let path = file("rows.json", "");
    let run = [&RUN[..], &["--quick", "--out", path.to_str().unwrap()]].concat();
    assert!(output(&run).status.success());
    let result: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(result["schema"], "coreline.run/2");
}

#[test]
fn parquet_is_written() {
    let path = file("rows.parquet", "");
    let run = [&RUN[..], &["--quick", "--out", path.to_str().unwrap()]].concat();
    assert!(output(&run).status.success());
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
}
