//! Every memory ordering is argued for where it is chosen.
//!
//! A machine cannot judge the argument, nor see which access a comment means. It can see that there
//! is a comment close by.

use super::{File, Finding};

/// Where orderings are chosen; elsewhere they are passed on.
const FOLDERS: &[&str] = &["crates/coreline/src/", "crates/world/src/native/"];

const ORDERINGS: &[&str] = &["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// How many lines above the ordering its comment may end.
const REACH: usize = 6;

pub(super) fn check(file: &File) -> Vec<Finding> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    let in_tests = file.path.ends_with("/tests.rs");
    if in_tests || !FOLDERS.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let tokens = rust.tokens();
    let test_lines = rust.test_lines();
    let comments: Vec<_> = rust.comments.lines().map(|line| !line.trim().is_empty()).collect();
    // A comment above this line belongs to another function, or documents this one.
    let mut fn_line = 0;
    let mut found = Vec::new();
    for (at, &(line, token)) in tokens.iter().enumerate() {
        let text = |at: usize| tokens.get(at).map(|token| token.1);
        if token == "fn" {
            fn_line = line;
        }
        if token != "Ordering" || text(at + 1) != Some("::") || test_lines[line - 1] {
            continue;
        }
        let chosen = text(at + 2).is_some_and(|name| ORDERINGS.contains(&name));
        let imported = text(at + 2) == Some("{") || text(at + 2) == Some("*");
        let first = line.saturating_sub(REACH).max(fn_line).max(1);
        if chosen && !comments[first - 1..line].contains(&true) {
            let message = "no comment says which access this ordering pairs with, and why";
            found.push(Finding::new(&file.path, line, message));
        } else if imported {
            let message = "write `Ordering::` at each use, so that orderings can be found";
            found.push(Finding::new(&file.path, line, message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    const PATH: &str = "crates/coreline/src/lock/osq.rs";

    #[test]
    fn an_ordering_without_a_comment_is_found() {
        let planted = "fn f() {\n w.load(Ordering::Acquire);\n}";
        assert_eq!(lines_found(check, PATH, planted), [2]);
        assert_eq!(lines_found(check, "crates/world/src/native/words.rs", planted), [2]);
        assert_eq!(lines_found(check, "crates/lab/src/main.rs", planted), [0; 0]);
    }

    #[test]
    fn a_comment_near_enough_serves() {
        let near = "fn f() {\n // why\n w.cas(\n 0,\n 1,\n Ordering::Acquire,\n Ordering::Relaxed)";
        assert_eq!(lines_found(check, PATH, near), [0; 0]);
        let same = "fn f() {\n w.load(Ordering::Acquire) // why";
        assert_eq!(lines_found(check, PATH, same), [0; 0]);
        let far = "fn f() {\n // why\n\n\n\n\n\n\n w.load(Ordering::Acquire)";
        assert_eq!(lines_found(check, PATH, far), [9]);
    }

    #[test]
    fn the_comment_of_another_function_does_not_serve() {
        let other = "fn f() { // why\n}\nfn g() {\n w.load(Ordering::SeqCst)\n}";
        assert_eq!(lines_found(check, PATH, other), [4]);
        let above = "// why\nfn g() {\n w.load(Ordering::SeqCst)\n}";
        assert_eq!(lines_found(check, PATH, above), [3]);
    }

    #[test]
    fn importing_the_orderings_is_found() {
        let planted = "// why\nuse coreline_world::Ordering::{Acquire, Release};";
        assert_eq!(lines_found(check, PATH, planted), [2]);
    }

    #[test]
    fn tests_and_comparisons_are_free() {
        let tests = "#[cfg(test)]\nmod tests {\n fn f() { w.load(Ordering::Relaxed) }\n}";
        assert_eq!(lines_found(check, PATH, tests), [0; 0]);
        assert_eq!(lines_found(check, PATH, "fn f() { Ordering::Less }"), [0; 0]);
    }
}
