//! Neighbouring modules depend on each other in one direction only.
//!
//! Neighbours are the modules of one folder; each stands for all that lies below it. An edge goes
//! from a module to a neighbour whose items it names by `crate::`, `super::` or `self::`. A module
//! and the folder that it lies in are one thing to a reader, so edges between those do not count,
//! nor do those of tests.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::paths;
use super::{File, Finding};

/// Neighbours that are one thing in several files: the folder, the files, and why. Edges among them
/// do not count.
const ONE: &[(&str, &[&str], &str)] = &[
    (
        "crates/coreline/src/percpu",
        &["slots", "field", "indexing", "stopped"],
        "an array of slots, and how it is looked at: a field of each, the index, all stopped",
    ),
    (
        "crates/coreline/src/percpu",
        &["pool", "state", "chunk", "rooms", "checked"],
        "a pool's state is made of chunks, in lists by their room, whose items hold the pool",
    ),
    (
        "crates/world/src",
        &["restartable", "arch"],
        "the definition of each operation and its sections: the compiler holds them together",
    ),
    (
        "crates/world/src/native/linux",
        &["rseq", "place", "self_test"],
        "the area says on which CPU a thread is, and is proven by moving threads between CPUs",
    ),
];

/// A module: its path below the crate's root.
type Module<'a> = Vec<&'a str>;

/// Where a module names a neighbour's items: the file and the line.
type Place<'a> = (&'a str, usize);

/// The neighbours that each module of one folder names, and where first.
type Edges<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Place<'a>>>;

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<(Module<'_>, &File)>> = BTreeMap::new();
    for file in files {
        if let Some((root, module)) = module(&file.path) {
            crates.entry(root).or_default().push((module, file));
        }
    }
    crates.into_values().flat_map(|modules| of_crate(&modules)).collect()
}

/// The folder of sources that a file lies in, and which module it is there.
fn module(path: &str) -> Option<(&str, Module<'_>)> {
    let (root, below) = path.split_once("/src/")?;
    let mut module: Vec<_> = below.strip_suffix(".rs")?.split('/').collect();
    if matches!(module.last(), Some(&("mod" | "lib" | "main"))) {
        module.pop();
    }
    Some((root, module))
}

fn of_crate(modules: &[(Module<'_>, &File)]) -> Vec<Finding> {
    let tests: Vec<_> = modules.iter().flat_map(|(module, file)| for_tests(module, file)).collect();
    let is_test = |module: &[&str]| tests.iter().any(|test| module.starts_with(test));
    let modules: Vec<_> = modules.iter().filter(|(module, _)| !is_test(module)).collect();
    let known: BTreeSet<&[&str]> = modules.iter().map(|(module, _)| module.as_slice()).collect();
    let mut folders: BTreeMap<&[&str], Edges<'_>> = BTreeMap::new();
    for (module, file) in &modules {
        for (line, target) in named(module, file) {
            let Some(target) = (0..=target.len()).rev().find_map(|n| known.get(&target[..n]))
            else {
                continue;
            };
            let shared = module.iter().zip(*target).take_while(|(a, b)| a == b).count();
            let whole = |part| whole(&file.path, &module[..shared], part);
            if let (Some(from), Some(to)) = (module.get(shared), target.get(shared))
                && whole(from) != whole(to)
            {
                let (from, to) = (whole(from), whole(to));
                let edges = folders.entry(&module[..shared]).or_default();
                let place = (file.path.as_str(), line);
                edges.entry(from).or_default().entry(to).or_insert(place);
            }
        }
    }
    folders.values().flat_map(cycles).collect()
}

/// The first part of the one thing that a module of a folder is a part of; else the module.
fn whole<'a>(file: &str, folder: &[&str], part: &'a str) -> &'a str {
    let (root, _) = file.split_once("/src/").unwrap_or_default();
    let folder = [&[root, "src"], folder].concat().join("/");
    let of = ONE.iter().find(|(whose, parts, _)| *whose == folder && parts.contains(&part));
    of.map_or(part, |(_, parts, _)| parts[0])
}

/// The modules that a module declares for tests alone.
fn for_tests<'a>(module: &[&'a str], file: &'a File) -> Vec<Module<'a>> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    let (tokens, tests) = (rust.tokens(), rust.test_lines());
    let declared = tokens.windows(3).filter(|three| three[0].1 == "mod" && three[2].1 == ";");
    let declared = declared.filter(|three| tests[three[0].0 - 1]);
    declared.map(|three| [module, &[three[1].1]].concat()).collect()
}

/// What a module names in its crate, as paths below the root, each with its line.
fn named<'a>(module: &[&'a str], file: &'a File) -> Vec<(usize, Module<'a>)> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    let tests = rust.test_lines();
    let mut found = Vec::new();
    for (line, path) in paths(&rust.tokens(), &["crate", "super", "self"]) {
        if tests[line - 1] {
            continue;
        }
        // The reader of paths leaves `self` out, so a path that began with it has no root left.
        let ups = path.iter().take_while(|&&part| part == "super").count();
        let base = match path.first() {
            Some(&"crate") => 0,
            _ => module.len().saturating_sub(ups),
        };
        let rest = path.iter().skip_while(|&&part| matches!(part, "crate" | "super"));
        found.push((line, module[..base].iter().chain(rest).copied().collect()));
    }
    found
}

