//! `tenants`: what its result says.

use serde_json::{Value, json as object};

use crate::scenario::{rows, value};
use crate::{MACHINE, is_testable, json, output, refusal};

const VARIANTS: [&str; 5] = ["domain", "domain-clustered", "cpu-id", "sharded", "atomic"];
const DOMAINS: [&str; 2] = ["domain", "domain-clustered"];

fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let all = ["run", "tenants", "--world", MACHINE, "--quick", "--json", "--tenants", "100"];
    [&all, more].concat()
}

#[test]
fn figures_stand_for_themselves_and_beside_each_other() {
    let result = json(&arguments(&[]));
    let params = object!({"tenants": 100, "tasks": 2});
    for row in result["rows"].as_array().unwrap() {
        assert_eq!((&row["config"], &row["params"]), (&"384-thread/24-L3".into(), &params));
        assert_eq!((&row["verdict"], &row["why"]), (&"none".into(), &Value::Null), "{row}");
    }
    let of = |metric, variant| value(rows(&result, metric, variant)[0]);
    let metrics = |variant| {
        let rows = result["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["variant"] == variant).count()
    };
    // Five of its own and the bytes of a plain array; IDs of its own and four ratios.
    assert_eq!(VARIANTS.map(metrics), [10, 10, 6, 5, 5]);
    assert_eq!(of("plain_array_bytes", "cpu-id"), 384.0 * 64.0);
    for variant in DOMAINS {
        let ratio = 384.0 * 64.0 / of("bytes_per_tenant", variant);
        assert!((of("plain_array_over_bytes", variant) - ratio).abs() < 0.02, "{variant}");
        for (other, metric) in [
            ("cpu-id", "op_over_cpu_id"),
            ("sharded", "op_over_sharded"),
            ("atomic", "op_over_atomic"),
        ] {
            let ratio = of("op_ns", variant) / of("op_ns", other);
            assert!((of(metric, variant) / ratio - 1.0).abs() < 0.03, "{variant} {other}");
        }
    }
    assert_eq!(of("remote_slot_transfers", "domain-clustered"), 0.0);
    // One poll in two, about, finds the line in the other node; a poll has eight operations.
    let remote = of("remote_slot_transfers", "atomic");
    assert!((20.0..100.0).contains(&remote), "{remote}");
}

#[test]
fn one_seed_gives_the_same_bytes_and_more_tasks_have_more_slots() {
    let run = |seed, tasks| {
        let more = ["--variant", "domain", "--seed", seed, "--tasks", tasks];
        String::from_utf8(output(&arguments(&more)).stdout).unwrap()
    };
    let first = run("7", "2");
    assert_eq!(first, run("7", "2"));
    assert_ne!(first, run("8", "2"));
    let slots = |text: &str| {
        let result = serde_json::from_str(text).unwrap();
        value(rows(&result, "slots_per_tenant", "domain")[0])
    };
    assert!(slots(&run("7", "4")) > 1.3 * slots(&first));
}

#[test]
fn a_replay_gives_the_figures_of_the_run() {
    let result = json(&arguments(&["--variant", "sharded", "--seed", "7"]));
    let line = format!(
        "coreline-sim/1 machine={MACHINE} seed=7000 request=30 faults=none \
         program=tenants config=384-thread/24-L3 tenants=100 tasks=2 variant=sharded"
    );
    let told = String::from_utf8(output(&["replay", &line]).stdout).unwrap();
    let figure = value(rows(&result, "op_ns", "sharded")[0]);
    let told = told
        .lines()
        .last()
        .unwrap()
        .split(", ")
        .find_map(|part| part.strip_prefix("op_ns ")?.strip_suffix(" ns")?.parse::<f64>().ok());
    assert!((told.unwrap() - figure).abs() < 0.1, "{told:?} {figure}");
}

#[test]
fn natively_few_cpus_under_one_cache_say_nothing() {
    let result = json(&["run", "tenants", "--quick", "--json", "--tenants", "100"]);
    let rows = result["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        let testable = is_testable(row);
        assert_eq!(row["verdict"], if testable { "none" } else { "not-testable" }, "{row}");
        assert_eq!(row["why"].is_string(), !testable, "{row}");
    }
}

#[test]
fn what_cannot_be_run_says_what_can() {
    for (more, parts) in [
        (["--tenants", "10001"], ["--tenants", "1..=10000"]),
        (["--tasks", "0"], ["--tasks", "1..=64"]),
        (["--variant", "lazy"], ["lazy", "domain-clustered"]),
        (["--present", "3"], ["--present", "coreline run tenants"]),
    ] {
        let (code, text) = refusal(&[&["run", "tenants", "--world", MACHINE], &more[..]].concat());
        assert_eq!(code, 2, "{more:?}: {text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{more:?}: {text}");
    }
}
