//! The trace: what a run did when, in the format of timeline viewers.

use std::collections::BTreeMap;

use coreline_sim::atomic::{AtomicU64, Ordering};
use coreline_sim::measure::parallel;
use coreline_sim::sync::Mutex;
use coreline_sim::{Run, Statistics, Trace, name};
use serde_json::Value;

use crate::common;

/// 12 threads under two caches take turns at a lock and at a counter, and store beside.
fn run(machine: &str, traced: bool) -> Run<()> {
    let machine = common::machine(machine, 5).statistics(Statistics::Full);
    let machine = if traced { machine.trace() } else { machine };
    let program = || {
        let (sum, hits) = (Box::new(Mutex::new(0)), Box::new(AtomicU64::new(0)));
        name(&*sum, "the \"sum\"");
        name(&*hits, "hits");
        parallel(12, 10, |_| {
            *sum.lock().unwrap() += 1;
            hits.fetch_add(1, Ordering::Relaxed);
            hits.store(0, Ordering::Relaxed);
        });
    };
    machine.run(program).unwrap()
}

fn events(trace: &Trace) -> (Value, Vec<Value>) {
    let mut json = Vec::new();
    trace.write_json(&mut json).unwrap();
    let mut json: Value = serde_json::from_slice(&json).unwrap();
    let events = json["traceEvents"].take();
    (json, events.as_array().unwrap().clone())
}

/// The times of a slice, in picoseconds: exact, as the format's numbers are not.
fn span(slice: &Value) -> (u64, u64) {
    let ps = |at: &Value| (at.as_f64().unwrap() * 1e6).round() as u64;
    (ps(&slice["ts"]), ps(&slice["ts"]) + ps(&slice["dur"]))
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["ph"] == kind).collect()
}

#[test]
fn a_trace_has_all_threads_misses_and_locks() {
    let Run { report, locks, trace, .. } = run("epyc-9654-2s", true);
    let trace = trace.unwrap();
    assert_eq!(trace.dropped(), 0);
    let (head, events) = events(&trace);
    assert_eq!(head["otherData"]["machine"], "epyc-9654-2s");
    let slices = of_kind(&events, "X");

    let threads = slices.iter().filter(|it| it["name"].as_str().unwrap().starts_with("thread "));
    let on_cpus: Vec<_> = threads.filter(|it| it["pid"] == 1).collect();
    let names: std::collections::BTreeSet<_> =
        on_cpus.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 13, "the first thread and those that it started");

    let misses = |events: &[&Value]| {
        let is_miss = |it: &&&Value| it["name"].as_str().unwrap().starts_with("miss ");
        events.iter().filter(is_miss).count() as u64
    };
    let beside = of_kind(&events, "b");
    let buffered = misses(&beside);
    assert!(buffered > 0, "stores");
    assert_eq!(misses(&slices) + buffered, report.transfers.misses());
    let of_hits = slices.iter().filter(|it| it["name"] == "miss hits").count();
    assert!(of_hits > 50, "{of_hits}");
    let there =
        |it: &&&Value| it["args"]["site"].as_str().is_some_and(|it| it.contains("trace.rs:"));
    assert!(slices.iter().filter(there).count() > 100);

    let holds: Vec<_> = slices.iter().filter(|it| it["pid"] == 2).collect();
    let lock = locks.iter().find(|lock| lock.names == ["the \"sum\""]).unwrap();
    assert_eq!(holds.len() as u64, locks.iter().map(|it| it.acquisitions).sum::<u64>());
    assert!(lock.acquisitions == 132 && lock.contended > 0);
    let waits = beside.iter().filter(|it| it["name"].as_str().unwrap().ends_with(" waits"));
    assert_eq!(waits.count() as u64, locks.iter().map(|it| it.contended).sum::<u64>());
    let of_lock = |event: &&&Value| event["args"]["name"] == "the \"sum\"";
    assert_eq!(of_kind(&events, "M").iter().filter(of_lock).count(), 1);

    let (from, to) = (of_kind(&events, "s"), of_kind(&events, "f"));
    assert!(from.len() == to.len() && from.len() > 100, "{}", from.len());
    assert!(from.iter().zip(&to).all(|(from, to)| from["id"] == to["id"]));
    assert!(from.iter().zip(&to).any(|(from, to)| from["tid"] != to["tid"]));
    assert_eq!(beside.len(), of_kind(&events, "e").len());
}

#[test]
fn slices_of_a_track_lie_in_or_behind_each_other() {
    for machine in ["epyc-9654-2s", "host-2c"] {
        let (_, events) = events(&run(machine, true).trace.unwrap());
        let mut open: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
        for slice in of_kind(&events, "X") {
            let (begin, end) = span(slice);
            let track = (slice["pid"].as_u64().unwrap(), slice["tid"].as_u64().unwrap());
            let open = open.entry(track).or_default();
            open.retain(|&(_, end)| end > begin);
            let outer = open.last().copied().unwrap_or((begin, end));
            assert!(outer.0 <= begin && end <= outer.1, "{slice} in {outer:?}");
            open.push((begin, end));
        }
    }
}

#[test]
fn a_trace_changes_no_result() {
    let (plain, traced) = (run("host-2c", false), run("host-2c", true));
    assert_eq!(plain.trace, None);
    assert_eq!((&plain.report, &plain.locks), (&traced.report, &traced.locks));
    assert_eq!(run("host-2c", true).trace, traced.trace, "the same in every run");
    assert!(Trace::default().is_empty() && traced.trace.unwrap().len() > 100);
    assert_eq!(events(&Trace::default()).1.len(), 2, "the two groups");
}