/// An edge that closes a cycle is one whose target reaches back to where it comes from.
fn cycles(edges: &Edges<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (from, targets) in edges {
        for (to, (file, line)) in targets {
            let Some(back) = way(edges, to, from) else {
                continue;
            };
            let message = format!("`{from}` names `{to}`, which leads back: {}", back.join(" -> "));
            found.push(Finding::new(file, *line, message));
        }
    }
    found
}

/// The shortest way from one module to another along the edges.
fn way<'a>(edges: &Edges<'a>, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![from]];
    let mut seen = BTreeSet::from([from]);
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let end = *way.last()?;
            if end == to {
                return Some(way);
            }
            for &next in edges.get(end).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(next) {
                    longer.push([way.as_slice(), &[next]].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    /// `file:line` of each finding in a crate of these files.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File::new(&format!("crates/x/src/{path}"), text);
        let found = check(&files.iter().map(file).collect::<Vec<_>>());
        let place = |finding: Finding| {
            format!("{}:{}", finding.file.trim_start_matches("crates/x/src/"), finding.line)
        };
        found.into_iter().map(place).collect()
    }

    #[test]
    fn two_modules_that_name_each_other_are_found() {
        let planted = [
            ("a.rs", "//! a\nuse crate::b::B;"),
            ("b.rs", "fn f() { super::a::g() }"),
            ("lib.rs", "mod a; mod b;"),
        ];
        assert_eq!(found(&planted), ["a.rs:2", "b.rs:1"]);
        let deeper = [("f/a.rs", "use super::super::g::G;"), ("g.rs", "use crate::f::a::A;")];
        assert_eq!(found(&deeper), ["f/a.rs:1", "g.rs:1"]);
    }

    #[test]
    fn a_cycle_of_three_is_found_and_a_tail_is_not() {
        let planted = [
            ("a.rs", "use crate::{b, c::C};"),
            ("b.rs", "use crate::c;"),
            ("c.rs", "use crate::a::{self, A};"),
            ("d.rs", "use crate::a;"),
        ];
        assert_eq!(found(&planted), ["a.rs:1", "a.rs:1", "b.rs:1", "c.rs:1"]);
    }

    #[test]
    fn what_lies_below_a_module_counts_as_the_module() {
        let planted = [
            ("a/mod.rs", "mod deep;"),
            ("a/deep.rs", "use crate::b::B;"),
            ("b/mod.rs", "use self::low::L;"),
            ("b/low.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&planted), ["a/deep.rs:1", "b/low.rs:1"]);
    }

    #[test]
    fn a_folder_and_its_modules_may_name_each_other() {
        let fine = [
            ("a/mod.rs", "mod deep;\nuse self::deep::D;"),
            ("a/deep.rs", "use super::A;\nuse super::other::O;"),
            ("a/other.rs", "use crate::a::A;"),
            ("lib.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&fine), [""; 0]);
    }

    #[test]
    fn parts_of_one_thing_may_name_each_other_and_no_others() {
        let file =
            |name: &str, text| File::new(&format!("crates/coreline/src/percpu/{name}.rs"), text);
        let parts = [file("slots", "use super::field::F;"), file("field", "use super::slots::S;")];
        assert_eq!(check(&parts), []);
        // Also where the way back begins at another part.
        let other = [
            file("slots", "use super::chunk::C;"),
            file("chunk", "use super::field::F;"),
            file("field", ""),
        ];
        assert_eq!(check(&other).len(), 2);
        assert!(ONE.iter().all(|(folder, parts, why)| {
            let known = |part: &&str| {
                let path = workspace::root().join(folder).join(part);
                path.with_extension("rs").exists() || path.join("mod.rs").exists()
            };
            parts.iter().all(known) && !why.is_empty()
        }));
    }

    #[test]
    fn tests_and_other_crates_are_free() {
        let fine = [
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "#[cfg(test)]\nmod tests {\n use crate::a::A;\n}"),
            ("c/mod.rs", "#[cfg(test)]\nmod laws;\nuse crate::b::B;"),
            ("c/laws/mod.rs", "use super::deep::D;"),
            ("c/laws/deep.rs", "use crate::c::laws::other::O;"),
            ("b/tests.rs", ""),
            ("c/laws/other.rs", "use super::deep::D;"),
        ];
        assert_eq!(found(&fine), [""; 0]);
        let other = [
            File::new("crates/x/src/a.rs", "use crate::b::B;"),
            File::new("crates/x/src/b.rs", ""),
            File::new("crates/y/src/b.rs", "use crate::a::A;"),
            File::new("crates/y/src/a.rs", ""),
        ];
        assert_eq!(check(&other), []);
    }
}
