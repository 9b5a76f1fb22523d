//! Every memory ordering is argued for where it is chosen.
//!
//! A machine cannot judge the argument, nor see which access a comment means. It can see that the
//! ordering has a comment of its own: one in its statement or above it, with no other statement and
//! no other ordering's statement in between.

use super::algorithms::holds_algorithms;
use super::{File, Finding};

/// Where orderings are chosen beside algorithms; elsewhere they are passed on.
const FOLDERS: &[&str] = &["crates/world/src/native/", "crates/world/src/arch/"];

/// Programs that test orderings, and take them as their subject.
const LAWS: &[&str] = &["crates/world/src/conformance/", "crates/world/src/arch/injection/"];

const ORDERINGS: &[&str] = &["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

pub(super) fn check(file: &File) -> Vec<Finding> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    let is_in = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
    let in_tests = file.path.ends_with("/tests.rs") || is_in(LAWS);
    if in_tests || !(is_in(FOLDERS) || holds_algorithms(file)) {
        return Vec::new();
    }
    let tokens = rust.tokens();
    let test_lines = rust.test_lines();
    let comments: Vec<_> = rust.comments.lines().map(|line| !line.trim().is_empty()).collect();
    let mut found = Vec::new();
    for (at, &(line, token)) in tokens.iter().enumerate() {
        let text = |at: usize| tokens.get(at).map(|token| token.1);
        if token != "Ordering" || text(at + 1) != Some("::") || test_lines[line - 1] {
            continue;
        }
        let imported = text(at + 2) == Some("{") || text(at + 2) == Some("*");
        let first = first_line(&tokens, at);
        if is_chosen(&tokens, at) && !comments[first - 1..line].contains(&true) {
            let message =
                "no comment of its own says which access this ordering pairs with, and why";
            found.push(Finding::new(&file.path, line, message));
        } else if imported {
            let message = "write `Ordering::` at each use, so that orderings can be found";
            found.push(Finding::new(&file.path, line, message));
        }
    }
    found
}

/// Whether the token at `at` begins an ordering that is chosen there.
fn is_chosen(tokens: &[(usize, &str)], at: usize) -> bool {
    let name = tokens.get(at + 2).map(|token| token.1);
    tokens[at].1 == "Ordering" && name.is_some_and(|name| ORDERINGS.contains(&name))
}

/// The first line on which a comment belongs to the ordering at `at`: below what ends before it,
/// which is another statement, or the part of this one that has an ordering and begins a block.
fn first_line(tokens: &[(usize, &str)], at: usize) -> usize {
    let mut in_block = false;
    for before in (0..at).rev() {
        match tokens[before].1 {
            // What goes on behind a brace is not over.
            "}" if [".", ")", "?"].contains(&tokens[before + 1].1) => {}
            ";" | "}" => return (tokens[before].0 + 1).min(tokens[at].0),
            "fn" => return tokens[before].0,
            "{" => in_block = true,
            _ if in_block && is_chosen(tokens, before) => {
                return (tokens[before].0 + 1).min(tokens[at].0);
            }
            _ => {}
        }
    }
    1
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
        let algorithm = format!("use coreline_world::World;\nstruct A<W: World>(W);\n{planted}");
        assert_eq!(lines_found(check, "crates/lab/src/main.rs", &algorithm), [4]);
    }

    #[test]
    fn a_comment_of_its_own_serves() {
        for own in [
            "// why\n w.cas(\n 0,\n 1,\n Ordering::Acquire,\n Ordering::Relaxed)",
            "w.load(Ordering::Acquire) // why",
            "w.cas(\n 0,\n // why\n Ordering::Acquire,\n Ordering::Relaxed)",
            "let a = 1;\n // why\n let b = w.load(Ordering::Acquire);",
            "// why\n if w.load(Ordering::Acquire) == 0 {\n",
            "// why\n w.store(Mode { a, b }.bits(), Ordering::Release);",
            "// why\n\n\n\n\n\n\n\n let b = || {\n w.load(Ordering::Acquire)",
        ] {
            let planted = format!("fn f() {{\n {own}\n}}");
            assert_eq!(lines_found(check, PATH, &planted), [0; 0], "{own}");
        }
    }

    #[test]
    fn the_comment_of_another_statement_does_not_serve() {
        for (others, line) in [
            ("// why\n a.load(Ordering::Acquire);\n b.load(Ordering::Acquire);", 4),
            ("// why\n let a = 1;\n b.load(Ordering::Acquire);", 4),
            ("let a = 1; // why\n b.load(Ordering::Acquire);", 3),
            ("// why\n if a.load(Ordering::Acquire) {\n b.load(Ordering::Acquire)\n}", 4),
            ("if a {\n // why\n b();\n }\n c.load(Ordering::Acquire);", 6),
        ] {
            let planted = format!("fn f() {{\n {others}\n}}");
            assert_eq!(lines_found(check, PATH, &planted), [line], "{others}");
        }
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
