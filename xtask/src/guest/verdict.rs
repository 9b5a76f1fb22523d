//! What a guest says of its programs, on its serial console.

use std::collections::BTreeMap;
use std::time::Duration;

/// What a line of the console means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// The first process runs, on this kernel.
    Up(&'a str),
    /// A program begins.
    Begin(&'a str),
    /// A program ended with this status.
    End(&'a str, &'a str),
    /// All programs have ended.
    Done,
    /// Anything else: the kernel or a program speaks.
    Text(&'a str),
}

impl<'a> Line<'a> {
    pub(crate) fn parse(line: &'a str) -> Line<'a> {
        let mut words = line.strip_prefix("@guest ").unwrap_or_default().splitn(2, ' ');
        match (words.next(), words.next()) {
            (Some("up"), Some(kernel)) => Line::Up(kernel),
            (Some("begin"), Some(name)) => Line::Begin(name),
            (Some("end"), Some(rest)) => match rest.split_once(' ') {
                Some((status, name)) => Line::End(status, name),
                None => Line::Text(line),
            },
            (Some("done"), None) => Line::Done,
            _ => Line::Text(line),
        }
    }
}

/// How the programs ended. A program passes only if the guest said so.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// What the first process said of its kernel.
    pub(crate) kernel: Option<String>,
    /// Whether the first process said anything. The kernel may write into its first line.
    pub(crate) is_up: bool,
    ended: BTreeMap<String, (String, Duration)>,
    /// How many tests of a program passed.
    passed: BTreeMap<String, u64>,
    /// What [`JSON`] printed.
    pub(crate) json: String,
}

/// The program whose output is kept.
pub(crate) const JSON: &str = "doctor --json";

impl Verdict {
    /// Takes note of a line that this program printed.
    pub(crate) fn hear(&mut self, name: &str, line: &str) {
        if name == JSON {
            self.json += line;
            self.json.push('\n');
        }
        // As Rust's test programs end: "test result: ok. 7 passed; 0 failed; ..."
        let result = line.strip_prefix("test result: ").and_then(|it| it.split_once(". "));
        let passed = result.and_then(|(_, counts)| counts.split_once(" passed;")?.0.parse().ok());
        if let Some(passed) = passed {
            self.passed.insert(name.to_owned(), passed);
        }
    }

    /// How many tests passed.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.values().sum()
    }

    pub(crate) fn end(&mut self, name: &str, status: &str, took: Duration) {
        self.ended.insert(name.to_owned(), (status.to_owned(), took));
    }

    pub(crate) fn of(&self, name: &str) -> String {
        match self.ended.get(name) {
            None => "not run to its end".to_owned(),
            Some((status, took)) => {
                let seconds = took.as_secs_f64();
                let how = match status.as_str() {
                    "0" => "passed".to_owned(),
                    // What a shell says of a process that signal 9 ended.
                    "137" => "FAILED: killed, at its time limit if not for want of memory".into(),
                    status => format!("FAILED: status {status}"),
                };
                format!("{how} ({seconds:.1} s)")
            }
        }
    }

    /// The programs that did not pass.
    pub(crate) fn failed<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let passed = |name: &str| self.ended.get(name).is_some_and(|ended| ended.0 == "0");
        names.filter(|name| !passed(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_from_text() {
        assert_eq!(Line::parse("@guest up Linux 6.1 x86_64"), Line::Up("Linux 6.1 x86_64"));
        assert_eq!(Line::parse("@guest begin a/b"), Line::Begin("a/b"));
        assert_eq!(Line::parse("@guest end 101 doctor --json"), Line::End("101", "doctor --json"));
        assert_eq!(Line::parse("@guest done"), Line::Done);
        for text in ["", "test x ... ok", "@guest", "@guest end 0", " @guest done", "@guest done 1"]
        {
            assert_eq!(Line::parse(text), Line::Text(text));
        }
    }

    #[test]
    fn only_a_status_of_zero_passes() {
        let mut verdict = Verdict::default();
        verdict.end("good", "0", Duration::ZERO);
        verdict.end("bad", "101", Duration::ZERO);
        verdict.end("garbled", "0[ 3.1] oops", Duration::ZERO);
        let names = ["good", "bad", "garbled", "lost"];
        assert_eq!(verdict.failed(names.into_iter()), ["bad", "garbled", "lost"]);
        assert!(verdict.of("good").starts_with("passed"));
        assert!(verdict.of("bad").contains("101"));
        assert!(verdict.of("lost").contains("not run"));
    }

    #[test]
    fn tests_are_counted_and_the_report_is_kept() {
        let mut verdict = Verdict::default();
        for (name, line) in [
            ("a", "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out"),
            ("b", "test result: FAILED. 30 passed; 2 failed; 0 ignored; 0 measured"),
            ("b", "test result: unknown"),
            (JSON, "{"),
            (JSON, "}"),
            ("doctor", "kernel"),
        ] {
            verdict.hear(name, line);
        }
        assert_eq!((verdict.passed(), verdict.json.as_str()), (37, "{\n}\n"));
    }
}
