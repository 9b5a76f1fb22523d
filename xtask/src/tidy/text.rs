//! Rules on the text of files.
//!
//! The needles are built from pieces, so that this file does not hold what it forbids.

use super::{File, Finding};
use crate::tables::faults;

const LINES_MAX: usize = 600;
const COLUMNS_MAX: usize = 100;

/// Files whose length is their author's choice, by the end of the name.
const AUTHORED: &[&str] = &[".rs", ".md", ".toml", ".c", ".h", ".sh"];

/// Files with such names that a program writes.
const GENERATED: &[&str] = &["crates/capi/include/coreline.h"];

/// Where people and build machines keep their files.
const MACHINE_PATHS: &[&str] = &[
    concat!("/", "work/"),
    concat!("/", "home/"),
    concat!("/", "root/"),
    concat!("/", "tmp/"),
    concat!("/", "Users/"),
];

/// What only this project's makers know: names of their notes. A source has an author, a title, a
/// year and a link.
const NOTES: &[&str] = &[concat!("seed ", "00"), concat!("seeds ", "00"), concat!("research", "/")];

/// Before a number, the name of a work item.
const ITEM: &str = concat!("issue", " ");

/// Words that say that work was left for later.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Documentation examples that are not compiled; `text` is for what is not Rust.
const UNCOMPILED: &str = concat!("```", "ignore");

/// Code that says so, as tokens.
const UNFINISHED: &[&[&str]] =
    &[&["todo", "!"], &["unimplemented", "!"], &["#", "[", "ignore"], &["#", "!", "[", "ignore"]];

pub(super) fn length(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().count();
    let is_authored =
        AUTHORED.iter().any(|end| file.path.ends_with(end)) && !GENERATED.contains(&&*file.path);
    if lines <= LINES_MAX || !is_authored {
        return Vec::new();
    }
    let message = format!("{lines} lines; split the file along its parts");
    vec![Finding::new(&file.path, LINES_MAX + 1, message)]
}

pub(super) fn width(file: &File) -> Vec<Finding> {
    if file.rust.is_none() {
        return Vec::new();
    }
    let columns = file.text.lines().map(|line| line.chars().count()).enumerate();
    columns
        .filter(|(_, columns)| *columns > COLUMNS_MAX)
        .map(|(at, columns)| Finding::new(&file.path, at + 1, format!("{columns} columns")))
        .collect()
}

pub(super) fn paths(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for needle in MACHINE_PATHS {
            // After a letter or the like it is the middle of a relative path or of an address.
            let absolute = line.match_indices(needle).any(|(start, _)| {
                let before = line[..start].chars().next_back();
                before.is_none_or(|c| !c.is_alphanumeric() && !"._-}$".contains(c))
            });
            if absolute {
                let message = format!("`{needle}` is a path of one machine");
                found.push(Finding::new(&file.path, at + 1, message));
            }
        }
    }
    found
}

pub(super) fn sources(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let line = line.to_lowercase();
        let has_item = line.match_indices(ITEM).any(|(start, _)| {
            let behind = line[start + ITEM.len()..].trim_start_matches('#');
            behind.starts_with(|c: char| c.is_ascii_digit())
        });
        // Behind a slash it is a part of an address.
        let is_named =
            |note: &&str| line.match_indices(*note).any(|(start, _)| !line[..start].ends_with('/'));
        let named = NOTES.iter().copied().find(is_named);
        if let Some(note) = named.or(has_item.then_some(ITEM)) {
            let message = format!("`{note}` is not a source that a reader can find");
            found.push(Finding::new(&file.path, at + 1, message));
        }
    }
    found
}

pub(super) fn tables(file: &File) -> Vec<Finding> {
    let fault = file.path.ends_with(".md").then(|| faults(&file.text)).flatten();
    fault.map(|(line, what)| Finding::new(&file.path, line, what)).into_iter().collect()
}

