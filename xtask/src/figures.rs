//! The figures of docs/figures.md, README.md and the library's front page, as `coreline-rivals`
//! measures them.
//!
//! All figures of a run come from one sitting, in which candidates take turns. docs/figures.md has
//! a section for each processor: that of this machine is replaced or added, the others stay. The
//! front pages show the processor that was measured last. A column of more threads than the machine
//! has CPUs is left out. With `--quick` the program is not optimised, so do not quote its figures.
//! The table is printed to show that it can be made.

use std::fs;
use std::path::Path;
use std::thread;

use serde_json::Value;

use crate::error::Error;
use crate::workspace;

/// What is set beside each other: rows of one class, the first of which is what ratios are to.
/// A row is what the table calls it, and its name there.
struct Group {
    class: &'static str,
    /// What `coreline-rivals` is asked for beside the class, in each of its runs.
    runs: &'static [&'static str],
    rows: &'static [(&'static str, &'static str)],
}

/// The columns.
const THREADS: [u64; 3] = [1, 2, 8];

const GROUPS: &[Group] = &[
    Group {
        class: "counters",
        runs: &[""],
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
        runs: &[""],
        rows: &[
            ("**`Versioned`: enter and get**", "coreline Versioned enter+get"),
            ("arc-swap `load`", "arc-swap load"),
            ("arc-swap `Cache`", "arc-swap Cache"),
            ("std `RwLock<Arc<T>>`", "std RwLock<Arc<T>>"),
        ],
    },
    Group {
        class: "locks",
        runs: &[" --form uncontended --threads 1", " --form 100/500 --threads 2 --threads 8"],
        rows: &[
            ("**`Mutex`** (several threads: sections of 100 ns, 500 ns apart)", "coreline Mutex"),
            ("std `Mutex`", "std Mutex"),
            ("parking_lot `Mutex`", "parking_lot Mutex"),
        ],
    },
    Group {
        class: "cid",
        runs: &[""],
        rows: &[
            ("**`DomainLocal`: add**", "coreline DomainLocal add"),
            ("**`Domain`: enter, add, leave**", "coreline domain enter, add, leave"),
            ("an atomic of the thread's own", "AtomicU64 fetch_add, a thread's own"),
        ],
    },
];

/// The page with a section for each processor.
const PAGE: &str = "docs/figures.md";

/// The pages that show one section, each with what its lines begin with.
const FRONT_PAGES: [(&str, &str); 2] = [("README.md", ""), ("crates/coreline/src/lib.rs", "//! ")];

/// The lines between which a page has figures; behind the first, a section has its processor.
const BEGIN: &str = "<!-- figures";
const END: &str = "<!-- end of figures -->";

/// Measures; writes the figures to the pages, or prints the table.
pub(crate) fn run(quick: bool) -> Result<(), Error> {
    let mut rows = Vec::new();
    for Group { class, runs, .. } in GROUPS {
        for asked in *runs {
            rows.extend(measured(class, asked, quick)?);
        }
    }
    let cpus = thread::available_parallelism().map_or(1, usize::from) as u64;
    let table = table(&rows, cpus)?;
    println!("{}\n\n{table}", processor());
    if !quick {
        show(&processor(), &table)?;
    }
    Ok(())
}

/// The rows of one run of `coreline-rivals`.
fn measured(class: &str, asked: &str, quick: bool) -> Result<Vec<Value>, Error> {
    let how = if quick { "" } else { " --profile dist" };
    let line = format!("run --quiet{how} --package coreline-rivals -- {class}{asked} --json");
    let mut cargo = workspace::cargo(&line.split(' ').collect::<Vec<_>>());
    // Of these runs, that of contended locks alone takes longer.
    cargo.args(if quick { &["--quick"][..] } else { &["--minutes", "2"] });
    let json = workspace::output(&mut cargo)?;
    let report: Value =
        serde_json::from_slice(&json).map_err(|_| Error::Metadata { what: "JSON" })?;
    Ok(report["rows"].as_array().cloned().unwrap_or_default())
}

/// Writes a processor's table to its section and to the front pages.
fn show(processor: &str, table: &str) -> Result<(), Error> {
    let missing = |file| Error::NoPlaceForFigures { file };
    let page = with_section(&workspace::read(PAGE)?, processor, table);
    workspace::write(Path::new(PAGE), &page.ok_or(missing(PAGE))?)?;
    for (file, before) in FRONT_PAGES {
        let text = format!("Measured on: {processor}.\n\n{table}");
        let page = with_figures(&workspace::read(file)?, BEGIN, &text, before);
        workspace::write(Path::new(file), &page.ok_or(missing(file))?)?;
    }
    Ok(())
}

/// The page with this table in the processor's section, which is added behind the others if there
/// is none. `None` if the page has no section at all.
fn with_section(page: &str, processor: &str, table: &str) -> Option<String> {
    let begin = format!("{BEGIN}: {processor} -->");
    let text = format!("### {processor}\n\n{table}");
    if page.lines().any(|line| line == begin) {
        return with_figures(page, &begin, &text, "");
    }
    let at = page.rfind(END)? + END.len();
    Some(format!("{}\n\n{begin}\n{text}{END}{}", &page[..at], &page[at..]))
}

