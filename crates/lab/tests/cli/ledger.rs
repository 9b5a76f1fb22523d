//! The page of the ledger is what today's engine says.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::scenario::{rows, value};
use crate::{MACHINE, json};

/// The rows of `docs/fidelity.md` about a scenario: configuration, variant, figure, value.
fn page(heading: &str) -> Vec<[String; 4]> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fidelity.md");
    let text = fs::read_to_string(path).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let cells = |line: &str| line.split('|').map(|it| it.trim().to_owned()).collect::<Vec<_>>();
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    rows.map(cells)
        .map(|it| {
            let figure = it[3].split(',').next().unwrap().to_owned();
            [it[1].clone(), it[2].trim_matches('`').to_owned(), figure, it[5].clone()]
        })
        .collect()
}

/// Compares what the page says with the rows of a run; returns how many there were.
fn compare(heading: &str, suffix: &str, config: &str, result: &Value) -> usize {
    let mut compared = 0;
    for [of, variant, figure, said] in page(heading) {
        if of != format!("{config}{suffix}") {
            continue;
        }
        let ours = value(rows(result, &figure, &variant)[0]);
        assert_eq!(Ok(ours), said.parse(), "{of}, {figure} of {variant}");
        compared += 1;
    }
    compared
}

#[test]
fn the_page_says_what_the_engine_says() {
    // Values are those of the default point, so they are the same over any band.
    let machine = "ivybridge-ex-4s";
    let storm = json(&["run", "switchstorm", "--json", "--world", machine, "--wake", "barrier"]);
    assert_eq!(compare("switchstorm", ", wake barrier", "120-thread/4-L3", &storm), 10);
    let config = "24-core/24-L3";
    let bursts = json(&[
        "run",
        "intermittent",
        "--json",
        "--world",
        MACHINE,
        "--delay",
        "10",
        "--config",
        config,
    ]);
    assert_eq!(compare("intermittent", ", delay_ms 10", config, &bursts), 6);
}
