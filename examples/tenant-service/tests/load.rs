//! The verb `load`: what it says of the stores, with small values.

use std::process::Command;

use serde_json::Value;

/// What the program says; every store is loaded for a moment.
fn load(more: &[&str]) -> String {
    let small = "load --tenants 3 --buffers 256 --concurrency 4 --seconds 0.02 --rounds 2 \
                 --times 40 --body 64";
    let mut program = Command::new(env!("CARGO_BIN_EXE_tenant-service"));
    let output = program.args(small.split_whitespace()).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn each_store_has_its_latency_bookkeeping_and_memory() {
    let found: Value = serde_json::from_str(&load(&["--json"])).unwrap();
    assert_eq!(found["schema"], "tenant-service.load/1");
    for (key, given) in
        [("tenants", 3), ("buffers", 256), ("concurrency", 4), ("body", 64), ("rounds", 2)]
    {
        assert_eq!(found[key], given, "{key}");
    }
    let stores = found["stores"].as_array().unwrap();
    let names: Vec<_> = stores.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["coreline", "dashmap", "sharded"]);
    for store in stores {
        let [rate, median, p99] =
            ["requests_per_second", "median_us", "p99_us"].map(|it| &store[it]);
        assert!(number(rate) > 0.0, "{store}");
        assert!(0.0 < number(median) && number(median) <= number(p99), "{store}");
        // Of all tenants and of one: each kind of work.
        let bookkeeping = store["bookkeeping"].as_array().unwrap();
        let of: Vec<_> = bookkeeping.iter().map(|it| (&it["work"], &it["tenants"])).collect();
        let kinds = ["count-one", "count", "lease", "request"].map(Value::from);
        let [all, one] = [3, 1].map(Value::from);
        let expected = [&all, &one].into_iter().flat_map(|of| kinds.iter().map(move |it| (it, of)));
        assert_eq!(of, expected.collect::<Vec<_>>());
        for work in bookkeeping {
            assert!(number(&work["ns"]) > 0.0 && number(&work["ratio"]) > 0.0, "{work}");
        }
        let memory = &store["memory"];
        // Lines of 64 bytes are in each tenant's buffers.
        let more = number(&memory["heap_with_buffers"]) - number(&memory["heap"]);
        assert!(more >= 64.0, "{memory}");
        assert!(number(&memory["resident"]).is_finite(), "{memory}");
        // Only a domain says what it takes.
        assert_eq!(memory["stated"].is_number(), store["name"] == "coreline", "{memory}");
    }
    let last = stores[2]["bookkeeping"].as_array().unwrap();
    assert!(last.iter().all(|work| work["ratio"] == 1.0), "{last:?}");
}

#[test]
fn one_store_alone_is_a_table() {
    let text = load(&["--store", "dashmap"]);
    let named = text.lines().filter(|line| line.trim_start().starts_with("dashmap ")).count();
    // Of requests, of the bookkeeping of all tenants and of one, and of memory.
    assert_eq!(named, 4, "{text}");
    assert!(!text.contains("coreline") && !text.contains("sharded"), "{text}");
}
