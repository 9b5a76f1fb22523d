//! The table of figures in README.md, as `coreline-rivals` measures it.
//!
//! All figures of a line come from one run, in which candidates take turns; lines come from a run
//! of each class. Without `--quick` the program is optimised as a whole; with it, nothing is to be
//! quoted, and it only shows that every line can be made.

use std::fs;

use serde_json::Value;

use crate::error::Error;
use crate::workspace;

/// A line: a class, threads, one of ours, and what it is set beside.
struct Line {
    what: &'static str,
    class: &'static str,
    threads: u64,
    ours: &'static str,
    others: &'static [(&'static str, &'static str)],
}

const ADDITIONS: &[(&str, &str)] = &[
    ("shared atomic", "shared AtomicU64 fetch_add, 8 in turn"),
    ("`CachePadded` shards, `fetch_add`", "crossbeam CachePadded shards fetch_add, 8 in turn"),
    ("the same, one thread to a shard", "crossbeam CachePadded shards load+store, 8 in turn"),
    ("rseq section by hand", "bare rseq section cpu-id, 8 in turn"),
];
const READS: &[(&str, &str)] = &[
    ("arc-swap `load`", "arc-swap load"),
    ("arc-swap `Cache`", "arc-swap Cache"),
    ("std `RwLock<Arc<T>>`", "std RwLock<Arc<T>>"),
];
const OWN: &[(&str, &str)] =
    &[("an atomic of the thread's own", "AtomicU64 fetch_add, a thread's own")];

const LINES: &[Line] = &[
    Line {
        what: "`PerCpuCounter::add`, 1 thread",
        class: "counters",
        threads: 1,
        ours: "coreline PerCpuCounter cpu-id, 8 in turn",
        others: ADDITIONS,
    },
    Line {
        what: "the same, 2 threads",
        class: "counters",
        threads: 2,
        ours: "coreline PerCpuCounter cpu-id, 8 in turn",
        others: ADDITIONS,
    },
    Line {
        what: "`Versioned`, enter and get, 1 thread",
        class: "read-mostly",
        threads: 1,
        ours: "coreline Versioned enter+get",
        others: READS,
    },
    Line {
        what: "the same, 2 threads",
        class: "read-mostly",
        threads: 2,
        ours: "coreline Versioned enter+get",
        others: READS,
    },
    Line {
        what: "a domain's value: add",
        class: "cid",
        threads: 1,
        ours: "coreline DomainLocal add",
        others: OWN,
    },
    Line {
        what: "a domain: enter, add, leave",
        class: "cid",
        threads: 1,
        ours: "coreline domain enter, add, leave",
        others: OWN,
    },
];

/// Measures, and prints the table.
pub(crate) fn run(quick: bool) -> Result<(), Error> {
    let mut classes: Vec<&str> = LINES.iter().map(|line| line.class).collect();
    classes.dedup();
    let mut rows = Vec::new();
    for class in classes {
        let how = if quick { "" } else { " --release" };
        let line = format!("run --quiet{how} --package coreline-rivals -- {class} --json");
        let mut cargo = workspace::cargo(&line.split(' ').collect::<Vec<_>>());
        cargo.args(quick.then_some("--quick"));
        let json = workspace::output(&mut cargo)?;
        let report: Value =
            serde_json::from_slice(&json).map_err(|_| Error::Metadata { what: "JSON" })?;
        rows.extend(report["rows"].as_array().cloned().unwrap_or_default());
    }
    println!("{}\n", processor());
    print!("{}", table(&rows)?);
    Ok(())
}

/// The table, in Markdown.
fn table(rows: &[Value]) -> Result<String, Error> {
    let mut text = "| | ns | beside it, ns and ratio |\n|---|---|---|\n".to_owned();
    for Line { what, threads, ours, others, .. } in LINES {
        let median = |name: &str| {
            let mut named = rows.iter().filter(|row| row["name"] == name);
            let row = named.find(|row| row["threads"] == *threads);
            row.map(|row| row["ns_median"].as_f64())
                .ok_or_else(|| Error::NoFigure { name: name.to_owned(), threads: *threads })
        };
        let own = median(ours)?;
        let beside = others.iter().map(|(label, name)| {
            let other = median(name)?;
            // Other load may have disturbed all samples of one, and then there is no ratio.
            let ratio = own.zip(other).map(|(own, other)| format!(" ({:.2})", own / other));
            Ok(format!("{label} {}{}", shown(other), ratio.unwrap_or_default()))
        });
        let beside = beside.collect::<Result<Vec<_>, Error>>()?.join("; ");
        text.push_str(&format!("| {what} | {} | {beside} |\n", shown(own)));
    }
    Ok(text)
}

fn shown(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.2}"))
}

/// The processor, as its maker and the kernel name it.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| line.split(':').next().map(str::trim) == Some(key));
        line.and_then(|line| line.split_once(':')).map_or("?", |(_, value)| value.trim())
    };
    let cpus = text.lines().filter(|line| line.starts_with("processor")).count();
    let [name, family, model] = ["model name", "cpu family", "model"].map(value);
    format!("{name} (family {family}, model {model}), {cpus} CPUs")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ratios_are_ours_by_theirs() {
        let mut rows = Vec::new();
        for Line { ours, others, threads, .. } in LINES {
            let row = |name: &str, ns| json!({ "name": name, "threads": threads, "ns_median": ns });
            rows.push(row(ours, Some(2.0)));
            rows.extend(others.iter().map(|(_, name)| row(name, Some(8.0))));
        }
        rows[1]["ns_median"] = json!(null);
        let text = table(&rows).expect("all rows are there");
        let first = text.lines().nth(2).expect("a line");
        assert!(
            first.starts_with(
                "| `PerCpuCounter::add`, 1 thread | 2.00 | shared atomic -; `CachePadded` \
                 shards, `fetch_add` 8.00 (0.25); "
            ),
            "{first}"
        );
        assert_eq!(text.lines().count(), 2 + LINES.len());
        rows.pop();
        assert!(matches!(table(&rows), Err(Error::NoFigure { .. })));
    }
}
