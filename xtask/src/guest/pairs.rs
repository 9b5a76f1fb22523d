//! `cargo xtask guests`: the native tests under several kernels, each with several C libraries.
//!
//! What `doctor --json` is to say in each pair is data here, and in no code of the product: that
//! finds out by trial what it has.

use clap::Args;
use serde_json::Value;

use super::{Kit, Options, debian};
use crate::error::Error;
use crate::target::{Arch, Libc, require};

/// A kernel and a C library, each by the Debian suite that it comes from, and the guest's CPUs.
struct Pair {
    kernel: &'static str,
    glibc: &'static str,
    cpus: u32,
    /// By column.
    expected: [&'static str; COLUMNS.len()],
}

/// Places in the report of `doctor`.
const COLUMNS: [&str; 7] = [
    "/rseq/registered_by",
    "/rseq/abi",
    "/rseq/size",
    "/rseq/feature_size",
    "/rseq/align",
    "/rseq/mm_cid",
    "/rseq/slice_extension",
];

/// A value is a word, a number, a number and a plus sign for at least as much, or `some` for
/// anything but null.
#[rustfmt::skip]
const PAIRS: [Pair; 8] = [
    Pair { kernel: "bookworm", glibc: "bookworm", cpus: 4,
           expected: ["libc", "legacy", "20", "0", "0", "null", "false"] },
    Pair { kernel: "bookworm", glibc: "sid", cpus: 4,
           expected: ["libc", "legacy", "20", "0", "0", "null", "false"] },
    Pair { kernel: "trixie", glibc: "bookworm", cpus: 4,
           expected: ["libc", "legacy", "20", "28", "32", "some", "false"] },
    Pair { kernel: "trixie", glibc: "sid", cpus: 4,
           expected: ["libc", "legacy", "28", "28", "32", "some", "false"] },
    Pair { kernel: "trixie-backports", glibc: "bookworm", cpus: 4,
           expected: ["libc", "legacy", "20", "33+", "64+", "some", "false"] },
    Pair { kernel: "trixie-backports", glibc: "sid", cpus: 4,
           expected: ["libc", "V2", "33+", "33+", "64+", "some", "false"] },
    Pair { kernel: "trixie-backports", glibc: "bookworm", cpus: 64,
           expected: ["libc", "legacy", "20", "33+", "64+", "some", "false"] },
    Pair { kernel: "trixie-backports", glibc: "sid", cpus: 64,
           expected: ["libc", "V2", "33+", "33+", "64+", "some", "false"] },
];

/// What is expected of every pair.
const ALWAYS: [(&str, &str); 5] = [
    ("/rseq/usable", "true"),
    ("/rseq/self_test", "passed"),
    ("/membarrier/asymmetric_fences", "true"),
    ("/membarrier/restartable_fence", "true"),
    ("/futex/works", "true"),
];

/// The programs whose tests look different to kernels and C libraries, by parts of their names.
const PROGRAMS: [&str; 2] = ["coreline/native", "world/"];

/// CPUs of a node.
const CPUS_OF_NODE: u32 = 16;

impl Pair {
    fn name(&self) -> String {
        format!("{}/{}/{}", self.kernel, self.glibc, self.cpus)
    }

    fn options(&self, choice: &Choice) -> Options {
        Options {
            arch: Arch::X86_64,
            libc: Libc::Glibc,
            cpus: self.cpus,
            // At least two, for memory; see `NODE_MEMORY`.
            nodes: self.cpus.div_ceil(CPUS_OF_NODE).max(2),
            kernel: None,
            suite: Some(self.kernel.to_owned()),
            glibc_from: Some(self.glibc.to_owned()),
            busybox: None,
            env: Vec::new(),
            only: PROGRAMS.map(str::to_owned).to_vec(),
            all_worlds: false,
            limit: choice.limit,
            arguments: choice.arguments.clone(),
        }
    }

