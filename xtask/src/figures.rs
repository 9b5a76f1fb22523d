//! The table of figures in README.md, as `coreline-rivals` measures it.
//!
//! All figures of a group come from one run, in which candidates take turns. Without `--quick` the
//! program is optimised as a whole; with it, nothing is to be quoted, and it only shows that the
//! table can be made.

use std::fs;

use serde_json::Value;

use crate::error::Error;
use crate::workspace;

/// What is set beside each other: rows of one class, the first of which is what ratios are to.
/// A row is what the table calls it, and its name there.
struct Group {
    class: &'static str,
    rows: &'static [(&'static str, &'static str)],
}

/// The columns.
const THREADS: [u64; 2] = [1, 2];

const GROUPS: &[Group] = &[
    Group {
        class: "counters",
        rows: &[
            ("**`PerCpuCounter::add`**", "coreline PerCpuCounter cpu-id, 8 in turn"),
            ("one shared `AtomicU64`", "shared AtomicU64 fetch_add, 8 in turn"),
            (
                "`CachePadded` shards, `fetch_add`",
                "crossbeam CachePadded shards fetch_add, 8 in turn",
            ),
            (
                "the same, load and store: a thread to a shard",
                "crossbeam CachePadded shards load+store, 8 in turn",
            ),
            ("an rseq section by hand, as librseq's", "bare rseq section cpu-id, 8 in turn"),
        ],
    },
    Group {
        class: "read-mostly",
        rows: &[
            ("**`Versioned`: enter and get**", "coreline Versioned enter+get"),
            ("arc-swap `load`", "arc-swap load"),
            ("arc-swap `Cache`", "arc-swap Cache"),
            ("std `RwLock<Arc<T>>`", "std RwLock<Arc<T>>"),
        ],
    },
    Group {
        class: "cid",
        rows: &[
            ("**`DomainLocal`: add**", "coreline DomainLocal add"),
            ("**`Domain`: enter, add, leave**", "coreline domain enter, add, leave"),
            ("an atomic of the thread's own", "AtomicU64 fetch_add, a thread's own"),
        ],
    },
];

/// Measures, and prints the table.
pub(crate) fn run(quick: bool) -> Result<(), Error> {
    let mut rows = Vec::new();
    for Group { class, .. } in GROUPS {
        let how = if quick { "" } else { " --profile dist" };
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
    let median = |name: &str, threads: u64| {
        let mut named = rows.iter().filter(|row| row["name"] == name);
        let row = named.find(|row| row["threads"] == threads);
        let missing = || Error::NoFigure { name: name.to_owned(), threads };
        row.map(|row| row["ns_median"].as_f64()).ok_or_else(missing)
    };
    let mut text = "| ns, and times the first of the group | 1 thread | 2 threads |\n".to_owned();
    text.push_str("|---|---|---|\n");
    for (at, Group { rows, .. }) in GROUPS.iter().enumerate() {
        if at > 0 {
            text.push_str("| | | |\n");
        }
        for (label, name) in *rows {
            text.push_str(&format!("| {label} |"));
            for threads in THREADS {
                let first = median(rows[0].1, threads)?;
                let own = median(name, threads)?;
                // Other load may have disturbed all samples of one, and then there is no ratio.
                let ratio = own.zip(first).filter(|_| *name != rows[0].1);
                let ratio = ratio.map(|(own, first)| format!(" ({:.1})", own / first));
                let own = own.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.2}"));
                text.push_str(&format!(" {own}{} |", ratio.unwrap_or_default()));
            }
            text.push('\n');
        }
    }
    Ok(text)
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
    fn ratios_are_to_the_first_of_the_group() {
        let mut rows = Vec::new();
        for (_, name) in GROUPS.iter().flat_map(|group| group.rows) {
            for threads in THREADS {
                let ns = if name.starts_with("coreline") { 2.0 } else { 8.0 };
                rows.push(json!({ "name": name, "threads": threads, "ns_median": ns }));
            }
        }
        rows[3]["ns_median"] = json!(null);
        let text = table(&rows).expect("all rows are there");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[2], "| **`PerCpuCounter::add`** | 2.00 | 2.00 |");
        assert_eq!(lines[3], "| one shared `AtomicU64` | 8.00 (4.0) | - |");
        assert_eq!(lines[4], "| `CachePadded` shards, `fetch_add` | 8.00 (4.0) | 8.00 (4.0) |");
        let rows_and_gaps: usize = GROUPS.iter().map(|group| group.rows.len() + 1).sum();
        assert_eq!(lines.len(), 2 + rows_and_gaps - 1);
        rows.pop();
        assert!(matches!(table(&rows), Err(Error::NoFigure { .. })));
    }

    #[test]
    fn the_front_page_of_the_library_has_the_table_of_the_readme() {
        let rows_of = |path: &str, before: &str| -> Vec<String> {
            let text = workspace::read(path).expect("it is there");
            let lines = text.lines().map(|line| line.trim_start_matches(before));
            let section = lines.skip_while(|line| !line.ends_with("# Figures")).skip(1);
            let rows = section.skip_while(|line| !line.starts_with('|'));
            rows.take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
        };
        let rows = rows_of("README.md", "");
        let labels = rows.iter().filter_map(|row| row.split('|').nth(1)).map(str::trim);
        let labels: Vec<_> = labels.filter(|label| !label.is_empty()).skip(2).collect();
        let made = GROUPS.iter().flat_map(|group| group.rows).map(|(label, _)| *label);
        assert_eq!(labels, made.collect::<Vec<_>>());
        assert_eq!(rows, rows_of("crates/coreline/src/lib.rs", "//! "));
    }
}
