//! The user's guide shows code that compiles and output that is real.
//!
//! With `CORELINE_BLESS=1` in the environment, the output in the guide is written anew.

use std::fs;
use std::path::{Path, PathBuf};

#[allow(dead_code, reason = "its main function")]
#[path = "../../examples/false_sharing.rs"]
mod false_sharing;
#[path = "../../examples/lost_wake_up/gate.rs"]
mod gate;
#[allow(dead_code, reason = "its main function")]
#[path = "../../examples/scales.rs"]
mod scales;

const EXAMPLES: [&str; 3] = ["false_sharing", "lost_wake_up/gate", "scales"];

/// The test on the guide's first page.
const FIRST: &str = "tests/results/queue_scales.rs";

fn crate_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn guide() -> PathBuf {
    crate_root().join("../../docs/simulating.md")
}

/// The lines of a text, without what is before and behind them.
fn trimmed(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).collect()
}

/// The blocks of a kind of the guide.
fn blocks<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let opening = format!("```{kind}\n");
    text.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap_or(rest)).collect()
}

#[test]
fn the_guides_code_is_cut_from_the_examples() {
    let text = fs::read_to_string(guide()).unwrap();
    let examples = EXAMPLES.map(|name| format!("examples/{name}.rs"));
    let sources: Vec<_> = examples
        .iter()
        .map(String::as_str)
        .chain([FIRST])
        .map(|path| fs::read_to_string(crate_root().join(path)).unwrap())
        .collect();
    let blocks = blocks(&text, "rust");
    assert!(blocks.len() > 5, "{} blocks of code", blocks.len());
    for block in blocks {
        let block = trimmed(block);
        let found = sources
            .iter()
            .any(|source| trimmed(source).windows(block.len()).any(|lines| lines == block));
        assert!(found, "no example has this:\n{}", block.join("\n"));
    }
}

/// A reader copies one block and has a test: it is all of a file that is one here.
#[test]
fn the_first_block_is_a_whole_test() {
    let guide = fs::read_to_string(guide()).unwrap();
    let file = fs::read_to_string(crate_root().join(FIRST)).unwrap();
    let (head, test) = file.split_once("\n\n").unwrap();
    assert!(head.lines().all(|line| line.starts_with("//!")), "{head}");
    assert_eq!(blocks(&guide, "rust")[0], test);
    assert!(test.lines().count() < 40 && test.contains("\n#[test]\n"), "{test}");
}

#[test]
fn the_guides_output_is_that_of_the_examples() {
    let stories =
        [false_sharing::story().unwrap(), gate::story().unwrap(), scales::story().unwrap()];
    let old = fs::read_to_string(guide()).unwrap();
    let mut new = String::new();
    let mut rest = old.as_str();
    while let Some((before, behind)) = rest.split_once("<!-- output: ") {
        let (head, behind) = behind.split_once(" -->\n```text\n").unwrap();
        let (_, behind) = behind.split_once("```\n").unwrap();
        let (name, range) = head.split_once(' ').unwrap();
        let (first, last) = range.split_once("..").unwrap();
        let index = EXAMPLES.iter().position(|example| *example == name).unwrap();
        let first = first.parse().unwrap();
        let last = last.parse().unwrap_or(usize::MAX);
        let shown = stories[index].lines().take(last).skip(first);
        let shown: String = shown.map(|line| format!("{line}\n")).collect();
        new += &format!("{before}<!-- output: {head} -->\n```text\n{shown}```\n");
        rest = behind;
    }
    new += rest;
    if std::env::var_os("CORELINE_BLESS").is_some() {
        fs::write(guide(), new).unwrap();
    } else {
        assert!(new == old, "docs/simulating.md shows other output; see the head of this test");
    }
}