pub(super) fn finished(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_alphanumeric());
        if let Some(mark) = words.find(|word| MARKS.contains(word)) {
            let message = format!("{mark}: finish it, or say in prose what is not there");
            found.push(Finding::new(&file.path, at + 1, message));
        }
        if file.rust.is_some() && line.contains(UNCOMPILED) {
            let message = format!("{UNCOMPILED}: make the example run, or mark it as text");
            found.push(Finding::new(&file.path, at + 1, message));
        }
    }
    let tokens = file.rust.as_ref().map(|rust| rust.tokens()).unwrap_or_default();
    let words: Vec<_> = tokens.iter().map(|token| token.1).collect();
    for (at, &(line, _)) in tokens.iter().enumerate() {
        if let Some(code) = UNFINISHED.iter().find(|code| words[at..].starts_with(code)) {
            let message = format!("`{}` does not belong in the tree", code.concat());
            found.push(Finding::new(&file.path, line, message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[test]
    fn a_long_file_is_found() {
        assert_eq!(lines_found(length, "a.rs", &"\n".repeat(600)), [0; 0]);
        assert_eq!(lines_found(length, "a.rs", &"\n".repeat(601)), [601]);
        assert_eq!(lines_found(length, "Cargo.lock", &"\n".repeat(601)), [0; 0]);
        assert_eq!(lines_found(length, GENERATED[0], &"\n".repeat(601)), [0; 0]);
    }

    #[test]
    fn a_source_that_no_reader_finds_is_found() {
        let of = |text: &str| lines_found(sources, "a.md", text);
        assert_eq!(of(concat!("as Seed ", "003 says\nin Re", "search/sim.md\n")), [1, 2]);
        assert_eq!(of(concat!("see issue", " 17\nsee issue", " #17\n")), [1, 2]);
        assert_eq!(of(concat!("https://example.com/res", "earch/paper\n")), [0; 0]);
        let random = "the seed 7, seeds 1 to 16, an issue of 2013, a seed for each, issues 1\n";
        assert_eq!(of(random), [0; 0]);
        assert_eq!(of("[Guo 2024](https://lore.kernel.org/r/x), researched\n"), [0; 0]);
    }

    #[test]
    fn a_table_that_no_command_can_fill_is_found() {
        let text = concat!("\n<!--", " table: coreline run x | rows variant -->\n");
        assert_eq!(lines_found(tables, "a.md", text), [2]);
        assert_eq!(lines_found(tables, "a.rs", text), [0; 0]);
    }

    #[test]
    fn a_wide_line_is_found() {
        let text = format!("{}\n{}\n", "é".repeat(100), "a".repeat(101));
        assert_eq!(lines_found(width, "a.rs", &text), [2]);
        assert_eq!(lines_found(width, "a.md", &text), [0; 0]);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        for needle in MACHINE_PATHS {
            let text = format!("\nsee {needle}x\nfile:/{needle}x\n");
            assert_eq!(lines_found(paths, "a.md", &text), [2, 3], "{needle}");
            let relative = format!("target{needle}x https://example.org{needle}x ${{x}}{needle}");
            assert_eq!(lines_found(paths, "a.md", &relative), [0; 0], "{needle}");
        }
        assert_eq!(lines_found(paths, "a.rs", "\"/sys/devices/\" + \"/proc/self\""), [0; 0]);
    }

    #[test]
    fn marks_of_unfinished_work_are_found() {
        for mark in MARKS {
            assert_eq!(lines_found(finished, "a.md", &format!("\n// {mark}: later")), [2]);
            assert_eq!(lines_found(finished, "a.md", &format!("{mark}X{mark}")), [0; 0]);
        }
    }

    #[test]
    fn an_example_that_is_not_compiled_is_found() {
        assert_eq!(lines_found(finished, "a.rs", &format!("//! {UNCOMPILED}\n//! ```")), [1]);
        assert_eq!(lines_found(finished, "a.rs", "//! ```\n//! ```text\n//! ```no_run"), [0; 0]);
    }

    #[test]
    fn unfinished_code_is_found() {
        for planted in [
            concat!("fn f() { to", "do!() }"),
            concat!("fn f() { unimple", "mented!(\"later\") }"),
            concat!("#[ig", "nore]\nfn f() {}"),
            concat!("#[ig", "nore = \"slow\"]\nfn f() {}"),
        ] {
            assert_eq!(lines_found(finished, "a.rs", planted), [1], "{planted}");
            let quoted = format!("r##\"{planted}\"##; // {planted}").replace('\n', " ");
            assert_eq!(lines_found(finished, "a.rs", &quoted), [0; 0], "{planted}");
        }
        assert_eq!(lines_found(finished, "a.rs", "let todo = ignore;"), [0; 0]);
    }
}