/// The page with this text between the line that begins with `begin` and the next end; `before` is
/// what the page's lines begin with.
fn with_figures(page: &str, begin: &str, text: &str, before: &str) -> Option<String> {
    let at = page.find(&format!("\n{before}{begin}"))? + 1;
    let start = at + page[at..].find('\n')? + 1;
    let end = start + page[start..].find(&format!("{before}{END}"))?;
    let lines = text.lines().map(|line| format!("{before}{line}").trim_end().to_owned() + "\n");
    Some(format!("{}{}{}", &page[..start], lines.collect::<String>(), &page[end..]))
}

/// The table of a machine with this many CPUs, in Markdown.
fn table(rows: &[Value], cpus: u64) -> Result<String, Error> {
    let columns: Vec<_> = THREADS.into_iter().filter(|&threads| threads <= cpus.max(2)).collect();
    let median = |name: &str, threads: u64| {
        let mut named = rows.iter().filter(|row| row["name"] == name);
        let row = named.find(|row| row["threads"] == threads);
        let missing = || Error::NoFigure { name: name.to_owned(), threads };
        row.map(|row| row["ns_median"].as_f64()).ok_or_else(missing)
    };
    let heads = columns.iter().map(|&threads| match threads {
        1 => " 1 thread |".to_owned(),
        _ => format!(" {threads} threads |"),
    });
    let rule = "---|".repeat(columns.len());
    let mut text = format!(
        "| ns per operation (ratio to the bold row) |{}\n|---|{rule}\n",
        heads.collect::<String>()
    );
    for (at, Group { rows, .. }) in GROUPS.iter().enumerate() {
        if at > 0 {
            text.push_str(&format!("| |{}\n", " |".repeat(columns.len())));
        }
        for (label, name) in *rows {
            text.push_str(&format!("| {label} |"));
            for &threads in &columns {
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
        rows[4]["ns_median"] = json!(null);
        let text = table(&rows, 2).expect("all rows are there");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "|---|---|---|");
        assert_eq!(lines[2], "| **`PerCpuCounter::add`** | 2.00 | 2.00 |");
        assert_eq!(lines[3], "| one shared `AtomicU64` | 8.00 (4.0) | - |");
        assert_eq!(lines[4], "| `CachePadded` shards, `fetch_add` | 8.00 (4.0) | 8.00 (4.0) |");
        let rows_and_gaps: usize = GROUPS.iter().map(|group| group.rows.len() + 1).sum();
        assert_eq!(lines.len(), 2 + rows_and_gaps - 1);
        let wide = table(&rows, 16).expect("all rows are there");
        assert!(
            wide.contains("\n| one shared `AtomicU64` | 8.00 (4.0) | - | 8.00 (4.0) |\n"),
            "{wide}"
        );
        rows.pop();
        assert!(matches!(table(&rows, 16), Err(Error::NoFigure { .. })));
    }

    /// What a page shows between its marks, of the section that begins so.
    fn figures_of<'a>(page: &'a str, begin: &str, before: &str) -> Vec<&'a str> {
        let lines = page.lines().map(|line| line.strip_prefix(before.trim_end()).unwrap_or(line));
        let lines = lines.map(str::trim).skip_while(|line| !line.starts_with(begin)).skip(1);
        lines.take_while(|line| *line != END).collect()
    }

    #[test]
    fn the_front_pages_show_a_section_of_the_page_of_figures() {
        let page = workspace::read(PAGE).expect("it is there");
        for (file, before) in FRONT_PAGES {
            let front = workspace::read(file).expect("it is there");
            let shown = figures_of(&front, BEGIN, before);
            let processor = shown.first().and_then(|line| line.strip_prefix("Measured on: "));
            let processor = processor.and_then(|it| it.strip_suffix('.')).expect("it is named");
            let section = figures_of(&page, &format!("{BEGIN}: {processor} -->"), "");
            let table = |lines: &[&str]| lines[2..].iter().map(|it| it.to_string()).collect();
            let [shown, section]: [Vec<String>; 2] = [table(&shown), table(&section)];
            assert_eq!(shown, section, "{file}");
            let labels = shown.iter().filter_map(|row| row.split('|').nth(1)).map(str::trim);
            let labels: Vec<_> = labels.filter(|label| !label.is_empty()).skip(2).collect();
            let made = GROUPS.iter().flat_map(|group| group.rows).map(|(label, _)| *label);
            assert_eq!(labels, made.collect::<Vec<_>>(), "{file}");
        }
    }

    #[test]
    fn a_section_replaces_that_of_its_processor_alone() {
        let page = with_section(&format!("# A\n{END}\n\nend\n"), "X", "| 1 |\n").unwrap();
        let page = with_section(&page, "Y", "| 2 |\n").unwrap();
        let page = with_section(&page, "X", "| 3 |\n").unwrap();
        assert_eq!(figures_of(&page, "<!-- figures: X -->", ""), ["### X", "", "| 3 |"]);
        assert_eq!(figures_of(&page, "<!-- figures: Y -->", ""), ["### Y", "", "| 2 |"]);
        assert!(page.ends_with("\n\nend\n"), "{page}");
        let front = format!("//! a\n//! {BEGIN} -->\n//! old\n//! {END}\n//! b\n");
        let front = with_figures(&front, BEGIN, "new\n\n| 4 |\n", "//! ").unwrap();
        assert_eq!(figures_of(&front, BEGIN, "//! "), ["new", "", "| 4 |"]);
        assert!(front.contains("\n//!\n") && front.ends_with("//! b\n"), "{front}");
        assert_eq!(with_section("no section", "X", ""), None);
        assert_eq!(with_figures("no marks", BEGIN, "", ""), None);
    }
}