    /// Where a report is not as expected.
    fn differences(&self, report: &Value) -> Vec<String> {
        let expected = COLUMNS.into_iter().zip(self.expected).chain(ALWAYS);
        let differs = |(place, expected)| {
            let found = report.pointer(place).unwrap_or(&Value::Null);
            let differs = || format!("{place} is {found} and not {expected}");
            (!is_as(found, expected)).then(differs)
        };
        let mut all: Vec<_> = expected.filter_map(differs).collect();
        if report.pointer("/topology/cpus") != Some(&self.cpus.into()) {
            all.push(format!("/topology/cpus is not {}", self.cpus));
        }
        all
    }
}

fn is_as(found: &Value, expected: &str) -> bool {
    let least = expected.strip_suffix('+').and_then(|number| number.parse::<u64>().ok());
    match (expected, least, found) {
        (_, Some(least), _) => found.as_u64().is_some_and(|found| found >= least),
        ("some", ..) => !found.is_null(),
        (.., Value::String(found)) => found == expected,
        _ => serde_json::from_str::<Value>(expected).is_ok_and(|expected| expected == *found),
    }
}

/// Which pairs.
#[derive(Debug, Args)]
pub(crate) struct Choice {
    /// These alone, such as `trixie/sid/4`
    #[arg(value_name = "KERNEL/GLIBC/CPUS")]
    pairs: Vec<String>,
    /// Seconds that each program may take
    #[arg(long, default_value_t = 1800)]
    limit: u32,
    /// Arguments for every test program, such as a filter on names
    #[arg(last = true, value_name = "TEST ARGUMENTS")]
    arguments: Vec<String>,
}

/// What was found of a pair.
struct Found {
    pair: String,
    kernel: String,
    report: Value,
    tests: u64,
    /// What was not as it should be.
    wrong: Vec<String>,
}

/// The step of CI. It is skipped where something is lacking that this machine's user would have to
/// install.
pub(crate) fn step() -> Result<(), Error> {
    let remedy = "install QEMU (in Debian qemu-system-x86)";
    let lacking = require("qemu-system-x86_64", remedy).and_then(|_| debian::mirror());
    if let Err(why) = lacking {
        println!("guests: skipped: {why}");
        return Ok(());
    }
    run(&Choice { pairs: Vec::new(), limit: 1800, arguments: Vec::new() })
}

/// Runs the tests in a guest of each chosen pair; goes on after a failure.
pub(crate) fn run(choice: &Choice) -> Result<(), Error> {
    let all = PAIRS.iter().map(Pair::name).collect::<Vec<_>>();
    if let Some(asked) = choice.pairs.iter().find(|asked| !all.contains(asked)) {
        return Err(Error::NoPair { asked: asked.clone(), all: all.join(", ") });
    }
    let is_chosen = |pair: &&Pair| choice.pairs.is_empty() || choice.pairs.contains(&pair.name());
    let (mut kit, mut found) = (None, Vec::new());
    for pair in PAIRS.iter().filter(is_chosen) {
        println!("\n==> pair {}", pair.name());
        let options = pair.options(choice);
        let kit = match &mut kit {
            Some(kit) => kit,
            empty => empty.insert(Kit::new(&options)?),
        };
        let (verdict, done) = kit.boot(&options)?;
        let mut wrong: Vec<_> = done.err().iter().map(ToString::to_string).collect();
        let report = serde_json::from_str(&verdict.json).unwrap_or(Value::Null);
        wrong.extend(pair.differences(&report));
        let kernel = verdict.kernel.clone().unwrap_or_default();
        found.push(Found { pair: pair.name(), kernel, report, tests: verdict.passed(), wrong });
    }
    print!("\n{}", table(&found));
    let failed = found.iter().filter(|found| !found.wrong.is_empty());
    let failed: Vec<_> = failed.map(|found| found.pair.as_str()).collect();
    if failed.is_empty() { Ok(()) } else { Err(Error::Guest(failed.join(", "))) }
}

/// A table in Markdown.
fn table(found: &[Found]) -> String {
    let mut table = "| kernel/glibc/CPUs | kernel | ABI | bytes | tests passed | found |\n\
                     |---|---|---|---|---|---|\n"
        .to_owned();
    for Found { pair, kernel, report, tests, wrong } in found {
        // Between the system's name and the processor's.
        let kernel = kernel.split(' ').nth(1).unwrap_or("none");
        let said = |place| match report.pointer(place) {
            Some(Value::String(said)) => said.clone(),
            Some(value) => value.to_string(),
            None => "?".to_owned(),
        };
        let (abi, bytes) = (said("/rseq/abi"), said("/rseq/size"));
        let wrong = if wrong.is_empty() { "as expected".to_owned() } else { wrong.join("; ") };
        table += &format!("| {pair} | {kernel} | {abi} | {bytes} | {tests} | {wrong} |\n");
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_compared_by_what_they_say() {
        for (found, expected, same) in [
            (json!("V2"), "V2", true),
            (json!("legacy"), "V2", false),
            (json!(33), "33+", true),
            (json!(32), "33+", false),
            (json!(null), "33+", false),
            (json!(0), "0", true),
            (json!(3), "some", true),
            (json!(null), "some", false),
            (json!(null), "null", true),
            (json!(false), "false", true),
        ] {
            assert_eq!(is_as(&found, expected), same, "{found} and {expected}");
        }
    }

    #[test]
    fn a_report_that_lacks_something_differs() {
        let pair = &PAIRS[0];
        let report = json!({
            "rseq": {
                "registered_by": "libc", "abi": "legacy", "size": 20, "feature_size": 0,
                "align": 0, "mm_cid": null, "slice_extension": false, "usable": true,
                "self_test": "passed",
            },
            "membarrier": { "asymmetric_fences": true, "restartable_fence": true },
            "futex": { "works": true },
            "topology": { "cpus": 4 },
        });
        assert_eq!(pair.differences(&report), [""; 0]);
        let mut other = report.clone();
        other["rseq"]["abi"] = json!("V2");
        other["topology"]["cpus"] = json!(5);
        let differences = ["/rseq/abi is \"V2\" and not legacy", "/topology/cpus is not 4"];
        assert_eq!(pair.differences(&other), differences);
        assert!(pair.differences(&Value::Null).len() > 10);
        let found = Found {
            pair: pair.name(),
            kernel: "Linux 6.1.0 x86_64".to_owned(),
            report,
            tests: 7,
            wrong: Vec::new(),
        };
        let row = "| bookworm/bookworm/4 | 6.1.0 | legacy | 20 | 7 | as expected |\n";
        assert!(table(&[found]).ends_with(row));
    }

    #[test]
    fn a_pair_that_is_not_there_is_refused() {
        let choice = Choice { pairs: vec!["a/b/1".into()], limit: 1, arguments: Vec::new() };
        let error = run(&choice).expect_err("there is no such pair").to_string();
        assert!(error.contains("a/b/1") && error.contains("trixie/sid/4"), "{error}");
    }
}
