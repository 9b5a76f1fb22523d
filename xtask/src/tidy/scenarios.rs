//! What runs scenarios knows none of them: a new one touches its own file and one list.

use std::collections::BTreeSet;

use super::{File, Finding};

/// What has to do with any scenario, and so with none.
const GENERIC: &[&str] = &[
    "crates/lab/src/cli/",
    "crates/lab/src/overview/",
    "crates/lab/src/run/",
    "crates/lab/src/table/",
    "crates/scenarios/src/run.rs",
];

const SCENARIOS: &str = "crates/scenarios/src/";

/// How a file of a scenario declares it.
const SCENARIO: &str = "static SCENARIO: Scenario";

/// What declares the name of a parameter or a variant.
const DECLARATIONS: &[&str] = &["Param::new(", "Param::number(", "Param::effort(", "Variant::new("];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let (mut modules, mut quoted) = (BTreeSet::new(), BTreeSet::new());
    for file in files {
        let Some(below) = file.path.strip_prefix(SCENARIOS) else { continue };
        if !file.text.contains(SCENARIO) {
            continue;
        }
        modules.extend(below.split(['/', '.']).next());
        for declaration in DECLARATIONS {
            let declared = file.text.split(declaration).skip(1);
            let name = |it: &str| Some(format!("\"{}\"", it.trim_start().split('"').nth(1)?));
            quoted.extend(declared.filter_map(name));
        }
    }
    let is_generic = |file: &&File| GENERIC.iter().any(|folder| file.path.starts_with(folder));
    files.iter().filter(is_generic).flat_map(|file| names(file, &modules, &quoted)).collect()
}

/// The lines that name a scenario, in whatever letters, or one of its parameters or variants as a
/// string; tests may.
fn names(file: &File, modules: &BTreeSet<&str>, quoted: &BTreeSet<String>) -> Vec<Finding> {
    let tests = file.rust.as_ref().map(|rust| rust.test_lines()).unwrap_or_default();
    let mut found = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        if tests.get(at) == Some(&true) {
            continue;
        }
        let small = line.to_lowercase();
        let module = modules.iter().find(|module| small.contains(**module)).copied();
        let string = || quoted.iter().find(|name| line.contains(name.as_str()));
        if let Some(name) = module.or_else(|| string().map(String::as_str)) {
            let message = format!("{name} belongs to a scenario; use the scenario's data instead");
            found.push(Finding::new(&file.path, at + 1, message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINGPONG: &str = "pub static SCENARIO: Scenario = Scenario {\n\
                            params: &[Param::number(\n    \"passes\", \"How many\", [1, 9]),\n\
                            Param::effort(\"rounds\", 9)],\n\
                            variants: &[Variant::new(\"by-turns\", \"Each once\")],\n};";

    fn found(path: &str, text: &str) -> Vec<usize> {
        let files = [
            File::new("crates/scenarios/src/pingpong/mod.rs", PINGPONG),
            File::new("crates/scenarios/src/crew.rs", "pub fn crew() {}"),
            File::new(path, text),
        ];
        check(&files).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn naming_a_scenario_or_what_it_declares_is_found() {
        for planted in [
            "use coreline_scenarios::pingpong::Pass;",
            "struct PingPong;",
            "// Of pingpong alone.",
            "if scenario.name == \"pingpong\" {}",
            "let passes = point.number(\"passes\");",
            "let rounds = point.number(\"rounds\");",
            "match point.variant { \"by-turns\" => 1 }",
        ] {
            let text = format!("\n{planted}");
            assert_eq!(found("crates/lab/src/run/native.rs", &text), [2], "{planted}");
            assert_eq!(found("crates/lab/src/cli/run.rs", &text), [2], "{planted}");
        }
    }

    #[test]
    fn tests_words_and_scenarios_themselves_are_free() {
        let fine = "fn crew(passes: u64) {} // by-turns\n\
                    #[cfg(test)]\nmod tests {\n const LINE: &str = \"pingpong passes=1\";\n}";
        assert_eq!(found("crates/lab/src/run/native.rs", fine), [0; 0]);
        let named = "use super::pingpong;";
        assert_eq!(found("crates/scenarios/src/lib.rs", named), [0; 0]);
        assert_eq!(found("crates/lab/tests/cli/storm.rs", named), [0; 0]);
    }
}
