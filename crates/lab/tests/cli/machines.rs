//! The verb `machines`.

use crate::{MACHINE, assert_comes_back, file, json, output};

#[test]
fn machines_shows_every_cost_with_its_source() {
    let detail = json(&["machines", MACHINE, "--json"]);
    assert_eq!((&detail["cpus"], &detail["caches"]), (&384.into(), &24.into()));
    let costs = detail["costs"].as_array().unwrap();
    assert!(costs.iter().all(|cost| !cost["source"].as_str().unwrap().is_empty()));
    let text = String::from_utf8(output(&["machines", MACHINE]).stdout).unwrap();
    // Lines are broken to fit.
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let words = |text: &str| text.split_whitespace().collect::<String>();
    let has = |part: &str| words(&text).contains(&words(part));
    for cost in costs {
        assert!(has(cost["source"].as_str().unwrap()), "{cost} is not in {text}");
    }
    assert!(text.contains("caches 1-11 alike, up to CPUs 88-95,280-287"), "{text}");
    // Three classes of distance, each at three request shares.
    let transfers = detail["core_to_core"].as_array().unwrap();
    assert_eq!(transfers.len(), 9);
    transfers.iter().for_each(assert_comes_back);
    assert!(has("the simulated ping-pong that it calibrates"), "{text}");
}

/// Two caches of two cores of two threads, the second threads last; a lower triangle.
fn matrix() -> String {
    let ns = |a: usize, b: usize| match (a % 4, b % 4) {
        (a, b) if a == b => 9.5,
        (a, b) if a / 2 == b / 2 => 21.0,
        _ => 95.0,
    };
    let row = |a: usize| {
        let cells = (0..8).map(|b| if b < a { ns(a, b).to_string() } else { String::new() });
        cells.collect::<Vec<_>>().join(",") + "\n"
    };
    (0..8).map(row).collect()
}

#[test]
fn a_matrix_becomes_a_machine_that_can_be_simulated() {
    let path = file("small matrix.csv", &matrix());
    let made = path.with_file_name("imported.toml");
    let (matrix, made) = (path.to_str().unwrap(), made.to_str().unwrap());
    let import = ["machines", "import", matrix, "--like", "desktop-12c"];
    let told = output(&[&import[..], &["--out", made]].concat());
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.starts_with("small-matrix: 8 CPUs, as 1 socket of 1 node of 2 last"), "{text}");
    assert!(text.contains("--world") && text.contains("desktop-12c"), "{text}");
    let of_file = json(&["machines", made, "--json"]);
    assert_eq!((&of_file["name"], &of_file["cpus"]), (&"small-matrix".into(), &8.into()));
    let transfers = of_file["core_to_core"].as_array().unwrap();
    assert_eq!(transfers.len(), 3 * 3, "three classes at three request shares");
    transfers.iter().for_each(assert_comes_back);
    let result = json(&[&import[..], &["--json"]].concat());
    let shape = ["sockets", "caches_per_node", "cores_per_cache", "threads_per_core"];
    assert_eq!(shape.map(|part| result[part].as_u64()), [1, 2, 2, 2].map(Some));
    assert_eq!(result["file"], serde_json::Value::Null);
}

#[test]
fn a_matrix_without_classes_says_what_it_found() {
    // Two threads share the first core only.
    let uneven = matrix().replacen("9.5", "21", 3);
    let uneven = file("uneven.csv", &uneven);
    for (path, why) in [
        (uneven.to_str().unwrap(), "1 group of 2 CPUs and 6 of 1"),
        ("no such.csv", "cannot read no such.csv"),
    ] {
        let told = output(&["machines", "import", path]);
        let error = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(2), "{error}");
        assert!(error.contains(why), "{error}");
    }
}
