//! The verb `machines`.

use crate::{MACHINE, assert_comes_back, json, output};

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
    assert!(has("figure beside the simulated ping-pong that it calibrates"), "{text}");
}
