//! `docs/json.md` lists the fields that a run, a table of scaling and a comparison really have.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use coreline_sim::atomic::{AtomicU64, Ordering};
use coreline_sim::claim::Band;
use coreline_sim::measure::{Parallel, compare, parallel, scaling};
use coreline_sim::sync::{Arc, Mutex};
use coreline_sim::{Machine, Spec, Statistics, name, thread};
use serde::Serialize;
use serde_json::Value;

/// The fields that the page lists of a type.
fn listed(of: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once(&format!("\n## `{of}`\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let field = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    section.lines().filter_map(field).collect()
}

/// Adds the fields of a value that lies at `path`. Those of an object that the page lists with `*`
/// are described elsewhere.
fn fields(value: &Value, path: &str, listed: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let field = |key: &str| match path {
                    "" => key.to_owned(),
                    path => format!("{path}.{key}"),
                };
                let any = Some(field("*")).filter(|any| listed.contains(any));
                let field = any.unwrap_or_else(|| field(key));
                fields(value, &field, listed, found);
                found.insert(field);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| fields(item, &format!("{path}[]"), listed, found));
        }
        _ => {}
    }
}

/// The value as JSON, which has the fields of the page's section `of` and no others.
fn checked(of: &str, value: &impl Serialize) -> Value {
    let (value, listed) = (serde_json::to_value(value).unwrap(), listed(of));
    let mut found = BTreeSet::new();
    fields(&value, "", &listed, &mut found);
    assert_eq!(found, listed, "{of}: docs/json.md lists what is on the right");
    value
}

#[test]
fn the_page_lists_what_a_run_has() {
    let machine = Machine::preset("epyc-9654-2s").unwrap().statistics(Statistics::Full);
    let run = machine.run(|| {
        let counters: [AtomicU64; 2] = Default::default();
        name(&counters, "counters");
        parallel(2, 100, |n| _ = counters[n].fetch_add(1, Ordering::Relaxed));
        // The last thread waits for the lock when the run ends: its wait is counted.
        let lock = Arc::new(Mutex::new(0));
        let theirs = Arc::clone(&lock);
        let waits = move || {
            coreline_sim::locks::waiting(&*theirs);
            *theirs.lock().unwrap() += 1;
        };
        thread::spawn(waits).join().unwrap();
        coreline_sim::locks::waiting(&counters);
        7
    });
    let run = run.unwrap();
    let json = checked("coreline_sim::Run", &run);
    assert_eq!(json["value"], 7);
    assert_eq!(json["report"], serde_json::to_value(&run.report).unwrap());
    assert_eq!(json["report"]["time_ns"], run.report.time_ns);
    assert_eq!(json["locks"], serde_json::to_value(&run.locks).unwrap());
    let waiting = run.locks.iter().position(|lock| !lock.waiters.is_empty()).unwrap();
    let (thread, waited) = run.locks[waiting].waiters[0];
    let waiter = &json["locks"][waiting]["waiters"][0];
    assert_eq!((&waiter["thread"], &waiter["waited_ns"]), (&thread.into(), &waited.into()));
    let transfers = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let line = &json["report"]["details"]["lines"][0]["cost"]["transfers"];
    assert_eq!(transfers(line), transfers(&json["report"]["transfers"]), "as the page says");
}

#[test]
fn the_page_lists_what_scaling_and_comparisons_have() {
    fn add(threads: usize) -> Parallel {
        let sum = AtomicU64::new(0);
        parallel(threads, 5, |_| _ = sum.fetch_add(1, Ordering::Relaxed))
    }
    let band = Band::quick(&Spec::preset("host-2c").unwrap(), 1);
    let table = scaling(&band, "additions", &[1, 2], add).unwrap();
    let json = checked("coreline_sim::measure::Scaling", &table);
    assert_eq!((&json["name"], &json["points"]), (&"additions".into(), &3.into()));
    assert_eq!(json["rows"][1]["per_second"]["value"], table.rate(2).unwrap().value());
    let json = checked("coreline_sim::measure::Comparison", &compare(&table, &table));
    assert_eq!((&json[1]["threads"], &json[1]["faster"]), (&2.into(), &"undecided".into()));
}

/// A run is the same value wherever it is written.
#[test]
fn the_same_run_is_the_same_text() {
    let text = || {
        let run = Machine::preset("host-2c").unwrap().statistics(Statistics::Full).run(|| {
            let lock = Mutex::new(0);
            parallel(2, 10, |_| *lock.lock().unwrap() += 1);
        });
        serde_json::to_string(&run.unwrap()).unwrap()
    };
    assert_eq!(text(), text());
}
